/* blocks.h - the block types of GGUF files, byte for byte. Numbers that share a scale are quantised
 * together; d, m and dmin are float16. Blocks need no alignment: all members are bytes.
 *
 *   Q4_0  x = d·(q - 8)                      q 4 bits
 *   Q5_0  x = d·(q - 16)                     q 5 bits
 *   Q5_1  x = d·q + m                        q 5 bits
 *   Q8_0  x = d·q                            q 8 bits, signed
 *   Q4_K  x = d·scale·q - dmin·min           q 4 bits; scale and min 6 bits for each 32 numbers
 *   Q5_K  the same                           q 5 bits
 *   Q6_K  x = d·scale·(q - 32)               q 6 bits; scale 8 bits, signed, for each 16 numbers */
#ifndef DSMOE_KERNELS_BLOCKS_H
#define DSMOE_KERNELS_BLOCKS_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Numbers of a large block; a small one, and a part of a large one, has BLOCK. */
enum { SUPER_BLOCK = 256 };

typedef struct block_q4_0 {
    uint8_t d[2];
    uint8_t q[16]; /* number i: low half of byte i, number 16 + i: its high half */
} block_q4_0;

typedef struct block_q5_0 {
    uint8_t d[2];
    uint8_t high[4]; /* the fifth bits: bit i of 32, little-endian, is that of number i */
    uint8_t q[16];   /* as of Q4_0 */
} block_q5_0;

typedef struct block_q5_1 {
    uint8_t d[2], m[2];
    uint8_t high[4], q[16]; /* as of Q5_0 */
} block_q5_1;

typedef struct block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
} block_q8_0;

typedef struct block_q4_k {
    uint8_t d[2], dmin[2];
    uint8_t scales[12]; /* eight scales and eight minima of 6 bits: see block_scale_min */
    uint8_t q[128];     /* 64 numbers in 32 bytes: the first 32 in the low halves */
} block_q4_k;

typedef struct block_q5_k {
    uint8_t d[2], dmin[2];
    uint8_t scales[12];
    uint8_t high[32]; /* bit j of byte i is the fifth bit of number 32·j + i */
    uint8_t q[128];
} block_q5_k;

typedef struct block_q6_k {
    /* 128 numbers in 64 bytes: i and 32 + i in the low halves of bytes i and 32 + i, 64 + i and
     * 96 + i in their high halves. */
    uint8_t low[128];
    /* 128 numbers in 32 bytes: bits 0-1, 2-3, 4-5, 6-7 of byte i are the upper two of numbers i,
     * 32 + i, 64 + i, 96 + i. */
    uint8_t high[64];
    int8_t scales[16];
    uint8_t d[2];
} block_q6_k;

/* Scale and minimum of part i < 8 of a Q4_K or Q5_K block. The first four of each are the low 6
 * bits of a byte; of the last four the low 4 bits share a byte and the upper 2 are above those of
 * the first four. */
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

/* n numbers (whole blocks) as float32: the meaning of each type, in plain C. */
void widen_q4_0(int64_t n, const void *src, float *dst);
void widen_q5_0(int64_t n, const void *src, float *dst);
void widen_q5_1(int64_t n, const void *src, float *dst);
void widen_q8_0(int64_t n, const void *src, float *dst);
void widen_q4_k(int64_t n, const void *src, float *dst);
void widen_q5_k(int64_t n, const void *src, float *dst);
void widen_q6_k(int64_t n, const void *src, float *dst);

#endif
