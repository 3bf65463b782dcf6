/* test_travel.c - a layer whose experts are divided over ranks gives the same bits as the layer on one
 * machine: outputs, losses and gradients, whichever experts are chosen, and even if ranks have no tokens;
 * and if one rank fails, all do. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "moe/train.h"
#include "moe/wave.h"
#include "socket_peers.h"
#include "support.h"

enum { MOST_UNITS = 12, LOST = 3 }; /* LOST: the exit code of a rank that reported it */

/* ---- all units on one machine ----------------------------------------------------------------- */

typedef struct story {
    dsmoe_layer_config config;
    int n_ranks, n_waves, n_threads;
    int64_t n_sequences, length; /* in each unit */
    unsigned absent;             /* a bit for each missing unit */
    bool is_skewed;              /* all tokens choose the first experts */
    bool is_tiny; /* units 0, 2, … do, with gradients of 0 or -0; the others choose the rest */
    uint64_t seed;
    /* Made before the ranks start: */
    fixture units[MOST_UNITS]; /* unit w·n_ranks + r belongs to rank r in wave w */
    dsmoe_layer_weights *folded;
} story;

static bool is_there(const story *s, int unit) { return !(s->absent >> unit & 1); }

/* Makes one column of x and of the router decide the choice. */
static void skew(fixture *f)
{
    int64_t hidden = f->config.hidden_size;
    for (int64_t t = 0; t < f->n_tokens; t++) f->x[t * hidden] = 4.0f;
    for (int64_t i = 0; i < f->config.n_routed_experts; i++)
        f->weights->gate[i * hidden] = i < f->config.num_experts_per_tok ? 8.0f : -8.0f;
}

static void make_tiny(fixture *f, int unit)
{
    int64_t hidden = f->config.hidden_size, n = f->n_tokens * hidden;
    for (int64_t i = 0; i < n && unit % 2 == 0; i++) {
        f->x[i] *= 1e-15f;
        f->dy[i] *= 1e-20f;
    }
    for (int64_t t = 0; t < f->n_tokens && unit % 2 == 1; t++) f->x[t * hidden] = 4.0f;
    for (int64_t i = 0; i < f->config.n_routed_experts; i++)
        f->weights->gate[i * hidden] = i < f->config.num_experts_per_tok ? -8.0f : 8.0f;
}

static void fold(story *s, const fixture *f, bool is_first)
{
    tensor to[MAX_TENSORS], from[MAX_TENSORS];
    int n = layer_tensors(&s->config, s->folded, to);
    layer_tensors(&s->config, f->gradients, from);
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < to[i].n; j++)
            to[i].data[j] = is_first ? from[i].data[j] : to[i].data[j] + from[i].data[j];
}

static void prepare(story *s)
{
    dsmoe_error error;
    bool is_first = true;
    assert_true(s->n_waves * s->n_ranks <= MOST_UNITS);
    assert_int_equal(dsmoe_layer_weights_create(&s->config, &s->folded, &error), DSMOE_OK);
    for (int u = 0; u < s->n_waves * s->n_ranks; u++) {
        fixture *f = &s->units[u];
        *f = fixture_make(s->config, s->n_sequences, s->length, 1, s->seed);
        fill_random(f->x, f->n_tokens * s->config.hidden_size, 1000 + s->seed + (uint64_t)u, 1.0);
        fill_random(f->dy, f->n_tokens * s->config.hidden_size, 2000 + s->seed + (uint64_t)u, 1.0);
        if (s->is_skewed) skew(f);
        if (s->is_tiny) make_tiny(f, u);
        if (!is_there(s, u)) continue;
        fixture_forward(f);
        fixture_backward(f, false);
        fold(s, f, is_first);
        is_first = false;
    }
}

static void clean(story *s)
{
    for (int u = 0; u < s->n_waves * s->n_ranks; u++) fixture_free(&s->units[u]);
    dsmoe_layer_weights_free(s->folded);
}

/* ---- a rank ------------------------------------------------------------------------------------ */

typedef struct rank_layer {
    dsmoe_layer *layer;
    expert_range held;
    dsmoe_layer_weights *memory, gradients; /* without experts of other ranks */
    void *saved;
    size_t saved_size;
    dsmoe_workspace workspace;
    float *y, *dx;
} rank_layer;

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    assert_non_null(memory);
    memset(memory, 0xa5, size);
    return memory;
}

static moe_expert typed(const dsmoe_expert_weights *e, int64_t hidden, int64_t width)
{
    return (moe_expert){matrix_f32(e->gate_proj, hidden), matrix_f32(e->up_proj, hidden),
                        matrix_f32(e->down_proj, width)};
}

/* The layer of a rank, without the experts of other ranks. */
static dsmoe_layer *create_layer(const story *s, const dsmoe_peers *peers, expert_range held)
{
    const dsmoe_layer_config *c = &s->config;
    const dsmoe_layer_weights *w = s->units[0].weights;
    moe_expert *table = calloc((size_t)c->n_routed_experts, sizeof *table);
    assert_non_null(table);
    for (int64_t i = held.first; i < held.end; i++)
        table[i] = typed(&w->experts[i], c->hidden_size, c->moe_intermediate_size);
    moe_weights weights = {.gate = matrix_f32(w->gate, c->hidden_size),
                           .e_score_correction_bias = w->e_score_correction_bias,
                           .experts = table,
                           .shared_experts =
                               typed(&w->shared_experts, c->hidden_size, moe_shared_width(c))};
    dsmoe_layer *layer;
    assert_int_equal(layer_create(c, &weights, kernels_get(), &layer, NULL), DSMOE_OK);
    free(table);
    layer_join(layer, peers, s->n_sequences * s->length);
    return layer;
}

static rank_layer rank_open(const story *s, const dsmoe_peers *peers)
{
    const dsmoe_layer_config *c = &s->config;
    int64_t n_tokens = s->n_sequences * s->length;
    rank_layer r = {.held = wave_held(c->n_routed_experts, peers->rank, peers->size)};
    tensor list[MAX_TENSORS];
    r.layer = create_layer(s, peers, r.held);
    assert_int_equal(dsmoe_layer_weights_create(c, &r.memory, NULL), DSMOE_OK);
    int n = layer_tensors(c, r.memory, list);
    for (int i = 0; i < n; i++) fill_guard(list[i].data, list[i].n);
    r.gradients = *r.memory;
    r.gradients.experts = calloc((size_t)c->n_routed_experts, sizeof *r.gradients.experts);
    assert_non_null(r.gradients.experts);
    for (int64_t i = r.held.first; i < r.held.end; i++)
        r.gradients.experts[i] = r.memory->experts[i];
    r.saved_size = dsmoe_layer_saved_size(r.layer, n_tokens);
    r.saved = allocate(r.saved_size);
    r.workspace.n_threads = s->n_threads;
    r.workspace.size = dsmoe_layer_train_workspace_size(r.layer, n_tokens, s->n_threads);
    r.workspace.memory = allocate(r.workspace.size);
    r.y = allocate((size_t)(n_tokens * c->hidden_size) * sizeof *r.y);
    r.dx = allocate((size_t)(n_tokens * c->hidden_size) * sizeof *r.dx);
    return r;
}

static void rank_close(rank_layer *r)
{
    dsmoe_layer_free(r->layer);
    dsmoe_layer_weights_free(r->memory);
    free(r->gradients.experts);
    free(r->saved);
    free(r->workspace.memory);
    free(r->y);
    free(r->dx);
}

static dsmoe_status rank_forward(const story *s, rank_layer *r, int unit,
                                 dsmoe_layer_losses *losses, dsmoe_error *error)
{
    bool there = is_there(s, unit);
    return dsmoe_layer_forward_train(r->layer, there ? s->units[unit].x : NULL,
                                     there ? s->n_sequences : 0, s->length, there ? r->y : NULL,
                                     r->saved, r->saved_size, losses, &r->workspace, error);
}

static dsmoe_status rank_backward(const story *s, rank_layer *r, int unit, bool accumulate,
                                  dsmoe_error *error)
{
    bool there = is_there(s, unit);
    return dsmoe_layer_backward(r->layer, there ? s->units[unit].x : NULL,
                                there ? s->units[unit].dy : NULL, r->saved, there ? r->dx : NULL,
                                &r->gradients, accumulate, &r->workspace, error);
}

static void assert_same(const void *ours, const void *expected, int64_t n)
{
    assert_memory_equal(ours, expected, (size_t)n * sizeof(float));
}

static void assert_zero(const float *ours, int64_t n)
{
    for (int64_t i = 0; i < n; i++) assert_true(ours[i] == 0.0f && !signbit(ours[i]));
}

static void compare_expert(const dsmoe_expert_weights *ours, const dsmoe_expert_weights *expected,
                           int64_t n, bool is_zero)
{
    const float *a[] = {ours->gate_proj, ours->up_proj, ours->down_proj};
    const float *b[] = {expected->gate_proj, expected->up_proj, expected->down_proj};
    for (int i = 0; i < 3; i++)
        if (is_zero)
            assert_zero(a[i], n);
        else
            assert_same(a[i], b[i], n);
}

/* The gradients of router and shared experts are those of the rank's own unit. */
static void compare_unit(const story *s, const rank_layer *r, int unit,
                         const dsmoe_layer_losses *losses)
{
    const dsmoe_layer_config *c = &s->config;
    const fixture *f = &s->units[unit];
    bool there = is_there(s, unit);
    int64_t shared = moe_shared_width(c) * c->hidden_size;
    if (there) {
        assert_memory_equal(losses, &f->losses, sizeof *losses);
        assert_same(r->y, f->y, f->n_tokens * c->hidden_size);
        assert_same(r->dx, f->dx, f->n_tokens * c->hidden_size);
        assert_same(r->gradients.gate, f->gradients->gate, c->n_routed_experts * c->hidden_size);
    } else {
        assert_zero(r->gradients.gate, c->n_routed_experts * c->hidden_size);
    }
    if (shared > 0)
        compare_expert(&r->gradients.shared_experts, &f->gradients->shared_experts, shared, !there);
}

static int train_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    const dsmoe_layer_config *c = &s->config;
    rank_layer r = rank_open(s, peers);
    dsmoe_error error;
    for (int w = 0; w < s->n_waves; w++) {
        int unit = w * s->n_ranks + peers->rank;
        dsmoe_layer_losses losses;
        if (rank_forward(s, &r, unit, &losses, &error) != DSMOE_OK) fail_msg("%s", error.message);
        if (rank_backward(s, &r, unit, w > 0, &error) != DSMOE_OK) fail_msg("%s", error.message);
        compare_unit(s, &r, unit, &losses);
    }
    bool nobody = true;
    for (int u = 0; u < s->n_waves * s->n_ranks; u++) nobody = nobody && !is_there(s, u);
    for (int64_t i = r.held.first; i < r.held.end; i++)
        compare_expert(&r.gradients.experts[i], &s->folded->experts[i],
                       c->hidden_size * c->moe_intermediate_size, nobody);
    rank_close(&r);
    return 0;
}

/* Runs the ranks and returns how many calls of the table a rank made. */
static int64_t tell(story s, const socket_peers_options *options)
{
    socket_peers_end ends[SOCKET_PEERS_MAX];
    prepare(&s);
    bool good = socket_peers_run(s.n_ranks, train_body, &s, options, ends);
    clean(&s);
    assert_true(good);
    return ends[0].n_calls;
}

static story story_of(dsmoe_layer_config config, int n_ranks, int64_t n_tokens, uint64_t seed)
{
    return (story){.config = config,
                   .n_ranks = n_ranks,
                   .n_waves = 2,
                   .n_threads = 1 + (int)seed % 2,
                   .n_sequences = 1,
                   .length = n_tokens,
                   .seed = 10 * seed};
}

/* ---- training ---------------------------------------------------------------------------------- */

/* One gather, then two exchanges forward and three backward, of two calls each. */
enum { CALLS_OF_A_WAVE = 1 + 4, CALLS_OF_A_ROUND_BACK = 6 };

static void test_shapes(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++)
        for (int64_t n = 12; n <= 13; n++)
            for (int64_t k = 1; k <= 6; k++) {
                dsmoe_layer_config c = small_config(20, 12, n, k, (k + n_ranks) % 3);
                c.norm_topk_prob = k % 2 == 0;
                c.seq_aux = k % 3 != 0;
                c.n_device_groups = n == 12 ? 3 : 0;
                c.device_loss_alpha = 0.05f;
                story s = story_of(c, n_ranks, 0, (uint64_t)(100 * n_ranks + 10 * n + k));
                s.n_sequences = 2;
                s.length = 9 + k;
                assert_true(tell(s, NULL) >= s.n_waves * (CALLS_OF_A_WAVE + CALLS_OF_A_ROUND_BACK));
            }
}

/* The gates of V2 and V3: dividing experts works the same for all of them. */
static void test_gates(void **state)
{
    (void)state;
    static const char *const methods[] = {"group_limited_greedy", "noaux_tc"};
    for (int n_ranks = 2; n_ranks <= 3; n_ranks++)
        for (int i = 0; i < 2; i++) {
            dsmoe_layer_config c = small_config(20, 12, 12, 3, 1);
            c.scoring_func = i == 0 ? "softmax" : "sigmoid";
            c.topk_method = methods[i];
            c.n_group = 4;
            c.topk_group = 2;
            c.norm_topk_prob = i == 1;
            c.routed_scaling_factor = 2.5f;
            tell(story_of(c, n_ranks, 31, (uint64_t)(10 * n_ranks + i)), NULL);
        }
}

/* More ranks than experts: some ranks have no expert, but have tokens. */
static void test_idle_ranks(void **state)
{
    (void)state;
    tell(story_of(small_config(16, 8, 3, 2, 1), 5, 21, 1), NULL);
    tell(story_of(small_config(16, 8, 1, 1, 0), 3, 21, 2), NULL);
}

/* Rows in several slices, sums in several stretches, gradients in several parts. */
static void test_large(void **state)
{
    (void)state;
    dsmoe_layer_config c = small_config(420, 300, 4, 2, 1);
    story s = story_of(c, 2, 700, 3);
    s.n_waves = 1;
    tell(s, NULL);
    s.n_ranks = 3;
    s.is_skewed = true;
    tell(s, NULL);
}

/* All rows are sent to the rank with the first experts. It processes one unit after another and recomputes
 * what it could not keep. */
static void test_rounds(void **state)
{
    (void)state;
    for (int n_ranks = 2; n_ranks <= 4; n_ranks++)
        for (int64_t k = 1; k <= 3; k++) {
            story s = story_of(small_config(24, 16, 12, k, k % 3), n_ranks, 33, (uint64_t)k);
            s.is_skewed = true;
            int64_t rounds =
                n_ranks < 3 ? 1 : n_ranks - 1; /* rank 0's unit is handled with the next one */
            int64_t calls = tell(s, NULL);
            assert_int_equal(calls, s.n_waves * (1 + rounds * (4 + CALLS_OF_A_ROUND_BACK)));
        }
}

static void test_without_units(void **state)
{
    (void)state;
    static const unsigned absent[] = {1, 2, 4, 3, 6, 5, 7, 1 << 3, 7 << 3, 0x3f, 1 | 7 << 3};
    for (size_t i = 0; i < COUNT(absent); i++)
        for (int is_skewed = 0; is_skewed < 2; is_skewed++) {
            story s = story_of(small_config(20, 12, 7, 2, 1), 3, 17, i);
            s.absent = absent[i];
            s.is_skewed = is_skewed;
            tell(s, NULL);
        }
}

static void test_slow_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        story s = story_of(small_config(20, 12, 7, 3, 2), 3, 31, (uint64_t)i);
        s.is_skewed = i == 2;
        socket_peers_options o = {.seed = (uint64_t)i,
                                  .most_bytes = i == 0 ? 37 : 4000,
                                  .most_delay_us = i == 0 ? 0 : 3000};
        tell(s, &o);
    }
}

/* A unit without rows for an expert adds 0 to -0, which gives 0. A missing unit adds nothing. */
static void test_signs_of_zero(void **state)
{
    (void)state;
    for (unsigned absent = 0; absent <= 2; absent += 2) {
        story s = story_of(small_config(20, 12, 6, 2, 1), 2, 7, 8);
        s.n_waves = 1;
        s.absent = absent;
        s.is_tiny = true;
        prepare(&s);
        const float *alone = s.units[0].gradients->experts[0].up_proj;
        const float *folded = s.folded->experts[0].up_proj;
        int n_alone = 0, n_folded = 0;
        for (int i = 0; i < 20 * 12; i++) {
            assert_true(alone[i] == 0.0f && folded[i] == 0.0f);
            n_alone += signbit(alone[i]) != 0;
            n_folded += signbit(folded[i]) != 0;
        }
        bool is_fused = kernels_get() != &kernels_scalar; /* otherwise sums begin with 0 + -0 */
        assert_true(!is_fused || n_alone > 20);
        assert_int_equal(n_folded, absent ? n_alone : 0);
        assert_true(socket_peers_run(s.n_ranks, train_body, &s, NULL, NULL));
        clean(&s);
    }
}

/* ---- failures ---------------------------------------------------------------------------------- */

/* Rank 1 of 3 has a NaN in x; then the same with good numbers. */
static int nan_body(const dsmoe_peers *peers, void *context)
{
    story *s = context;
    rank_layer r = rank_open(s, peers);
    dsmoe_layer_losses losses = {-1, -1};
    dsmoe_error error;
    float *x = s->units[peers->rank].x + 3 * s->config.hidden_size, good = *x;
    if (peers->rank == 1) *x = NAN;
    assert_int_equal(rank_forward(s, &r, peers->rank, &losses, &error), DSMOE_ERROR_NONFINITE);
    assert_non_null(strstr(error.message, "rank 1 on machine1: token 3 "));
    assert_int_equal(rank_backward(s, &r, peers->rank, false, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(rank_forward(s, &r, peers->rank, NULL, NULL), DSMOE_ERROR_NONFINITE);
    *x = good;
    rank_close(&r);
    return train_body(peers, s);
}

static void test_nan(void **state)
{
    (void)state;
    story s = story_of(small_config(20, 12, 7, 2, 1), 3, 17, 5);
    prepare(&s);
    assert_true(socket_peers_run(s.n_ranks, nan_body, &s, NULL, NULL));
    clean(&s);
}

static int lost_body(const dsmoe_peers *peers, void *context)
{
    const story *s = context;
    rank_layer r = rank_open(s, peers);
    dsmoe_error error;
    dsmoe_status status = rank_forward(s, &r, peers->rank, NULL, &error);
    if (status == DSMOE_OK) status = rank_backward(s, &r, peers->rank, false, &error);
    rank_close(&r);
    return status == DSMOE_ERROR_PEER && strstr(error.message, "rank 1 on machine1") ? LOST : 1;
}

/* If a rank dies at any call, the other ranks end with an error. */
static void test_death(void **state)
{
    (void)state;
    story s = story_of(small_config(20, 12, 7, 2, 1), 3, 17, 6);
    socket_peers_end ends[SOCKET_PEERS_MAX];
    prepare(&s);
    for (int call = 1; call <= CALLS_OF_A_WAVE + CALLS_OF_A_ROUND_BACK; call++) {
        socket_peers_options o = {.bad_rank = 1, .dies_at_call = call};
        socket_peers_run(s.n_ranks, lost_body, &s, &o, ends);
        assert_int_equal(ends[0].exit_code, LOST);
        assert_int_equal(ends[1].signal, SIGKILL);
        assert_int_equal(ends[2].exit_code, LOST);
    }
    clean(&s);
}

static void test_too_many_tokens(void **state)
{
    (void)state;
    dsmoe_peers two = {.rank = 1, .size = 2};
    fixture f = fixture_make(small_config(8, 4, 4, 2, 1), 1, 10, 1, 1);
    layer_join(f.layer, &two, 10);
    assert_true(dsmoe_layer_train_workspace_size(f.layer, 0, 1) > 0);
    assert_true(dsmoe_layer_train_workspace_size(f.layer, 10, 1) > 0);
    assert_int_equal(dsmoe_layer_train_workspace_size(f.layer, 11, 1), 0);
    assert_int_equal(dsmoe_layer_saved_size(f.layer, 11), 0);
    assert_int_equal(dsmoe_layer_workspace_size(f.layer, 11, 1),
                     dsmoe_layer_workspace_size(f.layer, 10, 1));
    assert_int_equal(dsmoe_layer_forward_train(f.layer, f.x, 11, 1, f.y, f.saved, f.saved_size,
                                               NULL, &f.workspace, NULL),
                     DSMOE_ERROR_MEMORY);
    const int64_t impossible[] = {0, INT32_MAX};
    for (size_t i = 0; i < COUNT(impossible); i++) {
        layer_join(f.layer, &two, impossible[i]);
        assert_int_equal(dsmoe_layer_train_workspace_size(f.layer, 0, 1), 0);
        assert_int_equal(dsmoe_layer_workspace_size(f.layer, 10, 1), 0);
    }
    fixture_free(&f);
}

static void test_ranges(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= 20; n_ranks++)
        for (int64_t n = 1; n <= 70; n++) {
            int64_t end = 0;
            for (int rank = 0; rank < n_ranks; rank++) {
                expert_range held = wave_held(n, rank, n_ranks);
                assert_int_equal(held.first, end);
                int64_t size = held.end - held.first;
                assert_true(size == n / n_ranks || size == (n + n_ranks - 1) / n_ranks);
                end = held.end;
            }
            assert_int_equal(end, n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_gates),         cmocka_unit_test(test_idle_ranks),
        cmocka_unit_test(test_large),         cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_without_units), cmocka_unit_test(test_signs_of_zero),
        cmocka_unit_test(test_slow_ranks),    cmocka_unit_test(test_nan),
        cmocka_unit_test(test_death),         cmocka_unit_test(test_too_many_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
