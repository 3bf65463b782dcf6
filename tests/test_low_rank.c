/* test_low_rank.c - low-rank additions to products: the numbers, which rows use which adapter, and the
 * same bits alone and together. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quantize.h"
#include "model/linear.h"
#include "moe/layer.h"
#include "moe/low_rank.h"

enum { N_IN = 64, N_OUT = 40, N_ROWS = 300, RANK = 5, WIDTH = 2 * RANK + 3 };

/* Two adapters for one matrix, with different ranks. */
typedef struct two {
    floats a[2], b[2];
    unsigned char *a_stored[2], *panels[2];
    low_rank of[2][2];
    adapter adapters[2];
} two;

static const int64_t ranks[2] = {RANK, RANK + 3};

static void two_make(two *t)
{
    for (int i = 0; i < 2; i++) {
        t->a[i] = floats_random(ranks[i] * N_IN, 1, (uint64_t)(40 + i));
        t->b[i] = floats_random(N_OUT * ranks[i], 0, (uint64_t)(50 + i));
        t->of[i][1] = (low_rank){
            .a = t->a[i].at, .b = t->b[i].at, .rank = ranks[i], .scale = 0.5f + (float)i};
        t->adapters[i] = (adapter){t->of[i], 2, ranks[i]};
    }
}

/* Rounds all numbers to the type. */
static void two_round(two *t, dsmoe_dtype type)
{
    unsigned char bytes[4];
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < ranks[i] * (N_IN + N_OUT); j++) {
            int64_t of_b = j - ranks[i] * N_IN;
            float *number = of_b < 0 ? &t->a[i].at[j] : &t->b[i].at[of_b];
            quantize_row(type, 1, number, NULL, bytes);
            low_rank_widen(type, bytes, 0, 1, number);
        }
}

/* From now on the numbers are stored in the type only, B in panels. */
static void two_store(two *t, dsmoe_dtype type)
{
    int64_t size = dtype_bytes(type, 1);
    for (int i = 0; i < 2; i++) {
        low_rank *low = &t->of[i][1];
        t->a_stored[i] = malloc((size_t)(low->rank * N_IN * size));
        t->panels[i] = calloc((size_t)(low->rank * moe_parts(N_OUT, PANEL_COLUMNS) * PANEL_COLUMNS),
                              (size_t)size);
        quantize_row(type, low->rank * N_IN, t->a[i].at, NULL, t->a_stored[i]);
        for (int64_t j = 0; j < N_OUT; j++)
            for (int64_t r = 0; r < low->rank; r++)
                quantize_row(type, 1, &low->b[j * low->rank + r], NULL,
                             t->panels[i] + low_rank_place(low->rank, j, r) * size);
        *low = (low_rank){.a = t->a_stored[i],
                          .panels = t->panels[i],
                          .a_type = type,
                          .panels_type = type,
                          .rank = low->rank,
                          .scale = low->scale};
    }
}

static void two_free(two *t)
{
    for (int i = 0; i < 2; i++) {
        free(t->a_stored[i]);
        free(t->panels[i]);
        floats_free(t->a[i]);
        floats_free(t->b[i]);
    }
}

/* Rows 0 … 9 use the first adapter, 10 … 19 none, 20 … 199 both, the rest the second. */
static int make_ranges(const two *t, adapter_range *list)
{
    const adapter_range all[] = {{&t->adapters[0], 2.0f, 0, 10},
                                 {&t->adapters[0], -1.0f, 20, 200},
                                 {&t->adapters[1], 0.25f, 20, 200},
                                 {&t->adapters[1], 1.0f, 200, N_ROWS}};
    memcpy(list, all, sizeof all);
    return COUNT(all);
}

static double expected_addition(const two *t, const float *x, int64_t row, int64_t column)
{
    double scale[2] = {row < 10                 ? 2.0
                       : row >= 20 && row < 200 ? -1.0
                                                : 0.0,
                       row >= 200  ? 1.0
                       : row >= 20 ? 0.25
                                   : 0.0};
    double sum = 0.0;
    for (int i = 0; i < 2; i++)
        for (int64_t r = 0; r < ranks[i]; r++) {
            double inner = 0.0;
            for (int64_t k = 0; k < N_IN; k++)
                inner += (double)x[row * N_IN + k] * t->a[i].at[r * N_IN + k];
            sum += scale[i] * t->of[i][1].scale * inner * t->b[i].at[column * ranks[i] + r];
        }
    return sum;
}

typedef struct bench {
    two two;
    floats x, w;
    unsigned char *blocks;
    matrix weight;
    void *memory;
    thread_scratch *threads;
    adapter_range list[4];
    adapter_ranges ranges;
    floats t;
} bench;

static bench bench_make(dsmoe_dtype type, int n_threads)
{
    bench b = {.x = floats_random(N_ROWS * N_IN, 0, 1), .w = floats_random(N_OUT * N_IN, 0, 2)};
    b.weight = matrix_f32(b.w.at, N_IN);
    if (type != DSMOE_F32) {
        b.weight = (matrix){.stride = dtype_bytes(type, N_IN), .type = type};
        b.blocks = malloc((size_t)(N_OUT * b.weight.stride));
        for (int64_t i = 0; i < N_OUT; i++)
            quantize_row(type, N_IN, b.w.at + i * N_IN, NULL, b.blocks + i * b.weight.stride);
        b.weight.data = b.blocks;
    }
    b.weight.id = 1;
    arena measure = arena_over(NULL);
    scratch_place(&measure, kernels_get(), N_IN, 0, n_threads);
    b.memory = aligned_alloc(64, (arena_size(&measure) + 63) / 64 * 64);
    arena place = arena_over(b.memory);
    b.threads = scratch_place(&place, kernels_get(), N_IN, 0, n_threads);
    b.t = floats_make(N_ROWS * WIDTH, 0);
    return b;
}

static void bench_adapt(bench *b, int n_threads)
{
    two_make(&b->two);
    b->ranges = (adapter_ranges){
        .list = b->list, .n = make_ranges(&b->two, b->list), .width = WIDTH, .t = b->t.at};
    scratch_adapt(b->threads, n_threads, &b->ranges);
}

static void bench_free(bench *b)
{
    two_free(&b->two);
    floats_free(b->x);
    floats_free(b->w);
    floats_free(b->t);
    free(b->blocks);
    free(b->memory);
}

static void run(const bench *b, int64_t first, int64_t n, int n_threads, float *y)
{
    const product p = {{b->x.at + first * N_IN, N_IN, NULL}, n, N_IN, b->weight, NULL, N_OUT, y};
    linear_run(&p, 1, b->threads, n_threads);
}

/* Computes some rows alone, for types whose products keep a row's bits. */
static void check_company(bench *b, int n_threads, const float *y)
{
    floats alone = floats_make(6 * N_OUT, 0);
    for (int64_t r = 0; r + 6 <= N_ROWS; r += 7) {
        int64_t n = r % 6 + 1;
        b->ranges.first = r;
        run(b, r, n, n_threads, alone.at);
        assert_memory_equal(y + r * N_OUT, alone.at, (size_t)(n * N_OUT) * sizeof(float));
    }
    floats_free(alone);
}

/* An adapter in float32, as it is trained, and one stored in a type, with the same bits. */
static void check_product(dsmoe_dtype type, dsmoe_dtype stored)
{
    enum { THREADS = 3 };
    bench b = bench_make(type, THREADS);
    floats bare = floats_make(N_ROWS * N_OUT, 0), y = floats_make(N_ROWS * N_OUT, 0);
    floats again = floats_make(N_ROWS * N_OUT, 0);
    run(&b, 0, N_ROWS, THREADS, bare.at);
    bench_adapt(&b, THREADS);
    two_round(&b.two, stored);
    run(&b, 0, N_ROWS, THREADS, y.at);
    for (int64_t r = 0; r < N_ROWS; r++)
        for (int64_t j = 0; j < N_OUT; j++) {
            double wanted = bare.at[r * N_OUT + j] + expected_addition(&b.two, b.x.at, r, j);
            assert_true(fabs(y.at[r * N_OUT + j] - wanted) < 1e-3);
        }
    assert_memory_equal(y.at + 10 * N_OUT, bare.at + 10 * N_OUT, 10 * N_OUT * sizeof(float));
    run(&b, 0, N_ROWS, 1, again.at);
    assert_memory_equal(y.at, again.at, N_ROWS * N_OUT * sizeof(float));
    if (type != DSMOE_F32) check_company(&b, THREADS, y.at);
    b.ranges.first = 0;
    two_store(&b.two, stored);
    run(&b, 0, N_ROWS, THREADS, again.at);
    assert_memory_equal(y.at, again.at, N_ROWS * N_OUT * sizeof(float));
    if (type != DSMOE_F32) check_company(&b, THREADS, y.at);
    floats_free(bare);
    floats_free(y);
    floats_free(again);
    bench_free(&b);
}

static void test_products(void **state)
{
    (void)state;
    check_product(DSMOE_F32, DSMOE_F32);
    check_product(DSMOE_Q8_0, DSMOE_F32);
    check_product(DSMOE_Q8_0, DSMOE_F16);
    check_product(DSMOE_Q5_0, DSMOE_BF16);
}

/* If B is zero, no bit changes. */
static void test_zeros(void **state)
{
    (void)state;
    bench b = bench_make(DSMOE_Q8_0, 2);
    floats bare = floats_make(N_ROWS * N_OUT, 0), y = floats_make(N_ROWS * N_OUT, 0);
    run(&b, 0, N_ROWS, 2, bare.at);
    bench_adapt(&b, 2);
    for (int i = 0; i < 2; i++)
        memset(b.two.b[i].at, 0, (size_t)(N_OUT * ranks[i]) * sizeof(float));
    run(&b, 0, N_ROWS, 2, y.at);
    assert_memory_equal(y.at, bare.at, N_ROWS * N_OUT * sizeof(float));
    floats_free(bare);
    floats_free(y);
    bench_free(&b);
}

/* ---- a layer ------------------------------------------------------------------------------- */

/* Numbers the layer's matrices, except the router, from 1. */
static void number_experts(dsmoe_layer *layer)
{
    int32_t id = 0;
    for (int64_t i = 0; i <= layer->config.n_routed_experts; i++) {
        moe_expert *e = i < layer->config.n_routed_experts ? &layer->weights.experts[i]
                                                           : &layer->weights.shared_experts;
        e->gate_proj.id = ++id;
        e->up_proj.id = ++id;
        e->down_proj.id = ++id;
    }
}

static void merge(float *w, const low_rank *low, int64_t n_out, int64_t n_in)
{
    const float *a = low->a;
    for (int64_t i = 0; i < n_out; i++)
        for (int64_t j = 0; j < n_in; j++)
            for (int64_t r = 0; r < low->rank; r++)
                w[i * n_in + j] += low->scale * low->b[i * low->rank + r] * a[r * n_in + j];
}

static float *random_part(int64_t n, int id, int which)
{
    float *made = malloc((size_t)n * sizeof *made);
    fill_random(made, n, (uint64_t)(100 * which + id), 0.2);
    return made;
}

/* For tokens that use the adapter, a layer with merged weights gives the same. */
static void test_layer(void **state)
{
    (void)state;
    enum { TENSORS = 3 * 5 + 1, FIRST = 6, RANK_HERE = 3 };
    dsmoe_layer_config config = small_config(24, 16, 4, 2, 2);
    fixture f = fixture_make(config, 1, 23, 2, 7);
    fixture_infer(&f);
    floats bare = floats_make(f.n_tokens * 24, 0), y = floats_make(f.n_tokens * 24, 0);
    memcpy(bare.at, f.y, (size_t)(f.n_tokens * 24) * sizeof(float));
    number_experts(f.layer);
    f.layer->low_rank_width = RANK_HERE;
    low_rank of[TENSORS] = {{0}};
    tensor list[MAX_TENSORS];
    int n = layer_tensors(&config, f.weights, list);
    for (int id = 1; id < TENSORS && id < n; id++) {
        bool down = id % 3 == 0;
        int64_t width = id > 12 ? 32 : 16, n_in = down ? width : 24, n_out = down ? 24 : width;
        of[id] = (low_rank){.a = random_part(RANK_HERE * n_in, id, 1),
                            .b = random_part(n_out * RANK_HERE, id, 2),
                            .rank = RANK_HERE,
                            .scale = 0.7f};
    }
    adapter one = {of, TENSORS, RANK_HERE};
    adapter_range range = {&one, 1.0f, FIRST, 1000};
    adapter_ranges ranges = {.list = &range, .n = 1, .width = RANK_HERE};
    layer_manner manner = {.adapters = &ranges};
    size_t size = dsmoe_layer_workspace_size(f.layer, f.n_tokens, 2);
    dsmoe_workspace workspace = {aligned_alloc(64, (size + 63) / 64 * 64), size, 2};
    assert_int_equal(layer_forward(f.layer, f.x, f.n_tokens, y.at, &workspace, &manner, NULL),
                     DSMOE_OK);
    for (int id = 1; id < TENSORS; id++) {
        bool down = id % 3 == 0;
        int64_t width = id > 12 ? 32 : 16;
        merge(list[id].data, &of[id], down ? 24 : width, down ? width : 24);
    }
    f.layer->low_rank_width = 0; /* so that the workspace size fits again */
    fixture_infer(&f);
    assert_true(worst_distance(y.at, bare.at, FIRST * 24) < 1e-6);
    assert_true(worst_distance(y.at + FIRST * 24, f.y + FIRST * 24, (f.n_tokens - FIRST) * 24) <
                1e-5);
    assert_true(worst_distance(bare.at + FIRST * 24, f.y + FIRST * 24, (f.n_tokens - FIRST) * 24) >
                1e-2);
    for (int id = 1; id < TENSORS; id++) {
        free((void *)of[id].a);
        free((void *)of[id].b);
    }
    free(workspace.memory);
    floats_free(bare);
    floats_free(y);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
