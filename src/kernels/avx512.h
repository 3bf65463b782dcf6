/* avx512.h - what the files of the AVX-512 set share: 32 registers of 16 floats. The set begins as a copy
 * of AVX2's, whose small helpers it takes too. */
#ifndef DSMOE_KERNELS_AVX512_H
#define DSMOE_KERNELS_AVX512_H

#include "kernels/avx2.h"

/* By dsmoe_dtype: see block_kernels. */
extern const block_kernels blocks_avx512[N_DTYPES];

void quantize_avx512(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum);

#endif
