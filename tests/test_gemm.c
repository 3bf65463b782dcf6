/* test_gemm.c - the three products of a linear layer with every set of kernels, against sums in double. In
 * gemm_nt a row has the same bits among many rows, and the same among few, and 16-bit weights give the
 * same as their float32 values. */
#include "operands.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm.h"

/* ---- scratch -------------------------------------------------------------------------------- */

/* A gemm with scratch of exactly the requested size. */
typedef struct worker {
    gemm gemm;
    void *scratch;
} worker;

static worker worker_make(const kernels *set, int64_t max_k)
{
    worker w = {0};
    assert_int_equal(posix_memalign(&w.scratch, 64, gemm_scratch_size(set, max_k)), 0);
    memset(w.scratch, 0xff, gemm_scratch_size(set, max_k)); /* NaN, which would show in a sum */
    w.gemm = gemm_init(set, max_k, w.scratch);
    return w;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- checking a product --------------------------------------------------------------------- */

typedef enum product { NT, NN, TN } product;
static const char *const product_names[] = {"gemm_nt", "gemm_nn", "gemm_tn"};

typedef struct shape {
    int64_t m, n, k;
} shape;

/* Term t of element (i, j), with the operands laid out for the product. */
static double term(product p, rows a, rows b, int64_t i, int64_t j, int64_t t)
{
    double left = p == TN ? rows_at(a, t)[i] : rows_at(a, i)[t];
    return left * (p == NT ? rows_at(b, j)[t] : rows_at(b, t)[j]);
}

/* A few units in the last place of the sum of magnitudes, and more for long sums. */
static void check_product(const kernels *set, product p, shape s, rows a, rows b, const float *c,
                          int64_t ldc, double before)
{
    double allowed = 4 + sqrt((double)s.k) / 2;
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = before, magnitude = fabs(before);
            for (int64_t t = 0; t < s.k; t++) {
                double one = term(p, a, b, i, j, t);
                sum += one;
                magnitude += fabs(one);
            }
            if (!(fabs(c[i * ldc + j] - sum) <= allowed * FLT_EPSILON * magnitude))
                fail_msg("%s of %s, m %d n %d k %d: element %d,%d is %.9g instead of %.9g",
                         product_names[p], set->name, (int)s.m, (int)s.n, (int)s.k, (int)i, (int)j,
                         (double)c[i * ldc + j], sum);
        }
}

static void run_product(const kernels *set, product p, shape s, rows a, rows b, float *c,
                        int64_t ldc, bool accumulate)
{
    worker w = worker_make(set, p == NT ? s.k : p == NN ? larger(s.k, s.n) : larger(s.m, s.n));
    if (p == NT) {
        gemm_nt_load(&w.gemm, a, s.m, s.k);
        gemm_nt(&w.gemm, matrix_f32(b.data, b.stride), s.n, c, ldc);
    } else if (p == NN) {
        gemm_nn(&w.gemm, a, s.m, b, s.k, s.n, c, ldc, accumulate);
    } else {
        gemm_tn(&w.gemm, a, s.m, b, s.n, s.k, c, ldc, accumulate);
    }
    free(w.scratch);
}

static void check_shape(const kernels *set, product p, shape s, bool gather, bool accumulate)
{
    operand a = p == TN ? operand_make(s.k, s.m, gather ? 5 : 0, gather, 1)
                        : operand_make(s.m, s.k, gather ? 5 : 0, gather, 1);
    operand b = p == NT ? operand_make(s.n, s.k, 0, false, 2) /* weights are never gathered */
                        : operand_make(s.k, s.n, gather ? 5 : 0, gather, 2);
    int64_t ldc = s.n + 3;
    floats c = floats_make(s.m ? (s.m - 1) * ldc + s.n : 0, 2);
    for (int64_t i = 0; accumulate && i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) c.at[i * ldc + j] = 5.0f;
    run_product(set, p, s, a.rows, b.rows, c.at, ldc, accumulate);
    check_product(set, p, s, a.rows, b.rows, c.at, ldc, accumulate ? 5.0 : 0.0);
    for (int64_t i = 0; i + 1 < s.m; i++)
        for (int64_t j = s.n; j < ldc; j++) assert_true(is_guard(c.at[i * ldc + j]));
    floats_free(c);
    operand_free(&b);
    operand_free(&a);
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* The most rows that one call may have, and fewer, with a few odd matrices. */
static const int64_t heights[] = {0, 1, 2, 3, 4, 5, 6, 7, GEMM_ROWS - 1, GEMM_ROWS};
static const struct {
    int64_t n, k;
} matrices[] = {{1, 1},     {1, 513},  {3, 5},   {5, 512}, {13, 511},
                {17, 1030}, {101, 33}, {9, 255}, {2, 257}};

/* Wide results and long sums, with few rows. */
static const shape wide[] = {{1, 511, 7},  {2, 512, 9},   {3, 513, 11}, {4, 1030, 3}, {5, 1030, 1},
                             {7, 257, 65}, {33, 129, 67}, {2, 3, 2049}, {7, 49, 1025}};

static void for_each_shape(void (*test)(const kernels *set, product p, shape s), product p)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int set = 0; set < n; set++) {
        for (size_t i = 0; i < COUNT(heights); i++)
            for (size_t j = 0; j < COUNT(matrices); j++)
                test(list[set], p, (shape){heights[i], matrices[j].n, matrices[j].k});
        for (size_t i = 0; i < COUNT(wide); i++) test(list[set], p, wide[i]);
    }
}

static void check_forms(const kernels *set, product p, shape s)
{
    for (int form = 0; form < (p == NT ? 2 : 4); form++) check_shape(set, p, s, form & 1, form & 2);
}

static void test_nt(void **state)
{
    (void)state;
    for_each_shape(check_forms, NT);
}

static void test_nn(void **state)
{
    (void)state;
    for_each_shape(check_forms, NN);
}

/* The sum is over tokens: any number of them, or none. */
static void test_tn(void **state)
{
    (void)state;
    static const int64_t sums[] = {
        0, 1, 2, 3, 95, GEMM_ROWS - 1, GEMM_ROWS, GEMM_ROWS + 1, 2 * GEMM_ROWS + 16};
    static const int64_t sizes[][2] = {{1, 1},   {5, 3},   {6, 16}, {7, 17},
                                       {97, 33}, {1, 513}, {511, 1}};
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int set = 0; set < n; set++)
        for (size_t i = 0; i < COUNT(sums); i++)
            for (size_t j = 0; j < COUNT(sizes); j++)
                check_forms(list[set], TN, (shape){sizes[j][0], sizes[j][1], sums[i]});
    for (int set = 0; set < n; set++)
        for (size_t i = 0; i < COUNT(wide); i++) check_forms(list[set], TN, wide[i]);
}

/* ---- the same bits for any type ------------------------------------------------------------- */

/* Weights at the end of a mapping, at any address, against the same weights in float32. */
static void check_type(const kernels *set, dsmoe_dtype type, shape s)
{
    operand x = operand_make(s.m, s.k, 5, true, 8);
    stored w = stored_random(type, s.n, s.k, (int)(s.m + s.n) % 3, (int)s.k % 2, 9);
    operand numbers = stored_widened(&w);
    result ours = result_make(s.m, s.n), widened = result_make(s.m, s.n);
    worker one = worker_make(set, s.k);
    gemm_nt_load(&one.gemm, x.rows, s.m, s.k);
    gemm_nt(&one.gemm, w.matrix, s.n, ours.data.at, ours.stride);
    gemm_nt(&one.gemm, matrix_f32(numbers.data.at, s.k), s.n, widened.data.at, widened.stride);
    if (memcmp(ours.data.at, widened.data.at, (size_t)ours.data.n * sizeof(float)) != 0)
        fail_msg("%s, m %d n %d k %d: weights of type %d give other bits than the same in float32",
                 set->name, (int)s.m, (int)s.n, (int)s.k, (int)type);
    free(one.scratch);
    result_free(&widened);
    result_free(&ours);
    operand_free(&numbers);
    stored_free(&w);
    operand_free(&x);
}

static void check_types(const kernels *set, product p, shape s)
{
    (void)p; /* only gemm_nt takes other types */
    check_type(set, DSMOE_F32, s);
    check_type(set, DSMOE_F16, s);
    check_type(set, DSMOE_BF16, s);
}

static void test_nt_types(void **state)
{
    (void)state;
    for_each_shape(check_types, NT);
}

/* ---- the same bits alone and together ------------------------------------------------------- */

/* One product of GEMM_ROWS rows by n columns, computed in parts. */
typedef struct company {
    worker worker;
    operand x, w;
    int64_t n, k;
    floats together, apart;
} company;

/* Rows [first, first + m) and columns [column, column + n), cut off at the product's end. */
static void company_part(company *c, int64_t first, int64_t m, int64_t column, int64_t n, float *y)
{
    if (m > GEMM_ROWS - first) m = GEMM_ROWS - first;
    if (n > c->n - column) n = c->n - column;
    gemm_nt_load(&c->worker.gemm, rows_from(c->x.rows, first), m, c->k);
    matrix w = matrix_from(matrix_f32(c->w.rows.data, c->k), column);
    gemm_nt(&c->worker.gemm, w, n, y + first * c->n + column, c->n);
}

static void check_groups(company *c, int64_t m, int64_t n)
{
    fill_guard(c->apart.at, c->apart.n);
    for (int64_t first = 0; first < GEMM_ROWS; first += m)
        for (int64_t column = 0; column < c->n; column += n)
            company_part(c, first, m, column, n, c->apart.at);
    if (memcmp(c->apart.at, c->together.at, (size_t)c->apart.n * sizeof(float)) != 0)
        fail_msg("%s, n %d k %d: other bits in groups of %d rows and %d columns",
                 c->worker.gemm.kernels->name, (int)c->n, (int)c->k, (int)m, (int)n);
}

static void check_company(const kernels *set, int64_t n, int64_t k)
{
    company c = {.worker = worker_make(set, k),
                 .x = operand_make(GEMM_ROWS, k, 5, true, 3),
                 .w = operand_make(n, k, 0, false, 4),
                 .n = n,
                 .k = k,
                 .together = floats_make(GEMM_ROWS * n, 0),
                 .apart = floats_make(GEMM_ROWS * n, 0)};
    company_part(&c, 0, GEMM_ROWS, 0, n, c.together.at);
    static const int64_t group_sizes[] = {21, 28, 36, 84}; /* more than few_rows takes */
    for (size_t i = 0; i < COUNT(group_sizes); i++) check_groups(&c, group_sizes[i], n);
    /* It must not matter how columns are divided either. */
    check_groups(&c, GEMM_ROWS, 1);
    check_groups(&c, GEMM_ROWS, 5);
    /* The same for few rows, compared with each row alone. */
    for (int64_t i = 0; i < GEMM_ROWS; i++) company_part(&c, i, 1, 0, n, c.together.at);
    for (int64_t m = 1; m <= GEMM_FEW_GROUPS * set->few; m++) check_groups(&c, m, n);
    check_groups(&c, set->few, 1);
    check_groups(&c, set->few, 7);
    floats_free(c.apart);
    floats_free(c.together);
    operand_free(&c.w);
    operand_free(&c.x);
    free(c.worker.scratch);
}

static void test_nt_company(void **state)
{
    (void)state;
    const kernels *const *list;
    int n = kernels_all(&list);
    static const int64_t sums[] = {1, 7, 8, 9, 31, 511, 512, 513, 1030, 1537};
    for (int set = 0; set < n; set++)
        for (size_t i = 0; i < COUNT(sums); i++) check_company(list[set], 14, sums[i]);
}

/* One gemm_nt_load serves several matrices. */
static void test_nt_reload(void **state)
{
    (void)state;
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int set = 0; set < n; set++)
        for (int64_t m = 1; m <= 8; m += 7) {
            shape s = {m, 9, 530};
            operand x = operand_make(m, s.k, 0, false, 5), w = operand_make(s.n, s.k, 0, false, 6);
            operand v = operand_make(s.n, s.k, 0, false, 7);
            floats y = floats_make(m * s.n, 0);
            worker one = worker_make(list[set], s.k);
            gemm_nt_load(&one.gemm, x.rows, m, s.k);
            gemm_nt(&one.gemm, matrix_f32(w.data.at, s.k), s.n, y.at, s.n);
            check_product(list[set], NT, s, x.rows, w.rows, y.at, s.n, 0);
            gemm_nt(&one.gemm, matrix_f32(v.data.at, s.k), s.n, y.at, s.n);
            check_product(list[set], NT, s, x.rows, v.rows, y.at, s.n, 0);
            free(one.scratch);
            floats_free(y);
            operand_free(&v);
            operand_free(&w);
            operand_free(&x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nt),        cmocka_unit_test(test_nn),
        cmocka_unit_test(test_tn),        cmocka_unit_test(test_nt_company),
        cmocka_unit_test(test_nt_reload), cmocka_unit_test(test_nt_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
