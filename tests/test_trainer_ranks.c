/* test_trainer_ranks.c - several ranks train to the same bits as one: weights, moments, losses, norms and
 * loads, with data or experts divided, for any number of ranks, threads and batches; and all ranks skip a
 * step that one of them spoils. */
#include "support.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "made_trainer.h"
#include "socket_peers.h"
#include "train/spread.h"
#include "train/units.h"

enum { STEPS = 3, MOST_UNITS = 5, LOST = 3 }; /* LOST: the exit code of a rank that lost a peer */

/* One training, first on one machine and then by ranks. */
typedef struct story {
    dsmoe_config config;
    dsmoe_trainer_options options;
    int n_units;     /* in a step */
    int spoilt_step; /* a unit's loss is NaN in this step; -1: none */
    int spoilt_unit;
    /* Results of one machine: */
    dsmoe_trainer *alone;
    double norms[STEPS], losses[STEPS][MOST_UNITS];
    bool skipped[STEPS];
} story;

static story story_make(int n_units)
{
    story s = {.config = made_config(), .options = made_options(2, 9), .n_units = n_units};
    s.config.n_routed_experts = 12;
    s.config.aux_loss_alpha = 0.02;
    s.options.n_device_groups = 4;
    s.options.device_loss_alpha = 0.05;
    s.spoilt_step = -1;
    return s;
}

static made_batch batch_of(const story *s, int step, int unit)
{
    return made_batch_create(&s->config, &s->options, (uint64_t)(100 * step + unit));
}

/* Sets weights to NaN, which makes every loss NaN, or restores them. */
static void spoil(dsmoe_trainer *t, float *kept, bool back)
{
    float *at = t->weights + t->parameters[0].begin;
    int64_t n = t->parameters[0].n;
    for (int64_t i = 0; i < n; i++) {
        if (!back) kept[i] = at[i];
        at[i] = back ? kept[i] : NAN;
    }
}

static double loss_of(dsmoe_batch_losses l)
{
    return l.loss + 1e3 * l.aux_loss + 1e6 * l.device_loss;
}

static void run_alone(story *s)
{
    s->alone = fresh_trainer(&s->config, &s->options, 5);
    float *kept = malloc((size_t)s->alone->parameters[0].n * sizeof *kept);
    for (int step = 0; step < STEPS; step++) {
        for (int u = 0; u < s->n_units; u++) {
            made_batch b = batch_of(s, step, u);
            dsmoe_batch_losses l;
            bool bad = step == s->spoilt_step && u == s->spoilt_unit;
            if (bad) spoil(s->alone, kept, false);
            dsmoe_trainer_backward(
                s->alone, &(dsmoe_batch){.tokens = b.tokens, .targets = b.targets}, &l, NULL);
            if (bad) spoil(s->alone, kept, true);
            s->losses[step][u] = loss_of(l);
            made_batch_free(&b);
        }
        dsmoe_update update = run_update(s->alone, 1e-2);
        s->norms[step] = update.grad_norm;
        s->skipped[step] = update.skipped;
    }
    free(kept);
}

/* ---- a rank ------------------------------------------------------------------------------------- */

static void run_wave(const story *s, dsmoe_trainer *t, int step, int first)
{
    int rank = t->options.peers ? t->options.peers->rank : 0, unit = first + rank;
    made_batch b = {0};
    dsmoe_error error;
    bool bad = step == s->spoilt_step && unit == s->spoilt_unit;
    float *kept = malloc((size_t)t->parameters[0].n * sizeof *kept);
    if (unit < s->n_units) b = batch_of(s, step, unit);
    if (bad) spoil(t, kept, false);
    dsmoe_status status = dsmoe_trainer_backward(
        t, &(dsmoe_batch){.tokens = b.tokens, .targets = b.targets}, NULL, &error);
    if (status == DSMOE_ERROR_PEER) _exit(LOST);
    if (bad) spoil(t, kept, true);
    bool all_well = step != s->spoilt_step || s->spoilt_unit < first ||
                    s->spoilt_unit >= first + peers_size(t->options.peers);
    assert_int_equal(status, all_well ? DSMOE_OK : DSMOE_ERROR_NONFINITE);
    for (int r = 0; all_well && r < peers_size(t->options.peers) && first + r < s->n_units; r++)
        assert_memory_equal(&(double){loss_of(units_losses(t, r))}, &s->losses[step][first + r],
                            sizeof(double));
    free(kept);
    if (unit < s->n_units) made_batch_free(&b);
}

/* The rows that rank 0 reads from all ranks must equal those of one machine. */
static void compare_rows(const story *s, dsmoe_trainer *t)
{
    float *room = malloc(SPREAD_PIECE * sizeof *room),
          *piece = malloc(SPREAD_PIECE * sizeof *piece);
    dsmoe_error error;
    for (int row = 0; row < N_ROWS; row++)
        for (size_t i = 0; i < t->n_parameters; i++)
            for (int64_t first = 0, n; first < t->parameters[i].n; first += n) {
                const float *numbers, *expected;
                n = t->parameters[i].n - first < 1000 ? t->parameters[i].n - first : 1000;
                dsmoe_status status =
                    spread_read(t, (trainer_row)row, i, first, n, room, &numbers, &error);
                if (status == DSMOE_ERROR_PEER) _exit(LOST);
                must(status, &error, "reading");
                must(spread_read(s->alone, (trainer_row)row, i, first, n, piece, &expected, &error),
                     &error, "reading alone");
                if (peers_rank(t->options.peers) == 0)
                    assert_memory_equal(numbers, expected, (size_t)n * sizeof *numbers);
            }
    free(room);
    free(piece);
}

/* Times must not be counted twice, or subtracted from a part that does not contain them. */
static void check_times(dsmoe_trainer *t, double start)
{
    const double passed = clock_seconds() - start, none = -1e-6;
    dsmoe_trainer_times s = dsmoe_trainer_take_times(t);
    /* Sending while a router computes is counted in the router's time too and subtracted from the experts'
     * time. */
    const double parts[] = {
        s.attention, s.experts + s.router, s.head, s.optimizer, s.rest, s.sending, s.waiting};
    double sum = 0;
    for (int i = 0; i < 7; i++) {
        if (parts[i] < none) fail_msg("part %d took %g s", i, parts[i]);
        sum += parts[i];
    }
    if (sum > passed - none) fail_msg("%g s of %g s", sum, passed);
}

static int train(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    dsmoe_trainer_options options = s->options;
    dsmoe_error error;
    options.peers = peers;
    dsmoe_trainer *t = fresh_trainer(&s->config, &options, 5);
    for (int step = 0; step < STEPS; step++) {
        double start = clock_seconds();
        for (int first = 0; first < s->n_units; first += peers->size) run_wave(s, t, step, first);
        dsmoe_update update;
        dsmoe_status status = dsmoe_trainer_update(t, 1e-2, &update, &error);
        if (status == DSMOE_ERROR_PEER) _exit(LOST);
        must(status, &error, "an update");
        assert_int_equal(update.skipped, s->skipped[step]);
        if (!update.skipped)
            assert_memory_equal(&update.grad_norm, &s->norms[step], sizeof(double));
        check_times(t, start);
    }
    compare_rows(s, t);
    if (s->spoilt_step < 0)
        assert_memory_equal(dsmoe_trainer_expert_load(t), dsmoe_trainer_expert_load(s->alone),
                            (size_t)(t->n_moe_layers * s->config.n_routed_experts) *
                                sizeof(int64_t));
    dsmoe_trainer_free(t);
    return 0;
}

/* With 1 to 4 ranks, 1 and 2 threads, and both kinds of division. */
static void compare(story *s, int most_ranks, const socket_peers_options *how)
{
    run_alone(s);
    for (int n_ranks = 1; n_ranks <= most_ranks; n_ranks++)
        for (int way = 0; way < 4; way++) {
            s->options.parallel = way & 1 ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA;
            s->options.n_threads = way & 2 ? 2 : 1;
            assert_true(socket_peers_run(n_ranks, train, s, how, NULL));
        }
    dsmoe_trainer_free(s->alone);
}

/* ---- tests -------------------------------------------------------------------------------------- */

static void test_ranks(void **state)
{
    (void)state;
    for (int n_units = 1; n_units <= MOST_UNITS; n_units += 2) {
        story s = story_make(n_units);
        compare(&s, 4, NULL);
    }
}

static void test_models(void **state)
{
    (void)state;
    story tied = story_make(4), again = story_make(4), uneven = story_make(3);
    tied.config.tie_word_embeddings = true;
    tied.config.attention_bias = true;
    tied.config.norm_topk_prob = true;
    tied.config.seq_aux = false;
    compare(&tied, 3, NULL);
    again.options.recompute = true;
    again.config.n_shared_experts = 0;
    compare(&again, 3, NULL);
    uneven.config.n_routed_experts = 13;
    uneven.options.n_device_groups = 0;
    uneven.config.vocab_size = 3001; /* several chunks */
    compare(&uneven, 3,
            &(socket_peers_options){.most_bytes = 5000, .most_delay_us = 200, .seed = 3});
}

static void test_latent(void **state)
{
    (void)state;
    story s = story_make(4);
    s.config = made_latent_config();
    s.config.n_routed_experts = 12;
    s.options.recompute = true;
    compare(&s, 3, NULL);
}

/* The biases of all ranks follow the load of all batches, except in a skipped step. */
static void test_correction(void **state)
{
    (void)state;
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        story s = story_make(4);
        s.config = made_v3_config();
        s.options.bias_speed = 0.01;
        if (spoilt) s.spoilt_step = s.spoilt_unit = 1;
        compare(&s, 4, NULL);
    }
}

/* If one rank's unit has no finite loss, no rank updates, and training continues on all of them. */
static void test_spoilt(void **state)
{
    (void)state;
    story s = story_make(5);
    s.spoilt_step = 1;
    s.spoilt_unit = 3;
    compare(&s, 4, NULL);
}

/* If a rank dies at any call, the others soon end with an error. */
static void test_lost(void **state)
{
    (void)state;
    story s = story_make(3);
    run_alone(&s);
    for (int way = 0; way < 2; way++) {
        socket_peers_end ends[3];
        s.options.parallel = way ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA;
        assert_true(socket_peers_run(3, train, &s, NULL, ends));
        int64_t n_calls = ends[1].n_calls;
        for (int64_t call = 1; call <= n_calls; call += way ? 29 : 7) {
            socket_peers_options how = {.bad_rank = 1, .dies_at_call = call, .time_limit = 20};
            assert_false(socket_peers_run(3, train, &s, &how, ends));
            assert_int_equal(ends[1].signal, SIGKILL);
            for (int r = 0; r < 3; r += 2) assert_int_equal(ends[r].exit_code, LOST);
        }
    }
    dsmoe_trainer_free(s.alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),  cmocka_unit_test(test_models),
        cmocka_unit_test(test_latent), cmocka_unit_test(test_correction),
        cmocka_unit_test(test_spoilt), cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
