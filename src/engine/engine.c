/* engine.c - an engine's memory: all of it is reserved when it is created. */
#include "engine/engine.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/threads.h"

enum {
    DEFAULT_BATCH = 512,
    BATCH_MAX = 1 << 16,
    CONTEXT_MAX = 1 << 30,
    SEQUENCES_MAX = 1 << 16,
    THREADS_MAX = 1024,
};

/* ---- options ----------------------------------------------------------------------------------- */

static dsmoe_engine_options options_complete(const dsmoe_model *model,
                                             const dsmoe_engine_options *options)
{
    dsmoe_engine_options o = options ? *options : (dsmoe_engine_options){0};
    if (o.n_ctx == 0) o.n_ctx = model->config.max_position_embeddings;
    if (o.n_sequences == 0) o.n_sequences = 1;
    if (o.n_batch == 0) o.n_batch = moe_min(DEFAULT_BATCH, o.n_ctx);
    if (o.n_threads == 0) o.n_threads = (int)moe_min(THREADS_MAX, threads_available());
    return o;
}

static dsmoe_status out_of_range(const char *what, int64_t least, int64_t most, int64_t given,
                                 dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_ARGUMENT,
                       "%s of an engine must be %lld to %lld, not %lld", what, (long long)least,
                       (long long)most, (long long)given);
}

static dsmoe_status options_check(const dsmoe_model *model, const dsmoe_engine_options *o,
                                  dsmoe_error *error)
{
    if (o->n_ctx < 1 || o->n_ctx > CONTEXT_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a context of %lld tokens is impossible",
                           (long long)o->n_ctx);
    if (o->n_sequences < 1 || o->n_sequences > SEQUENCES_MAX)
        return out_of_range("sequences", 1, SEQUENCES_MAX, o->n_sequences, error);
    if (o->n_kv < 0 || o->n_kv > INT32_MAX)
        return out_of_range("tokens in the KV cache", 1, INT32_MAX, o->n_kv, error);
    if (o->n_batch < 1 || o->n_batch > BATCH_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a batch must be 1 to %d tokens, not %lld",
                           BATCH_MAX, (long long)o->n_batch);
    if (o->n_threads < 1 || o->n_threads > THREADS_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "threads must be 1 to %d, not %d",
                           THREADS_MAX, o->n_threads);
    STATUS_TRY(adapted_check(model, o, error));
    return kv_pages_check(&model->config, o->kv_type, error);
}

/* The number of pages for all sequences together; 0 if that is too many. */
static int64_t page_count(const dsmoe_engine_options *o)
{
    int64_t n = o->n_sequences * engine_pages(o->n_ctx);
    if (o->n_kv > 0) n = moe_min(n, engine_pages(o->n_kv));
    return n <= INT32_MAX ? n : 0;
}

/* ---- memory ------------------------------------------------------------------------------------ */

engine_space engine_space_place(arena *a, const dsmoe_model *model, const dsmoe_engine_options *o,
                                const adapted_engine *adapted)
{
    int64_t vocab = model->config.vocab_size, n = o->n_batch;
    engine_space space = {
        .pass = pass_place(a, model, n, o->n_threads),
        .spans = arena_take(a, n, sizeof(span)),
        .turns = arena_take(a, n, sizeof(int64_t)),
        .wanted = arena_take(a, n, sizeof(int32_t)),
        .numbers = arena_take(a, n, sizeof(int64_t)),
        .wanted_by = arena_take(a, n, sizeof(int64_t)),
        .finite = arena_take(a, PASS_HEAD_ROWS, sizeof(bool)),
        .logits = arena_take(a, moe_min(n, PASS_HEAD_ROWS) * vocab, sizeof(float)),
    };
    pass_place_adapters(a, &space.pass, n, adapted->tables, adapted->n);
    return space;
}

/* Sequences and their tables. */
static dsmoe_sequence *sequences_place(arena *a, const dsmoe_engine_options *o)
{
    int64_t n_pages = engine_pages(o->n_ctx);
    dsmoe_sequence *all = arena_take(a, o->n_sequences, sizeof *all);
    for (int64_t i = 0; i < o->n_sequences; i++) {
        dsmoe_sequence one = {.table = arena_take(a, n_pages, sizeof(int32_t)),
                              .ids = arena_take(a, n_pages, sizeof(page_id)),
                              .tokens = arena_take(a, o->n_ctx, sizeof(int32_t))};
        if (all) all[i] = one;
    }
    return all;
}

dsmoe_engine_memory dsmoe_engine_memory_size(const dsmoe_model *model,
                                             const dsmoe_engine_options *options)
{
    dsmoe_engine_memory none = {0, 0};
    if (!model) return none;
    dsmoe_engine_options o = options_complete(model, options);
    if (options_check(model, &o, NULL) != DSMOE_OK || page_count(&o) == 0) return none;
    arena measure = arena_over(NULL);
    adapted_engine adapted = adapted_open(model, &o);
    engine_space_place(&measure, model, &o, &adapted);
    sequences_place(&measure, &o);
    dsmoe_engine_memory size = {kv_pages_size(&model->config, o.kv_type, page_count(&o)),
                                arena_size(&measure)};
    if (!size.kv_cache || !size.workspace ||
        !checked_add_size(size.workspace, latent_keys_size(model), &size.workspace) ||
        !checked_add_size(size.workspace, page_pool_size(page_count(&o)), &size.workspace))
        return none;
    return size;
}

static bool open_memory(dsmoe_engine *e)
{
    arena measure = arena_over(NULL);
    engine_space_place(&measure, e->model, &e->options, &e->adapted);
    size_t for_calls = measure.used;
    sequences_place(&measure, &e->options);
    e->workspace_size = arena_size(&measure);
    e->workspace = memory_reserve(e->workspace_size);
    if (!e->workspace) return false;
    arena a = arena_over(e->workspace);
    arena_take(&a, 1, for_calls);
    e->sequences = sequences_place(&a, &e->options);
    if (!latent_keys_open(&e->latent_keys, e->model, e->options.n_threads)) return false;
    return page_pool_open(&e->pool, &e->model->config, e->options.kv_type, page_count(&e->options));
}

dsmoe_status dsmoe_engine_create(const dsmoe_model *model, const dsmoe_engine_options *options,
                                 dsmoe_engine **engine, dsmoe_error *error)
{
    if (!model || !engine)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no model or no place for the engine given");
    *engine = NULL;
    dsmoe_engine_options o = options_complete(model, options);
    STATUS_TRY(options_check(model, &o, error));
    dsmoe_engine_memory size = dsmoe_engine_memory_size(model, &o);
    if (size.workspace == 0)
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "%lld sequences of %lld tokens, %lld at a time, on %d threads are too "
                           "large",
                           (long long)o.n_sequences, (long long)o.n_ctx, (long long)o.n_batch,
                           o.n_threads);
    dsmoe_engine *made = calloc(1, sizeof *made);
    if (made)
        *made = (dsmoe_engine){.model = model, .options = o, .adapted = adapted_open(model, &o)};
    if (made && open_memory(made)) {
        *engine = made;
        return DSMOE_OK;
    }
    dsmoe_engine_free(made);
    return status_fail(
        error, DSMOE_ERROR_MEMORY,
        "not enough memory for %lld sequences of %lld tokens: %.1f GB of keys and values "
        "and %.1f GB of workspace",
        (long long)o.n_sequences, (long long)o.n_ctx, (double)size.kv_cache / 1e9,
        (double)size.workspace / 1e9);
}

void dsmoe_engine_free(dsmoe_engine *engine)
{
    if (!engine) return;
    page_pool_close(&engine->pool);
    latent_keys_close(&engine->latent_keys);
    memory_release(engine->workspace, engine->workspace_size);
    free(engine);
}

/* ---- information ------------------------------------------------------------------------------- */

dsmoe_engine_info dsmoe_engine_get_info(const dsmoe_engine *engine)
{
    const page_pool *pool = &engine->pool;
    dsmoe_engine_memory size = dsmoe_engine_memory_size(engine->model, &engine->options);
    dsmoe_engine_info info = {.n_ctx = engine->options.n_ctx,
                              .n_batch = engine->options.n_batch,
                              .n_threads = engine->options.n_threads,
                              .n_sequences = engine->options.n_sequences,
                              .kv_cache = size.kv_cache,
                              .workspace = size.workspace,
                              .weights = dsmoe_model_memory_size(engine->model),
                              .page_tokens = KV_PAGE,
                              .n_pages = pool->pages.n_pages,
                              .n_pages_used = pool->pages.n_pages - pool->n_unused,
                              .n_pages_shared = pool->n_shared,
                              .n_pages_kept = pool->n_known_unused,
                              .n_tokens_reused = engine->n_reused,
                              .attention_seconds = engine->attention_seconds};
    for (int64_t i = 0; i < engine->options.n_sequences; i++)
        info.n_sequences_used += engine->sequences[i].engine != NULL;
    return info;
}

const dsmoe_model *dsmoe_engine_model(const dsmoe_engine *engine) { return engine->model; }

void engine_watch_inputs(dsmoe_engine *engine, const input_watch *watch) { engine->inputs = watch; }
