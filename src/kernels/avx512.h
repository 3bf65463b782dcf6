/* avx512.h - declarations that the files of the AVX-512 set share.
 *
 * The set begins as a copy of the AVX2 set. It uses the small helpers in avx2.h too. */
#ifndef DSMOE_KERNELS_AVX512_H
#define DSMOE_KERNELS_AVX512_H

#include "kernels/avx2.h"

enum {
    AVX512_TILE_M = 14,
    AVX512_TILE_N = 32,
    AVX512_FEW = 6,
};

/* Products with float weights: see kernels.h. */
void pack_avx512(float *panel, rows src, int64_t n, int64_t width, int group);
void pack_transposed_avx512(float *panel, rows src, int64_t n, int64_t width, int group);
void tile_avx512(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate,
                 int m, int n, patch ahead);

typedef void pack_weights_fn(float *panel, matrix w, int64_t column, int64_t n, int64_t width,
                             int group);
pack_weights_fn pack_f32_avx512, pack_f16_avx512, pack_bf16_avx512;

typedef void few_rows_fn(int m, const float *x, matrix w, int64_t n, int64_t k, float *y,
                         int64_t ldy);
few_rows_fn few_rows_f32_avx512, few_rows_f16_avx512, few_rows_bf16_avx512;

/* Products with block types, by dsmoe_dtype: see block_kernels. */
extern const block_kernels blocks_avx512[N_DTYPES];

/* Replaces the types that AVX-512 does better, in a table by dsmoe_dtype. */
void latents_add_avx512(latent_kernels *latents);

/* Block types to float32. */
typedef void widen_fn(int64_t n, const void *src, float *dst);
widen_fn widen_q4_0_avx512, widen_q5_0_avx512, widen_q5_1_avx512, widen_q8_0_avx512;
widen_fn widen_q4_k_avx512, widen_q5_k_avx512, widen_q6_k_avx512;

/* The largest magnitude that n numbers can have with the scales of their blocks. For each BLOCK numbers,
 * writes the bits of that float to largest[] if they are more than what is there. */
void largest_avx512(dsmoe_dtype type, int64_t n, const void *src, uint32_t *largest);

/* Backward through block types. */
extern const word_kernels words_avx512;

void quantize_avx512(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum);

#endif
