/* test_outline.c - the outline of a step compared with a real step: every rank makes the calls that the
 * outline predicts, in that order and with these sizes; the predicted work is what dsmoe_model_plan
 * counts; bytes are sent while ranks compute. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_trainer.h"
#include "model/config.h"
#include "recorded_peers.h"
#include "socket_peers.h"
#include "train/outline.h"

/* One step of several ranks. */
typedef struct story {
    dsmoe_config config;
    dsmoe_trainer_options options;
    int n_units;
    bool crowded; /* all tokens choose the first experts, so that rows are sent in rounds */
    bool waits;   /* for the new weights at the end of the step */
} story;

static story story_make(dsmoe_parallel parallel, int n_units)
{
    story s = {.config = made_config(), .options = made_options(2, 9), .n_units = n_units};
    s.config.n_routed_experts = 12;
    s.config.vocab_size = 3001; /* several chunks */
    s.options.parallel = parallel;
    return s;
}

/* With equal scores the lowest experts are chosen. */
static void crowd(const story *s, dsmoe_trainer *t)
{
    for (int64_t i = 0; i < s->config.num_hidden_layers; i++) {
        char name[64];
        if (!dsmoe_config_layer_is_moe(&s->config, i)) continue;
        snprintf(name, sizeof name, "model.layers.%d.mlp.gate.weight", (int)i);
        memset(trainer_weight(t, name), 0,
               (size_t)(s->config.n_routed_experts * s->config.hidden_size) * sizeof(float));
    }
}

/* ---- a rank and its outline --------------------------------------------------------------------- */

typedef struct comparison {
    const recorded_peers *real;
    int next;   /* the next call */
    int n_rows; /* exchanges of rows */
} comparison;

static const recorded_call *next_call(comparison *c, recorded_kind kind)
{
    assert_true(c->next < c->real->n_calls);
    const recorded_call *call = &c->real->calls[c->next++];
    assert_int_equal(call->kind, kind);
    return call;
}

static void assert_sizes(const comparison *c, const size_t *real, const size_t *predicted)
{
    for (int i = 0; i < c->real->table.size; i++) assert_int_equal(real[i], predicted[i]);
}

static dsmoe_status see_compute(void *context, outline_work work, double amount, dsmoe_error *error)
{
    (void)context;
    (void)work;
    (void)error;
    assert_true(amount > 0 && isfinite(amount));
    return DSMOE_OK;
}

static dsmoe_status see_begin(void *context, outline_goods goods, const size_t *send,
                              const size_t *receive, dsmoe_error *error)
{
    (void)error;
    comparison *c = context;
    const recorded_call *call = next_call(c, RECORDED_BEGIN);
    assert_sizes(c, call->send, send);
    assert_sizes(c, call->receive, receive);
    c->n_rows += goods == OUTLINE_ROWS;
    return DSMOE_OK;
}

static dsmoe_status see_end(void *context, dsmoe_error *error)
{
    (void)error;
    next_call(context, RECORDED_END);
    return DSMOE_OK;
}

static dsmoe_status see_gather(void *context, outline_goods goods, const size_t *parts,
                               dsmoe_error *error)
{
    (void)goods;
    (void)error;
    comparison *c = context;
    assert_sizes(c, next_call(c, RECORDED_GATHER)->send, parts);
    return DSMOE_OK;
}

/* Uses the numbers of rows that the ranks really announced, layer by layer, instead of the expected
 * ones. */
static void take_over_rows(const story *s, const recorded_peers *real, int first, outline *o)
{
    size_t size = wave_said_size(o->n_ranks, s->config.n_routed_experts);
    int64_t layer = 0;
    for (int i = first; i < real->n_calls && layer < o->n_tables; i++) {
        const recorded_call *call = &real->calls[i];
        if (call->kind != RECORDED_GATHER || call->send[0] != size) continue;
        outline_rows *table = &o->rows[s->n_units < o->n_ranks][layer++];
        memcpy(table->said, call->bytes, size * (size_t)o->n_ranks);
        outline_find_rounds(o, table);
        if (s->crowded) assert_true(table->n_rounds > 1);
    }
    assert_int_equal(layer, o->n_tables);
}

/* The calls from number `first` must be those of a step. */
static void compare(const story *s, const recorded_peers *real, int first)
{
    outline *o;
    dsmoe_error error;
    comparison c = {.real = real, .next = first};
    outline_watch watch = {&c, see_compute, see_begin, see_end, see_gather};
    int64_t n = config_moe_layers(&s->config, s->config.num_hidden_layers);
    double *loads = calloc((size_t)(n * s->config.n_routed_experts), sizeof *loads);
    for (int64_t i = 0; i < n * s->config.n_routed_experts; i++) loads[i] = 1;
    must(outline_open(&s->config, &s->options, real->table.size, s->n_units,
                      (outline_loads){loads, n}, &o, &error),
         &error, "an outline");
    o->waits = s->waits;
    if (s->options.parallel == DSMOE_PARALLEL_EXPERTS) take_over_rows(s, real, first, o);
    must(outline_walk(o, real->table.rank, &watch, &error), &error, "a walk");
    assert_int_equal(c.next, real->n_calls);
    assert_true((c.n_rows > 0) == (s->options.parallel == DSMOE_PARALLEL_EXPERTS));
    outline_close(o);
    free(loads);
}

/* Gradients are sent during the backward of a layer, except for the last two sections to be complete.
 * Weights are sent during the forward of a layer, except for the first two sections, or if the step waits
 * for them at its end. */
static void assert_polled(const story *s, const recorded_peers *real, int first)
{
    int64_t n_sections = s->config.num_hidden_layers + 2, n = 0;
    for (int i = first; i < real->n_calls; i++) {
        if (real->calls[i].kind != RECORDED_END) continue;
        bool is_weights = (n < n_sections) != s->waits;
        int64_t nth = n % n_sections;
        bool has_time = is_weights ? nth >= 2 && !s->waits : nth < n_sections - 2;
        if (has_time && real->table.rank < s->n_units) assert_true(real->calls[i].n_polls > 0);
        n++;
    }
    assert_int_equal(n, 2 * n_sections);
}

static void run_step(const story *s, dsmoe_trainer *t)
{
    dsmoe_error error;
    const dsmoe_peers *p = t->options.peers;
    for (int first = 0; first < s->n_units; first += p->size) {
        bool is_there = first + p->rank < s->n_units;
        made_batch b = made_batch_create(&s->config, &s->options, (uint64_t)(first + p->rank));
        const dsmoe_batch batch = {.tokens = b.tokens, .targets = b.targets};
        must(dsmoe_trainer_backward(t, is_there ? &batch : NULL, NULL, &error), &error, "a batch");
        made_batch_free(&b);
    }
    must((s->waits ? dsmoe_trainer_update : trainer_update)(t, 1e-2, NULL, &error), &error,
         "an update");
}

static int run_rank(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    recorded_peers real;
    recorded_peers_open(peers, &real);
    dsmoe_trainer_options options = s->options;
    options.peers = &real.table;
    dsmoe_trainer *t = fresh_trainer(&s->config, &options, 5);
    if (!s->waits) run_step(s, t); /* its weights are sent in the next step */
    int first = real.n_calls;
    if (s->crowded) crowd(s, t);
    run_step(s, t);
    compare(s, &real, first);
    if (s->options.parallel == DSMOE_PARALLEL_DATA && s->n_units <= peers->size)
        assert_polled(s, &real, first);
    dsmoe_trainer_free(t);
    recorded_peers_close(&real);
    return 0;
}

static void test_data(void **state)
{
    (void)state;
    for (int n_ranks = 2; n_ranks <= 4; n_ranks++)
        for (int n_units = 1; n_units <= 9; n_units += 2) {
            story s = story_make(DSMOE_PARALLEL_DATA, n_units);
            s.config.tie_word_embeddings = n_units == 3;
            s.options.recompute = n_units == 5;
            s.waits = n_ranks == 3;
            assert_true(socket_peers_run(n_ranks, run_rank, &s, NULL, NULL));
        }
}

static void test_experts(void **state)
{
    (void)state;
    for (int n_ranks = 2; n_ranks <= 5; n_ranks++)
        for (int way = 0; way < 4; way++) {
            story s = story_make(DSMOE_PARALLEL_EXPERTS, way & 1 ? n_ranks : n_ranks - 1);
            s.options.recompute = way & 2;
            s.config.n_routed_experts = way & 2 ? 13 : 12;
            s.config.n_shared_experts = way == 3 ? 0 : 1;
            s.waits = n_ranks == 4;
            assert_true(socket_peers_run(n_ranks, run_rank, &s, NULL, NULL));
        }
}

static void test_rounds(void **state)
{
    (void)state;
    story s = story_make(DSMOE_PARALLEL_EXPERTS, 4);
    s.crowded = s.waits = true; /* otherwise arriving weights would undo crowd() */
    assert_true(socket_peers_run(4, run_rank, &s, NULL, NULL));
    s.n_units = 3;
    assert_true(socket_peers_run(4, run_rank, &s, NULL, NULL));
}

/* ---- predicted work and expected rows ------------------------------------------------------------- */

typedef struct sums {
    double work[OUTLINE_WORKS];
    double sent[OUTLINE_GOODS], received[OUTLINE_GOODS];
    int rank, n_ranks;
} sums;

static dsmoe_status add_work(void *context, outline_work work, double amount, dsmoe_error *error)
{
    (void)error;
    ((sums *)context)->work[work] += amount;
    return DSMOE_OK;
}

static dsmoe_status add_bytes(void *context, outline_goods goods, const size_t *send,
                              const size_t *receive, dsmoe_error *error)
{
    (void)error;
    sums *s = context;
    for (int i = 0; i < s->n_ranks; i++) {
        s->sent[goods] += (double)send[i];
        s->received[goods] += (double)receive[i];
    }
    return DSMOE_OK;
}

static dsmoe_status add_nothing(void *context, dsmoe_error *error)
{
    (void)context;
    (void)error;
    return DSMOE_OK;
}

static dsmoe_status add_parts(void *context, outline_goods goods, const size_t *parts,
                              dsmoe_error *error)
{
    (void)error;
    sums *s = context;
    for (int i = 0; i < s->n_ranks; i++)
        if (i != s->rank) s->received[goods] += (double)parts[i];
    s->sent[goods] += (double)parts[s->rank] * (s->n_ranks - 1);
    return DSMOE_OK;
}

/* The sums over all ranks. */
static sums sum_up(const story *s, int n_ranks, outline_loads loads)
{
    outline *o;
    dsmoe_error error;
    sums all = {.n_ranks = n_ranks};
    outline_watch watch = {&all, add_work, add_bytes, add_nothing, add_parts};
    must(outline_open(&s->config, &s->options, n_ranks, s->n_units, loads, &o, &error), &error,
         "an outline");
    for (all.rank = 0; all.rank < n_ranks; all.rank++)
        must(outline_walk(o, all.rank, &watch, &error), &error, "a walk");
    outline_close(o);
    return all;
}

static double flops_of(const sums *s)
{
    return s->work[OUTLINE_ATTENTION] + s->work[OUTLINE_EXPERTS] + s->work[OUTLINE_HEAD];
}

static void test_sums(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= 7; n_ranks++)
        for (int way = 0; way < 2; way++) {
            story s = story_make((dsmoe_parallel)way, 6);
            s.config.hidden_size = 96; /* so that norms, which are no products, are few */
            dsmoe_model_plan plan;
            dsmoe_error error;
            must(dsmoe_model_plan_make(&s.config, s.options.sequence_length, &plan, &error), &error,
                 "a plan");
            sums all = sum_up(&s, n_ranks, (outline_loads){0});
            double flops = plan.matmul_flops + plan.attention_flops / 2;
            flops *= (double)(s.options.n_sequences * s.n_units);
            assert_true(fabs(flops_of(&all) / flops - 1) < 0.01);
            for (int i = 0; i < OUTLINE_GOODS; i++) /* what is sent is received */
                assert_true(fabs(all.sent[i] - all.received[i]) < 1);
            /* Each rank receives all the weights that it does not update itself; tensors have small gaps
             * between them. */
            double expected = 4.0 * (double)(plan.total - (way ? plan.routed_experts : 0));
            expected *= n_ranks - 1;
            assert_true(all.sent[OUTLINE_WEIGHTS] >= expected &&
                        all.sent[OUTLINE_WEIGHTS] <= 1.01 * expected);
            assert_true((all.sent[OUTLINE_ROWS] > 0) == (way == 1 && n_ranks > 1));
        }
}

/* The loads decide where rows are sent, and no token chooses an expert twice. */
static void test_loads(void **state)
{
    (void)state;
    story s = story_make(DSMOE_PARALLEL_EXPERTS, 4);
    double loads[2][12] = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {12}};
    sums even = sum_up(&s, 4, (outline_loads){NULL, 0}),
         alike = sum_up(&s, 4, (outline_loads){loads[0], 1}),
         uneven = sum_up(&s, 4, (outline_loads){loads[1], 1});
    assert_true(even.sent[OUTLINE_ROWS] == alike.sent[OUTLINE_ROWS]);
    assert_true(flops_of(&even) <= flops_of(&uneven) * 1.0001); /* a few are computed twice */
    outline *o;
    dsmoe_error error;
    must(outline_open(&s.config, &s.options, 4, 4, (outline_loads){loads[1], 1}, &o, &error),
         &error, "an outline");
    wave w = {.peers = &o->peers, .n_experts = 12, .said = o->rows[0][0].said};
    int64_t n_tokens = s.options.n_sequences * s.options.sequence_length;
    const int32_t *offsets = wave_offsets(&w, 2);
    assert_int_equal(offsets[1], n_tokens); /* all choose the favourite, and then the next ones */
    assert_int_equal(offsets[12], n_tokens * s.config.num_experts_per_tok);
    for (int r = 0; r < 4; r++) {
        assert_true(wave_sent(&w, 2, r) <= n_tokens);
        assert_true(r == 2 || wave_sent(&w, 2, r) <= wave_rows(&w, 2, r));
    }
    outline_close(o);
    loads[1][0] = 0;
    assert_int_equal(
        outline_open(&s.config, &s.options, 4, 4, (outline_loads){loads[1], 1}, &o, &error),
        DSMOE_ERROR_ARGUMENT);
    assert_int_equal(outline_open(&s.config, &s.options, 0, 4, (outline_loads){0}, &o, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(outline_open(&s.config, &s.options, 4, 0, (outline_loads){0}, &o, &error),
                     DSMOE_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data), cmocka_unit_test(test_experts), cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_sums), cmocka_unit_test(test_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
