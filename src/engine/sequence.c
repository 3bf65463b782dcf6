/* sequence.c - sequences and their pages: how they grow, are shortened, and share pages. */
#include <string.h>

#include "engine/engine.h"

/* ---- pages ------------------------------------------------------------------------------------- */

/* Prepares the last page for writing, if it is not full. If other sequences share it, this one gets a
 * copy. */
static bool own_last_page(dsmoe_sequence *s)
{
    page_pool *pool = &s->engine->pool;
    if (s->length % KV_PAGE == 0) return true;
    int32_t *page = &s->table[s->length / KV_PAGE];
    if (pool->states[*page].n_users > 1) {
        int32_t fresh = page_pool_take(pool);
        if (fresh < 0) return false;
        kv_pages_copy(&pool->pages, *page, fresh);
        page_pool_give_back(pool, *page);
        *page = fresh;
    }
    page_pool_forget(pool, *page);
    return true;
}

bool sequence_reserve(dsmoe_sequence *s, int64_t n_tokens)
{
    page_pool *pool = &s->engine->pool;
    if (!own_last_page(s)) return false;
    int64_t wanted = engine_pages(s->length + n_tokens);
    while (s->n_pages < wanted) {
        int32_t page = page_pool_take(pool);
        if (page < 0) {
            sequence_cut(s, s->length);
            return false;
        }
        s->table[s->n_pages++] = page;
    }
    return true;
}

void sequence_extend(dsmoe_sequence *s, const int32_t *tokens, int64_t n_tokens)
{
    memcpy(s->tokens + s->length, tokens, (size_t)n_tokens * sizeof *tokens);
    int64_t first = s->length / KV_PAGE; /* the first page that may have become full */
    s->length += n_tokens;
    for (int64_t i = first; i < s->length / KV_PAGE; i++)
        s->ids[i] =
            page_pool_know(&s->engine->pool, s->table[i], i > 0 ? s->ids[i - 1] : s->adapted.root,
                           s->tokens + i * KV_PAGE);
}

/* The last page is given back first. It is then the oldest, so the beginning of a text is kept longer than
 * its end. */
void sequence_cut(dsmoe_sequence *s, int64_t length)
{
    s->length = length;
    while (s->n_pages > engine_pages(length))
        page_pool_give_back(&s->engine->pool, s->table[--s->n_pages]);
}

/* Appends an existing page to the table; all pages before it are full. */
static void share_page(dsmoe_sequence *s, int32_t page, page_id id)
{
    page_pool_share(&s->engine->pool, page);
    s->table[s->n_pages] = page;
    s->ids[s->n_pages++] = id;
}

/* ---- creating ---------------------------------------------------------------------------------- */

static dsmoe_status free_place(dsmoe_engine *engine, dsmoe_sequence **place, dsmoe_error *error)
{
    for (int64_t i = 0; i < engine->options.n_sequences; i++) {
        dsmoe_sequence *s = &engine->sequences[i];
        if (s->engine) continue;
        *s = (dsmoe_sequence){
            .engine = engine, .table = s->table, .ids = s->ids, .tokens = s->tokens};
        s->adapted = adapted_begin(&engine->adapted, NULL, &engine->pool);
        *place = s;
        return DSMOE_OK;
    }
    return status_fail(error, DSMOE_ERROR_MEMORY, "all %lld sequences of the engine are in use",
                       (long long)engine->options.n_sequences);
}

dsmoe_status dsmoe_sequence_create(dsmoe_engine *engine, dsmoe_sequence **sequence,
                                   dsmoe_error *error)
{
    if (!engine || !sequence)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no engine or no place for the sequence given");
    *sequence = NULL;
    return free_place(engine, sequence, error);
}

dsmoe_status dsmoe_sequence_begin(dsmoe_engine *engine, const int32_t *tokens, int64_t n_tokens,
                                  dsmoe_sequence **sequence, dsmoe_error *error)
{
    return dsmoe_sequence_begin_adapted(engine, tokens, n_tokens, NULL, sequence, error);
}

/* At least one token is not taken from pages, because the caller needs its logits. */
dsmoe_status dsmoe_sequence_begin_adapted(dsmoe_engine *engine, const int32_t *tokens,
                                          int64_t n_tokens, const double *scales,
                                          dsmoe_sequence **sequence, dsmoe_error *error)
{
    if (n_tokens < 0 || (n_tokens > 0 && !tokens))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no tokens given");
    if (engine && scales) STATUS_TRY(adapted_check_scales(scales, engine->adapted.n, error));
    STATUS_TRY(dsmoe_sequence_create(engine, sequence, error));
    dsmoe_sequence *s = *sequence;
    if (scales) s->adapted = adapted_begin(&engine->adapted, scales, &engine->pool);
    n_tokens = moe_min(n_tokens, engine->options.n_ctx);
    page_id before = s->adapted.root;
    for (; s->length + KV_PAGE < n_tokens; s->length += KV_PAGE) {
        int32_t page = page_pool_find(&engine->pool, before, tokens + s->length);
        if (page < 0) break;
        before = engine->pool.states[page].id;
        share_page(s, page, before);
    }
    if (s->length > 0) memcpy(s->tokens, tokens, (size_t)s->length * sizeof *tokens);
    engine->n_reused += s->length;
    return DSMOE_OK;
}

dsmoe_status dsmoe_sequence_fork(const dsmoe_sequence *sequence, int64_t length,
                                 dsmoe_sequence **other, dsmoe_error *error)
{
    if (!sequence || !other || length < 0 || length > sequence->length)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "cannot fork at length %lld of %lld",
                           (long long)length, (long long)(sequence ? sequence->length : 0));
    STATUS_TRY(dsmoe_sequence_create(sequence->engine, other, error));
    (*other)->adapted = sequence->adapted;
    for (int64_t i = 0; i < engine_pages(length); i++)
        share_page(*other, sequence->table[i], sequence->ids[i]);
    memcpy((*other)->tokens, sequence->tokens, (size_t)length * sizeof *sequence->tokens);
    (*other)->length = length;
    return DSMOE_OK;
}

dsmoe_status dsmoe_sequence_rewind(dsmoe_sequence *sequence, int64_t length, dsmoe_error *error)
{
    if (!sequence || length < 0 || length > sequence->length)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "cannot go back to length %lld from %lld",
                           (long long)length, (long long)(sequence ? sequence->length : 0));
    sequence_cut(sequence, length);
    return DSMOE_OK;
}

void dsmoe_sequence_free(dsmoe_sequence *sequence)
{
    if (!sequence) return;
    sequence_cut(sequence, 0);
    sequence->engine = NULL;
}

/* ---- information ------------------------------------------------------------------------------- */

int64_t dsmoe_sequence_length(const dsmoe_sequence *sequence) { return sequence->length; }

dsmoe_engine *dsmoe_sequence_engine(const dsmoe_sequence *sequence) { return sequence->engine; }

void dsmoe_sequence_watch(dsmoe_sequence *sequence, dsmoe_routing_fn *watch, void *context)
{
    sequence->watch = watch;
    sequence->watch_context = context;
}
