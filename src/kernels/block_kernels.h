/* block_kernels.h - products with block types, which each instruction set implements and gemm_blocks.c calls.
 *
 * x is quantised too, in blocks of BLOCK numbers: x = scale·q, with q from -127 to 127. Weights of every type
 * are w = scale·code - min in each block, with small integer codes. So a block adds scale_x·scale_w·Σ q·code
 * - min_w·(scale_x·Σ q), and the sums of products are sums of integers.
 *
 * Q8_0 has no minima, and its codes need words anyway. There x gets 12 bits and one scale for a whole
 * stretch. The scales of a row's blocks in a stretch are multiplied into its codes, as 12-bit fractions of
 * the largest of them: code·scale becomes code'·largest/FINE_ONE, with code' = ⌊code·factor/128⌉ and factor =
 * ⌊FINE_FACTOR·scale/largest⌉. That rounds far less than 8 bits of x would. Sums are integers within a
 * stretch, since 256·2^12·2047 fits in 32 bits. */
#ifndef DSMOE_KERNELS_BLOCK_KERNELS_H
#define DSMOE_KERNELS_BLOCK_KERNELS_H

#include <stdint.h>

/* The form of x that a type of weights needs. */
typedef enum block_form {
    BLOCK_BYTES, /* 8 bits, with a scale for each block */
    BLOCK_FINE,  /* 12 bits, with a scale for each stretch */
    BLOCK_FORMS,
} block_form;

enum {
    BLOCK = 32,          /* numbers of x that share a scale */
    BLOCK_STRETCH = 256, /* columns that are summed separately; the largest types' block */
    BLOCK_OCTET = 8,     /* rows of w that are read together */
    BLOCK_ROWS_MAX = 32, /* no kernel takes more rows of x at once */
    FINE_X = 2047,       /* the largest q in 12 bits */
    FINE_FACTOR = 4096,  /* the largest scale of a stretch becomes this factor, */
    FINE_ONE = 32,       /* and a code of 1 with that scale becomes this */
};

/* Some rows of x in integers. A row begins with these, [k] bytes or words, as `quantize` and `quantize_fine`
 * write them. The other parts are at the given distances from its beginning, in bytes and the same for all
 * rows. */
typedef struct block_x {
    const char *row[BLOCK_ROWS_MAX];
    int64_t scale;    /* float [k/BLOCK]; BLOCK_FINE: one for each stretch, and no other parts */
    int64_t sum;      /* float [k/BLOCK]: scale·Σ q */
    int64_t half_sum; /* int16_t [k/BLOCK][2]: Σ q of each half of a block */
} block_x;

/* Rows of x in integers, made once for all products. NULL: not in this form. See gemm_blocks.h. */
typedef struct x_home {
    const char *form[BLOCK_FORMS];
} x_home;

/* Kernels read weights eight rows at a time: an octet. It has the bytes of its rows in a different order, so
 * that one load brings a few columns of all eight. Each instruction set has its own order. */
typedef struct block_kernels {
    block_form form;
    int most_rows; /* the most rows of x that `rows` takes */
    /* Makes an octet of eight rows of k columns. */
    void (*interleave)(const unsigned char *const row[BLOCK_OCTET], int64_t k, void *octet);
    /* y[i·ldy + BLOCK_OCTET·o + j] = x_i · (row j of octet o) for m rows of x and n octets, which follow each
     * other. Weights are read once, straight from memory. A row's bits do not depend on the other rows of
     * x. */
    void (*rows)(int m, const block_x *x, const void *octets, int64_t n, int64_t k, float *y,
                 int64_t ldy);
} block_kernels;

#endif
