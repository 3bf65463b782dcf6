/* test_block_backward.c - dy·w with every quantised type and every set of kernels, against sums in double
 * over the dequantised numbers: sums of odd lengths, parts of the columns, rows alone and together, the
 * largest numbers. */
#include "operands.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/quantize.h"

static const dsmoe_dtype types[] = {DSMOE_Q8_0, DSMOE_Q4_0, DSMOE_Q5_0, DSMOE_Q5_1,
                                    DSMOE_Q4_K, DSMOE_Q5_K, DSMOE_Q6_K};

enum { COLUMNS = 512, FIRST = GEMM_WIDE };

typedef struct weights {
    matrix matrix;
    int64_t k; /* rows; the sum is over them */
    unsigned char *rows;
    float *numbers; /* [k, COLUMNS] the dequantised values */
} weights;

/* Random rows, or every number equal to `same`. */
static weights weights_make(dsmoe_dtype type, int64_t k, float same)
{
    int64_t stride = dtype_bytes(type, COLUMNS);
    weights w = {.k = k,
                 .rows = malloc((size_t)(k * stride)),
                 .numbers = malloc((size_t)(k * COLUMNS) * sizeof(float))};
    assert_true(w.rows && w.numbers);
    w.matrix = (matrix){.data = w.rows, .stride = stride, .type = type};
    operand values = operand_make(k, COLUMNS, 0, false, (uint64_t)k);
    for (int64_t i = 0; same != 0.0f && i < k * COLUMNS; i++) values.data.at[i] = same;
    for (int64_t i = 0; i < k; i++)
        quantize_row(type, COLUMNS, rows_at(values.rows, i), NULL, w.rows + i * stride);
    kernels_scalar.dtypes[type].widen(k * COLUMNS, w.rows, w.numbers);
    operand_free(&values);
    return w;
}

static void weights_free(weights *w)
{
    free(w->rows);
    free(w->numbers);
}

/* n columns starting at `column`. */
static void run(const kernels *set, rows a, int64_t m, const weights *w, int64_t column, int64_t n,
                float *c, int64_t ldc, bool accumulate)
{
    size_t size = gemm_scratch_size(set, COLUMNS);
    void *scratch = NULL;
    assert_int_equal(posix_memalign(&scratch, 64, size), 0);
    memset(scratch, 0xff, size); /* NaN, which would show in a sum */
    gemm g = gemm_init(set, COLUMNS, scratch);
    gemm_nn_matrix(&g, a, m, w->matrix, column, w->k, n, c, ldc, accumulate);
    free(scratch);
}

/* ---- accuracy ------------------------------------------------------------------------------------ */

/* A sum, and the largest error a product may have. Both factors are rounded to words: by half a step of
 * the largest value in a stretch, for w also over the BLOCK columns that share a scale. Other kernels use
 * float32. */
typedef struct bound {
    double sum, error;
} bound;

enum { N_STRETCHES = 3 };

/* The largest value in the columns that share a scale, in each stretch of rows. The factor allows for the
 * scales' rounding. */
static void largest_of(const weights *w, int64_t column, double most[N_STRETCHES])
{
    int64_t first = column / BLOCK * BLOCK;
    memset(most, 0, N_STRETCHES * sizeof *most);
    for (int64_t k = 0; k < w->k; k++)
        for (int64_t j = first; j < first + BLOCK; j++)
            most[k / BLOCK_STRETCH] =
                fmax(most[k / BLOCK_STRETCH], 1.25 * fabsf(w->numbers[k * COLUMNS + j]));
}

static bound bound_of(const kernels *set, const float *a, const weights *w, int64_t column,
                      const double most_w[N_STRETCHES])
{
    bound b = {0};
    double magnitude = 0;
    for (int64_t k0 = 0; k0 < w->k; k0 += BLOCK_STRETCH) {
        int64_t end = w->k - k0 < BLOCK_STRETCH ? w->k : k0 + BLOCK_STRETCH;
        double most_a = 0;
        for (int64_t k = k0; k < end; k++) most_a = fmax(most_a, fabsf(a[k]));
        double half_a = most_a / FINE_X / 2 * 1.001;
        double half_w = most_w[k0 / BLOCK_STRETCH] / WORD_TOP / 2;
        for (int64_t k = k0; k < end; k++) {
            double x = a[k], y = w->numbers[k * COLUMNS + column];
            b.sum += x * y;
            magnitude += fabs(x * y);
            b.error += fabs(x) * half_w + fabs(y) * half_a + half_a * half_w;
        }
    }
    b.error = (set->words ? b.error : 0) + (4 + sqrt((double)w->k)) * FLT_EPSILON * magnitude;
    return b;
}

/* Every element must be within its bound, and the error of all together within 6e-4 of the size of the
 * result. */
static void check(const kernels *set, const weights *w, rows a, int64_t m, int64_t column,
                  int64_t n, const float *c, int64_t ldc, double before)
{
    double wrong = 0, all = 0, most[N_STRETCHES];
    for (int64_t j = 0; j < n; j++) {
        largest_of(w, column + j, most);
        for (int64_t i = 0; i < m; i++) {
            bound b = bound_of(set, rows_at(a, i), w, column + j, most);
            double error = c[i * ldc + j] - before - b.sum;
            if (!(fabs(error) <= b.error + 2 * FLT_EPSILON * fabs(before)))
                fail_msg("%s of %s, m %d k %d: element %d,%d is off by %g, %g is allowed",
                         dsmoe_dtype_name(w->matrix.type), set->name, (int)m, (int)w->k, (int)i,
                         (int)j, error, b.error);
            wrong += error * error;
            all += b.sum * b.sum;
        }
    }
    if (!(sqrt(wrong) <= 6e-4 * sqrt(all) + 1e-5 * before))
        fail_msg("%s of %s, m %d k %d: off by %g of its size", dsmoe_dtype_name(w->matrix.type),
                 set->name, (int)m, (int)w->k, sqrt(wrong / all));
}

static void shapes_of_set(const kernels *set)
{
    static const int64_t heights[] = {1, 2, 5, 14, 15, 33}, lengths[] = {1, 3, 31, 256, 301, 608};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t l = 0; l < COUNT(lengths); l++) {
            weights w = weights_make(types[t], lengths[l], 0);
            int64_t m = heights[l], rest = COLUMNS - FIRST;
            operand a = operand_make(m, lengths[l], 5, true, 7);
            result whole = result_make(m, COLUMNS), part = result_make(m, rest);
            run(set, a.rows, m, &w, 0, COLUMNS, whole.data.at, whole.stride, false);
            check(set, &w, a.rows, m, 0, COLUMNS, whole.data.at, whole.stride, 0);
            result_fill(&part, 3.0f);
            run(set, a.rows, m, &w, FIRST, rest, part.data.at, part.stride, true);
            check(set, &w, a.rows, m, FIRST, rest, part.data.at, part.stride, 3);
            result_free(&part);
            result_free(&whole);
            operand_free(&a);
            weights_free(&w);
        }
}

static void test_shapes(void **state)
{
    (void)state;
    for_each_set(shapes_of_set);
}

/* ---- independence of rows ------------------------------------------------------------------------ */

/* The most rows that one call may have, in groups of every size: each row must keep its bits. One row has
 * a NaN. */
static void company_of_set(const kernels *set)
{
    enum { K = 300, ODD = 100 };
    weights w = weights_make(DSMOE_Q4_K, K, 0);
    operand a = operand_make(GEMM_ROWS, K, 0, false, 9);
    a.data.at[ODD * K + 270] = NAN;
    result together = result_make(GEMM_ROWS, COLUMNS), apart = result_make(GEMM_ROWS, COLUMNS);
    run(set, a.rows, GEMM_ROWS, &w, 0, COLUMNS, together.data.at, together.stride, false);
    for (int64_t first = 0, m = 1; first < GEMM_ROWS; first += m, m = m % 17 + 1) {
        int64_t n = first + m > GEMM_ROWS ? GEMM_ROWS - first : m;
        run(set, rows_from(a.rows, first), n, &w, 0, COLUMNS, apart.data.at + first * apart.stride,
            apart.stride, false);
    }
    for (int64_t i = 0; i < GEMM_ROWS; i++) {
        const float *here = together.data.at + i * together.stride;
        for (int64_t j = 0; j < COLUMNS; j++) assert_true(!isnan(here[j]) == (i != ODD));
        if (i != ODD)
            assert_memory_equal(here, apart.data.at + i * apart.stride, COLUMNS * sizeof *here);
    }
    result_free(&apart);
    result_free(&together);
    operand_free(&a);
    weights_free(&w);
}

static void test_company(void **state)
{
    (void)state;
    for_each_set(company_of_set);
}

/* Sums of 32 bits must hold a whole stretch of the largest words, of both signs. */
static void extremes_of_set(const kernels *set)
{
    enum { K = BLOCK_STRETCH };
    float a[2 * K];
    for (int i = 0; i < 2 * K; i++) a[i] = i < K ? 1.0f : -1.0f;
    for (size_t t = 0; t < COUNT(types); t++) {
        weights w = weights_make(types[t], K, 0.75f);
        result c = result_make(2, COLUMNS);
        run(set, (rows){a, K, NULL}, 2, &w, 0, COLUMNS, c.data.at, c.stride, false);
        check(set, &w, (rows){a, K, NULL}, 2, 0, COLUMNS, c.data.at, c.stride, 0);
        result_free(&c);
        weights_free(&w);
    }
}

static void test_extremes(void **state)
{
    (void)state;
    for_each_set(extremes_of_set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
