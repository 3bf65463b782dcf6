/* test_kernels.c - every set of kernels against the specification (scalar.c) and against sums in
 * double, at odd sizes, from misaligned addresses, on arrays without a byte to spare. */
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* Lengths around every step a kernel may take. */
static const int lengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,
                              16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,  29,  30,  31,
                              32, 33, 34, 35, 36, 37, 38, 39, 40, 63, 64, 65, 511, 512, 513, 1000};

typedef void set_test(const kernels *set);

static void for_each_set(set_test *test)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    assert_true(n >= 1);
    assert_ptr_equal(list[0], &kernels_scalar);
    for (int i = 0; i < n; i++) test(list[i]);
}

static int round_up(int64_t n, int step) { return (int)((n + step - 1) / step * step); }

/* ---- matrices ------------------------------------------------------------------------------- */

/* Rows that stand apart, gathered in another order, the last without anything behind it. */
typedef struct matrix {
    floats data;
    int32_t *index;
    rows rows;
} matrix;

static matrix matrix_make(int64_t n, int64_t columns, int gap, bool gather, uint64_t seed)
{
    int64_t stride = columns + gap;
    matrix m = {.data = floats_random(n ? (n - 1) * stride + columns : 0, gap, seed)};
    m.rows = (rows){.data = m.data.at, .stride = stride};
    if (!gather || n == 0) return m;
    m.index = malloc((size_t)n * sizeof *m.index);
    assert_non_null(m.index);
    for (int64_t i = 0; i < n; i++) m.index[i] = (int32_t)((i * 7 + 3) % n);
    m.rows.index = m.index;
    return m;
}

static void matrix_free(matrix *m)
{
    floats_free(m->data);
    free(m->index);
}

/* A result of m by n with guards between its rows. */
typedef struct result {
    floats data;
    int64_t m, n, stride;
} result;

static result result_make(int64_t m, int64_t n)
{
    result r = {.m = m, .n = n, .stride = n + 3};
    r.data = floats_make(m ? (m - 1) * r.stride + n : 0, 1);
    return r;
}

static void result_fill(result *r, float value)
{
    for (int64_t i = 0; i < r->m; i++)
        for (int64_t j = 0; j < r->n; j++) r->data.at[i * r->stride + j] = value;
}

static void result_free(result *r)
{
    for (int64_t i = 0; i + 1 < r->m; i++)
        for (int64_t j = r->n; j < r->stride; j++)
            if (!is_guard(r->data.at[i * r->stride + j]))
                fail_msg("column %d of row %d lies behind the result and was written", (int)j,
                         (int)i);
    floats_free(r->data);
}

/* A sum in double with the sum of its terms' magnitudes. */
typedef struct exact {
    double value, magnitude;
} exact;

static exact exact_add(exact sum, double term)
{
    return (exact){sum.value + term, sum.magnitude + fabs(term)};
}

/* A few units in the last place of the sum of magnitudes. */
static void assert_near(const char *what, const kernels *set, double ours, exact expected)
{
    if (!(fabs(ours - expected.value) <= 8 * FLT_EPSILON * expected.magnitude + FLT_MIN))
        fail_msg("%s of %s: %.9g, where %.9g is expected", what, set->name, ours, expected.value);
}

/* ---- packing -------------------------------------------------------------------------------- */

enum { SLACK = 8 }; /* floats that packing may write past a panel */

/* `width` columns of n rows, or their transpose. */
static floats pack(const kernels *set, bool transposed, rows src, int64_t n, int64_t width,
                   int group)
{
    int64_t size = transposed ? round_up(n, group) * width : round_up(width, group) * n;
    floats panel = floats_make(size + SLACK, 1);
    (transposed ? set->pack_transposed : set->pack)(panel.at, src, n, width, group);
    return panel;
}

static void pack_case(const kernels *set, bool transposed, int64_t n, int64_t width, int group)
{
    matrix src = matrix_make(n, width, 3, width % 2, 11);
    floats ours = pack(set, transposed, src.rows, n, width, group);
    floats spec = pack(&kernels_scalar, transposed, src.rows, n, width, group);
    for (int64_t i = 0; i < ours.n - SLACK; i++)
        if (memcmp(&ours.at[i], &spec.at[i], sizeof(float)) != 0)
            fail_msg("%s, %d rows of %d%s in groups of %d: float %d of the panel differs",
                     set->name, (int)n, (int)width, transposed ? ", transposed," : "", group,
                     (int)i);
    floats_free(spec);
    floats_free(ours);
    matrix_free(&src);
}

static void pack_set(const kernels *set)
{
    static const int few[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 33};
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t j = 0; j < COUNT(few); j++) {
            pack_case(set, false, lengths[i], few[j], set->tile_m);
            pack_case(set, false, few[j], lengths[i], set->tile_n);
            pack_case(set, true, lengths[i], few[j], set->tile_n);
            pack_case(set, true, few[j], lengths[i], set->tile_m);
        }
    for (int group = 1; group <= set->few; group++) /* what few_rows takes */
        for (size_t i = 0; i < COUNT(lengths); i++) pack_case(set, true, group, lengths[i], group);
}

/* The specification itself, by its words. */
static void test_pack_layout(void **state)
{
    (void)state;
    enum { N = 5, WIDTH = 7, GROUP = 4 };
    matrix src = matrix_make(N, WIDTH, 2, true, 12);
    floats panel = pack(&kernels_scalar, false, src.rows, N, WIDTH, GROUP);
    for (int j = 0; j < 8; j++)
        for (int k = 0; k < N; k++)
            assert_true(panel.at[(j / GROUP * N + k) * GROUP + j % GROUP] ==
                        (j < WIDTH ? rows_at(src.rows, k)[j] : 0.0f));
    floats_free(panel);
    panel = pack(&kernels_scalar, true, src.rows, N, WIDTH, GROUP);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < WIDTH; k++)
            assert_true(panel.at[(i / GROUP * WIDTH + k) * GROUP + i % GROUP] ==
                        (i < N ? rows_at(src.rows, i)[k] : 0.0f));
    floats_free(panel);
    matrix_free(&src);
}

/* ---- the tile ------------------------------------------------------------------------------- */

/* c = a·b of m by n over k terms. Operands lie with a row for each term or, transposed, with a row
 * for each row of c (a) or each column (b). */
typedef struct tile_case {
    int64_t m, n, k;
    bool a_transposed, b_transposed, accumulate;
} tile_case;

static floats pack_operand(const kernels *set, bool transposed, rows src, int64_t size, int64_t k,
                           int group)
{
    return transposed ? pack(set, true, src, size, k, group)
                      : pack(set, false, src, k, size, group);
}

static void run_tiles(const kernels *set, tile_case c, rows a, rows b, result *out)
{
    floats as = pack_operand(set, c.a_transposed, a, c.m, c.k, set->tile_m);
    floats bs = pack_operand(set, c.b_transposed, b, c.n, c.k, set->tile_n);
    for (int64_t i = 0; i < c.m; i += set->tile_m)
        for (int64_t j = 0; j < c.n; j += set->tile_n) {
            int m = c.m - i < set->tile_m ? (int)(c.m - i) : set->tile_m;
            int n = c.n - j < set->tile_n ? (int)(c.n - j) : set->tile_n;
            set->tile(c.k, as.at + i * c.k, bs.at + j * c.k, out->data.at + i * out->stride + j,
                      out->stride, c.accumulate, m, n, (patch){bs.at, 0});
        }
    floats_free(as);
    floats_free(bs);
}

static exact exact_tile(tile_case c, rows a, int64_t i, rows b, int64_t j)
{
    exact sum = {0};
    for (int64_t t = 0; t < c.k; t++) {
        double left = c.a_transposed ? rows_at(a, i)[t] : rows_at(a, t)[i];
        sum = exact_add(sum, left * (c.b_transposed ? rows_at(b, j)[t] : rows_at(b, t)[j]));
    }
    return exact_add(sum, c.accumulate ? 3.0 : 0.0);
}

static matrix make_operand(bool transposed, int64_t size, int64_t k, bool gather, uint64_t seed)
{
    return transposed ? matrix_make(size, k, 2, gather, seed)
                      : matrix_make(k, size, 1, gather, seed);
}

static void check_tile(const kernels *set, tile_case c)
{
    matrix a = make_operand(c.a_transposed, c.m, c.k, c.n % 2, 31);
    matrix b = make_operand(c.b_transposed, c.n, c.k, c.m % 2, 32);
    result ours = result_make(c.m, c.n), spec = result_make(c.m, c.n);
    if (c.accumulate) {
        result_fill(&ours, 3.0f);
        result_fill(&spec, 3.0f);
    }
    run_tiles(set, c, a.rows, b.rows, &ours);
    run_tiles(&kernels_scalar, c, a.rows, b.rows, &spec);
    for (int64_t i = 0; i < c.m; i++)
        for (int64_t j = 0; j < c.n; j++) {
            exact sum = exact_tile(c, a.rows, i, b.rows, j);
            assert_near("tile", set, ours.data.at[i * ours.stride + j], sum);
            sum.value = spec.data.at[i * spec.stride + j];
            assert_near("tile against scalar", set, ours.data.at[i * ours.stride + j], sum);
        }
    result_free(&spec);
    result_free(&ours);
    matrix_free(&b);
    matrix_free(&a);
}

static void tile_set(const kernels *set)
{
    for (int form = 0; form < 8; form++) {
        tile_case c = {.a_transposed = form & 1, .b_transposed = form & 2, .accumulate = form & 4};
        for (size_t i = 0; i < COUNT(lengths); i++) {
            c.m = set->tile_m;
            c.n = set->tile_n;
            c.k = lengths[i];
            check_tile(set, c);
            c.m = 2 * set->tile_m - 1;
            c.n = set->tile_n + 1;
            check_tile(set, c);
        }
        c.k = 19;
        for (c.m = 0; c.m <= set->tile_m + 1; c.m++)
            for (c.n = 0; c.n <= set->tile_n + 2; c.n++) check_tile(set, c);
    }
}

/* ---- few rows ------------------------------------------------------------------------------- */

/* m rows as few_rows takes them: [steps][m][LANES], zeros beyond column k. */
static floats pack_steps(rows x, int m, int64_t k)
{
    int64_t steps = (k + LANES - 1) / LANES;
    floats packed = floats_make(steps * m * LANES, 1);
    for (int64_t t = 0; t < steps * LANES; t++)
        for (int i = 0; i < m; i++)
            packed.at[(t / LANES * m + i) * LANES + t % LANES] = t < k ? rows_at(x, i)[t] : 0.0f;
    return packed;
}

static void few_rows_case(const kernels *set, int m, int64_t n, int64_t k)
{
    matrix x = matrix_make(m, k, 3, n % 2, 21), w = matrix_make(n, k, m, false, 22);
    result few = result_make(m, n), spec = result_make(m, n);
    floats xs = pack_steps(x.rows, m, k);
    set->few_rows(m, xs.at, w.rows, n, k, few.data.at, few.stride);
    for (int i = 0; i < m; i++) { /* the specification, a row at a time */
        floats one = pack_steps(rows_from(x.rows, i), 1, k);
        kernels_scalar.few_rows(1, one.at, w.rows, n, k, spec.data.at + i * spec.stride,
                                spec.stride);
        floats_free(one);
    }
    tile_case c = {m, n, k, true, true, false};
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            exact sum = exact_tile(c, x.rows, i, w.rows, j);
            assert_near("few_rows", set, few.data.at[i * few.stride + j], sum);
            sum.value = spec.data.at[i * spec.stride + j];
            assert_near("few_rows against scalar", set, few.data.at[i * few.stride + j], sum);
        }
    floats_free(xs);
    result_free(&spec);
    result_free(&few);
    matrix_free(&w);
    matrix_free(&x);
}

static void few_rows_set(const kernels *set)
{
    for (int m = 1; m <= set->few; m++) {
        for (size_t i = 1; i < COUNT(lengths); i++) {
            few_rows_case(set, m, 5, lengths[i]);
            few_rows_case(set, m, 1 + (int)(i % 19), lengths[i]);
        }
        for (int n = 0; n <= 18; n++) few_rows_case(set, m, n, 70);
    }
    result untouched = result_make(2, 3);
    matrix w = matrix_make(3, 9, 0, false, 1);
    set->few_rows(0, w.data.at, w.rows, 3, 9, untouched.data.at, untouched.stride);
    for (int64_t i = 0; i < untouched.data.n; i++) assert_true(is_guard(untouched.data.at[i]));
    matrix_free(&w);
    result_free(&untouched);
}

/* ---- element by element --------------------------------------------------------------------- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* What underflows may come out as anything this small. */
static const double tiny = 1e-30;

static void swiglu_case(const kernels *set, int64_t n, int offset)
{
    floats g = floats_random(n, offset, 41), u = floats_random(n, (offset + 1) % 4, 42);
    floats h = floats_make(n, (offset + 2) % 4), spec = floats_make(n, 0);
    for (int64_t i = 0; i < n; i++) g.at[i] *= i % 3 ? 3.0f : 30.0f;
    set->swiglu(n, g.at, u.at, h.at);
    kernels_scalar.swiglu(n, g.at, u.at, spec.at);
    for (int64_t i = 0; i < n; i++) {
        double expected = g.at[i] * sigmoid(g.at[i]) * u.at[i];
        exact sum = {expected, 2 * fabs(expected) + tiny / FLT_EPSILON};
        assert_near("swiglu", set, h.at[i], sum);
        sum.value = spec.at[i];
        assert_near("swiglu against scalar", set, h.at[i], sum);
    }
    floats_free(g);
    floats_free(u);
    floats_free(h);
    floats_free(spec);
}

static void swiglu_set(const kernels *set)
{
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int offset = 0; offset < 4; offset++) swiglu_case(set, lengths[i], offset);
}

/* In a row of 9, so that both a full step and the rest meet each value. */
static void swiglu_at(const kernels *set, float g, float u, float out[9])
{
    float gs[9], us[9];
    for (int i = 0; i < 9; i++) {
        gs[i] = g;
        us[i] = u;
    }
    set->swiglu(9, gs, us, out);
}

static void swiglu_extremes_set(const kernels *set)
{
    static const float finite[] = {1e4f,  -1e4f,  87.0f,   88.5f,    -87.0f,  -88.5f,   -104.0f,
                                   1e30f, -1e30f, FLT_MAX, -FLT_MAX, FLT_MIN, -FLT_MIN, 1e-40f};
    float out[9];
    for (size_t v = 0; v < COUNT(finite); v++) {
        swiglu_at(set, finite[v], 0.5f, out);
        double expected = finite[v] * sigmoid(finite[v]) * 0.5;
        /* A sigmoid need not be told from zero below the smallest normal number. */
        double allowed = 8 * FLT_EPSILON * fabs(expected) + FLT_MIN * (1 + fabs(finite[v] * 0.5));
        for (int i = 0; i < 9; i++)
            if (!(fabs(out[i] - expected) <= allowed))
                fail_msg("swiglu of %s at %g: %g, where %g is expected", set->name,
                         (double)finite[v], (double)out[i], expected);
    }
    swiglu_at(set, -0.0f, 2.0f, out);
    for (int i = 0; i < 9; i++) assert_true(out[i] == 0.0f && signbit(out[i]));
    /* Whatever is not a number stays visible. */
    static const float infinite[] = {INFINITY, -INFINITY, NAN};
    for (size_t v = 0; v < COUNT(infinite); v++) {
        swiglu_at(set, infinite[v], 2.0f, out);
        for (int i = 0; i < 9; i++) assert_false(isfinite(out[i]));
        swiglu_at(set, 2.0f, infinite[v], out);
        for (int i = 0; i < 9; i++) assert_false(isfinite(out[i]));
    }
    swiglu_at(set, INFINITY, 2.0f, out);
    for (int i = 0; i < 9; i++) assert_true(out[i] == INFINITY);
}

typedef struct swiglu_row {
    floats g, u, dh;
} swiglu_row;

static swiglu_row swiglu_row_make(int64_t n, int offset)
{
    swiglu_row r = {floats_random(n, offset, 51), floats_random(n, (offset + 1) % 4, 52),
                    floats_random(n, (offset + 3) % 4, 53)};
    for (int64_t i = 0; i < n; i++) r.g.at[i] *= i % 3 ? 2.0f : 20.0f;
    return r;
}

static void swiglu_row_free(swiglu_row *r)
{
    floats_free(r->g);
    floats_free(r->u);
    floats_free(r->dh);
}

static void swiglu_backward_case(const kernels *set, int64_t n, int offset, float weight)
{
    swiglu_row in = swiglu_row_make(n, 0), out = swiglu_row_make(n, offset);
    swiglu_row spec = swiglu_row_make(n, 0);
    exact total = {0};
    double ours = set->swiglu_backward(n, weight, out.g.at, out.u.at, out.dh.at);
    double specified = kernels_scalar.swiglu_backward(n, weight, spec.g.at, spec.u.at, spec.dh.at);
    for (int64_t i = 0; i < n; i++) {
        double g = in.g.at[i], u = in.u.at[i], dh = in.dh.at[i], s = sigmoid(g);
        double slope = s * (1 + g * (1 - s)), h = g * s * u, d = dh * weight;
        double size = 4 * fabs(d * u) * s * (1 + fabs(g)) + tiny / FLT_EPSILON;
        total = exact_add(total, h * dh);
        assert_near("dg", set, out.g.at[i], (exact){d * u * slope, size});
        assert_near("dg against scalar", set, out.g.at[i], (exact){spec.g.at[i], size});
        size = 2 * fabs(d * g * s) + tiny / FLT_EPSILON;
        assert_near("du", set, out.u.at[i], (exact){d * g * s, size});
        assert_near("du against scalar", set, out.u.at[i], (exact){spec.u.at[i], size});
        size = 2 * fabs(h * weight) + tiny / FLT_EPSILON;
        assert_near("weighted h", set, out.dh.at[i], (exact){h * weight, size});
        assert_near("weighted h against scalar", set, out.dh.at[i], (exact){spec.dh.at[i], size});
    }
    total.magnitude = 2 * total.magnitude + tiny / FLT_EPSILON;
    assert_near("d weight", set, ours, total);
    total.value = specified;
    assert_near("d weight against scalar", set, ours, total);
    swiglu_row_free(&spec);
    swiglu_row_free(&out);
    swiglu_row_free(&in);
}

static void swiglu_backward_set(const kernels *set)
{
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int offset = 0; offset < 4; offset++)
            swiglu_backward_case(set, lengths[i], offset, offset == 3 ? 1.0f : 0.3f);
    float g[9], u[9], dh[9];
    static const float large[] = {1e4f, -1e4f, 88.5f, -88.5f};
    for (size_t v = 0; v < COUNT(large); v++) {
        for (int i = 0; i < 9; i++) {
            g[i] = large[v];
            u[i] = dh[i] = 2.0f;
        }
        assert_true(isfinite(set->swiglu_backward(9, 0.5f, g, u, dh)));
        for (int i = 0; i < 9; i++) {
            assert_true(fabsf(g[i] - (large[v] > 0 ? 2.0f : 0.0f)) <= 1e-6f);
            assert_true(fabsf(u[i] - fmaxf(large[v], 0.0f)) <= 1e-6f * fabsf(large[v]));
            assert_true(fabsf(dh[i] - fmaxf(large[v], 0.0f)) <= 1e-6f * fabsf(large[v]));
        }
    }
}

static void axpy_case(const kernels *set, int64_t n, int offset)
{
    floats x = floats_random(n, offset, 61), y = floats_random(n, (offset + 1) % 4, 62);
    floats before = floats_random(n, 0, 62), spec = floats_random(n, 0, 62);
    set->axpy(n, -0.7f, x.at, y.at);
    kernels_scalar.axpy(n, -0.7f, x.at, spec.at);
    for (int64_t i = 0; i < n; i++) {
        exact sum = exact_add((exact){0}, (double)-0.7f * x.at[i]);
        sum = exact_add(sum, before.at[i]);
        assert_near("axpy", set, y.at[i], sum);
        sum.value = spec.at[i];
        assert_near("axpy against scalar", set, y.at[i], sum);
    }
    floats_free(x);
    floats_free(y);
    floats_free(before);
    floats_free(spec);
}

static void axpy_set(const kernels *set)
{
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int offset = 0; offset < 4; offset++) axpy_case(set, lengths[i], offset);
}

/* ---- softmax -------------------------------------------------------------------------------- */

static void softmax_case(const kernels *set, int64_t n, int offset, float scale)
{
    floats x = floats_random(n, offset, 71), in = floats_random(n, 0, 71);
    floats spec = floats_random(n, 0, 71);
    double max = -INFINITY, sum = 0, ours = 0;
    for (int64_t i = 0; i < n; i++) {
        x.at[i] = spec.at[i] = in.at[i] *= scale;
        max = fmax(max, in.at[i]);
    }
    for (int64_t i = 0; i < n; i++) sum += exp(in.at[i] - max);
    assert_true(set->softmax(n, x.at));
    assert_true(kernels_scalar.softmax(n, spec.at));
    for (int64_t i = 0; i < n; i++) {
        double expected = exp(in.at[i] - max) / sum, depth = fmin(max - in.at[i], 100);
        double size = expected * (2 + depth / 4 + sqrt((double)n) / 4) + tiny;
        assert_near("softmax", set, x.at[i], (exact){expected, size});
        assert_near("softmax against scalar", set, x.at[i], (exact){spec.at[i], size});
        ours += x.at[i];
    }
    if (n) assert_near("sum of softmax", set, ours, (exact){1, sqrt((double)n)});
    floats_free(spec);
    floats_free(in);
    floats_free(x);
}

static void softmax_nonfinite(const kernels *set, int64_t n, int64_t at, float value)
{
    floats x = floats_random(n, 1, 72);
    x.at[at] = value;
    if (set->softmax(n, x.at))
        fail_msg("softmax of %s takes %g at %d of %d for a number", set->name, (double)value,
                 (int)at, (int)n);
    floats_free(x);
}

static void softmax_set(const kernels *set)
{
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int offset = 0; offset < 4; offset++) {
            softmax_case(set, lengths[i], offset, offset == 3 ? 30.0f : 2.0f);
            softmax_case(set, lengths[i], offset, offset == 3 ? 1e30f : 1e4f);
        }
    for (int64_t n = 1; n <= 40; n++)
        for (int64_t at = 0; at < n; at++) {
            softmax_nonfinite(set, n, at, NAN);
            softmax_nonfinite(set, n, at, INFINITY);
            softmax_nonfinite(set, n, at, -INFINITY);
        }
    float ends[] = {FLT_MAX, -FLT_MAX, 0.0f, -0.0f, FLT_MAX};
    assert_true(set->softmax(5, ends));
    assert_true(ends[0] == 0.5f && ends[4] == 0.5f);
    for (int i = 1; i < 4; i++) assert_true(ends[i] >= 0 && ends[i] < 1e-30f);
    float equal[65];
    for (int i = 0; i < 65; i++) equal[i] = -3.25f;
    assert_true(set->softmax(65, equal));
    for (int i = 0; i < 65; i++) assert_true(equal[i] == equal[0]); /* ties stay ties */
}

/* ---- what the machine can do ---------------------------------------------------------------- */

static void probe_set(const kernels *set)
{
    float sink = 0.0f;
    assert_true(set->probe_fma(10, &sink) >= 20 && isfinite(sink));
    assert_true(set->probe_fma(20, &sink) == 2 * set->probe_fma(10, &sink));
    floats x = floats_make(192, 0);
    for (int i = 0; i < 192; i++) x.at[i] = 1.0f;
    float ones = set->probe_read(192, x.at);
    for (int i = 0; i < 192; i++) {
        x.at[i] = 1000.0f;
        assert_true(set->probe_read(192, x.at) != ones); /* it does read all of it */
        x.at[i] = 1.0f;
    }
    floats_free(x);
}

/* ---- choosing ------------------------------------------------------------------------------- */

static void test_choice(void **state)
{
    (void)state;
    const kernels *const *list;
    int n = kernels_all(&list);
    const char *wanted = getenv("DSMOE_KERNELS");
    char *before = wanted ? strdup(wanted) : NULL;
    for (int i = 0; i < n; i++) {
        setenv("DSMOE_KERNELS", list[i]->name, 1);
        assert_ptr_equal(kernels_get(), list[i]);
        assert_string_equal(dsmoe_kernels_name(), list[i]->name);
    }
    setenv("DSMOE_KERNELS", "abacus", 1); /* unknown: the best there is */
    assert_ptr_equal(kernels_get(), list[n - 1]);
    unsetenv("DSMOE_KERNELS");
    assert_ptr_equal(kernels_get(), list[n - 1]);
    if (before) setenv("DSMOE_KERNELS", before, 1);
    free(before);
}

static void test_pack(void **state) { (void)state, for_each_set(pack_set); }
static void test_tile(void **state) { (void)state, for_each_set(tile_set); }
static void test_few_rows(void **state) { (void)state, for_each_set(few_rows_set); }
static void test_swiglu(void **state) { (void)state, for_each_set(swiglu_set); }
static void test_swiglu_extremes(void **state) { (void)state, for_each_set(swiglu_extremes_set); }
static void test_swiglu_backward(void **state) { (void)state, for_each_set(swiglu_backward_set); }
static void test_axpy(void **state) { (void)state, for_each_set(axpy_set); }
static void test_softmax(void **state) { (void)state, for_each_set(softmax_set); }
static void test_probes(void **state) { (void)state, for_each_set(probe_set); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_pack_layout),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_tile),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_swiglu_extremes),
        cmocka_unit_test(test_swiglu_backward),
        cmocka_unit_test(test_axpy),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_probes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
