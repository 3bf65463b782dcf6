/* document_part.c - visits the documents of one part of a split: the training text or the held-out text. */
#include <string.h>

#include "formats/document_split.h"
#include "base/utf8.h"
#include "formats/token_shard.h"

/* ---- the cut in a document ----------------------------------------------------------------- */

/* The offset after the first such byte in [from, to); `to` if there is none. */
static size_t find_behind(const char *text, char byte, size_t from, size_t to)
{
    const char *found = from < to ? memchr(text + from, byte, to - from) : NULL;
    return found ? (size_t)(found - text) + 1 : to;
}

size_t document_cut(const char *text, size_t length, uint64_t held)
{
    if (held >= length) return 0;
    size_t from = length - (size_t)held, to = from + (size_t)held / 2;
    static const char borders[] = {'\n', ' '};
    for (size_t i = 0; i < sizeof borders; i++) {
        size_t at = find_behind(text, borders[i], from - 1, to);
        if (at < to) return at;
    }
    for (size_t at = from; at < length && at < from + 4; at++)
        if (!utf8_is_inside(text[at])) return at;
    return from;
}

/* document_cut() for a shard, in tokens. */
static size_t cut_tokens(const document *d, uint64_t held, int32_t eos)
{
    uint64_t n_held = held / (uint64_t)d->token_size;
    if (n_held >= d->n_tokens) return 0;
    size_t from = d->n_tokens - (size_t)n_held, to = from + (size_t)n_held / 2;
    token_shard shard = {d->tokens, d->n_tokens, d->token_size};
    for (size_t at = from; eos >= 0 && at < to; at++)
        if (token_shard_token(&shard, at - 1) == (uint32_t)eos) return at;
    return from;
}

/* ---- the documents ------------------------------------------------------------------------- */

typedef struct part_visit {
    const document_split *split;
    document_part part;
    int32_t eos;
    uint64_t number; /* of the next document */
    size_t held;     /* index of the first entry of split->held not before that document */
    document_visit_fn *visit;
    void *context;
} part_visit;

/* The index of the first entry of split->held that is not before a document. */
static size_t find_held(const document_split *split, uint64_t number)
{
    size_t low = 0, high = split->n_held;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (split->held[middle].document < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The part of a document before `cut` (for training) or after it (held out). */
static document take_part(const document *d, document_part part, size_t cut)
{
    document taken = *d;
    size_t *count = d->tokens ? &taken.n_tokens : &taken.length;
    if (part == DOCUMENT_TRAIN) {
        *count = cut;
        return taken;
    }
    *count -= cut;
    taken.is_rest = cut > 0;
    if (d->text)
        taken.text += cut;
    else
        taken.tokens += cut * (size_t)d->token_size;
    return taken;
}

static dsmoe_status visit_part(void *context, const document *d, dsmoe_error *error)
{
    part_visit *v = context;
    const document_split *split = v->split;
    uint64_t number = v->number++;
    size_t count = d->tokens ? d->n_tokens : d->length, cut = count;
    bool is_held = false;
    if (v->held < split->n_held && split->held[v->held].document == number) {
        uint64_t held = split->held[v->held++].length;
        is_held = true;
        cut = d->text     ? document_cut(d->text, count, held)
              : d->tokens ? cut_tokens(d, held, v->eos)
                          : 0;
    }
    if (d->conversation)
        return is_held == (v->part == DOCUMENT_HELD_OUT) ? v->visit(v->context, d, error)
                                                         : DSMOE_OK;
    document taken = take_part(d, v->part, cut);
    bool is_empty = v->part == DOCUMENT_TRAIN ? cut == 0 : cut == count;
    return is_empty ? DSMOE_OK : v->visit(v->context, &taken, error);
}

dsmoe_status document_split_each(const document_split *split, const document_list *list,
                                 size_t source, document_part part, int32_t eos,
                                 document_visit_fn *visit, void *context, dsmoe_error *error)
{
    const document_source *s = &list->sources[source];
    if (list->has_eval)
        return s->is_eval == (part == DOCUMENT_HELD_OUT) ? document_each(s, visit, context, error)
                                                         : DSMOE_OK;
    if (split->n_held == 0)
        return part == DOCUMENT_TRAIN ? document_each(s, visit, context, error) : DSMOE_OK;
    uint64_t first = split->first[source], end = split->first[source + 1];
    size_t held = find_held(split, first);
    if (part == DOCUMENT_HELD_OUT && (held == split->n_held || split->held[held].document >= end))
        return DSMOE_OK;
    part_visit v = {.split = split,
                    .part = part,
                    .eos = eos,
                    .number = first,
                    .held = held,
                    .visit = visit,
                    .context = context};
    STATUS_TRY(document_each(s, visit_part, &v, error));
    if (s->form != DOCUMENT_JSONL || v.number == end) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_IO,
        "%s: the file changed while it was read; try again when no other program writes to it",
        s->path);
}
