/* test_elements.c - what every set of kernels does element by element: against the specification
 * (scalar.c) and in double, at odd sizes, from misaligned addresses, in arrays without a spare byte. */
#include "operands.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

/* Lengths around every vector step of a kernel. */
static const int lengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,
                              16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,  29,  30,  31,
                              32, 33, 34, 35, 36, 37, 38, 39, 40, 63, 64, 65, 511, 512, 513, 1000};

/* ---- SwiGLU --------------------------------------------------------------------------------- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Results that underflow may be off by this. */
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

/* In a row of 9 each value is handled both in a full vector and in the rest. */
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
        /* A sigmoid below the smallest normal number may be rounded to zero. */
        double allowed = 8 * FLT_EPSILON * fabs(expected) + FLT_MIN * (1 + fabs(finite[v] * 0.5));
        for (int i = 0; i < 9; i++)
            if (!(fabs(out[i] - expected) <= allowed))
                fail_msg("swiglu of %s at %g: %g, where %g is expected", set->name,
                         (double)finite[v], (double)out[i], expected);
    }
    swiglu_at(set, -0.0f, 2.0f, out);
    for (int i = 0; i < 9; i++) assert_true(out[i] == 0.0f && signbit(out[i]));
    /* Infinity and NaN must show in the result. */
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

/* ---- RMSNorm -------------------------------------------------------------------------------- */

static void rms_norm_case(const kernels *set, int64_t n, int offset, float scale, float eps)
{
    floats x = floats_random(n, offset, 63), weight = floats_random(n, (offset + 1) % 4, 64);
    floats y = floats_make(n, (offset + 2) % 4), spec = floats_make(n, 0);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        x.at[i] *= scale;
        squares += (double)x.at[i] * x.at[i];
    }
    double root = sqrt(squares / (double)n + eps);
    set->rms_norm(n, x.at, weight.at, eps, y.at);
    kernels_scalar.rms_norm(n, x.at, weight.at, eps, spec.at);
    for (int64_t i = 0; i < n; i++) {
        double expected = weight.at[i] * x.at[i] / root;
        assert_near("rms_norm", set, y.at[i], (exact){expected, fabs(expected)});
        assert_near("rms_norm against scalar", set, y.at[i], (exact){spec.at[i], fabs(expected)});
    }
    set->rms_norm(n, x.at, weight.at, eps, x.at); /* in place */
    assert_memory_equal(x.at, y.at, (size_t)n * sizeof(float));
    floats_free(spec);
    floats_free(y);
    floats_free(weight);
    floats_free(x);
}

static void rms_norm_set(const kernels *set)
{
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int offset = 0; offset < 4; offset++) {
            rms_norm_case(set, lengths[i], offset, 1.0f, 1e-6f);
            rms_norm_case(set, lengths[i], offset, 1e-4f, 1e-6f); /* eps matters */
            rms_norm_case(set, lengths[i], offset, 1e15f, 1e-6f);
        }
    for (int at = 0; at < 19; at++) { /* zeros stay zeros, and NaN shows */
        float x[19] = {0}, weight[19], y[19];
        for (int i = 0; i < 19; i++) weight[i] = 2.0f;
        set->rms_norm(19, x, weight, 1e-6f, y);
        for (int i = 0; i < 19; i++) assert_true(y[i] == 0.0f);
        x[at] = NAN;
        set->rms_norm(19, x, weight, 1e-6f, y);
        for (int i = 0; i < 19; i++) assert_true(isnan(y[i]));
    }
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

/* ---- softmax in parts ----------------------------------------------------------------------- */

/* The largest input and the sum, so far, of a softmax computed in parts. */
typedef struct parts {
    float max, sum;
} parts;

/* Takes x in parts of `size` and leaves e^(x - max) of the whole. Each part is also computed by the
 * specification from the same start. */
static parts softmax_in_parts(const kernels *set, floats x, int64_t size)
{
    parts p = {-INFINITY, 0.0f};
    for (int64_t at = 0; at < x.n; at += size) {
        int64_t n = x.n - at < size ? x.n - at : size;
        parts before = p, spec = p;
        floats copy = floats_make(n, 0);
        memcpy(copy.at, x.at + at, (size_t)n * sizeof(float));
        float factor = set->softmax_part(n, x.at + at, &p.max, &p.sum);
        float specified = kernels_scalar.softmax_part(n, copy.at, &spec.max, &spec.sum);
        floats_free(copy);
        assert_true(p.max == spec.max && p.max >= before.max);
        assert_near("factor against scalar", set, factor, (exact){specified, specified});
        assert_near("sum against scalar", set, p.sum, (exact){spec.sum, 4 * spec.sum});
        for (int64_t i = 0; i < at; i++) x.at[i] *= factor;
    }
    return p;
}

static void softmax_part_case(const kernels *set, int64_t n, int64_t size, float scale, float slope)
{
    floats x = floats_random(n, (int)(size % 4), 73), in = floats_random(n, 0, 73);
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        x.at[i] = in.at[i] = in.at[i] * scale + slope * (float)i;
        max = fmax(max, in.at[i]);
    }
    for (int64_t i = 0; i < n; i++) sum += exp(in.at[i] - max);
    parts p = softmax_in_parts(set, x, size);
    assert_true(p.max == max);
    /* Each difference on the way to the last maximum is rounded, and so is each factor. */
    double steps = 2 + 0.25 * (double)n / (double)size;
    assert_near("sum of all parts", set, p.sum, (exact){sum, sum * steps});
    for (int64_t i = 0; i < n; i++) {
        double expected = exp(in.at[i] - max), depth = fmin(max - in.at[i], 100);
        exact e = {expected, expected * (steps + depth / 4) + tiny};
        assert_near("softmax in parts", set, x.at[i], e);
    }
    floats_free(in);
    floats_free(x);
}

static void softmax_part_set(const kernels *set)
{
    static const int sizes[] = {1, 3, 7, 8, 9, 16, 21, 64, 333};
    for (size_t i = 1; i < COUNT(lengths); i++)
        for (size_t j = 0; j < COUNT(sizes); j++) {
            if (lengths[i] > 30 * sizes[j]) continue;
            softmax_part_case(set, lengths[i], sizes[j], 2.0f, 0.0f);
            softmax_part_case(set, lengths[i], sizes[j], 20.0f, 0.0f);
            softmax_part_case(set, lengths[i], sizes[j], 1.0f, 0.25f);   /* always a new max */
            softmax_part_case(set, lengths[i], sizes[j], 1.0f, -0.25f);  /* always the first */
            softmax_part_case(set, lengths[i], sizes[j], 1.0f, 1000.0f); /* only the last counts */
        }
    parts p = {2.0f, 3.0f}; /* an empty part */
    float none[1];
    assert_true(set->softmax_part(0, none, &p.max, &p.sum) == 1.0f);
    assert_true(p.max == 2.0f && p.sum == 3.0f);
    p = (parts){-INFINITY, 0.0f};
    assert_true(set->softmax_part(0, none, &p.max, &p.sum) == 1.0f);
    assert_true(p.max == -INFINITY && p.sum == 0.0f);
}

/* Three parts; part number `clean` has `value` at index `at`. The sum must be NaN from that part on, but
 * the maximum is still the right one. */
static void softmax_part_nan(const kernels *set, int64_t n, int64_t at, float value, int clean)
{
    parts p = {-INFINITY, 0.0f}, spec = p;
    for (int part = 0; part < 3; part++) {
        floats x = floats_random(n, 1, 74), copy = floats_random(n, 0, 74);
        if (part == clean) x.at[at] = copy.at[at] = value;
        set->softmax_part(n, x.at, &p.max, &p.sum);
        kernels_scalar.softmax_part(n, copy.at, &spec.max, &spec.sum);
        if (isnan(p.sum) != (part >= clean) || p.max != spec.max)
            fail_msg("softmax_part of %s, %g at %d of %d in part %d: sum %g, max %g after part %d",
                     set->name, (double)value, (int)at, (int)n, clean, (double)p.sum, (double)p.max,
                     part);
        floats_free(copy);
        floats_free(x);
    }
}

static void softmax_part_nan_set(const kernels *set)
{
    for (int64_t n = 1; n <= 27; n++)
        for (int64_t at = 0; at < n; at++)
            for (int clean = 0; clean < 2; clean++) {
                softmax_part_nan(set, n, at, NAN, clean);
                softmax_part_nan(set, n, at, -NAN, clean);
                softmax_part_nan(set, n, at, INFINITY, clean);
            }
}

static void test_swiglu(void **state) { (void)state, for_each_set(swiglu_set); }
static void test_swiglu_extremes(void **state) { (void)state, for_each_set(swiglu_extremes_set); }
static void test_swiglu_backward(void **state) { (void)state, for_each_set(swiglu_backward_set); }
static void test_axpy(void **state) { (void)state, for_each_set(axpy_set); }
static void test_rms_norm(void **state) { (void)state, for_each_set(rms_norm_set); }
static void test_softmax(void **state) { (void)state, for_each_set(softmax_set); }
static void test_softmax_part(void **state) { (void)state, for_each_set(softmax_part_set); }
static void test_softmax_part_nan(void **state) { (void)state, for_each_set(softmax_part_nan_set); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swiglu),          cmocka_unit_test(test_swiglu_extremes),
        cmocka_unit_test(test_swiglu_backward), cmocka_unit_test(test_axpy),
        cmocka_unit_test(test_rms_norm),        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_part),    cmocka_unit_test(test_softmax_part_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
