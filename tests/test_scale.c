/* test_scale.c - predicting a training step on many ranks: memory is what trainers request, bytes follow
 * the formulas in docs/machines.md, and time is the sum of computing, waiting and sending. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsmoe.h"

static dsmoe_config preset(const char *name)
{
    dsmoe_config c;
    assert_int_equal(dsmoe_config_preset(name, &c, NULL), DSMOE_OK);
    return c;
}

static dsmoe_scale_options options_of(int n_ranks, dsmoe_parallel parallel)
{
    dsmoe_scale_options o = {.trainer = dsmoe_trainer_options_default(),
                             .n_ranks = n_ranks,
                             .n_units = n_ranks,
                             .bandwidth = 1.25e9,
                             .latency = 50e-6,
                             .speed = {1e11, 2e11, 3e11, 2e10}};
    o.trainer.n_threads = 1;
    o.trainer.parallel = parallel;
    return o;
}

static dsmoe_scale predict(const dsmoe_config *c, const dsmoe_scale_options *o)
{
    dsmoe_scale s;
    dsmoe_error error;
    assert_int_equal(dsmoe_scale_predict(c, o, &s, &error), DSMOE_OK);
    assert_true(fabs(s.computing + s.waiting + s.sending - s.step) <= 1e-9 * s.step);
    assert_true(s.useful > 0 && s.useful <= s.computing * 1.000001);
    return s;
}

static void assert_near(double got, double expected, double tolerance)
{
    if (fabs(got - expected) <= tolerance * fabs(expected)) return;
    print_error("%g instead of %g\n", got, expected);
    fail();
}

static size_t total(dsmoe_trainer_memory m)
{
    return m.weights + m.gradients + m.moments + m.activations + m.workspace;
}

static void test_memory(void **state)
{
    (void)state;
    dsmoe_config c = preset("2b");
    for (int way = 0; way < 2; way++) {
        dsmoe_scale_options o = options_of(5, (dsmoe_parallel)way);
        dsmoe_scale s = predict(&c, &o);
        size_t most = 0, least = SIZE_MAX;
        for (int r = 0; r < 5; r++) {
            dsmoe_peers peers = {.rank = r, .size = 5};
            o.trainer.peers = &peers;
            size_t size = total(dsmoe_trainer_memory_size(&c, &o.trainer));
            if (size > most) most = size;
            if (size < least) least = size;
        }
        assert_int_equal(s.most_memory, most);
        assert_int_equal(s.least_memory, least);
        assert_int_equal(total(s.memory), most);
    }
}

/* 4·(R - 1)/R bytes for each parameter: gradients to their owners, and weights from them. */
static void test_bytes(void **state)
{
    (void)state;
    dsmoe_config c = preset("2b");
    dsmoe_model_plan plan;
    assert_int_equal(dsmoe_model_plan_make(&c, 256, &plan, NULL), DSMOE_OK);
    for (int n_ranks = 2; n_ranks <= 64; n_ranks *= 2) {
        double others = (n_ranks - 1.0) / n_ranks;
        dsmoe_scale_options o = options_of(n_ranks, DSMOE_PARALLEL_DATA);
        dsmoe_scale data = predict(&c, &o);
        assert_near(data.gradients, 4 * (double)plan.total * others, 0.001);
        assert_near(data.weights, 4 * (double)plan.total * others, 0.001);
        assert_true(data.rows == 0 && data.words < 1e-3 * data.gradients);
        o.n_units = 3 * n_ranks; /* gradients are sent in every wave, weights once */
        dsmoe_scale long_step = predict(&c, &o);
        assert_near(long_step.gradients, 3 * data.gradients, 1e-9);
        assert_near(long_step.weights, data.weights, 1e-9);

        o = options_of(n_ranks, DSMOE_PARALLEL_EXPERTS);
        dsmoe_scale experts = predict(&c, &o);
        double rest = (double)(plan.total - plan.routed_experts);
        assert_near(experts.weights, 4 * rest * others, 0.002);
        /* To the experts and back, in forward and backward: tokens are sent once for each rank, rows
         * return one by one. */
        double n_tokens = 8 * 256, layers = (double)plan.n_moe_layers, k = 7;
        double row = 4 * (double)c.hidden_size, most = 5 * k * row, least = 2 * k * row;
        double rows = experts.rows / (n_tokens * layers * others);
        assert_true(rows > least && rows < 1.01 * most);
        if (n_ranks >= 32) assert_near(rows, most, 0.1); /* few tokens have two experts there */
    }
}

static void test_time(void **state)
{
    (void)state;
    dsmoe_config c = preset("tiny");
    for (int way = 0; way < 2; way++) {
        dsmoe_scale_options o = options_of(4, (dsmoe_parallel)way);
        dsmoe_scale usual = predict(&c, &o);
        assert_true(usual.sending > 0);
        o.bandwidth = 1e18; /* only the messages' own cost is left */
        o.latency = 0;
        dsmoe_scale fast = predict(&c, &o);
        assert_near(fast.computing, usual.computing, 1e-9);
        assert_true(fast.sending < usual.sending && fast.sending < 0.02);
        o.bandwidth = 1e4; /* nothing else matters then */
        dsmoe_scale slow = predict(&c, &o);
        double bytes = slow.gradients + slow.weights + slow.rows + slow.words;
        assert_near(slow.step, bytes / (0.75 * o.bandwidth), 0.1);
        o = options_of(4, (dsmoe_parallel)way);
        o.latency = 0.1;
        assert_true(predict(&c, &o).step > usual.step + 1);
    }
    for (int way = 0; way < 2; way++) { /* a single rank sends nothing */
        dsmoe_scale_options o = options_of(1, (dsmoe_parallel)way);
        o.n_units = 3;
        dsmoe_scale alone = predict(&c, &o);
        assert_true(alone.sending == 0 && alone.waiting == 0 && alone.hidden == 0);
        assert_true(alone.gradients + alone.weights + alone.rows + alone.words == 0);
        o.trainer.recompute = true;
        dsmoe_scale again = predict(&c, &o);
        assert_true(again.computing > alone.computing && again.useful == alone.useful);
    }
}

/* Gradients are sent during backward and weights during forward, so a slow network is hidden by slow
 * computing. */
static void test_hidden(void **state)
{
    (void)state;
    dsmoe_config c = preset("2b");
    dsmoe_scale_options o = options_of(8, DSMOE_PARALLEL_DATA);
    o.speed = (dsmoe_training_speed){1e9, 1e9, 1e9, 2e10};
    dsmoe_scale s = predict(&c, &o);
    double once = s.gradients / (0.75 * o.bandwidth);
    /* The first layer has no time to hide in: no layer is left before it, or none has been received yet. */
    double first = once / (double)c.num_hidden_layers;
    assert_near(s.hidden, 2 * (once - first), 0.02);
    assert_near(s.sending, 2 * first, 0.1);
}

static void test_imbalance(void **state)
{
    (void)state;
    dsmoe_config c = preset("2b");
    dsmoe_scale_options o = options_of(4, DSMOE_PARALLEL_EXPERTS);
    dsmoe_scale even = predict(&c, &o);
    o.imbalance = 1.5;
    dsmoe_scale uneven = predict(&c, &o);
    assert_true(uneven.waiting > even.waiting && uneven.step > 1.05 * even.step);
    double loads[63];
    for (int i = 0; i < 63; i++) loads[i] = 1;
    o.loads = loads;
    o.n_load_layers = 1;
    assert_near(predict(&c, &o).step, even.step, 0.01); /* replaces the imbalance */
    for (int i = 0; i < 63; i++) loads[i] = i < 15 ? 3 : 0.4;
    assert_true(predict(&c, &o).step > uneven.step);
    o = options_of(128, DSMOE_PARALLEL_EXPERTS); /* half of the ranks have no experts */
    dsmoe_scale many = predict(&c, &o);
    assert_true(many.waiting > 0.2 * many.step);
    o.imbalance = 1000; /* more than is possible */
    predict(&c, &o);
}

static void test_speed(void **state)
{
    (void)state;
    dsmoe_config c = preset("tiny");
    dsmoe_scale_options o = options_of(1, DSMOE_PARALLEL_DATA);
    o.n_units = 1;
    dsmoe_scale s = predict(&c, &o);
    /* Times computed from these speeds give the same speeds back. */
    dsmoe_trainer_times times = {0};
    dsmoe_training_speed found, ones;
    dsmoe_error error;
    times.attention = times.router = times.rest = 1.0 / 3;
    times.experts = times.head = times.optimizer = 1;
    assert_int_equal(dsmoe_training_speed_find(&c, &o.trainer, 1, &times, &ones, &error), DSMOE_OK);
    times.attention = 0.5 * ones.attention / o.speed.attention;
    times.router = times.rest = 0.25 * ones.attention / o.speed.attention;
    times.experts = ones.experts / o.speed.experts;
    times.head = ones.head / o.speed.head;
    times.optimizer = ones.memory / o.speed.memory;
    assert_int_equal(dsmoe_training_speed_find(&c, &o.trainer, 1, &times, &found, &error),
                     DSMOE_OK);
    assert_near(found.attention, o.speed.attention, 1e-9);
    assert_near(found.experts, o.speed.experts, 1e-9);
    assert_near(found.head, o.speed.head, 1e-9);
    assert_near(found.memory, o.speed.memory, 1e-9);
    double sum = times.attention + times.router + times.rest + times.experts + times.head;
    assert_near(s.useful, sum, 1e-9);
    assert_near(s.computing, sum + times.optimizer, 1e-9);
}

/* ---- compared with a simulation of the messages ---------------------------------------------------- */

/* Reads a line of numbers, counting lines from 0. */
static void read_loads(const char *name, int line, double *loads, int64_t n)
{
    char path[512], text[4096], *at = text;
    snprintf(path, sizeof path, TEST_DATA "/scale/%s", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; i <= line; i++) assert_non_null(fgets(text, sizeof text, file));
    for (int64_t i = 0; i < n; i++) loads[i] = strtod(at, &at);
    assert_int_equal(*at, '\n');
    fclose(file);
}

/* Compares one line of the table; returns false if it is a comment. */
static bool compare_line(const char *text)
{
    char model[16], way[16], file[32];
    int layers, ranks, line;
    double gbit, step, loads[64];
    dsmoe_training_speed v;
    if (text[0] == '#') return false;
    assert_int_equal(sscanf(text, "%15s %d %15s %d %lf %lf %lf %lf %lf %31s %d %lf", model, &layers,
                            way, &ranks, &gbit, &v.attention, &v.experts, &v.head, &v.memory, file,
                            &line, &step),
                     12);
    dsmoe_config c = preset(model);
    c.num_hidden_layers = layers;
    dsmoe_scale_options o =
        options_of(ranks, strcmp(way, "experts") ? DSMOE_PARALLEL_DATA : DSMOE_PARALLEL_EXPERTS);
    o.trainer.n_sequences = 4;
    o.trainer.sequence_length = 1024;
    o.bandwidth = gbit * 1e9 / 8;
    o.speed = v;
    read_loads(file, line, loads, c.n_routed_experts);
    o.loads = loads;
    o.n_load_layers = 1;
    assert_near(predict(&c, &o).step, step, 0.1);
    return true;
}

static void test_simulated(void **state)
{
    (void)state;
    FILE *file = fopen(TEST_DATA "/scale/simulated.txt", "r");
    char text[512];
    int n = 0;
    assert_non_null(file);
    while (fgets(text, sizeof text, file)) n += compare_line(text);
    fclose(file);
    assert_true(n >= 50);
}

static void assert_refused(const dsmoe_config *c, const dsmoe_scale_options *o, const char *word)
{
    dsmoe_scale s;
    dsmoe_error error;
    assert_int_not_equal(dsmoe_scale_predict(c, o, &s, &error), DSMOE_OK);
    assert_non_null(strstr(error.message, word));
}

static void test_refused(void **state)
{
    (void)state;
    dsmoe_config c = preset("tiny");
    dsmoe_scale_options good = options_of(2, DSMOE_PARALLEL_DATA), o = good;
    assert_refused(NULL, &o, "no configuration");
    o.n_ranks = 0;
    assert_refused(&c, &o, "ranks");
    o = good;
    o.n_units = 0;
    assert_refused(&c, &o, "batch");
    o = good;
    o.bandwidth = 0;
    assert_refused(&c, &o, "network");
    o = good;
    o.latency = NAN;
    assert_refused(&c, &o, "network");
    o = good;
    o.speed.head = -1;
    assert_refused(&c, &o, "speed");
    o = good;
    o.imbalance = INFINITY;
    assert_refused(&c, &o, "mean");
    o = good;
    o.trainer.n_sequences = 0;
    assert_refused(&c, &o, "batch");
    c.num_experts_per_tok = 64;
    assert_refused(&c, &good, "num_experts_per_tok");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_time),      cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_imbalance), cmocka_unit_test(test_speed),
        cmocka_unit_test(test_simulated), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
