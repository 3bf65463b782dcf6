/* test_train_kernels.c - the kernels that only training uses, of every set: against the specification
 * (scalar.c) and in double, at odd sizes, from misaligned addresses, in arrays without a spare byte. */
#include "operands.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Lengths around every vector step of a kernel. */
static const int lengths[] = {0,  1,  2,  3,  4,  5,  6,  7,   8,   9,   10, 11,
                              12, 13, 14, 15, 16, 17, 18, 23,  24,  25,  31, 32,
                              33, 39, 40, 41, 63, 64, 65, 511, 513, 1000};

enum { ARRAYS = 5 };

/* Several arrays of the same length, each at another offset, with copies of the original numbers. */
typedef struct arrays {
    floats now[ARRAYS], spec[ARRAYS], before[ARRAYS];
    int64_t n;
} arrays;

static arrays arrays_make(int64_t n, int offset)
{
    arrays a = {.n = n};
    for (int i = 0; i < ARRAYS; i++) {
        uint64_t seed = 300 + (uint64_t)i;
        a.now[i] = floats_random(n, (offset + i) % 4, seed);
        a.spec[i] = floats_random(n, 0, seed);
        a.before[i] = floats_random(n, 0, seed);
    }
    return a;
}

/* Scales all three copies of an array. */
static void arrays_scale(arrays *a, int which, float factor, bool positive)
{
    floats *const copies[] = {a->now, a->spec, a->before};
    for (int c = 0; c < 3; c++)
        for (int64_t i = 0; i < a->n; i++) {
            float *x = &copies[c][which].at[i];
            *x = (positive ? fabsf(*x) : *x) * factor;
        }
}

static void arrays_free(arrays *a)
{
    for (int i = 0; i < ARRAYS; i++) {
        floats_free(a->now[i]);
        floats_free(a->spec[i]);
        floats_free(a->before[i]);
    }
}

/* Arrays that a kernel only reads must not change. */
static void assert_unchanged(const arrays *a, int first, int end)
{
    for (int i = first; i < end; i++)
        assert_memory_equal(a->now[i].at, a->before[i].at, (size_t)a->n * sizeof(float));
}

/* ---- rms_norm_backward ----------------------------------------------------------------------- */

enum { X, WEIGHT, DY, DX, D_WEIGHT };

static void norm_case(const kernels *set, int64_t n, int offset, float scale, float eps)
{
    arrays a = arrays_make(n, offset);
    arrays_scale(&a, X, scale, false);
    set->rms_norm_backward(n, a.now[X].at, a.now[WEIGHT].at, eps, a.now[DY].at, a.now[DX].at,
                           a.now[D_WEIGHT].at);
    kernels_scalar.rms_norm_backward(n, a.spec[X].at, a.spec[WEIGHT].at, eps, a.spec[DY].at,
                                     a.spec[DX].at, a.spec[D_WEIGHT].at);
    assert_unchanged(&a, X, DX);
    double squares = 0;
    exact along = {0};
    for (int64_t i = 0; i < n; i++) {
        double x = a.before[X].at[i];
        squares += x * x;
        along = exact_add(along, (double)a.before[WEIGHT].at[i] * a.before[DY].at[i] * x);
    }
    double r = 1 / sqrt(squares / (double)n + eps), cube = r * r * r / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double x = a.before[X].at[i], dy = a.before[DY].at[i], w = a.before[WEIGHT].at[i];
        exact dx = exact_add((exact){0}, a.before[DX].at[i]), dw = (exact){0};
        dx = exact_add(dx, w * dy * r);
        dx = exact_add(dx, -x * along.value * cube);
        dx.magnitude += fabs(x) * along.magnitude * cube + fabs(w * dy * r);
        assert_near("dx", set, a.now[DX].at[i], dx);
        assert_near("dx against scalar", set, a.now[DX].at[i],
                    (exact){a.spec[DX].at[i], dx.magnitude});
        dw = exact_add(exact_add(dw, a.before[D_WEIGHT].at[i]), dy * r * x);
        assert_near("d_weight", set, a.now[D_WEIGHT].at[i], dw);
        assert_near("d_weight against scalar", set, a.now[D_WEIGHT].at[i],
                    (exact){a.spec[D_WEIGHT].at[i], dw.magnitude});
    }
    arrays_free(&a);
}

static void norm_set(const kernels *set)
{
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int offset = 0; offset < 4; offset++) {
            norm_case(set, lengths[i], offset, 1.0f, 1e-6f);
            norm_case(set, lengths[i], offset, 1e-4f, 1e-6f); /* eps matters */
            norm_case(set, lengths[i], offset, 1e9f, 1e-6f);
        }
    for (int at = 0; at < 19; at++) { /* a NaN anywhere reaches every gradient of x */
        float x[19], weight[19], dy[19], dx[19] = {0}, d_weight[19] = {0};
        for (int i = 0; i < 19; i++) x[i] = weight[i] = dy[i] = 1.0f;
        (at % 2 ? x : dy)[at] = NAN;
        set->rms_norm_backward(19, x, weight, 1e-6f, dy, dx, d_weight);
        for (int i = 0; i < 19; i++) assert_true(isnan(dx[i]));
    }
}

/* ---- softmax_backward ------------------------------------------------------------------------ */

static void softmax_case(const kernels *set, int64_t n, int offset)
{
    enum { P, DP, DS };
    const float mean = -0.4f;
    arrays a = arrays_make(n, offset);
    arrays_scale(&a, P, 0.01f, true);
    set->softmax_backward(n, a.now[P].at, a.now[DP].at, mean, a.now[DS].at);
    kernels_scalar.softmax_backward(n, a.spec[P].at, a.spec[DP].at, mean, a.spec[DS].at);
    assert_unchanged(&a, P, DS);
    for (int64_t i = 0; i < n; i++) {
        double p = a.before[P].at[i], dp = a.before[DP].at[i];
        exact ds = {p * (dp - mean), p * (fabs(dp) + fabsf(mean))};
        assert_near("ds", set, a.now[DS].at[i], ds);
        ds.value = a.spec[DS].at[i];
        assert_near("ds against scalar", set, a.now[DS].at[i], ds);
    }
    set->softmax_backward(n, a.now[P].at, a.now[DP].at, mean, a.now[DP].at); /* in place */
    assert_memory_equal(a.now[DP].at, a.now[DS].at, (size_t)n * sizeof(float));
    arrays_free(&a);
}

/* ---- scale and sum_squares --------------------------------------------------------------------- */

static void scale_case(const kernels *set, int64_t n, int offset)
{
    arrays a = arrays_make(n, offset);
    set->scale(n, 0.3f, a.now[0].at);
    kernels_scalar.scale(n, 0.3f, a.spec[0].at);
    for (int64_t i = 0; i < n; i++) { /* rounds once, so the result is unique */
        assert_true(a.now[0].at[i] == 0.3f * a.before[0].at[i]);
        assert_true(a.now[0].at[i] == a.spec[0].at[i]);
    }
    arrays_free(&a);
}

static void squares_case(const kernels *set, int64_t n, int offset, float scale)
{
    arrays a = arrays_make(n, offset);
    arrays_scale(&a, 0, scale, false);
    double sum = 0, ours = set->sum_squares(n, a.now[0].at);
    double specified = kernels_scalar.sum_squares(n, a.spec[0].at);
    for (int64_t i = 0; i < n; i++) sum += (double)a.before[0].at[i] * a.before[0].at[i];
    if (!(fabs(ours - sum) <= 1e-13 * sum && fabs(ours - specified) <= 1e-13 * sum))
        fail_msg("sum_squares of %s: %.17g, where %.17g is expected", set->name, ours, sum);
    assert_unchanged(&a, 0, 1);
    arrays_free(&a);
}

static void simple_set(const kernels *set)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int offset = 0; offset < 4; offset++) {
            softmax_case(set, lengths[i], offset);
            scale_case(set, lengths[i], offset);
            squares_case(set, lengths[i], offset, 1.0f);
            squares_case(set, lengths[i], offset, 1e-22f); /* squares below float32's range */
            squares_case(set, lengths[i], offset, 1e30f);
        }
    for (int64_t n = 1; n <= 27; n++) /* NaN and infinity show at any place */
        for (int64_t at = 0; at < n; at++)
            for (size_t v = 0; v < COUNT(values); v++) {
                floats x = floats_random(n, 1, 310);
                x.at[at] = values[v];
                assert_false(isfinite(set->sum_squares(n, x.at)));
                floats_free(x);
            }
}

/* ---- AdamW ------------------------------------------------------------------------------------- */

enum { G, W, M, V };

static void adamw_case(const kernels *set, int64_t n, int offset, const adamw_step *s, float size)
{
    arrays a = arrays_make(n, offset);
    arrays_scale(&a, G, size, false);
    arrays_scale(&a, M, size, false);
    arrays_scale(&a, V, size * size, true);
    set->adamw(n, s, a.now[G].at, a.now[W].at, a.now[M].at, a.now[V].at);
    kernels_scalar.adamw(n, s, a.spec[G].at, a.spec[W].at, a.spec[M].at, a.spec[V].at);
    assert_unchanged(&a, G, W);
    for (int64_t i = 0; i < n; i++) {
        double g = (double)s->scale * a.before[G].at[i], w = a.before[W].at[i];
        exact m = exact_add((exact){0}, (double)s->beta1 * a.before[M].at[i]);
        m = exact_add(m, s->new1 * g);
        exact v = exact_add((exact){0}, (double)s->beta2 * a.before[V].at[i]);
        v = exact_add(v, s->new2 * g * g);
        double below = s->root * sqrt(v.value) + s->eps;
        exact moved = exact_add((exact){0}, (double)s->keep * w);
        moved = exact_add(moved, -s->rate * m.value / below);
        moved.magnitude += s->rate * m.magnitude / below;
        assert_near("first moment", set, a.now[M].at[i], m);
        assert_near("second moment", set, a.now[V].at[i], v);
        assert_near("weight", set, a.now[W].at[i], moved);
        assert_near("weight against scalar", set, a.now[W].at[i],
                    (exact){a.spec[W].at[i], moved.magnitude});
    }
    arrays_free(&a);
}

static void adamw_set(const kernels *set)
{
    static const adamw_step steps[] = {
        {1.0f, 0.9f, 0.95f, 0.1f, 0.05f, 0.9999f, 1e-2f, 4.5f, 1e-8f}, /* a first step */
        {0.25f, 0.9f, 0.95f, 0.1f, 0.05f, 1.0f, 1e-3f, 1.0f, 1e-8f},   /* clipped, no decay */
        {1.0f, 0.0f, 0.0f, 1.0f, 1.0f, 0.5f, 0.3f, 1.0f, 1e-3f},       /* without momentum */
        {0.5f, 0.99f, 0.999f, 0.01f, 0.001f, 0.9f, 0.0f, 1.0f, 1e-8f}, /* only weight decay */
    };
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t j = 0; j < COUNT(steps); j++) {
            adamw_case(set, lengths[i], (int)(i + j) % 4, &steps[j], 1.0f);
            adamw_case(set, lengths[i], (int)(i + j) % 4, &steps[j], 1e-9f); /* eps matters */
            adamw_case(set, lengths[i], (int)(i + j) % 4, &steps[j], 1e6f);
        }
    float g[21] = {0}, w[21], m[21] = {0}, v[21] = {0};
    for (int i = 0; i < 21; i++) w[i] = (float)i - 7.0f;
    set->adamw(21, &steps[0], g, w, m, v); /* nothing is learned, only decay */
    for (int i = 0; i < 21; i++)
        assert_true(w[i] == 0.9999f * ((float)i - 7.0f) && m[i] == 0 && v[i] == 0);
}

static void test_norm(void **state) { (void)state, for_each_set(norm_set); }
static void test_simple(void **state) { (void)state, for_each_set(simple_set); }
static void test_adamw(void **state) { (void)state, for_each_set(adamw_set); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_simple),
        cmocka_unit_test(test_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
