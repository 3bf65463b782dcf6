/* test_latent_kernels.c - latents in every type of cache: scores and sums of every set of kernels against
 * sums in double over the rows' values, at odd sizes, and whether a query gets the same alone and with
 * others. */
#include "operands.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dsmoe_dtype types[] = {DSMOE_F32, DSMOE_F16, DSMOE_Q8_0};
static const int64_t widths[] = {1,  2,   7,   16,  31,  32,  33,  40,  64,
                                 96, 131, 160, 255, 256, 257, 288, 300, 576};
static const int64_t counts[] = {1, 2, 15, 17, 63, 64};

/* Rows of a cache, queries, weights, and all memory that the kernels need. A sanitizer sees reads after
 * the rows. */
typedef struct latent_case {
    const latent_kernels *lk;
    dsmoe_dtype type;
    int64_t m, n, width;
    unsigned char *memory, *rows; /* stored in the type */
    float *kept;                  /* [n, width] the same as float32 */
    float *q, *weights;           /* [m, width]; [m, LATENT_KEYS], 0 after the first n */
    float *packed, *panel;
    float *scores; /* [m, LATENT_KEYS] */
} latent_case;

static float *aligned_floats(int64_t n)
{
    size_t size = (size_t)n * sizeof(float);
    float *p = aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    assert_non_null(p);
    fill_guard(p, n);
    return p;
}

static latent_case case_make(const kernels *set, dsmoe_dtype type, int64_t m, int64_t n,
                             int64_t width)
{
    int64_t bytes = dtype_bytes(type, n * width), offset = type == DSMOE_F32 ? 4 : 1;
    latent_case c = {.lk = &set->latents[type], .type = type, .m = m, .n = n, .width = width};
    c.memory = malloc((size_t)(offset + bytes));
    assert_non_null(c.memory);
    c.rows = c.memory + offset;
    c.kept = aligned_floats(n * width);
    c.q = aligned_floats(m * width);
    c.weights = aligned_floats(m * LATENT_KEYS);
    c.packed = aligned_floats(latent_floats(m, width));
    c.panel = aligned_floats(latent_panel_floats(width));
    c.scores = aligned_floats(m * LATENT_KEYS);
    fill_random(c.kept, n * width, 7 + (uint64_t)width, 1.0);
    fill_random(c.q, m * width, 8 + (uint64_t)m, 0.3);
    fill_random(c.weights, m * LATENT_KEYS, 9 + (uint64_t)n, 2.0);
    kernels_scalar.caches[type].narrow(n * width, c.kept, c.rows);
    kernels_scalar.dtypes[type].widen(n * width, c.rows, c.kept);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < LATENT_KEYS; j++)
            c.weights[i * LATENT_KEYS + j] = j < n ? expf(c.weights[i * LATENT_KEYS + j]) : 0.0f;
    return c;
}

static void case_free(latent_case *c)
{
    free(c->memory);
    free(c->kept);
    free(c->q);
    free(c->weights);
    free(c->packed);
    free(c->panel);
    free(c->scores);
}

static void case_score(latent_case *c)
{
    c->lk->load(c->n, c->rows, c->width, c->panel);
    c->lk->pack(c->m, c->q, c->width, c->packed);
    c->lk->score(c->m, c->packed, c->n, c->panel, c->width, c->scores, LATENT_KEYS,
                 (latent_next){c->rows, dtype_bytes(c->type, c->n * c->width)});
}

typedef void case_test(const kernels *set, latent_case *c);

static void for_each_case(case_test *test, const int64_t *queries, size_t n_queries)
{
    const kernels *const *list;
    int n_sets = kernels_all(&list);
    for (int s = 0; s < n_sets; s++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (size_t w = 0; w < COUNT(widths); w++)
                for (size_t i = 0; i < n_queries * COUNT(counts); i++) {
                    if (widths[w] % dtype_table[types[t]].block != 0) continue;
                    latent_case c = case_make(list[s], types[t], queries[i % n_queries],
                                              counts[i / n_queries], widths[w]);
                    test(list[s], &c);
                    case_free(&c);
                }
}

/* ---- error bounds for integers --------------------------------------------------------------- */

static double largest_in(const float *row, int64_t width, int64_t first)
{
    double most = 0;
    for (int64_t k = first; k < width && k < first + BLOCK_STRETCH; k++)
        most = fmax(most, fabs((double)row[k]));
    return most;
}

/* One step of a row. For Q8_0 the largest scale counts, and the largest number may be half a code below
 * it. */
static double step_of(const latent_case *c, int64_t j, int64_t first)
{
    if (c->type == DSMOE_F32) return 0;
    return largest_in(c->kept + j * c->width, c->width, first) * 1.01 / 4064;
}

/* The error that kernels.h allows in addition to float32 rounding, for query i and row j. */
static double score_slack(const latent_case *c, int64_t i, int64_t j)
{
    const float *q = c->q + i * c->width, *row = c->kept + j * c->width;
    double slack = 0;
    for (int64_t s = 0; c->type != DSMOE_F32 && s < c->width; s += BLOCK_STRETCH) {
        double half = largest_in(q, c->width, s) / 2047 / 2, step = step_of(c, j, s);
        for (int64_t k = s; k < c->width && k < s + BLOCK_STRETCH; k++)
            slack += half * (fabs((double)row[k]) + step) + step * fabs((double)q[k]);
    }
    return slack;
}

/* The same for sums of query i in the stretch that starts at column `first`. */
static double sum_slack(const latent_case *c, int64_t i, int64_t first)
{
    double largest = 0, slack = 0;
    for (int64_t j = 0; j < c->n; j++) {
        double weighed = (double)c->weights[i * LATENT_KEYS + j] * step_of(c, j, first);
        slack += weighed;
        largest = fmax(largest, weighed);
    }
    return slack + largest / 8191 / 2 * 4096 * (double)c->n;
}

static void assert_within(const char *what, const kernels *set, const latent_case *c, double ours,
                          exact expected, double slack)
{
    double most = slack + 16 * FLT_EPSILON * expected.magnitude + FLT_MIN;
    if (!(fabs(ours - expected.value) <= most))
        fail_msg("%s of %s, %s, %d queries, %d rows of %d: %.9g, where %.9g is expected ± %.2g",
                 what, set->name, dsmoe_dtype_name(c->type), (int)c->m, (int)c->n, (int)c->width,
                 ours, expected.value, most);
}

/* ---- scores and sums -------------------------------------------------------------------------- */

static void check_near_scores(const kernels *set, const latent_case *c)
{
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t j = 0; j < c->n; j++) {
            exact sum = {0};
            for (int64_t k = 0; k < c->width; k++)
                sum = exact_add(sum, (double)c->q[i * c->width + k] * c->kept[j * c->width + k]);
            assert_within("score", set, c, c->scores[i * LATENT_KEYS + j], sum,
                          score_slack(c, i, j));
        }
}

static void check_scores(const kernels *set, latent_case *c)
{
    case_score(c);
    check_near_scores(set, c);
}

/* Sums of some of the columns are added to the existing values; nothing is written after them. */
static void check_sums(const kernels *set, latent_case *c)
{
    int64_t n_sums = c->width > 8 ? c->width - c->width / 9 : c->width;
    result y = {.data = floats_make(c->m * n_sums, 1), .m = c->m, .n = n_sums, .stride = n_sums};
    double slack = 0;
    for (int64_t i = 0; i < c->m * n_sums; i++) y.data.at[i] = (float)(i % 5) - 2.0f;
    case_score(c);
    c->lk->add(c->m, c->weights, LATENT_KEYS, c->n, c->panel, c->width, y.data.at, n_sums);
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t k = 0; k < n_sums; k++) {
            if (k % BLOCK_STRETCH == 0) slack = sum_slack(c, i, k);
            exact sum = exact_add((exact){0}, (double)((i * n_sums + k) % 5) - 2.0);
            for (int64_t j = 0; j < c->n; j++)
                sum = exact_add(sum, (double)c->weights[i * LATENT_KEYS + j] *
                                         c->kept[j * c->width + k]);
            assert_within("sum", set, c, y.data.at[i * n_sums + k], sum, slack);
        }
    floats_free(y.data);
}

static const int64_t few_queries[] = {1, 3, 8, 16, 17};

static void test_scores(void **state)
{
    (void)state, for_each_case(check_scores, few_queries, COUNT(few_queries));
}

static void test_sums(void **state)
{
    (void)state, for_each_case(check_sums, few_queries, COUNT(few_queries));
}

/* Rows given as float32 give the same as rows of the type with the same numbers, in a panel that held
 * other rows before. */
static void check_floats(const kernels *set, latent_case *c)
{
    int64_t apart = c->width + 3;
    float *numbers = aligned_floats(c->n * apart);
    for (int64_t j = 0; j < c->n; j++)
        memcpy(numbers + j * apart, c->kept + j * c->width, (size_t)c->width * sizeof *numbers);
    c->lk->load_floats(c->n, numbers, apart, c->width, c->panel);
    free(numbers);
    c->lk->pack(c->m, c->q, c->width, c->packed);
    c->lk->score(c->m, c->packed, c->n, c->panel, c->width, c->scores, LATENT_KEYS,
                 (latent_next){0});
    check_near_scores(set, c);
}

static void test_floats(void **state)
{
    (void)state, for_each_case(check_floats, few_queries, COUNT(few_queries));
}

/* ---- queries alone and together --------------------------------------------------------------- */

/* The last query alone, with only the rows that it sees, has the same bits as among others. */
static void check_company(const kernels *set, latent_case *c)
{
    int64_t last = c->m - 1, seen = c->n > 2 ? c->n - 2 : c->n, width = c->width;
    latent_case alone = *c;
    float *together = aligned_floats(c->m * width), *single = aligned_floats(width);
    memset(together, 0, (size_t)(c->m * width) * sizeof *together);
    memset(single, 0, (size_t)width * sizeof *single);
    for (int64_t j = seen; j < c->n; j++) c->weights[last * LATENT_KEYS + j] = 0.0f;
    case_score(c);
    c->lk->add(c->m, c->weights, LATENT_KEYS, c->n, c->panel, width, together, width);

    alone.m = 1;
    alone.n = seen;
    alone.q = c->q + last * width;
    alone.scores = aligned_floats(LATENT_KEYS);
    case_score(&alone);
    alone.lk->add(1, c->weights + last * LATENT_KEYS, LATENT_KEYS, seen, c->panel, width, single,
                  width);
    if (memcmp(alone.scores, c->scores + last * LATENT_KEYS, (size_t)seen * sizeof(float)) != 0 ||
        memcmp(single, together + last * width, (size_t)width * sizeof(float)) != 0)
        fail_msg("%s, %s: other bits alone than among %d queries and %d rows of %d", set->name,
                 dsmoe_dtype_name(c->type), (int)c->m, (int)c->n, (int)width);
    free(alone.scores);
    free(single);
    free(together);
}

static void test_company(void **state)
{
    static const int64_t many[] = {16, 19, 128};
    (void)state, for_each_case(check_company, many, COUNT(many));
}

/* ---- NaN and infinity ------------------------------------------------------------------------- */

/* A NaN in a row or a query affects only its own scores. */
static void nan_set(const kernels *set)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        latent_case c = case_make(set, types[t], 17, 20, 288);
        c.kept[3 * c.width + 270] = NAN;
        c.kept[4 * c.width + 1] = INFINITY;
        c.q[16 * c.width + 5] = NAN;
        kernels_scalar.caches[types[t]].narrow(c.n * c.width, c.kept, c.rows);
        case_score(&c);
        for (int64_t i = 0; i < c.m; i++)
            for (int64_t j = 0; j < c.n; j++) {
                bool wrong = i == 16 || j == 3 || j == 4;
                assert_int_equal(!isfinite(c.scores[i * LATENT_KEYS + j]), wrong);
            }
        case_free(&c);
    }
}

static void test_nan(void **state) { (void)state, for_each_set(nan_set); }

/* Rows and queries of any magnitude: zeros, and numbers close to the limits of float16. */
static void size_set(const kernels *set)
{
    static const float sizes[] = {0.0f, 1e-7f, 1e-5f, 1e-3f, 1e4f};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            latent_case c = case_make(set, types[t], 2, 6, 320);
            for (int64_t k = 0; k < c.n * c.width; k++) c.kept[k] *= sizes[i];
            for (int64_t k = 0; k < c.m * c.width; k++) c.q[k] *= i % 2 ? 1e-3f : 1e6f;
            kernels_scalar.caches[types[t]].narrow(c.n * c.width, c.kept, c.rows);
            kernels_scalar.dtypes[types[t]].widen(c.n * c.width, c.rows, c.kept);
            check_scores(set, &c);
            check_sums(set, &c);
            case_free(&c);
        }
}

static void test_sizes(void **state) { (void)state, for_each_set(size_set); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),  cmocka_unit_test(test_sums), cmocka_unit_test(test_floats),
        cmocka_unit_test(test_company), cmocka_unit_test(test_nan),  cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
