/* scalar.c - the kernels in plain C: the specification of every other set, and the fallback.
 *
 * They are written to be read. Compilers can vectorise the loops over lanes. */
#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/scalar.h"

#include <math.h>
#include <string.h>

enum { TILE_M = 4, TILE_N = 8 };

static void pack(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t j = 0; j < width; j += group)
        for (int64_t k = 0; k < n; k++)
            for (int r = 0; r < group; r++)
                *panel++ = j + r < width ? rows_at(src, k)[j + r] : 0.0f;
}

static void pack_transposed(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t i = 0; i < n; i += group)
        for (int64_t k = 0; k < width; k++)
            for (int r = 0; r < group; r++) *panel++ = i + r < n ? rows_at(src, i + r)[k] : 0.0f;
}

static void tile(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate,
                 int m, int n, patch ahead)
{
    (void)ahead; /* portable C has no prefetch */
    float sum[TILE_M][TILE_N] = {0};
    for (int64_t s = 0; s < k; s++, a += TILE_M, b += TILE_N)
        for (int i = 0; i < TILE_M; i++)
            for (int j = 0; j < TILE_N; j++) sum[i][j] += a[i] * b[j];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float *at = &c[i * ldc + j];
            *at = accumulate ? *at + sum[i][j] : sum[i][j];
        }
}

/* The sum of eight lanes, in one fixed order. */
static float fold(const float *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* ---- weights of any type ------------------------------------------------------------------- */

static float number_f32(const unsigned char *at)
{
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static float number_bf16(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half_from_bf16(half);
}

static float number_f16(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half_from_f16(half);
}

static float number(dsmoe_dtype type, const unsigned char *at)
{
    switch (type) {
    case DSMOE_F32: return number_f32(at);
    case DSMOE_F16: return number_f16(at);
    case DSMOE_BF16: return number_bf16(at);
    default: break;
    }
    return NAN;
}

static void widen_f32(int64_t n, const void *src, float *dst)
{
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void widen_f16(int64_t n, const void *src, float *dst)
{
    for (int64_t i = 0; i < n; i++) dst[i] = number_f16((const unsigned char *)src + 2 * i);
}

static void widen_bf16(int64_t n, const void *src, float *dst)
{
    for (int64_t i = 0; i < n; i++) dst[i] = number_bf16((const unsigned char *)src + 2 * i);
}

static void pack_weights(float *panel, matrix w, int64_t column, int64_t n, int64_t width,
                         int group)
{
    for (int64_t i = 0; i < n; i += group)
        for (int64_t k = 0; k < width; k++)
            for (int r = 0; r < group; r++)
                *panel++ = i + r < n ? number(w.type, matrix_at(w, i + r, column + k)) : 0.0f;
}

static void few_rows(int m, const float *x, matrix w, int64_t n, int64_t k, float *y, int64_t ldy)
{
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float sum[LANES] = {0};
            for (int64_t s = 0; s < k; s++)
                sum[s % LANES] +=
                    x[(s / LANES * m + i) * LANES + s % LANES] * number(w.type, matrix_at(w, j, s));
            y[i * ldy + j] = fold(sum);
        }
}

static void add_panels(dsmoe_dtype type, int64_t m, const float *x, int64_t ldx, int64_t k,
                       const unsigned char *w, int64_t column, int64_t n, float *y, int64_t ldy)
{
    for (int64_t j = 0; j < n; j++) {
        int64_t first =
            (column + j) / PANEL_COLUMNS * PANEL_COLUMNS * k + (column + j) % PANEL_COLUMNS;
        for (int64_t i = 0; i < m; i++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < k; r++)
                sum +=
                    x[i * ldx + r] * number(type, w + dtype_bytes(type, first + r * PANEL_COLUMNS));
            y[i * ldy + j] += sum;
        }
    }
}

static void add_panels_f32(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                           int64_t column, int64_t n, float *y, int64_t ldy)
{
    add_panels(DSMOE_F32, m, x, ldx, k, w, column, n, y, ldy);
}

static void add_panels_f16(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                           int64_t column, int64_t n, float *y, int64_t ldy)
{
    add_panels(DSMOE_F16, m, x, ldx, k, w, column, n, y, ldy);
}

static void add_panels_bf16(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                            int64_t column, int64_t n, float *y, int64_t ldy)
{
    add_panels(DSMOE_BF16, m, x, ldx, k, w, column, n, y, ldy);
}

/* ---- element by element -------------------------------------------------------------------- */

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

static void rms_norm(int64_t n, const float *x, const float *weight, float eps, float *y)
{
    float sum[LANES] = {0};
    for (int64_t i = 0; i < n; i++) sum[i % LANES] += x[i] * x[i];
    float scale = 1.0f / sqrtf(fold(sum) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = weight[i] * (x[i] * scale);
}

static float softmax_part(int64_t n, float *x, float *max, float *sum)
{
    float largest = *max, part = 0.0f;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > largest) largest = x[i];
    float factor = *max == largest ? 1.0f : expf(*max - largest);
    for (int64_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - largest);
        part += x[i];
    }
    *sum = *sum * factor + part;
    *max = largest;
    return factor;
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

/* ---- training ------------------------------------------------------------------------------ */

static void rms_norm_backward(int64_t n, const float *x, const float *weight, float eps,
                              const float *dy, float *dx, float *d_weight)
{
    float squares[LANES] = {0}, along[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        squares[i % LANES] += x[i] * x[i];
        along[i % LANES] += weight[i] * dy[i] * x[i];
    }
    float r = 1.0f / sqrtf(fold(squares) / (float)n + eps);
    float back = fold(along) / (float)n * r * r * r;
    for (int64_t i = 0; i < n; i++) {
        dx[i] += weight[i] * (dy[i] * r) - x[i] * back;
        d_weight[i] += dy[i] * r * x[i];
    }
}

static void softmax_backward(int64_t n, const float *p, const float *dp, float mean, float *ds)
{
    for (int64_t i = 0; i < n; i++) ds[i] = p[i] * (dp[i] - mean);
}

static void scale(int64_t n, float factor, float *x)
{
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static double sum_squares(int64_t n, const float *x)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sum;
}

static void adamw(int64_t n, const adamw_step *step, const float *g, float *w, float *m, float *v)
{
    for (int64_t i = 0; i < n; i++) {
        float gi = step->scale * g[i];
        m[i] = step->beta1 * m[i] + step->new1 * gi;
        v[i] = step->beta2 * v[i] + step->new2 * (gi * gi);
        w[i] = step->keep * w[i] - step->rate * (m[i] / (step->root * sqrtf(v[i]) + step->eps));
    }
}

/* ---- measuring the machine ----------------------------------------------------------------- */

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
    .tile_m = TILE_M,
    .tile_n = TILE_N,
    .few = 2,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .tile = tile,
    .dtypes = {[DSMOE_F32] = {.widen = widen_f32,
                              .pack = pack_weights,
                              .few_rows = few_rows,
                              .add_panels = add_panels_f32},
               [DSMOE_F16] = {.widen = widen_f16,
                              .pack = pack_weights,
                              .few_rows = few_rows,
                              .add_panels = add_panels_f16},
               [DSMOE_BF16] = {.widen = widen_bf16,
                               .pack = pack_weights,
                               .few_rows = few_rows,
                               .add_panels = add_panels_bf16},
               [DSMOE_Q8_0] = {.widen = widen_q8_0, .blocks = &blocks_scalar[DSMOE_Q8_0]},
               [DSMOE_Q4_0] = {.widen = widen_q4_0, .blocks = &blocks_scalar[DSMOE_Q4_0]},
               [DSMOE_Q5_0] = {.widen = widen_q5_0, .blocks = &blocks_scalar[DSMOE_Q5_0]},
               [DSMOE_Q5_1] = {.widen = widen_q5_1, .blocks = &blocks_scalar[DSMOE_Q5_1]},
               [DSMOE_Q4_K] = {.widen = widen_q4_k, .blocks = &blocks_scalar[DSMOE_Q4_K]},
               [DSMOE_Q5_K] = {.widen = widen_q5_k, .blocks = &blocks_scalar[DSMOE_Q5_K]},
               [DSMOE_Q6_K] = {.widen = widen_q6_k, .blocks = &blocks_scalar[DSMOE_Q6_K]}},
    .quantize = quantize_scalar,
    .quantize_fine = quantize_fine_scalar,
    .caches = caches_scalar,
    .latents = latents_scalar,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .axpy = axpy,
    .rms_norm = rms_norm,
    .softmax_part = softmax_part,
    .softmax = softmax,
    .rms_norm_backward = rms_norm_backward,
    .softmax_backward = softmax_backward,
    .scale = scale,
    .sum_squares = sum_squares,
    .adamw = adamw,
    .probe_fma = probe_fma,
    .probe_read = probe_read,
};
