/* test_dtypes.c - what every set of kernels does with weights of each type: against the specification
 * (scalar.c) and against sums in double, at odd sizes, from any byte of a mapping up to its last. */
#include "operands.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

static const dsmoe_dtype types[] = {DSMOE_F32, DSMOE_F16, DSMOE_BF16}; /* the unquantised ones */
static const char *const type_names[] = {"f32", "f16", "bf16"};

/* Lengths around every vector step of a kernel. */
static const int lengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,  13,   14,
                              15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,  26,  27,  28,   29,
                              30, 31, 32, 33, 34, 35, 36, 39, 40, 41, 255, 256, 257, 1000, 1001};

typedef void type_test(const kernels *set, dsmoe_dtype type);

static void for_each_type(type_test *test)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int i = 0; i < n; i++)
        for (size_t t = 0; t < COUNT(types); t++) test(list[i], types[t]);
}

/* ---- widening ------------------------------------------------------------------------------- */

/* The specification itself, against values from the formats' definitions. */
static void test_widen_values(void **state)
{
    (void)state;
    static const struct {
        dsmoe_dtype type;
        uint16_t bits;
        float value;
    } known[] = {
        {DSMOE_F16, 0x0000, 0.0f},       {DSMOE_F16, 0x0001, 0x1p-24f},
        {DSMOE_F16, 0x0200, 0x1p-15f},   {DSMOE_F16, 0x03ff, 0x3ffp-24f},
        {DSMOE_F16, 0x0400, 0x1p-14f},   {DSMOE_F16, 0x0401, 0x401p-24f},
        {DSMOE_F16, 0x3555, 0x555p-12f}, {DSMOE_F16, 0x3c00, 1.0f},
        {DSMOE_F16, 0x3c01, 0x401p-10f}, {DSMOE_F16, 0x4248, 3.140625f},
        {DSMOE_F16, 0x7bff, 65504.0f},   {DSMOE_F16, 0x7c00, INFINITY},
        {DSMOE_BF16, 0x0000, 0.0f},      {DSMOE_BF16, 0x0001, 0x1p-133f},
        {DSMOE_BF16, 0x0080, 0x1p-126f}, {DSMOE_BF16, 0x3f80, 1.0f},
        {DSMOE_BF16, 0x3f81, 0x81p-7f},  {DSMOE_BF16, 0x4049, 3.140625f},
        {DSMOE_BF16, 0x7f7f, 0xffp120f}, {DSMOE_BF16, 0x7f80, INFINITY},
    };
    for (size_t i = 0; i < COUNT(known); i++) {
        uint16_t bits[2] = {known[i].bits, known[i].bits | 0x8000};
        float ours[2];
        kernels_scalar.dtypes[known[i].type].widen(2, bits, ours);
        assert_true(ours[0] == known[i].value && !signbit(ours[0]));
        assert_true(ours[1] == -known[i].value && signbit(ours[1]));
    }
    for (int fraction = 1; fraction < 1024; fraction++) {
        uint16_t bits[2] = {0x7c00 | fraction, 0xfc00 | fraction};
        float ours[2];
        kernels_scalar.dtypes[DSMOE_F16].widen(2, bits, ours);
        assert_true(isnan(ours[0]) && isnan(ours[1]));
    }
}

/* Widens the last n numbers of a row. */
static void widen_case(const kernels *set, const stored *src, const float *spec, int64_t n)
{
    dsmoe_dtype type = src->matrix.type;
    int64_t first = src->columns - n;
    floats ours = floats_make(n, 1);
    set->dtypes[type].widen(n, matrix_at(src->matrix, 0, first), ours.at);
    for (int64_t i = 0; i < n; i++)
        if (!same_number(type, ours.at[i], spec[first + i]))
            fail_msg("%s, the last %d of %s: number %d is widened to %.9g, not to %.9g", set->name,
                     (int)n, type_names[type], (int)(first + i), (double)ours.at[i],
                     (double)spec[first + i]);
    floats_free(ours);
}

static void widen_type(const kernels *set, dsmoe_dtype type)
{
    for (int spare = 0; spare < 2; spare++) {
        stored src = stored_spread(type, SPREAD, spare);
        operand spec = stored_widened(&src);
        widen_case(set, &src, spec.rows.data, SPREAD);
        for (size_t i = 0; i < COUNT(lengths); i++)
            widen_case(set, &src, spec.rows.data, lengths[i]);
        operand_free(&spec);
        stored_free(&src);
    }
}

/* ---- packing -------------------------------------------------------------------------------- */

enum { SLACK = 8 }; /* floats that packing may write past a panel */

/* Packs all rows from column `column` on. Checks the specification's panel too, number by number. */
static void check_pack(const kernels *set, const stored *w, int64_t column, int group)
{
    dsmoe_dtype type = w->matrix.type;
    operand numbers = stored_widened(w);
    int64_t n = w->n, width = w->columns - column;
    int64_t size = (n + group - 1) / group * group * width;
    floats ours = floats_make(size + SLACK, 1), spec = floats_make(size + SLACK, 1);
    set->dtypes[type].pack(ours.at, w->matrix, column, n, width, group);
    kernels_scalar.dtypes[type].pack(spec.at, w->matrix, column, n, width, group);
    for (int64_t at = 0; at < size; at++) {
        int64_t row = at / (group * width) * group + at % group, k = at / group % width;
        float expected = row < n ? rows_at(numbers.rows, row)[column + k] : 0.0f;
        assert_true(same_number(type, spec.at[at], expected));
        if (!same_number(type, ours.at[at], expected))
            fail_msg("%s, %d rows of %s from column %d on, %d wide, in groups of %d: row %d, "
                     "column %d is packed as %.9g, not as %.9g",
                     set->name, (int)n, type_names[type], (int)column, (int)width, group, (int)row,
                     (int)(column + k), (double)ours.at[at], (double)expected);
    }
    for (int64_t i = size; i < size + SLACK; i++) assert_true(is_guard(spec.at[i]));
    floats_free(spec);
    floats_free(ours);
    operand_free(&numbers);
}

static void pack_case(const kernels *set, dsmoe_dtype type, int64_t n, int64_t column,
                      int64_t width, int group)
{
    int gap = (int)(n + column) % 3, spare = (int)(n + width) % 2;
    stored w = stored_random(type, n, column + width, gap, spare, 11);
    check_pack(set, &w, column, group);
    stored_free(&w);
}

static void pack_type(const kernels *set, dsmoe_dtype type)
{
    static const int heights[] = {0, 1, 2, 5, 7, 8, 9, 15, 16, 17, 33};
    static const int columns[] = {0, 1, 8, 13};
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t j = 0; j < COUNT(heights); j++) {
            pack_case(set, type, heights[j], columns[(i + j) % 4], lengths[i], set->tile_n);
            pack_case(set, type, heights[j], columns[(i + j + 1) % 4], lengths[i], set->tile_m);
        }
    for (int spare = 0; spare < 2; spare++) {
        stored all = stored_spread(type, 512, spare);
        check_pack(set, &all, 0, set->tile_n);
        check_pack(set, &all, 3, set->tile_n);
        stored_free(&all);
    }
}

/* ---- few rows ------------------------------------------------------------------------------- */

/* m rows in the layout of few_rows: [steps][m][LANES], zeros after column k. */
static floats pack_steps(rows x, int m, int64_t k)
{
    int64_t steps = (k + LANES - 1) / LANES;
    floats packed = floats_make(steps * m * LANES, 1);
    for (int64_t t = 0; t < steps * LANES; t++)
        for (int i = 0; i < m; i++)
            packed.at[(t / LANES * m + i) * LANES + t % LANES] = t < k ? rows_at(x, i)[t] : 0.0f;
    return packed;
}

/* The specification, applied to one row at a time. */
static void few_rows_spec(rows x, int m, const stored *w, result *spec)
{
    for (int i = 0; i < m; i++) {
        floats one = pack_steps(rows_from(x, i), 1, w->columns);
        kernels_scalar.dtypes[w->matrix.type].few_rows(
            1, one.at, w->matrix, w->n, w->columns, spec->data.at + i * spec->stride, spec->stride);
        floats_free(one);
    }
}

static void few_rows_case(const kernels *set, dsmoe_dtype type, int m, int64_t n, int64_t k)
{
    operand x = operand_make(m, k, 3, n % 2, 21);
    stored w = stored_random(type, n, k, (int)(m + k) % 4, (int)(n + k) % 2, 22);
    operand numbers = stored_widened(&w);
    result few = result_make(m, n), spec = result_make(m, n);
    floats xs = pack_steps(x.rows, m, k);
    set->dtypes[type].few_rows(m, xs.at, w.matrix, n, k, few.data.at, few.stride);
    few_rows_spec(x.rows, m, &w, &spec);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            exact sum = {0};
            for (int64_t t = 0; t < k; t++)
                sum = exact_add(sum, (double)rows_at(x.rows, i)[t] * rows_at(numbers.rows, j)[t]);
            assert_near("few_rows", set, few.data.at[i * few.stride + j], sum);
            sum.value = spec.data.at[i * spec.stride + j];
            assert_near("few_rows against scalar", set, few.data.at[i * few.stride + j], sum);
        }
    floats_free(xs);
    result_free(&spec);
    result_free(&few);
    operand_free(&numbers);
    stored_free(&w);
    operand_free(&x);
}

static void few_rows_type(const kernels *set, dsmoe_dtype type)
{
    for (int m = 1; m <= set->few; m++) {
        for (size_t i = 1; i < COUNT(lengths); i++) {
            few_rows_case(set, type, m, 5, lengths[i]);
            few_rows_case(set, type, m, 1 + (int)(i % 19), lengths[i]);
        }
        for (int n = 0; n <= 18; n++) few_rows_case(set, type, m, n, 70);
    }
    result untouched = result_make(2, 3);
    stored w = stored_random(type, 3, 9, 0, 0, 1);
    floats x = floats_make(0, 0);
    set->dtypes[type].few_rows(0, x.at, w.matrix, 3, 9, untouched.data.at, untouched.stride);
    for (int64_t i = 0; i < untouched.data.n; i++) assert_true(is_guard(untouched.data.at[i]));
    floats_free(x);
    stored_free(&w);
    result_free(&untouched);
}

/* A NaN shows in its own column and in no other, wherever it is in the sum. */
static void few_rows_nan_type(const kernels *set, dsmoe_dtype type)
{
    enum { N = 13, K = 27 };
    operand x = operand_make(1, K, 0, false, 23);
    floats xs = pack_steps(x.rows, 1, K);
    for (int64_t at = 0; at < K; at++) {
        stored w = stored_random(type, N, K, 1, 0, 24);
        unsigned char *number = w.pages + (matrix_at(w.matrix, at % N, at) - w.pages);
        memset(number, 0xff, (size_t)dtype_bytes(type, 1));
        result y = result_make(1, N);
        set->dtypes[type].few_rows(1, xs.at, w.matrix, N, K, y.data.at, y.stride);
        for (int64_t j = 0; j < N; j++) assert_true(isnan(y.data.at[j]) == (j == at % N));
        result_free(&y);
        stored_free(&w);
    }
    floats_free(xs);
    operand_free(&x);
}

/* ---- panels --------------------------------------------------------------------------------- */

/* Adds columns [column, column + n) of k rows that are stored in panels to m rows of y. */
static void panels_case(const kernels *set, dsmoe_dtype type, int64_t m, int64_t k, int64_t column,
                        int64_t n)
{
    int64_t n_panels = (column + n + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    operand x = operand_make(m, k, 3, false, 31);
    stored w = stored_random(type, 1, n_panels * k * PANEL_COLUMNS, 0, (int)(n + k) % 2, 32);
    operand numbers = stored_widened(&w);
    result y = result_make(m, n), spec = result_make(m, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            y.data.at[i * y.stride + j] = spec.data.at[i * spec.stride + j] = (float)(i - j);
    set->dtypes[type].add_panels(m, rows_at(x.rows, 0), x.rows.stride, k, w.matrix.data, column, n,
                                 y.data.at, y.stride);
    kernels_scalar.dtypes[type].add_panels(m, rows_at(x.rows, 0), x.rows.stride, k, w.matrix.data,
                                           column, n, spec.data.at, spec.stride);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t at = column + j, first = at / PANEL_COLUMNS * k * PANEL_COLUMNS;
            exact sum = exact_add((exact){0}, (double)(i - j));
            for (int64_t r = 0; r < k; r++)
                sum =
                    exact_add(sum, (double)rows_at(x.rows, i)[r] *
                                       rows_at(numbers.rows,
                                               0)[first + r * PANEL_COLUMNS + at % PANEL_COLUMNS]);
            assert_near("add_panels", set, y.data.at[i * y.stride + j], sum);
            sum.value = spec.data.at[i * spec.stride + j];
            assert_near("add_panels against scalar", set, y.data.at[i * y.stride + j], sum);
        }
    result_free(&spec);
    result_free(&y);
    operand_free(&numbers);
    stored_free(&w);
    operand_free(&x);
}

static void panels_type(const kernels *set, dsmoe_dtype type)
{
    for (int64_t m = 0; m <= 7; m++)
        for (int64_t column = 0; column < 40; column += 5)
            for (int64_t n = 0; n <= 70; n += 7) panels_case(set, type, m, 1 + n % 17, column, n);
}

/* A row has the same bits alone and with others. */
static void panels_alone_type(const kernels *set, dsmoe_dtype type)
{
    enum { M = 8, K = 16, N = 50 };
    operand x = operand_make(M, K, 0, false, 33);
    stored w = stored_random(type, 1, 64 * K, 0, 0, 34);
    floats all = floats_random(M * N, 0, 35), alone = floats_random(M * N, 0, 35);
    set->dtypes[type].add_panels(M, x.rows.data, x.rows.stride, K, w.matrix.data, 0, N, all.at, N);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0, n = i + 1; j < N; j += n)
            set->dtypes[type].add_panels(1, rows_at(x.rows, i), 0, K, w.matrix.data, j,
                                         j + n > N ? N - j : n, alone.at + i * N + j, N);
    assert_memory_equal(all.at, alone.at, M * N * sizeof(float));
    floats_free(all);
    floats_free(alone);
    stored_free(&w);
    operand_free(&x);
}

static void test_panels(void **state) { (void)state, for_each_type(panels_type); }
static void test_panels_alone(void **state) { (void)state, for_each_type(panels_alone_type); }
static void test_widen(void **state) { (void)state, for_each_type(widen_type); }
static void test_pack(void **state) { (void)state, for_each_type(pack_type); }
static void test_few_rows(void **state) { (void)state, for_each_type(few_rows_type); }
static void test_few_rows_nan(void **state) { (void)state, for_each_type(few_rows_nan_type); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widen_values), cmocka_unit_test(test_widen),
        cmocka_unit_test(test_pack),         cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_few_rows_nan), cmocka_unit_test(test_panels),
        cmocka_unit_test(test_panels_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
