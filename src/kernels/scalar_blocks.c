/* scalar_blocks.c - products with block types in plain C: the specification of every other set.
 *
 * All types are treated alike: a block of any of them is 32 integer codes, a scale and a minimum. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/scalar.h"

enum { SCALAR_BLOCK_ROWS = 4 };

/* ---- the codes of a block ------------------------------------------------------------------- */

/* x = scale·code - min */
typedef struct block_codes {
    int16_t code[BLOCK];
    float scale, min;
} block_codes;

static float half_at(const uint8_t at[2]) { return half_from_f16((uint16_t)(at[0] | at[1] << 8)); }

static block_codes codes_q4_0(const block_q4_0 *b)
{
    block_codes c = {.scale = half_at(b->d), .min = 8.0f * half_at(b->d)};
    for (int i = 0; i < BLOCK; i++)
        c.code[i] = i < BLOCK / 2 ? b->q[i] & 15 : b->q[i - BLOCK / 2] >> 4;
    return c;
}

static void five_bits(const uint8_t high[4], const uint8_t q[16], int16_t code[BLOCK])
{
    for (int i = 0; i < BLOCK; i++) {
        int low = i < BLOCK / 2 ? q[i] & 15 : q[i - BLOCK / 2] >> 4;
        code[i] = (int16_t)(low | (high[i / 8] >> i % 8 & 1) << 4);
    }
}

static block_codes codes_q5_0(const block_q5_0 *b)
{
    block_codes c = {.scale = half_at(b->d), .min = 16.0f * half_at(b->d)};
    five_bits(b->high, b->q, c.code);
    return c;
}

static block_codes codes_q5_1(const block_q5_1 *b)
{
    block_codes c = {.scale = half_at(b->d), .min = -half_at(b->m)};
    five_bits(b->high, b->q, c.code);
    return c;
}

static block_codes codes_q8_0(const block_q8_0 *b)
{
    block_codes c = {.scale = half_at(b->d)};
    for (int i = 0; i < BLOCK; i++) c.code[i] = b->q[i];
    return c;
}

/* Part `part` of eight. */
static block_codes codes_q4_k(const block_q4_k *b, int part)
{
    int scale, min;
    block_scale_min(b->scales, part, &scale, &min);
    block_codes c = {.scale = half_at(b->d) * (float)scale, .min = half_at(b->dmin) * (float)min};
    for (int i = 0; i < BLOCK; i++)
        c.code[i] = b->q[part / 2 * BLOCK + i] >> (part % 2 ? 4 : 0) & 15;
    return c;
}

static block_codes codes_q5_k(const block_q5_k *b, int part)
{
    int scale, min;
    block_scale_min(b->scales, part, &scale, &min);
    block_codes c = {.scale = half_at(b->d) * (float)scale, .min = half_at(b->dmin) * (float)min};
    for (int i = 0; i < BLOCK; i++) {
        int low = b->q[part / 2 * BLOCK + i] >> (part % 2 ? 4 : 0) & 15;
        c.code[i] = (int16_t)(low | (b->high[i] >> part & 1) << 4);
    }
    return c;
}

/* The scale of 16 numbers is multiplied into their codes, which then fit in 13 bits. */
static block_codes codes_q6_k(const block_q6_k *b, int part)
{
    block_codes c = {.scale = half_at(b->d)};
    const uint8_t *low = b->low + part / 4 * 64 + part % 2 * BLOCK;
    const uint8_t *high = b->high + part / 4 * BLOCK;
    for (int i = 0; i < BLOCK; i++) {
        int q = (low[i] >> (part % 4 < 2 ? 0 : 4) & 15) | (high[i] >> part % 4 * 2 & 3) << 4;
        c.code[i] = (int16_t)((q - 32) * b->scales[part * 2 + i / 16]);
    }
    return c;
}

/* ---- octets: block after block, and of each block all eight rows -------------------------------- */

/* The codes of a row of an octet from column `column` on. */
static block_codes codes_at(dsmoe_dtype type, const void *octet, int row, int64_t column)
{
    int64_t block = column / dtype_table[type].block;
    const void *at = (const char *)octet + (block * BLOCK_OCTET + row) * dtype_table[type].bytes;
    int part = (int)(column % SUPER_BLOCK / BLOCK);
    switch (type) {
    case DSMOE_Q4_0: return codes_q4_0(at);
    case DSMOE_Q5_0: return codes_q5_0(at);
    case DSMOE_Q5_1: return codes_q5_1(at);
    case DSMOE_Q8_0: return codes_q8_0(at);
    case DSMOE_Q4_K: return codes_q4_k(at, part);
    case DSMOE_Q5_K: return codes_q5_k(at, part);
    case DSMOE_Q6_K: return codes_q6_k(at, part);
    default: return (block_codes){0};
    }
}

/* The codes of `width` columns of a row for BLOCK_FINE: see block_kernels.h. Returns the scale. */
static float fine_codes(dsmoe_dtype type, const void *octet, int row, int64_t column, int64_t width,
                        int16_t code[BLOCK_STRETCH])
{
    block_codes block[BLOCK_STRETCH / BLOCK];
    float largest = 0.0f;
    for (int64_t b = 0; b < width / BLOCK; b++) {
        block[b] = codes_at(type, octet, row, column + b * BLOCK);
        float scale = fabsf(block[b].scale);
        if (!(scale <= largest)) largest = isnan(largest) ? largest : scale;
    }
    for (int64_t b = 0; b < width / BLOCK; b++) {
        float part = block[b].scale * (FINE_FACTOR / largest);
        int factor = isfinite(part) ? (int)nearbyintf(part) : 0;
        for (int i = 0; i < BLOCK; i++)
            code[b * BLOCK + i] = (int16_t)((block[b].code[i] * factor + 64) >> 7);
    }
    return largest * (1.0f / FINE_ONE);
}

static void interleave(dsmoe_dtype type, const unsigned char *const row[BLOCK_OCTET], int64_t k,
                       void *octet)
{
    size_t bytes = (size_t)dtype_table[type].bytes;
    unsigned char *to = octet;
    for (int64_t b = 0; b < k / dtype_table[type].block; b++)
        for (int i = 0; i < BLOCK_OCTET; i++, to += bytes)
            memcpy(to, row[i] + (size_t)b * bytes, bytes);
}

/* ---- x in integers --------------------------------------------------------------------------- */

/* The factor that brings the largest of n numbers to `top`, and their scale. The factor is 0 if all of them
 * are so small that they count as 0. If one of them is not finite, it is 0 too, and the scale is NaN. */
static float factor_of(int64_t n, const float *x, float top, float *scale)
{
    float max = 0.0f, check = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        max = fmaxf(max, fabsf(x[i]));
        check += x[i] * 0.0f; /* a NaN if any number is not finite */
    }
    float factor = max > 0.0f ? top / max : 0.0f;
    bool usable = check == 0.0f && isfinite(factor);
    *scale = check == 0.0f ? (usable ? max * (1.0f / top) : 0.0f) : NAN;
    return usable ? factor : 0.0f;
}

void quantize_scalar(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum)
{
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, q += BLOCK) {
        float factor = factor_of(BLOCK, x, 127.0f, &scale[b]);
        for (int half = 0; half < 2; half++) {
            int sum = 0;
            for (int i = half * 16; i < half * 16 + 16; i++)
                sum += q[i] = factor > 0.0f ? (int8_t)nearbyintf(x[i] * factor) : 0;
            half_sum[2 * b + half] = (int16_t)sum;
        }
    }
}

/* The place of column k if each four are stored in the order 0, 2, 1, 3. */
static int64_t paired(int64_t k) { return k / 4 * 4 + k % 2 * 2 + k % 4 / 2; }

void quantize_fine_scalar(int64_t n, const float *x, int16_t *q, float *scale)
{
    for (int64_t k0 = 0; k0 < n; k0 += BLOCK_STRETCH, x += BLOCK_STRETCH, q += BLOCK_STRETCH) {
        int64_t width = n - k0 < BLOCK_STRETCH ? n - k0 : BLOCK_STRETCH;
        float factor = factor_of(width, x, FINE_X, scale++);
        for (int64_t k = 0; k < width; k++)
            q[paired(k)] = factor > 0.0f ? (int16_t)nearbyintf(x[k] * factor) : 0;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* The scales and sums of row i of x. */
static const float *x_scale(const block_x *x, int i)
{
    return (const float *)(x->row[i] + x->scale);
}
static const float *x_sum(const block_x *x, int i) { return (const float *)(x->row[i] + x->sum); }

/* The sums of m rows of x: over all earlier stretches, and over this one. */
typedef struct row_sums {
    float all[SCALAR_BLOCK_ROWS], stretch[SCALAR_BLOCK_ROWS];
} row_sums;

static void end_stretch(row_sums *sums, int m)
{
    for (int i = 0; i < m; i++) {
        sums->all[i] += sums->stretch[i];
        sums->stretch[i] = 0.0f;
    }
}

/* The products of m rows of x with row j of an octet. */
static row_sums dot_bytes(dsmoe_dtype type, int m, const block_x *x, const void *octet, int j,
                          int64_t k)
{
    row_sums sums = {0};
    for (int64_t b = 0; b < k / BLOCK; b++) {
        block_codes c = codes_at(type, octet, j, b * BLOCK);
        for (int i = 0; i < m; i++) {
            const int8_t *q = (const int8_t *)x->row[i] + b * BLOCK;
            int32_t dot = 0;
            for (int e = 0; e < BLOCK; e++) dot += q[e] * c.code[e];
            sums.stretch[i] += (float)dot * x_scale(x, i)[b] * c.scale;
            sums.stretch[i] -= c.min * x_sum(x, i)[b];
        }
        if ((b + 1) % (BLOCK_STRETCH / BLOCK) == 0) end_stretch(&sums, m);
    }
    end_stretch(&sums, m);
    return sums;
}

static row_sums dot_fine(dsmoe_dtype type, int m, const block_x *x, const void *octet, int j,
                         int64_t k)
{
    row_sums sums = {0};
    for (int64_t k0 = 0; k0 < k; k0 += BLOCK_STRETCH) {
        int64_t width = k - k0 < BLOCK_STRETCH ? k - k0 : BLOCK_STRETCH;
        int16_t code[BLOCK_STRETCH];
        float scale = fine_codes(type, octet, j, k0, width, code);
        for (int i = 0; i < m; i++) {
            const int16_t *q = (const int16_t *)x->row[i] + k0;
            int32_t dot = 0;
            for (int64_t e = 0; e < width; e++) dot += q[paired(e)] * code[e];
            sums.stretch[i] = (float)dot * x_scale(x, i)[k0 / BLOCK_STRETCH] * scale;
        }
        end_stretch(&sums, m);
    }
    return sums;
}

static void rows_of(dsmoe_dtype type, int m, const block_x *x, const void *octets, int64_t n,
                    int64_t k, float *y, int64_t ldy)
{
    bool fine = blocks_scalar[type].form == BLOCK_FINE;
    for (int64_t j = 0; j < n * BLOCK_OCTET; j++) {
        int64_t o = j / BLOCK_OCTET, bytes = BLOCK_OCTET * dtype_bytes(type, k);
        row_sums sums = (fine ? dot_fine : dot_bytes)(type, m, x, (const char *)octets + o * bytes,
                                                      (int)(j % BLOCK_OCTET), k);
        for (int i = 0; i < m; i++) y[i * ldy + j] = sums.all[i];
    }
}

/* block_kernels has no argument for the type, so each type has functions of its own. */
#define BLOCKS(type, TYPE)                                                                         \
    static void interleave_##type(const unsigned char *const from[BLOCK_OCTET], int64_t k,         \
                                  void *octet)                                                     \
    {                                                                                              \
        interleave(TYPE, from, k, octet);                                                          \
    }                                                                                              \
    static void rows_##type(int m, const block_x *x, const void *octets, int64_t n, int64_t k,     \
                            float *y, int64_t ldy)                                                 \
    {                                                                                              \
        rows_of(TYPE, m, x, octets, n, k, y, ldy);                                                 \
    }
BLOCKS(q4_0, DSMOE_Q4_0)
BLOCKS(q5_0, DSMOE_Q5_0)
BLOCKS(q5_1, DSMOE_Q5_1)
BLOCKS(q8_0, DSMOE_Q8_0)
BLOCKS(q4_k, DSMOE_Q4_K)
BLOCKS(q5_k, DSMOE_Q5_K)
BLOCKS(q6_k, DSMOE_Q6_K)

const block_kernels blocks_scalar[N_DTYPES] = {
    [DSMOE_Q4_0] = {BLOCK_BYTES, SCALAR_BLOCK_ROWS, interleave_q4_0, rows_q4_0},
    [DSMOE_Q5_0] = {BLOCK_BYTES, SCALAR_BLOCK_ROWS, interleave_q5_0, rows_q5_0},
    [DSMOE_Q5_1] = {BLOCK_BYTES, SCALAR_BLOCK_ROWS, interleave_q5_1, rows_q5_1},
    [DSMOE_Q8_0] = {BLOCK_FINE, SCALAR_BLOCK_ROWS, interleave_q8_0, rows_q8_0},
    [DSMOE_Q4_K] = {BLOCK_BYTES, SCALAR_BLOCK_ROWS, interleave_q4_k, rows_q4_k},
    [DSMOE_Q5_K] = {BLOCK_BYTES, SCALAR_BLOCK_ROWS, interleave_q5_k, rows_q5_k},
    [DSMOE_Q6_K] = {BLOCK_BYTES, SCALAR_BLOCK_ROWS, interleave_q6_k, rows_q6_k},
};
