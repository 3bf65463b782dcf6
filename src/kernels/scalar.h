/* scalar.h - declarations that the files of the scalar set share. */
#ifndef DSMOE_KERNELS_SCALAR_H
#define DSMOE_KERNELS_SCALAR_H

#include "kernels/kernels.h"

/* Products with block types, by dsmoe_dtype. */
extern const block_kernels blocks_scalar[N_DTYPES];
void quantize_scalar(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum);
void quantize_fine_scalar(int64_t n, const float *x, int16_t *q, float *scale);

/* Keys and values of a KV cache. */
extern const cache_kernels caches_scalar[N_DTYPES];
extern const latent_kernels latents_scalar[N_DTYPES];

#endif
