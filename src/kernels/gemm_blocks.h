/* gemm_blocks.h - the part of gemm.h that is for weights in blocks. */
#ifndef DSMOE_KERNELS_GEMM_BLOCKS_H
#define DSMOE_KERNELS_GEMM_BLOCKS_H

#include "kernels/gemm.h"

/* Octets `first` … first + n - 1 of w, whole ones, to their places among all octets of w, of which
 * each takes BLOCK_OCTET·stride bytes. */
void gemm_blocks_interleave(const kernels *kernels, matrix w, int64_t k, int64_t first, int64_t n,
                            void *octets);

/* Bytes from one row of k numbers in integers to the next. */
int64_t gemm_blocks_stride(block_form form, int64_t k);
/* Row i of x in integers, to its place among all of them. */
void gemm_blocks_quantize(const kernels *kernels, block_form form, rows x, int64_t i, int64_t k,
                          char *to);

/* gemm_nt for block types. */
void gemm_blocks_nt(gemm *g, matrix w, int64_t n, float *y, int64_t ldy);

#endif
