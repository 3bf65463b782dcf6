/* test_linear_backward.c - dx of linear layers, for any division into rows and columns: against sums in
 * double, and the same bits for any number of threads. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/quantize.h"
#include "train/linear_backward.h"

enum { N_OUT = 40, MOST_THREADS = 3 };

/* Two layers with the same input; the second is quantised if n_in allows it. */
typedef struct two {
    int64_t n_rows, n_in;
    floats w[2], dy[2], x;
    unsigned char *blocks;
    matrix weight[2];
} two;

static two two_make(int64_t n_rows, int64_t n_in)
{
    two t = {.n_rows = n_rows, .n_in = n_in, .x = floats_random(n_rows * n_in, 0, 7)};
    for (int i = 0; i < 2; i++) {
        t.w[i] = floats_random(N_OUT * n_in, 0, (uint64_t)(1 + i));
        t.dy[i] = floats_random(n_rows * N_OUT, 0, (uint64_t)(3 + i));
        t.weight[i] = matrix_f32(t.w[i].at, n_in);
    }
    if (n_in % 256 != 0) return t;
    int64_t stride = dtype_bytes(DSMOE_Q4_K, n_in);
    t.blocks = malloc((size_t)(N_OUT * stride));
    assert_non_null(t.blocks);
    for (int64_t i = 0; i < N_OUT; i++)
        quantize_row(DSMOE_Q4_K, n_in, t.w[1].at + i * n_in, NULL, t.blocks + i * stride);
    kernels_scalar.dtypes[DSMOE_Q4_K].widen(N_OUT * n_in, t.blocks, t.w[1].at);
    t.weight[1] = (matrix){.data = t.blocks, .stride = stride, .type = DSMOE_Q4_K};
    return t;
}

static void two_free(two *t)
{
    for (int i = 0; i < 2; i++) {
        floats_free(t->w[i]);
        floats_free(t->dy[i]);
    }
    floats_free(t->x);
    free(t->blocks);
}

static void run(const two *t, int n_threads, float *dx)
{
    arena measure = arena_over(NULL);
    scratch_place(&measure, kernels_get(), t->n_in, 0, n_threads);
    void *memory = aligned_alloc(64, (arena_size(&measure) + 63) / 64 * 64);
    assert_non_null(memory);
    arena place = arena_over(memory);
    linear_gradient layers[2];
    for (int i = 0; i < 2; i++)
        layers[i] = (linear_gradient){.weight = t->weight[i], .n_out = N_OUT, .dy = t->dy[i].at};
    linear_backward(&(linear_backward_job){
        .n_rows = t->n_rows,
        .n_in = t->n_in,
        .x = t->x.at,
        .layers = layers,
        .n_layers = 2,
        .dx = dx,
        .threads = scratch_place(&place, kernels_get(), t->n_in, 0, n_threads),
        .n_threads = n_threads});
    free(memory);
}

static void check(int64_t n_rows, int64_t n_in)
{
    two t = two_make(n_rows, n_in);
    floats dx = floats_make(n_rows * n_in, 0), again = floats_make(n_rows * n_in, 0);
    run(&t, 1, dx.at);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t j = 0; j < n_in; j++) {
            double sum = 0;
            for (int i = 0; i < 2; i++)
                for (int64_t k = 0; k < N_OUT; k++)
                    sum += (double)t.dy[i].at[r * N_OUT + k] * t.w[i].at[k * n_in + j];
            if (!(fabs(dx.at[r * n_in + j] - sum) < (t.blocks ? 2e-2 : 1e-4)))
                fail_msg("%d rows of %d: element %d,%d is %g instead of %g", (int)n_rows, (int)n_in,
                         (int)r, (int)j, (double)dx.at[r * n_in + j], sum);
        }
    for (int n = 2; n <= MOST_THREADS; n++) {
        run(&t, n, again.at);
        assert_memory_equal(dx.at, again.at, (size_t)(n_rows * n_in) * sizeof(float));
    }
    floats_free(dx);
    floats_free(again);
    two_free(&t);
}

static void test_cuts(void **state)
{
    (void)state;
    static const int64_t rows_of[] = {1, 64, 65, 300}, lengths[] = {96, 256, 1030, 1280};
    for (size_t i = 0; i < COUNT(rows_of); i++)
        for (size_t j = 0; j < COUNT(lengths); j++) check(rows_of[i], lengths[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
