/* scalar_cache.c - keys and values in every type of a cache, in plain C: the specification of every
 * other set. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/scalar.h"

/* ---- narrowing ------------------------------------------------------------------------------ */

static void narrow_f32(int64_t n, const float *src, void *dst)
{
    memcpy(dst, src, (size_t)n * sizeof *src);
}

static void narrow_f16(int64_t n, const float *src, void *dst)
{
    for (int64_t i = 0; i < n; i++)
        half_store_f16((unsigned char *)dst + 2 * i, half_to_f16(src[i]));
}

/* The scale is rounded first, and the numbers are divided by what was stored of it. */
static void narrow_q8_0(int64_t n, const float *src, void *dst)
{
    block_q8_0 *to = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        float max = 0.0f, check = 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            max = fmaxf(max, fabsf(src[i]));
            check += src[i] - src[i]; /* a NaN if any number is not finite */
        }
        half_store_f16(to[b].d, half_to_f16(check == 0.0f ? max / 127.0f : NAN));
        float scale = half_load_f16(to[b].d), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            float q = check == 0.0f ? nearbyintf(src[i] * inverse) : 0.0f;
            to[b].q[i] = (int8_t)fminf(fmaxf(q, -127.0f), 127.0f);
        }
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static float number_f32(const unsigned char *row, int64_t i)
{
    float value;
    memcpy(&value, row + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static float number_f16(const unsigned char *row, int64_t i) { return half_load_f16(row + 2 * i); }

static float number_q8_0(const unsigned char *row, int64_t i)
{
    const block_q8_0 *block = (const block_q8_0 *)row + i / BLOCK;
    return half_load_f16(block->d) * (float)block->q[i % BLOCK];
}

typedef float number_fn(const unsigned char *row, int64_t i);

/* Eight partial sums, folded. */
static float dot(number_fn *number, const float *q, const unsigned char *key, int64_t width)
{
    float lane[LANES] = {0};
    for (int64_t k = 0; k < width; k++) lane[k % LANES] += q[k] * number(key, k);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void dot_rows(number_fn *number, int64_t row, int64_t m, const float *q,
                     const unsigned char *keys, int64_t n, int64_t width, float *scores, int64_t ld)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            scores[i * ld + j] = dot(number, q + i * width, keys + j * row, width);
}

static void add_rows(number_fn *number, int64_t row, int64_t n, const float *weights,
                     const unsigned char *values, int64_t width, float *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) y[j] += weights[i] * number(values + i * row, j);
}

static void dot_rows_f32(int64_t m, const float *q, const void *keys, int64_t n, int64_t width,
                         float *scores, int64_t ld, const void *next)
{
    (void)next; /* portable C has no say in what the caches hold */
    dot_rows(number_f32, dtype_bytes(DSMOE_F32, width), m, q, keys, n, width, scores, ld);
}

static void dot_rows_f16(int64_t m, const float *q, const void *keys, int64_t n, int64_t width,
                         float *scores, int64_t ld, const void *next)
{
    (void)next;
    dot_rows(number_f16, dtype_bytes(DSMOE_F16, width), m, q, keys, n, width, scores, ld);
}

static void dot_rows_q8_0(int64_t m, const float *q, const void *keys, int64_t n, int64_t width,
                          float *scores, int64_t ld, const void *next)
{
    (void)next;
    dot_rows(number_q8_0, dtype_bytes(DSMOE_Q8_0, width), m, q, keys, n, width, scores, ld);
}

static void add_rows_f32(int64_t n, const float *weights, const void *values, int64_t width,
                         float *y, const void *next)
{
    (void)next;
    add_rows(number_f32, dtype_bytes(DSMOE_F32, width), n, weights, values, width, y);
}

static void add_rows_f16(int64_t n, const float *weights, const void *values, int64_t width,
                         float *y, const void *next)
{
    (void)next;
    add_rows(number_f16, dtype_bytes(DSMOE_F16, width), n, weights, values, width, y);
}

static void add_rows_q8_0(int64_t n, const float *weights, const void *values, int64_t width,
                          float *y, const void *next)
{
    (void)next;
    add_rows(number_q8_0, dtype_bytes(DSMOE_Q8_0, width), n, weights, values, width, y);
}

const cache_kernels caches_scalar[N_DTYPES] = {
    [DSMOE_F32] = {narrow_f32, dot_rows_f32, add_rows_f32},
    [DSMOE_F16] = {narrow_f16, dot_rows_f16, add_rows_f16},
    [DSMOE_Q8_0] = {narrow_q8_0, dot_rows_q8_0, add_rows_q8_0},
};
