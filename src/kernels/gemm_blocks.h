/* gemm_blocks.h - the part of gemm.h for weights of block types. */
#ifndef DSMOE_KERNELS_GEMM_BLOCKS_H
#define DSMOE_KERNELS_GEMM_BLOCKS_H

#include "kernels/gemm.h"

/* Makes octets `first` … first + n - 1 of w, which must be whole. `octets` is where all octets of w are; each
 * takes BLOCK_OCTET·stride bytes. */
void gemm_blocks_interleave(const kernels *kernels, matrix w, int64_t k, int64_t first, int64_t n,
                            void *octets);

/* Bytes from one row of x in integers to the next, for rows of k numbers. */
int64_t gemm_blocks_stride(block_form form, int64_t k);
/* Converts row i of x to integers. `to` is where all rows are. */
void gemm_blocks_quantize(const kernels *kernels, block_form form, rows x, int64_t i, int64_t k,
                          char *to);

/* gemm_nt for block types. */
void gemm_blocks_nt(gemm *g, matrix w, int64_t n, float *y, int64_t ldy);

#endif
