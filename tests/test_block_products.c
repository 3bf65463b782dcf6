/* test_block_products.c - products with every quantised type and every set of kernels, against sums
 * in double over the dequantised weights and x: odd sizes, weights as rows and as octets, the largest
 * codes. */
#include "operands.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/gemm_blocks.h"
#include "kernels/quantize.h"

static const dsmoe_dtype types[] = {DSMOE_Q8_0, DSMOE_Q4_0, DSMOE_Q5_0, DSMOE_Q5_1,
                                    DSMOE_Q4_K, DSMOE_Q5_K, DSMOE_Q6_K};

/* ---- weights ------------------------------------------------------------------------------------ */

typedef struct weights {
    matrix matrix;
    octet_home home;
    int64_t n, k;
    unsigned char *rows, *octets;
    float *numbers; /* [n, k] the values used in a product */
} weights;

static weights weights_of(dsmoe_dtype type, int64_t n, int64_t k)
{
    weights w = {.n = n, .k = k};
    int64_t stride = dtype_bytes(type, k);
    w.rows = malloc((size_t)(n * stride));
    w.numbers = malloc((size_t)(n * k) * sizeof *w.numbers);
    assert_true(w.rows && w.numbers);
    w.matrix = (matrix){.data = w.rows, .stride = stride, .type = type};
    return w;
}

/* How BLOCK_FINE rounds the n numbers of a stretch: to multiples of 1/32 of its largest scale, each by at
 * most one such step. */
static void round_stretch(const block_q8_0 *blocks, int64_t n, float *numbers)
{
    double scale[BLOCK_STRETCH / BLOCK], largest = 0;
    for (int64_t b = 0; b < n / BLOCK; b++) {
        scale[b] = half_from_f16((uint16_t)(blocks[b].d[0] | blocks[b].d[1] << 8));
        largest = fmax(largest, fabs(scale[b]));
    }
    for (int64_t i = 0; i < n && largest > 0; i++) {
        double factor = nearbyint(4096 * scale[i / BLOCK] / largest);
        double code = floor(blocks[i / BLOCK].q[i % BLOCK] * factor / 128 + 0.5);
        assert_true(fabs(code * largest / 32 - numbers[i]) <= largest / 32);
        numbers[i] = (float)(code * largest / 32);
    }
}

static void weights_read(weights *w)
{
    kernels_scalar.dtypes[w->matrix.type].widen(w->n * w->k, w->rows, w->numbers);
    if (w->matrix.type != DSMOE_Q8_0) return;
    for (int64_t i = 0; i < w->n; i++)
        for (int64_t k = 0; k < w->k; k += BLOCK_STRETCH)
            round_stretch((const block_q8_0 *)(w->rows + i * w->matrix.stride) + k / BLOCK,
                          w->k - k < BLOCK_STRETCH ? w->k - k : BLOCK_STRETCH,
                          w->numbers + i * w->k + k);
}

static weights weights_random(dsmoe_dtype type, int64_t n, int64_t k)
{
    weights w = weights_of(type, n, k);
    operand numbers = operand_make(n, k, 0, false, (uint64_t)(n * 1000 + k));
    for (int64_t i = 0; i < n; i++)
        quantize_row(type, k, rows_at(numbers.rows, i), NULL, w.rows + i * w.matrix.stride);
    operand_free(&numbers);
    weights_read(&w);
    return w;
}

/* Every bit set or none, except that float16 numbers get a harmless size. With all bits set or none, the
 * signed Q8_0 codes and Q6_K scales would be -1 or 0; they become 127, or -128 and -127. */
static weights weights_extreme(dsmoe_dtype type, int64_t n, int64_t k, bool high)
{
    weights w = weights_of(type, n, k);
    static const unsigned char half[2] = {0x00, 0x20}; /* 2^-7 */
    memset(w.rows, high ? 0xff : 0, (size_t)(n * w.matrix.stride));
    for (int64_t at = 0; at < n * w.matrix.stride; at += dtype_table[type].bytes) {
        unsigned char *block = w.rows + at;
        if (type == DSMOE_Q6_K) {
            block_q6_k *b = (block_q6_k *)block;
            memset(b->scales, high ? 127 : -127, sizeof b->scales);
            memcpy(b->d, half, sizeof half);
            continue;
        }
        if (type == DSMOE_Q8_0) memset(block, high ? 127 : -128, sizeof(block_q8_0));
        memcpy(block, half, sizeof half);
        if (type == DSMOE_Q5_1 || type == DSMOE_Q4_K || type == DSMOE_Q5_K)
            memcpy(block + 2, half, sizeof half);
    }
    weights_read(&w);
    return w;
}

/* From now on products use octets of this set for all rows that fill whole octets. */
static void weights_interleave(weights *w, const kernels *set)
{
    int64_t n = w->n / BLOCK_OCTET;
    free(w->octets);
    w->octets = malloc((size_t)(n * BLOCK_OCTET * w->matrix.stride + 1));
    assert_non_null(w->octets);
    gemm_blocks_interleave(set, w->matrix, w->k, 0, n, w->octets);
    atomic_init(&w->home.octets, w->octets);
    w->matrix.home = &w->home;
}

static void weights_free(weights *w)
{
    free(w->rows);
    free(w->octets);
    free(w->numbers);
}

/* ---- products ----------------------------------------------------------------------------------- */

static void run(const kernels *set, rows x, int64_t m, int64_t k, matrix w, int64_t n, float *y,
                int64_t ldy)
{
    size_t size = gemm_scratch_size(set, k);
    void *scratch = NULL;
    assert_int_equal(posix_memalign(&scratch, 64, size), 0);
    memset(scratch, 0xff, size); /* NaN, which would show in a sum */
    gemm g = gemm_init(set, k, scratch);
    gemm_nt_load(&g, x, m, k);
    gemm_nt(&g, w, n, y, ldy);
    free(scratch);
}

enum { MAX_K = 1280 };

/* The values that a quantised row represents. */
static void read_bytes(const float *x, int64_t k, double *numbers)
{
    int8_t q[MAX_K];
    float scale[MAX_K / BLOCK];
    int16_t half_sum[2 * MAX_K / BLOCK];
    kernels_scalar.quantize(k, x, q, scale, half_sum);
    for (int64_t t = 0; t < k; t++) numbers[t] = (double)scale[t / BLOCK] * q[t];
}

static void read_fine(const float *x, int64_t k, double *numbers)
{
    static const int place[4] = {0, 2, 1, 3};
    int16_t q[MAX_K];
    float scale[MAX_K / BLOCK_STRETCH];
    kernels_scalar.quantize_fine(k, x, q, scale);
    for (int64_t t = 0; t < k; t++)
        numbers[t] = (double)scale[t / BLOCK_STRETCH] * q[t / 4 * 4 + place[t % 4]];
}

static double *quantised(dsmoe_dtype type, rows x, int64_t m, int64_t k)
{
    double *numbers = malloc((size_t)(m * k) * sizeof *numbers);
    assert_true(numbers && k <= MAX_K);
    for (int64_t i = 0; i < m; i++)
        (type == DSMOE_Q8_0 ? read_fine : read_bytes)(rows_at(x, i), k, numbers + i * k);
    return numbers;
}

static void check(const kernels *set, const weights *w, const double *x, int64_t m, const float *y,
                  int64_t ldy)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < w->n; j++) {
            double sum = 0, magnitude = 0;
            for (int64_t t = 0; t < w->k; t++) {
                double term = x[i * w->k + t] * (double)w->numbers[j * w->k + t];
                sum += term;
                magnitude += fabs(term);
            }
            /* numbers with a minimum are differences of larger terms */
            if (!(fabs(y[i * ldy + j] - sum) <= 32 * FLT_EPSILON * magnitude))
                fail_msg("%s of %s, m %d n %d k %d: element %d,%d is %.9g instead of %.9g",
                         dsmoe_dtype_name(w->matrix.type), set->name, (int)m, (int)w->n, (int)w->k,
                         (int)i, (int)j, (double)y[i * ldy + j], sum);
        }
}

/* Plain rows and octets must give the same bits. */
static void check_weights(const kernels *set, weights *w, rows x, int64_t m)
{
    double *numbers = quantised(w->matrix.type, x, m, w->k);
    result from_rows = result_make(m, w->n), from_octets = result_make(m, w->n);
    w->matrix.home = NULL;
    run(set, x, m, w->k, w->matrix, w->n, from_rows.data.at, from_rows.stride);
    check(set, w, numbers, m, from_rows.data.at, from_rows.stride);
    weights_interleave(w, set);
    run(set, x, m, w->k, w->matrix, w->n, from_octets.data.at, from_octets.stride);
    for (int64_t i = 0; i < m; i++)
        assert_memory_equal(from_rows.data.at + i * from_rows.stride,
                            from_octets.data.at + i * from_octets.stride,
                            (size_t)w->n * sizeof(float));
    result_free(&from_rows);
    result_free(&from_octets);
    free(numbers);
}

static void shapes_of_set(const kernels *set)
{
    static const int64_t heights[] = {1, 2, 3, 4, 5, 11}, widths[] = {1, 8, 15, 16, 17, 43},
                         lengths[] = {32, 96, 256, 288, 512, 704, 1280};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t l = 0; l < COUNT(lengths); l++) {
            if (lengths[l] % dtype_table[types[t]].block != 0) continue;
            for (size_t n = 0; n < COUNT(widths); n++) {
                weights w = weights_random(types[t], widths[n], lengths[l]);
                for (size_t m = 0; m < COUNT(heights); m++) {
                    operand x = operand_make(heights[m], lengths[l], 5, true, 7);
                    check_weights(set, &w, x.rows, heights[m]);
                    operand_free(&x);
                }
                weights_free(&w);
            }
        }
}

static void test_shapes(void **state)
{
    (void)state;
    for_each_set(shapes_of_set);
}

/* A row computed alone has the same bits as with any number of others: all groups that rows are cut into,
 * with whole octets and a rest, a short last stretch, and octets kept or made on the fly. */
enum { COMPANY = 70, COMPANY_N = 27 };

static void company_of_weights(const kernels *set, const weights *w, rows x)
{
    result alone = result_make(COMPANY, COMPANY_N), together = result_make(COMPANY, COMPANY_N);
    for (int i = 0; i < COMPANY; i++)
        run(set, rows_from(x, i), 1, w->k, w->matrix, COMPANY_N, alone.data.at + i * alone.stride,
            alone.stride);
    for (int m = 2; m <= COMPANY; m++) {
        int first = COMPANY - m; /* puts rows at other places of their groups */
        run(set, rows_from(x, first), m, w->k, w->matrix, COMPANY_N, together.data.at,
            together.stride);
        for (int i = 0; i < m; i++)
            if (memcmp(together.data.at + i * together.stride,
                       alone.data.at + (first + i) * alone.stride, COMPANY_N * sizeof(float)) != 0)
                fail_msg("%s of %s, k %d: row %d of %d is not what it is alone",
                         dsmoe_dtype_name(w->matrix.type), set->name, (int)w->k, i, m);
    }
    result_free(&together);
    result_free(&alone);
}

static void alone_of_set(const kernels *set)
{
    static const int64_t lengths[] = {32, 288, 512, 704};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t l = 0; l < COUNT(lengths); l++) {
            if (lengths[l] % dtype_table[types[t]].block != 0) continue;
            weights w = weights_random(types[t], COMPANY_N, lengths[l]);
            operand x = operand_make(COMPANY, lengths[l], 3, true, 8);
            company_of_weights(set, &w, x.rows);
            weights_interleave(&w, set);
            company_of_weights(set, &w, x.rows);
            operand_free(&x);
            weights_free(&w);
        }
}

static void test_alone(void **state)
{
    (void)state;
    for_each_set(alone_of_set);
}

/* The most rows that one call may have. */
static void most_rows_of_set(const kernels *set)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        weights w = weights_random(types[t], 19, 256);
        operand x = operand_make(GEMM_ROWS, 256, 0, false, 3);
        check_weights(set, &w, x.rows, GEMM_ROWS);
        operand_free(&x);
        weights_free(&w);
    }
}

static void test_most_rows(void **state)
{
    (void)state;
    for_each_set(most_rows_of_set);
}

/* Sums of 16 bits must hold the largest codes times the largest q, of both signs. */
static void extremes_of_set(const kernels *set)
{
    float x[5 * 512];
    for (int i = 0; i < 5 * 512; i++) x[i] = i < 512 ? 1.0f : i < 1024 ? -1.0f : i % 3 - 1.0f;
    for (size_t t = 0; t < COUNT(types); t++)
        for (int high = 0; high < 2; high++) {
            weights w = weights_extreme(types[t], 17, 512, high);
            check_weights(set, &w, (rows){x, 512, NULL}, 1);
            check_weights(set, &w, (rows){x + 512, 512, NULL}, 1);
            check_weights(set, &w, (rows){x, 512, NULL}, 5);
            weights_free(&w);
        }
}

static void test_extremes(void **state)
{
    (void)state;
    for_each_set(extremes_of_set);
}

/* Parts of a matrix, as tasks take them: with octets or, if they start at an odd row, without. */
static void parts_of_set(const kernels *set)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        weights w = weights_random(types[t], 41, 256);
        weights_interleave(&w, set);
        operand x = operand_make(6, 256, 0, false, 4);
        result whole = result_make(6, 41), part = result_make(6, 41);
        run(set, x.rows, 6, 256, w.matrix, 41, whole.data.at, whole.stride);
        static const int64_t cuts[] = {0, 16, 21, 29, 41};
        for (size_t c = 0; c + 1 < COUNT(cuts); c++)
            run(set, x.rows, 6, 256, matrix_from(w.matrix, cuts[c]), cuts[c + 1] - cuts[c],
                part.data.at + cuts[c], part.stride);
        for (int i = 0; i < 6; i++)
            assert_memory_equal(whole.data.at + i * whole.stride, part.data.at + i * part.stride,
                                41 * sizeof(float));
        result_free(&whole);
        result_free(&part);
        operand_free(&x);
        weights_free(&w);
    }
}

static void test_parts(void **state)
{
    (void)state;
    for_each_set(parts_of_set);
}

/* Rows quantised in advance give the same result as rows that the product quantises itself: in both forms,
 * by index or in order, and next to a product that needs the other form. */
static void made_of_set(const kernels *set)
{
    enum { M = 11, N = 24, K = 512, TAKEN = 9 };
    static const int32_t index[TAKEN] = {10, 3, 3, 0, 7, 1, 9, 2, 10};
    operand x = operand_make(M, K, 0, false, 6);
    rows all = {x.data.at, K, NULL}, some = {x.data.at, K, index};
    size_t size = gemm_scratch_size(set, K);
    void *scratch = NULL;
    assert_int_equal(posix_memalign(&scratch, 64, size), 0);
    gemm g = gemm_init(set, K, scratch);
    for (size_t t = 0; t < COUNT(types); t++) {
        weights w = weights_random(types[t], N, K), other = weights_random(DSMOE_Q8_0, N, K);
        weights_interleave(&w, set);
        block_form form = set->dtypes[types[t]].blocks->form;
        int64_t stride = gemm_blocks_stride(form, K);
        assert_int_equal(stride / 64 % 2, 1);
        char *made = NULL;
        assert_int_equal(posix_memalign((void **)&made, 64, (size_t)(M * stride)), 0);
        for (int i = 0; i < M; i++) gemm_blocks_quantize(set, form, all, i, K, made);
        x_home home = {{0}};
        home.form[form] = made;
        float expected[TAKEN * N], y[TAKEN * N], beside[TAKEN * N], beside_expected[TAKEN * N];
        run(set, some, TAKEN, K, w.matrix, N, expected, N);
        run(set, some, TAKEN, K, other.matrix, N, beside_expected, N);
        gemm_nt_load_made(&g, some, &home, 0, TAKEN, K);
        gemm_nt(&g, other.matrix, N, beside, N);
        gemm_nt(&g, w.matrix, N, y, N);
        assert_memory_equal(y, expected, sizeof y);
        assert_memory_equal(beside, beside_expected, sizeof beside);
        run(set, rows_from(all, 2), TAKEN, K, w.matrix, N, expected, N);
        gemm_nt_load_made(&g, rows_from(all, 2), &home, 2, TAKEN, K);
        gemm_nt(&g, w.matrix, N, y, N);
        assert_memory_equal(y, expected, sizeof y);
        free(made);
        weights_free(&other);
        weights_free(&w);
    }
    operand_free(&x);
    free(scratch);
}

static void test_made(void **state)
{
    (void)state;
    for_each_set(made_of_set);
}

/* ---- quantised x ---------------------------------------------------------------------------------- */

enum { N_X = 9 * BLOCK };

/* Finds where a set puts each column of a row; each set has its own order. */
static void find_places(const kernels *set, int place[N_X])
{
    bool taken[N_X] = {false};
    for (int i = 0; i < N_X; i++) {
        float x[N_X] = {0}, scale[N_X / BLOCK];
        int8_t q[N_X];
        int16_t half_sum[2 * N_X / BLOCK];
        int n = 0;
        x[i] = 1.0f;
        set->quantize(N_X, x, q, scale, half_sum);
        for (int j = 0; j < N_X; j++)
            if (q[j] != 0) place[i] = j, n++;
        assert_int_equal(n, 1);
        assert_false(taken[place[i]]);
        taken[place[i]] = true;
    }
}

static void x_of_set(const kernels *set)
{
    operand x = operand_make(1, N_X, 0, false, 9);
    float *at = x.data.at;
    for (int i = 0; i < BLOCK; i++) at[i] = 0.0f;
    for (int i = 0; i < BLOCK; i++) at[BLOCK + i] = i % 2 ? 1e-42f : -1e-43f; /* subnormal */
    for (int i = 0; i < BLOCK; i++) at[2 * BLOCK + i] = i == 5 ? -3e38f : 1.0f;
    at[3 * BLOCK + 7] = NAN;
    at[4 * BLOCK + 9] = -INFINITY;
    int8_t q[N_X], placed[N_X], expected_q[N_X];
    float scale[N_X / BLOCK], expected[N_X / BLOCK];
    int16_t half_sum[2 * N_X / BLOCK], expected_sum[2 * N_X / BLOCK];
    int place[N_X];
    find_places(set, place);
    kernels_scalar.quantize(N_X, at, expected_q, expected, expected_sum);
    set->quantize(N_X, at, placed, scale, half_sum);
    for (int i = 0; i < N_X; i++) q[i] = placed[place[i]];
    assert_memory_equal(q, expected_q, sizeof q);
    assert_memory_equal(half_sum, expected_sum, sizeof half_sum);
    for (int b = 0; b < N_X / BLOCK; b++) {
        assert_true(b == 3 || b == 4 ? isnan(scale[b]) : scale[b] == expected[b]);
        int sum = 0;
        for (int i = b * BLOCK; i < (b + 1) * BLOCK; i++) {
            sum += q[i];
            if (b == 3 || b == 4) continue;
            /* half a step, plus the largest effect of rounding the scale */
            assert_true(fabsf(at[i] - scale[b] * (float)q[i]) <=
                        scale[b] * 0.50002f + (b == 1 ? 1e-42f : 0.0f));
        }
        assert_int_equal(sum, half_sum[2 * b] + half_sum[2 * b + 1]);
    }
    assert_true(scale[0] == 0.0f && scale[1] == 0.0f);
    operand_free(&x);
}

static void test_x(void **state)
{
    (void)state;
    for_each_set(x_of_set);
}

/* Five stretches: one of zeros, one of subnormal numbers, one with a NaN, one with an infinity, and a
 * short last one. */
static void fine_x_of_set(const kernels *set)
{
    enum { N = 4 * BLOCK_STRETCH + 3 * BLOCK };
    operand x = operand_make(1, N, 0, false, 9);
    float *at = x.data.at, scale[5], expected[5];
    int16_t q[N], expected_q[N];
    for (int i = 0; i < BLOCK_STRETCH; i++) at[i] = 0.0f;
    for (int i = 0; i < BLOCK_STRETCH; i++) at[BLOCK_STRETCH + i] = i % 2 ? 1e-42f : -1e-43f;
    at[2 * BLOCK_STRETCH + 200] = NAN;
    at[3 * BLOCK_STRETCH + 9] = -INFINITY;
    kernels_scalar.quantize_fine(N, at, expected_q, expected);
    set->quantize_fine(N, at, q, scale);
    assert_memory_equal(q, expected_q, sizeof q);
    for (int s = 0; s < 5; s++)
        assert_true(s == 2 || s == 3 ? isnan(scale[s]) : scale[s] == expected[s]);
    assert_true(scale[0] == 0.0f && scale[1] == 0.0f);
    static const int place[4] = {0, 2, 1, 3};
    for (int i = 4 * BLOCK_STRETCH; i < N; i++) /* half a step, and rounding of scales */
        assert_true(fabsf(at[i] - scale[4] * q[i / 4 * 4 + place[i % 4]]) <= scale[4] * 0.5003f);
    operand_free(&x);
}

static void test_fine_x(void **state)
{
    (void)state;
    for_each_set(fine_x_of_set);
}

/* Scales of Q8_0 that differ widely, are negative or 0; and two that are NaN and infinity. */
static void fine_scales_of_set(const kernels *set)
{
    static const float scales[] = {1.0f, -0.5f, 0.0f, 1e-3f, 3e-5f, -2.0f, 6e-8f, 0.7f, 0.3f};
    enum { K = 9 * BLOCK };
    weights w = weights_random(DSMOE_Q8_0, 24, K);
    for (int i = 0; i < 24 * 9; i++) {
        uint16_t half = half_to_f16(i / 9 % 8 == 5 ? 0.0f : scales[(i + i / 9) % 9]);
        memcpy(((block_q8_0 *)w.rows)[i].d, &half, sizeof half);
    }
    weights_read(&w);
    operand x = operand_make(6, K, 0, false, 3);
    check_weights(set, &w, x.rows, 1);
    check_weights(set, &w, x.rows, 6);
    static const uint16_t none[] = {0x7e00, 0x7c00}; /* NaN, infinity */
    for (int i = 0; i < 2; i++) memcpy(((block_q8_0 *)w.rows)[i * 9 + 4].d, &none[i], 2);
    result y = result_make(6, 24);
    w.matrix.home = NULL;
    for (int m = 1; m <= 6; m += 5) {
        run(set, x.rows, m, K, w.matrix, 24, y.data.at, y.stride);
        for (int j = 0; j < 24; j++) assert_int_equal(isfinite(y.data.at[j]) != 0, j >= 2);
    }
    result_free(&y);
    operand_free(&x);
    weights_free(&w);
}

static void test_fine_scales(void **state)
{
    (void)state;
    for_each_set(fine_scales_of_set);
}

/* A NaN in x shows in the results of its own row only. */
static void nan_of_set(const kernels *set)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        weights w = weights_random(types[t], 9, 256);
        operand x = operand_make(3, 256, 0, false, 5);
        x.data.at[256 + 77] = NAN;
        result y = result_make(3, 9);
        run(set, x.rows, 3, 256, w.matrix, 9, y.data.at, y.stride);
        for (int j = 0; j < 9; j++) {
            assert_true(isnan(y.data.at[y.stride + j]));
            assert_true(isfinite(y.data.at[j]) && isfinite(y.data.at[2 * y.stride + j]));
        }
        run(set, rows_from(x.rows, 1), 1, 256, w.matrix, 9, y.data.at, y.stride);
        for (int j = 0; j < 9; j++) assert_true(isnan(y.data.at[j]));
        result_free(&y);
        operand_free(&x);
        weights_free(&w);
    }
}

static void test_nan(void **state)
{
    (void)state;
    for_each_set(nan_of_set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_alone),
        cmocka_unit_test(test_most_rows),   cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_parts),       cmocka_unit_test(test_x),
        cmocka_unit_test(test_nan),         cmocka_unit_test(test_fine_x),
        cmocka_unit_test(test_fine_scales), cmocka_unit_test(test_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
