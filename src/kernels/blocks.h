/* blocks.h - the block types of GGUF files, byte for byte.
 *
 * d, m and dmin are float16. Blocks need no alignment: all members are bytes.
 *
 *   Q4_0  x = d·(q - 8)                      q 4 bits
 *   Q5_0  x = d·(q - 16)                     q 5 bits
 *   Q5_1  x = d·q + m                        q 5 bits
 *   Q8_0  x = d·q                            q 8 bits, signed
 *   Q4_K  x = d·scale·q - dmin·min           q 4 bits; scale and min 6 bits for each 32 numbers
 *   Q5_K  as Q4_K                            q 5 bits
 *   Q6_K  x = d·scale·(q - 32)               q 6 bits; scale 8 bits, signed, for each 16 numbers */
#ifndef DSMOE_KERNELS_BLOCKS_H
#define DSMOE_KERNELS_BLOCKS_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Numbers in a large block. A small block has BLOCK numbers, and so has a part of a large one. */
enum { SUPER_BLOCK = 256 };

typedef struct block_q4_0 {
    uint8_t d[2];
    uint8_t q[16]; /* number i is the low half of byte i, number 16 + i the high half */
} block_q4_0;

typedef struct block_q5_0 {
    uint8_t d[2];
    uint8_t high[4]; /* little-endian; bit i is the fifth bit of number i */
    uint8_t q[16];   /* the other four bits, as in Q4_0 */
} block_q5_0;

typedef struct block_q5_1 {
    uint8_t d[2], m[2];
    uint8_t high[4], q[16]; /* as in Q5_0 */
} block_q5_1;

typedef struct block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
} block_q8_0;

typedef struct block_q4_k {
    uint8_t d[2], dmin[2];
    uint8_t scales[12]; /* eight scales and eight minima of 6 bits: see block_scale_min */
    uint8_t q[128];     /* 64 numbers in 32 bytes, the first 32 in the low halves */
} block_q4_k;

typedef struct block_q5_k {
    uint8_t d[2], dmin[2];
    uint8_t scales[12];
    uint8_t high[32]; /* bit j of byte i is the fifth bit of number 32·j + i */
    uint8_t q[128];
} block_q5_k;

typedef struct block_q6_k {
    /* The lower four bits, 128 numbers in 64 bytes: numbers i and 32 + i are the low halves of bytes i and 32
     * + i, and numbers 64 + i and 96 + i their high halves. */
    uint8_t low[128];
    /* The upper two bits, 128 numbers in 32 bytes: bits 0-1, 2-3, 4-5, 6-7 of byte i belong to numbers i, 32
     * + i, 64 + i, 96 + i. */
    uint8_t high[64];
    int8_t scales[16];
    uint8_t d[2];
} block_q6_k;

/* Scale and minimum of part i < 8 of a Q4_K or Q5_K block. Those of parts 0 to 3 are the low 6 bits of a
 * byte. Of parts 4 to 7, the low 4 bits of scale and minimum share a byte, and the upper 2 bits are above the
 * first four. */
static inline void block_scale_min(const uint8_t scales[12], int i, int *scale, int *min)
{
    if (i < 4) {
        *scale = scales[i] & 63;
        *min = scales[i + 4] & 63;
    } else {
        *scale = (scales[i + 4] & 15) | (scales[i - 4] >> 6) << 4;
        *min = scales[i + 4] >> 4 | (scales[i] >> 6) << 4;
    }
}

/* Converts n numbers (whole blocks) to float32. This plain C defines the meaning of each type. */
void widen_q4_0(int64_t n, const void *src, float *dst);
void widen_q5_0(int64_t n, const void *src, float *dst);
void widen_q5_1(int64_t n, const void *src, float *dst);
void widen_q8_0(int64_t n, const void *src, float *dst);
void widen_q4_k(int64_t n, const void *src, float *dst);
void widen_q5_k(int64_t n, const void *src, float *dst);
void widen_q6_k(int64_t n, const void *src, float *dst);

#endif
