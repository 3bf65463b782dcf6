/* session.c - sequences over a model: their memory, and passes over several of them at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "model/pass.h"

enum { DEFAULT_BATCH = 512, BATCH_MAX = 1 << 16, CONTEXT_MAX = 1 << 30, THREADS_MAX = 1024 };

struct dsmoe_session {
    const dsmoe_model *model;
    dsmoe_session_options options; /* with what was left open filled in */
    kv_cache cache;
    void *workspace;
    size_t workspace_size;
    int64_t length;
    dsmoe_routing_fn *watch;
    void *watch_context;
    const input_watch *inputs;
};

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct session_space {
    pass pass;
    span *spans;   /* [n_batch] */
    float *logits; /* [PASS_HEAD_ROWS, vocab_size] */
} session_space;

static session_space space_place(arena *a, const dsmoe_model *model, const dsmoe_session_options *o)
{
    return (session_space){
        .pass = pass_place(a, model, o->n_batch, o->n_threads),
        .spans = arena_take(a, o->n_batch, sizeof(span)),
        .logits = arena_take(a, moe_min(o->n_batch, PASS_HEAD_ROWS) * model->config.vocab_size,
                             sizeof(float)),
    };
}

static dsmoe_session_options options_complete(const dsmoe_model *model,
                                              const dsmoe_session_options *options)
{
    dsmoe_session_options o = options ? *options : (dsmoe_session_options){0};
    if (o.n_ctx == 0) o.n_ctx = model->config.max_position_embeddings;
    if (o.n_batch == 0) o.n_batch = moe_min(DEFAULT_BATCH, o.n_ctx);
    if (o.n_threads == 0) o.n_threads = (int)moe_min(THREADS_MAX, threads_available());
    return o;
}

static dsmoe_status options_check(const dsmoe_model *model, const dsmoe_session_options *o,
                                  dsmoe_error *error)
{
    if (o->n_ctx < 1 || o->n_ctx > CONTEXT_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a context of %lld tokens is impossible",
                           (long long)o->n_ctx);
    if (o->n_batch < 1 || o->n_batch > BATCH_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a batch is 1 to %d tokens, not %lld",
                           BATCH_MAX, (long long)o->n_batch);
    if (o->n_threads < 1 || o->n_threads > THREADS_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "threads are 1 to %d, not %d", THREADS_MAX,
                           o->n_threads);
    return kv_cache_check(&model->config, o->kv_type, error);
}

dsmoe_session_memory dsmoe_session_memory_size(const dsmoe_model *model,
                                               const dsmoe_session_options *options)
{
    dsmoe_session_memory none = {0, 0};
    if (!model) return none;
    dsmoe_session_options o = options_complete(model, options);
    if (options_check(model, &o, NULL) != DSMOE_OK) return none;
    arena measure = arena_over(NULL);
    space_place(&measure, model, &o);
    dsmoe_session_memory size = {kv_cache_size(&model->config, o.kv_type, o.n_ctx),
                                 arena_size(&measure)};
    return size.kv_cache && size.workspace ? size : none;
}

dsmoe_status dsmoe_session_create(const dsmoe_model *model, const dsmoe_session_options *options,
                                  dsmoe_session **session, dsmoe_error *error)
{
    if (!model || !session)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no model or no place for the session given");
    *session = NULL;
    dsmoe_session_options o = options_complete(model, options);
    STATUS_TRY(options_check(model, &o, error));
    dsmoe_session_memory size = dsmoe_session_memory_size(model, &o);
    if (size.workspace == 0)
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "a session of %lld tokens, %lld at a time, on %d threads is too large",
                           (long long)o.n_ctx, (long long)o.n_batch, o.n_threads);
    dsmoe_session *made = calloc(1, sizeof *made);
    if (!made) goto fail;
    made->model = model;
    made->options = o;
    made->workspace_size = size.workspace;
    made->workspace = memory_reserve(size.workspace);
    if (!made->workspace || !kv_cache_open(&made->cache, &model->config, o.kv_type, o.n_ctx))
        goto fail;
    *session = made;
    return DSMOE_OK;
fail:
    dsmoe_session_free(made);
    return status_fail(error, DSMOE_ERROR_MEMORY,
                       "no memory for a session of %lld tokens: %.1f GB of keys and values and "
                       "%.1f GB of workspace",
                       (long long)o.n_ctx, (double)size.kv_cache / 1e9,
                       (double)size.workspace / 1e9);
}

void dsmoe_session_free(dsmoe_session *session)
{
    if (!session) return;
    memory_release(session->workspace, session->workspace_size);
    kv_cache_close(&session->cache);
    free(session);
}

/* ---- small things -------------------------------------------------------------------------- */

int64_t dsmoe_session_length(const dsmoe_session *session) { return session->length; }

int64_t dsmoe_session_capacity(const dsmoe_session *session) { return session->options.n_ctx; }

dsmoe_status dsmoe_session_rewind(dsmoe_session *session, int64_t length, dsmoe_error *error)
{
    if (!session || length < 0 || length > session->length)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "cannot go back to length %lld from %lld",
                           (long long)length, (long long)(session ? session->length : 0));
    session->length = length;
    return DSMOE_OK;
}

void dsmoe_session_watch(dsmoe_session *session, dsmoe_routing_fn *watch, void *context)
{
    session->watch = watch;
    session->watch_context = context;
}

void session_watch_inputs(dsmoe_session *session, const input_watch *watch)
{
    session->inputs = watch;
}

/* ---- checking a call ----------------------------------------------------------------------- */

static dsmoe_status check_ids(const dsmoe_model *model, const int32_t *ids, int64_t n,
                              dsmoe_error *error)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= model->config.vocab_size)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "token %lld is id %d; ids are 0 to %lld", (long long)i, ids[i],
                               (long long)(model->config.vocab_size - 1));
    return DSMOE_OK;
}

static dsmoe_status check_turn(const dsmoe_turn *turns, int64_t index, dsmoe_error *error)
{
    const dsmoe_turn *t = &turns[index];
    if (!t->session || !t->tokens || t->n_tokens < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no session or no tokens given");
    if (t->session->model != turns[0].session->model)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "sessions of different models in one call");
    for (int64_t i = 0; i < index; i++)
        if (turns[i].session == t->session)
            return status_fail(error, DSMOE_ERROR_ARGUMENT, "a session occurs twice in one call");
    if (t->n_logits < 0 || t->n_logits > t->n_tokens || (t->targets && !t->loss))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "logits of %lld of %lld tokens, or targets without a place for the loss",
                           (long long)t->n_logits, (long long)t->n_tokens);
    if (t->n_tokens > t->session->options.n_ctx - t->session->length)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the context is full: %lld tokens are there, %lld more do not fit into "
                           "%lld",
                           (long long)t->session->length, (long long)t->n_tokens,
                           (long long)t->session->options.n_ctx);
    STATUS_TRY(check_ids(t->session->model, t->tokens, t->n_tokens, error));
    return t->targets ? check_ids(t->session->model, t->targets, t->n_logits, error) : DSMOE_OK;
}

/* ---- a pass -------------------------------------------------------------------------------- */

/* How far the turns have gone through the model. */
typedef struct turn_cursor {
    const dsmoe_turn *turns;
    int64_t n_turns, turn, token; /* the next token */
    int64_t rows;                 /* that are through */
} turn_cursor;

/* Fills a pass with the next rows; how many. */
static int64_t take_rows(turn_cursor *at, session_space *s, const int64_t n_batch)
{
    pass *p = &s->pass;
    p->spans = s->spans;
    p->n_rows = p->n_spans = 0;
    p->first = at->rows;
    while (p->n_rows < n_batch && at->turn < at->n_turns) {
        const dsmoe_turn *t = &at->turns[at->turn];
        int64_t n = moe_min(n_batch - p->n_rows, t->n_tokens - at->token);
        s->spans[p->n_spans++] = (span){.cache = &t->session->cache,
                                        .tokens = t->tokens + at->token,
                                        .row = p->n_rows,
                                        .n_rows = n,
                                        .position = t->session->length + at->token,
                                        .length = t->session->length + t->n_tokens};
        p->n_rows += n;
        at->token += n;
        if (at->token == t->n_tokens) {
            at->turn++;
            at->token = 0;
        }
    }
    at->rows += p->n_rows;
    return p->n_rows;
}

static bool all_finite(const float *x, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++) finite &= x[i] - x[i] == 0.0f;
    return finite;
}

/* -log p(target); uses the logits up. */
static float cross_entropy(const kernels *kn, float *logits, int64_t n, int32_t target)
{
    float wanted = logits[target], max = -INFINITY, sum = 0.0f;
    kn->softmax_part(n, logits, &max, &sum);
    return logf(sum) + max - wanted;
}

/* Shows the logits of n rows from `row` on, which are the turn's rows from `number` on. */
static dsmoe_status show_logits(session_space *s, const dsmoe_turn *t, int64_t row, int64_t n,
                                int64_t number, dsmoe_error *error)
{
    pass *p = &s->pass;
    int64_t vocab = p->model->config.vocab_size;
    for (int64_t done = 0; done < n; done += PASS_HEAD_ROWS) {
        int64_t count = moe_min(PASS_HEAD_ROWS, n - done);
        pass_head(p, row + done, count, s->logits);
        STATUS_TRY(model_intact(p->model, error)); /* before anybody sees them */
        for (int64_t i = 0; i < count; i++) {
            float *logits = s->logits + i * vocab;
            int64_t at = number + done + i;
            if (!all_finite(logits, vocab))
                return status_fail(
                    error, DSMOE_ERROR_NONFINITE,
                    "token %lld has a NaN or infinite score: some weight is not a "
                    "finite number, or the numbers grew too large",
                    (long long)(t->session->length + t->n_tokens - t->n_logits + at));
            if (t->visit) t->visit(t->context, at, logits);
            if (t->targets)
                t->loss[at] = cross_entropy(p->model->kernels, logits, vocab, t->targets[at]);
        }
    }
    return DSMOE_OK;
}

/* The rows of the pass whose logits someone wants, turn by turn. */
static dsmoe_status show_pass(const turn_cursor *from, session_space *s, dsmoe_error *error)
{
    int64_t token = from->token;
    for (int64_t i = 0; i < s->pass.n_spans; i++) {
        const dsmoe_turn *t = &from->turns[from->turn + i];
        const span *rows_of = &s->pass.spans[i];
        int64_t wanted = t->n_tokens - t->n_logits; /* the first of them */
        int64_t skip = wanted > token ? moe_min(wanted - token, rows_of->n_rows) : 0;
        STATUS_TRY(show_logits(s, t, rows_of->row + skip, rows_of->n_rows - skip,
                               token + skip - wanted, error));
        token = 0;
    }
    return DSMOE_OK;
}

dsmoe_status dsmoe_session_forward(const dsmoe_turn *turns, int64_t n_turns, dsmoe_error *error)
{
    if (n_turns < 0 || (n_turns > 0 && !turns))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no turns given");
    for (int64_t i = 0; i < n_turns; i++) STATUS_TRY(check_turn(turns, i, error));
    if (n_turns == 0) return DSMOE_OK;
    dsmoe_session *first = turns[0].session;
    arena a = arena_over(first->workspace);
    session_space s = space_place(&a, first->model, &first->options);
    s.pass.watch = first->watch;
    s.pass.watch_context = first->watch_context;
    s.pass.inputs = first->inputs;
    turn_cursor at = {.turns = turns, .n_turns = n_turns};
    for (turn_cursor before = at; take_rows(&at, &s, first->options.n_batch) > 0; before = at) {
        pass_begin(&s.pass);
        for (int64_t layer = 0; layer < first->model->config.num_hidden_layers; layer++) {
            const dsmoe_session_options *o = &first->options;
            if (o->stop && o->stop(o->stop_context))
                return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
            STATUS_TRY(pass_block(&s.pass, layer, error));
        }
        STATUS_TRY(model_intact(first->model, error));
        STATUS_TRY(show_pass(&before, &s, error));
    }
    for (int64_t i = 0; i < n_turns; i++) turns[i].session->length += turns[i].n_tokens;
    return DSMOE_OK;
}

/* ---- one session --------------------------------------------------------------------------- */

typedef struct logits_copy {
    float *to;
    size_t size;
} logits_copy;

static void copy_logits(void *context, int64_t row, const float *logits)
{
    (void)row;
    const logits_copy *copy = context;
    memcpy(copy->to, logits, copy->size);
}

dsmoe_status dsmoe_session_prefill(dsmoe_session *session, const int32_t *tokens, int64_t n_tokens,
                                   float *logits, dsmoe_error *error)
{
    if (!session) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no session given");
    logits_copy copy = {logits, (size_t)session->model->config.vocab_size * sizeof *logits};
    dsmoe_turn turn = {.session = session, .tokens = tokens, .n_tokens = n_tokens};
    if (logits) {
        turn.n_logits = 1;
        turn.visit = copy_logits;
        turn.context = &copy;
    }
    return dsmoe_session_forward(&turn, 1, error);
}

dsmoe_status dsmoe_session_decode(dsmoe_session *session, int32_t token, float *logits,
                                  dsmoe_error *error)
{
    return dsmoe_session_prefill(session, &token, 1, logits, error);
}
