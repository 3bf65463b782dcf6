/* scalar.c - the kernels in plain C: the specification of every other set, and the fallback. Written for
 * reading; the loops over lanes are such that a compiler can vectorise them. */
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, DOT_M = 2, DOT_N = 4, OUTER_M = 4, OUTER_N = 8 };

static void dot_pack(float *panel, rows src, int64_t n, int group, int64_t k0, int64_t k1)
{
    int64_t steps = (k1 - k0 + LANES - 1) / LANES;
    for (int64_t i = 0; i < n; i += group)
        for (int64_t s = 0; s < steps; s++)
            for (int r = 0; r < group; r++)
                for (int lane = 0; lane < LANES; lane++) {
                    int64_t k = k0 + s * LANES + lane;
                    *panel++ = i + r < n && k < k1 ? rows_at(src, i + r)[k] : 0.0f;
                }
}

/* The lanes of one sum, folded in the order all kernels use. */
static float fold(const float *lane)
{
    return ((lane[0] + lane[2]) + (lane[1] + lane[3])) + ((lane[4] + lane[6]) + (lane[5] + lane[7]));
}

static void dot_tile(int64_t steps, const float *x, const float *w, float *y, int64_t ldy,
                     bool accumulate, int m, int n, const float *ahead)
{
    (void)ahead; /* a compiler for any machine has no say in its caches */
    float sum[DOT_M][DOT_N][LANES] = {0};
    for (int64_t s = 0; s < steps; s++, x += DOT_M * LANES, w += DOT_N * LANES)
        for (int i = 0; i < DOT_M; i++)
            for (int j = 0; j < DOT_N; j++)
                for (int lane = 0; lane < LANES; lane++)
                    sum[i][j][lane] += x[i * LANES + lane] * w[j * LANES + lane];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float *at = &y[i * ldy + j], folded = fold(sum[i][j]);
            *at = accumulate ? *at + folded : folded;
        }
}

static void dot_direct(rows x, int m, rows w, int64_t n, int64_t k, int64_t block, float *y,
                       int64_t ldy)
{
    for (int i = 0; i < m; i++) {
        const float *a = rows_at(x, i);
        for (int64_t j = 0; j < n; j++) {
            const float *b = rows_at(w, j);
            float total = 0.0f;
            for (int64_t k0 = 0; k0 < k; k0 += block) {
                int64_t k1 = k - k0 < block ? k : k0 + block;
                float sum[LANES] = {0};
                int64_t t = k0;
                for (; t + LANES <= k1; t += LANES)
                    for (int lane = 0; lane < LANES; lane++) sum[lane] += a[t + lane] * b[t + lane];
                for (int lane = 0; t + lane < k1; lane++) sum[lane] += a[t + lane] * b[t + lane];
                total = k0 ? total + fold(sum) : fold(sum);
            }
            y[i * ldy + j] = total;
        }
    }
}

static void outer_pack(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t j = 0; j < width; j += group)
        for (int64_t k = 0; k < n; k++)
            for (int r = 0; r < group; r++) *panel++ = j + r < width ? rows_at(src, k)[j + r] : 0.0f;
}

static void outer_pack_transposed(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t i = 0; i < n; i += group)
        for (int64_t k = 0; k < width; k++)
            for (int r = 0; r < group; r++) *panel++ = i + r < n ? rows_at(src, i + r)[k] : 0.0f;
}

static void outer_tile(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                       bool accumulate, int m, int n, const float *ahead)
{
    (void)ahead;
    float sum[OUTER_M][OUTER_N] = {0};
    for (int64_t s = 0; s < k; s++, a += OUTER_M, b += OUTER_N)
        for (int i = 0; i < OUTER_M; i++)
            for (int j = 0; j < OUTER_N; j++) sum[i][j] += a[i] * b[j];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float *at = &c[i * ldc + j];
            *at = accumulate ? *at + sum[i][j] : sum[i][j];
        }
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static void swiglu(int64_t n, const float *g, const float *u, float *h)
{
    for (int64_t i = 0; i < n; i++) h[i] = g[i] * sigmoid(g[i]) * u[i];
}

static float swiglu_backward(int64_t n, float weight, float *g, float *u, float *dh)
{
    float sum[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        float s = sigmoid(g[i]), silu = g[i] * s, h = silu * u[i];
        sum[i % LANES] += h * dh[i];
        float d = dh[i] * weight;
        g[i] = d * u[i] * (s * (1.0f + g[i] * (1.0f - s)));
        u[i] = d * silu;
        dh[i] = h * weight;
    }
    return fold(sum);
}

static void axpy(int64_t n, float weight, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] += weight * x[i];
}

static bool softmax(int64_t n, float *x)
{
    float max = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
        if (x[i] > max) max = x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
    return true;
}

static double probe_fma(int64_t rounds, float *sink)
{
    enum { CHAINS = 64 };
    float c[CHAINS];
    for (int i = 0; i < CHAINS; i++) c[i] = 1.0f + (float)i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) c[i] = c[i] * 0.9999f + 0.0001f;
    float sum = 0.0f;
    for (int i = 0; i < CHAINS; i++) sum += c[i];
    *sink = sum;
    return (double)rounds * CHAINS * 2;
}

static float probe_read(int64_t n, const float *x)
{
    float sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sum[lane] += x[i + lane];
    return fold(sum);
}

const kernels kernels_scalar = {
    .name = "scalar",
    .lanes = LANES,
    .dot_m = DOT_M,
    .dot_n = DOT_N,
    .dot_k = 512,
    .dot_pack = dot_pack,
    .dot_tile = dot_tile,
    .dot_direct = dot_direct,
    .outer_m = OUTER_M,
    .outer_n = OUTER_N,
    .outer_pack = outer_pack,
    .outer_pack_transposed = outer_pack_transposed,
    .outer_tile = outer_tile,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .axpy = axpy,
    .softmax = softmax,
    .probe_fma = probe_fma,
    .probe_read = probe_read,
};
