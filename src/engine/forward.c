/* forward.c - sends the turns of many sequences through the model.
 *
 * The rows of all turns, in order, fill one pass after the other. A turn ends after its last row, or with an
 * error. An error of one turn leaves its sequence as it was before and does not affect the other turns. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/threads.h"
#include "engine/engine.h"

/* A call of dsmoe_engine_forward. */
typedef struct call {
    dsmoe_engine *engine;
    dsmoe_turn *turns;
    int64_t n_turns;
    int64_t turn, token; /* the next token to run */
    engine_space space;
} call;

static bool is_alive(const dsmoe_turn *t) { return t->error.status == DSMOE_OK; }

/* ---- checking a turn --------------------------------------------------------------------------- */

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

static dsmoe_status check_turn(const dsmoe_engine *e, const dsmoe_turn *t, dsmoe_error *error)
{
    if (!t->sequence || !t->tokens || t->n_tokens < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no sequence or no tokens given");
    if (t->sequence->engine != e)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "the sequence belongs to another engine");
    if (t->sequence->in_call)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a sequence occurs twice in one call");
    if (t->n_logits < 0 || t->n_logits > t->n_tokens || (t->targets && (!t->loss || t->hidden)))
        return status_fail(
            error, DSMOE_ERROR_ARGUMENT,
            "logits of %lld of %lld tokens, or targets without logits or a place for the loss",
            (long long)t->n_logits, (long long)t->n_tokens);
    if (t->n_tokens > e->options.n_ctx - t->sequence->length)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the context is full: it has %lld tokens, and %lld more do not fit into "
                           "%lld",
                           (long long)t->sequence->length, (long long)t->n_tokens,
                           (long long)e->options.n_ctx);
    STATUS_TRY(check_ids(e->model, t->tokens, t->n_tokens, error));
    return t->targets ? check_ids(e->model, t->targets, t->n_logits, error) : DSMOE_OK;
}

/* ---- the beginning and the end of a turn ------------------------------------------------------- */

static void begin_turn(const dsmoe_engine *e, dsmoe_turn *t)
{
    t->error = (dsmoe_error){0};
    if (check_turn(e, t, &t->error) != DSMOE_OK) return;
    if (!sequence_reserve(t->sequence, t->n_tokens)) {
        int64_t free_tokens = e->pool.n_unused * KV_PAGE;
        status_fail(&t->error, DSMOE_ERROR_MEMORY,
                    "the KV cache is full: %lld tokens do not fit next to those of other sequences "
                    "(there is room for %lld)",
                    (long long)t->n_tokens, (long long)free_tokens);
        return;
    }
    t->sequence->in_call = true;
}

/* Ends turn t with an error and gives back the pages that it has reserved. */
static void fail_turn(dsmoe_turn *t, const dsmoe_error *error)
{
    t->error = *error;
    t->sequence->in_call = false;
    sequence_cut(t->sequence, t->sequence->length);
}

static void finish_turn(dsmoe_turn *t)
{
    t->sequence->in_call = false;
    sequence_extend(t->sequence, t->tokens, t->n_tokens);
}

/* Ends all unfinished turns with an error that concerns all of them. */
static void fail_rest(call *c, const dsmoe_error *error)
{
    for (int64_t i = 0; i < c->n_turns; i++)
        if (is_alive(&c->turns[i]) && c->turns[i].sequence->in_call) fail_turn(&c->turns[i], error);
}

/* ---- a pass ------------------------------------------------------------------------------------ */

/* The next n tokens of the current turn as a span. */
static span span_of(const call *c, int64_t n)
{
    const dsmoe_turn *t = &c->turns[c->turn];
    const dsmoe_sequence *s = t->sequence;
    int64_t unwanted = t->n_tokens - t->n_logits - c->token; /* tokens before the first wanted */
    return (span){.cache = {&c->engine->pool.pages, s->table},
                  .tokens = t->tokens + c->token,
                  .row = c->space.pass.n_rows,
                  .n_rows = n,
                  .position = s->length + c->token,
                  .n_wanted = unwanted <= 0  ? n
                              : unwanted < n ? n - unwanted
                                             : 0,
                  .scales = s->adapted.scales,
                  .watch = s->watch,
                  .watch_context = s->watch_context};
}

/* Fills a pass with the next rows; false if there are none. */
static bool take_rows(call *c)
{
    pass *p = &c->space.pass;
    p->spans = c->space.spans;
    p->n_rows = p->n_spans = 0;
    while (p->n_rows < c->engine->options.n_batch && c->turn < c->n_turns) {
        const dsmoe_turn *t = &c->turns[c->turn];
        if (is_alive(t)) {
            int64_t n = moe_min(c->engine->options.n_batch - p->n_rows, t->n_tokens - c->token);
            c->space.turns[p->n_spans] = c->turn;
            c->space.spans[p->n_spans++] = span_of(c, n);
            p->n_rows += n;
            c->token += n;
            if (c->token < t->n_tokens) break; /* the pass is full */
        }
        c->turn++;
        c->token = 0;
    }
    return p->n_rows > 0;
}

static dsmoe_status run_layers(call *c, dsmoe_error *error)
{
    const dsmoe_engine_options *o = &c->engine->options;
    const dsmoe_model *model = c->engine->model;
    pass_begin(&c->space.pass);
    for (int64_t layer = 0; layer < model->config.num_hidden_layers; layer++) {
        if (o->stop && o->stop(o->stop_context))
            return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
        STATUS_TRY(pass_layer(&c->space.pass, layer, error));
    }
    c->engine->attention_seconds += c->space.pass.attention_seconds;
    c->space.pass.attention_seconds = 0;
    return model_intact(model, error);
}

static void fail_nonfinite(dsmoe_turn *t, int64_t position, const char *what)
{
    dsmoe_error error;
    status_fail(&error, DSMOE_ERROR_NONFINITE,
                "token %lld has a NaN or infinite %s: some weight is not a finite number, or the "
                "numbers grew too large",
                (long long)position, what);
    fail_turn(t, &error);
}

/* Ends turns that have a row with a router score that is not finite. */
static void fail_spoilt(call *c)
{
    const pass *p = &c->space.pass;
    for (int64_t i = 0; i < p->n_spans; i++) {
        const span *s = &c->space.spans[i];
        int64_t row = s->row;
        while (row < s->row + s->n_rows && !p->spoilt[row]) row++;
        if (row == s->row + s->n_rows) continue;
        char what[64];
        snprintf(what, sizeof what, "router score in layer %d", p->spoilt[row] - 1);
        fail_nonfinite(&c->turns[c->space.turns[i]], s->position + row - s->row, what);
    }
}

/* ---- logits and hidden states ------------------------------------------------------------------ */

/* Lists the rows whose logits (or hidden states) are wanted, of all turns that are alive. Returns their
 * number. */
static int64_t list_wanted(call *c, bool hidden)
{
    engine_space *s = &c->space;
    int64_t n = 0;
    for (int64_t i = 0; i < s->pass.n_spans; i++) {
        const span *rows_of = &s->pass.spans[i];
        const dsmoe_turn *t = &c->turns[s->turns[i]];
        if (!is_alive(t) || t->hidden != hidden) continue;
        int64_t first = rows_of->position - t->sequence->length - (t->n_tokens - t->n_logits);
        for (int64_t r = rows_of->n_rows - rows_of->n_wanted; r < rows_of->n_rows; r++, n++) {
            s->wanted[n] = (int32_t)(rows_of->row + r);
            s->wanted_by[n] = s->turns[i];
            s->numbers[n] = first + r;
        }
    }
    return n;
}

/* Rows of n numbers; finite_task finds out whether they are finite. */
typedef struct shown_rows {
    float *at;
    int64_t n;
    bool *finite;
} shown_rows;

static void finite_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const shown_rows *shown = context;
    const float *at = shown->at + row * shown->n;
    bool finite = true;
    for (int64_t i = 0; i < shown->n; i++) finite &= at[i] - at[i] == 0.0f;
    shown->finite[row] = finite;
}

/* -log p(target). Overwrites the logits. */
static float cross_entropy(const kernels *kn, float *logits, int64_t n, int32_t target)
{
    float wanted = logits[target], max = -INFINITY, sum = 0.0f;
    kn->softmax_part(n, logits, &max, &sum);
    return logf(sum) + max - wanted;
}

/* Gives row i of `shown`, which is wanted row `at`, to its turn. */
static void show_row(call *c, const shown_rows *shown, int64_t i, int64_t at)
{
    engine_space *s = &c->space;
    dsmoe_turn *t = &c->turns[s->wanted_by[at]];
    float *row = shown->at + i * shown->n;
    int64_t number = s->numbers[at];
    if (!is_alive(t)) return;
    if (!shown->finite[i]) {
        int64_t position = t->sequence->length + t->n_tokens - t->n_logits + number;
        fail_nonfinite(t, position, t->hidden ? "hidden state" : "score");
        return;
    }
    if (t->visit) t->visit(t->context, number, row);
    if (t->targets)
        t->loss[number] =
            cross_entropy(c->engine->model->kernels, row, shown->n, t->targets[number]);
}

static dsmoe_status show_rows(call *c, bool hidden, dsmoe_error *error)
{
    engine_space *s = &c->space;
    const dsmoe_config *config = &c->engine->model->config;
    shown_rows shown = {s->logits, config->vocab_size, s->finite};
    if (hidden) shown = (shown_rows){s->pass.normed, config->hidden_size, s->finite};
    int64_t n_wanted = list_wanted(c, hidden);
    for (int64_t done = 0; done < n_wanted; done += PASS_HEAD_ROWS) {
        int64_t n = moe_min(PASS_HEAD_ROWS, n_wanted - done);
        if (hidden)
            pass_hidden(&s->pass, s->wanted + done, n);
        else
            pass_head(&s->pass, s->wanted + done, n, s->logits);
        threads_for(s->pass.n_threads, n, finite_task, &shown);
        STATUS_TRY(model_intact(c->engine->model, error)); /* before callers get the rows */
        for (int64_t i = 0; i < n; i++) show_row(c, &shown, i, done + i);
    }
    return DSMOE_OK;
}

/* ---- all passes of a call ---------------------------------------------------------------------- */

static void finish_turns(call *c)
{
    for (int64_t i = 0; i < c->space.pass.n_spans; i++) {
        const span *s = &c->space.pass.spans[i];
        dsmoe_turn *t = &c->turns[c->space.turns[i]];
        if (is_alive(t) && s->position + s->n_rows == t->sequence->length + t->n_tokens)
            finish_turn(t);
    }
}

static void run_call(call *c)
{
    dsmoe_error error;
    while (take_rows(c)) {
        dsmoe_status status = run_layers(c, &error);
        if (status == DSMOE_OK) {
            fail_spoilt(c);
            status = show_rows(c, false, &error);
        }
        if (status == DSMOE_OK) status = show_rows(c, true, &error);
        if (status != DSMOE_OK) {
            fail_rest(c, &error);
            return;
        }
        finish_turns(c);
    }
}

dsmoe_status dsmoe_engine_forward(dsmoe_engine *engine, dsmoe_turn *turns, int64_t n_turns,
                                  dsmoe_error *error)
{
    if (!engine || n_turns < 0 || (n_turns > 0 && !turns))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no engine or no turns given");
    for (int64_t i = 0; i < n_turns; i++) begin_turn(engine, &turns[i]);
    arena a = arena_over(engine->workspace);
    call c = {.engine = engine,
              .turns = turns,
              .n_turns = n_turns,
              .space = engine_space_place(&a, engine->model, &engine->options, &engine->adapted)};
    c.space.pass.inputs = engine->inputs;
    c.space.pass.latent_keys = &engine->latent_keys;
    c.space.pass.same_bits = engine->options.same_bits;
    run_call(&c);
    for (int64_t i = 0; i < n_turns; i++)
        if (!is_alive(&turns[i]))
            return status_fail(error, turns[i].error.status, "%s", turns[i].error.message);
    return DSMOE_OK;
}

/* ---- one sequence ------------------------------------------------------------------------------ */

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

dsmoe_status dsmoe_sequence_append(dsmoe_sequence *sequence, const int32_t *tokens,
                                   int64_t n_tokens, float *logits, dsmoe_error *error)
{
    if (!sequence) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no sequence given");
    const dsmoe_config *config = &sequence->engine->model->config;
    logits_copy copy = {logits, (size_t)config->vocab_size * sizeof *logits};
    dsmoe_turn turn = {.sequence = sequence, .tokens = tokens, .n_tokens = n_tokens};
    if (logits) {
        turn.n_logits = 1;
        turn.visit = copy_logits;
        turn.context = &copy;
    }
    return dsmoe_engine_forward(sequence->engine, &turn, 1, error);
}
