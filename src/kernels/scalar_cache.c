/* scalar_cache.c - keys and values in every type of a cache, in plain C: the specification of every
 * other set. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/cache_keys.h"
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

/* The scale is rounded first, and the numbers are divided by the rounded scale. */
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

/* ---- keys ----------------------------------------------------------------------------------- */

static void put_key_f32(int64_t width, const float *key, void *group, int at)
{
    key_put(DSMOE_F32, narrow_f32, width, key, group, at);
}

static void put_key_f16(int64_t width, const float *key, void *group, int at)
{
    key_put(DSMOE_F16, narrow_f16, width, key, group, at);
}

static void put_key_q8_0(int64_t width, const float *key, void *group, int at)
{
    key_put(DSMOE_Q8_0, narrow_q8_0, width, key, group, at);
}

static float number_f32(const unsigned char *at, int64_t i)
{
    float value;
    memcpy(&value, at + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static float number_f16(const unsigned char *at, int64_t i) { return half_load_f16(at + 2 * i); }

/* Adds the products of n ≤ BLOCK columns of one chunk with key `at` of a group. Q8_0: codes are summed first
 * and then multiplied by their scale. */
static float score_chunk(dsmoe_dtype type, int64_t n, const float *q, const unsigned char *chunk,
                         int64_t at, float sum)
{
    if (type == DSMOE_Q8_0) {
        const key_block_q8_0 *block = (const key_block_q8_0 *)chunk;
        float part = 0.0f;
        for (int64_t k = 0; k < n; k++) part += q[k] * (float)block->q[k][at];
        return sum + part * half_load_f16(block->d[at]);
    }
    for (int64_t k = 0; k < n; k++)
        sum += q[k] * (type == DSMOE_F32 ? number_f32(chunk, k * KEY_GROUP + at)
                                         : number_f16(chunk, k * KEY_GROUP + at));
    return sum;
}

static void score(dsmoe_dtype type, int64_t m, const float *q, const int32_t *seen,
                  const unsigned char *keys, int64_t width, float *scores, int64_t ld)
{
    int64_t row = dtype_bytes(type, width);
    for (int64_t i = 0; i < m; i++, q += width, scores += ld)
        for (int64_t j = 0; j < seen[i]; j++) {
            const unsigned char *chunk = keys + j / KEY_GROUP * KEY_GROUP * row;
            float sum = 0.0f;
            for (int64_t k = 0; k < width; k += BLOCK, chunk += key_chunk_size(type)) {
                int64_t n = width - k < BLOCK ? width - k : BLOCK;
                sum = score_chunk(type, n, q + k, chunk, j % KEY_GROUP, sum);
            }
            scores[j] = sum;
        }
}

static void score_f32(int64_t m, const float *q, const int32_t *seen, const void *keys,
                      int64_t width, float *scores, int64_t ld, const void *next)
{
    (void)next; /* portable C has no prefetch */
    score(DSMOE_F32, m, q, seen, keys, width, scores, ld);
}

static void score_f16(int64_t m, const float *q, const int32_t *seen, const void *keys,
                      int64_t width, float *scores, int64_t ld, const void *next)
{
    (void)next;
    score(DSMOE_F16, m, q, seen, keys, width, scores, ld);
}

static void score_q8_0(int64_t m, const float *q, const int32_t *seen, const void *keys,
                       int64_t width, float *scores, int64_t ld, const void *next)
{
    (void)next;
    score(DSMOE_Q8_0, m, q, seen, keys, width, scores, ld);
}

/* ---- values --------------------------------------------------------------------------------- */

/* y += weight·value. Q8_0: the weight is multiplied by the scale of each block first. */
static void add_value(dsmoe_dtype type, float weight, const unsigned char *row, int64_t width,
                      float *y)
{
    const block_q8_0 *blocks = (const block_q8_0 *)row;
    for (int64_t k = 0; k < width; k++) {
        if (type == DSMOE_F32) y[k] += weight * number_f32(row, k);
        if (type == DSMOE_F16) y[k] += weight * number_f16(row, k);
        if (type == DSMOE_Q8_0)
            y[k] +=
                weight * half_load_f16(blocks[k / BLOCK].d) * (float)blocks[k / BLOCK].q[k % BLOCK];
    }
}

static void add(dsmoe_dtype type, int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                const unsigned char *values, int64_t width, float *y)
{
    int64_t row = dtype_bytes(type, width);
    for (int64_t i = 0; i < m; i++, weights += ld, y += width)
        for (int64_t j = 0; j < seen[i]; j++)
            add_value(type, weights[j], values + j * row, width, y);
}

static void add_f32(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                    const void *values, int64_t width, float *y, const void *next)
{
    (void)next;
    add(DSMOE_F32, m, weights, ld, seen, values, width, y);
}

static void add_f16(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                    const void *values, int64_t width, float *y, const void *next)
{
    (void)next;
    add(DSMOE_F16, m, weights, ld, seen, values, width, y);
}

static void add_q8_0(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                     const void *values, int64_t width, float *y, const void *next)
{
    (void)next;
    add(DSMOE_Q8_0, m, weights, ld, seen, values, width, y);
}

const cache_kernels caches_scalar[N_DTYPES] = {
    [DSMOE_F32] = {narrow_f32, put_key_f32, score_f32, add_f32},
    [DSMOE_F16] = {narrow_f16, put_key_f16, score_f16, add_f16},
    [DSMOE_Q8_0] = {narrow_q8_0, put_key_q8_0, score_q8_0, add_q8_0},
};
