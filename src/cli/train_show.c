/* train_show.c - shows training sequences as text. */
#include "cli/train_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

/* The tokens of a conversation in order: those at its places, then the target of the last one. */
typedef struct shown {
    const dsmoe_run_sequence *sequence;
    int64_t first, n;
    bool in_colour;
} shown;

static int32_t token_at(const shown *s, int64_t i)
{
    const dsmoe_batch *b = s->sequence->batch;
    return i < s->n ? b->tokens[s->first + i] : b->targets[s->first + s->n - 1];
}

static bool is_learnt(const shown *s, int64_t i)
{
    return i > 0 && s->sequence->batch->targets[s->first + i - 1] >= 0;
}

static void print_tokens(const shown *s, int64_t from, int64_t to)
{
    int32_t *ids = malloc((size_t)(to - from) * sizeof *ids);
    char *text = NULL;
    size_t length = 0;
    for (int64_t i = from; ids && i < to; i++) ids[i - from] = token_at(s, i);
    if (ids && s->sequence->tokenizer &&
        dsmoe_tokenizer_decode(s->sequence->tokenizer, ids, (size_t)(to - from), &text, &length,
                               NULL) == DSMOE_OK)
        cli_print_text(text, length);
    else
        for (int64_t i = from; i < to; i++)
            printf("%s%" PRId32, i > from ? " " : "", token_at(s, i));
    free(text);
    free(ids);
}

static void print_conversation(const shown *s)
{
    int64_t n = s->n + is_learnt(s, s->n);
    for (int64_t from = 0, to; from < n; from = to) {
        bool learnt = is_learnt(s, from);
        for (to = from + 1; to < n && is_learnt(s, to) == learnt;) to++;
        if (learnt) fputs(s->in_colour ? "\033[32m" : "[[", stdout);
        print_tokens(s, from, to);
        if (learnt) fputs(s->in_colour ? "\033[0m" : "]]", stdout);
    }
    putchar('\n');
}

/* The end of the conversation that begins at a place; the place itself if that is padding. */
static int64_t conversation_end(const dsmoe_run_sequence *q, int64_t first)
{
    int64_t end = first;
    while (end < q->length && q->batch->positions[end] == end - first) end++;
    return end;
}

static void print_head(const dsmoe_run_sequence *q)
{
    int64_t n_tokens = 0, n_targets = 0, n = 0;
    for (int64_t i = 0; i < q->length; i++) {
        n_tokens += q->batch->positions[i] >= 0;
        n_targets += q->batch->targets[i] >= 0;
        n += q->batch->positions[i] == 0;
    }
    printf("sequence %" PRId64 " of %" PRId64 ": %" PRId64 " of %" PRId64 " places used by %" PRId64
           " %s, %" PRId64 " tokens to be learned\n",
           q->number, q->total, n_tokens, q->length, n, n == 1 ? "text" : "texts", n_targets);
}

void train_show_sequence(const dsmoe_run_sequence *q)
{
    shown s = {.sequence = q, .in_colour = cli_wants_colour(stdout)};
    print_head(q);
    for (int64_t number = 1; s.first < q->length; s.first += s.n) {
        s.n = conversation_end(q, s.first) - s.first;
        if (s.n == 0) break;
        printf("---- %" PRId64 " ----\n", number++);
        print_conversation(&s);
    }
    fflush(stdout);
}
