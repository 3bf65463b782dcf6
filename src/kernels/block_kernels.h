/* block_kernels.h - products with block types, as each instruction set writes them; gemm_blocks.c calls them.
 *
 * x is quantised too, in blocks of BLOCK numbers: x = scale·q, q from -127 to 127. Weights of every
 * type become x = scale·code - min for each block, with small integer codes. So a block adds
 * scale_x·scale_w·Σ q·code - min_w·(scale_x·Σ q), and the sum of products is one of integers.
 *
 * Q8_0 has no minima, and its codes need words anyway. So x gets 12 bits there and one scale for a whole
 * stretch; the scales of a row's blocks in a stretch go into its codes, as 12-bit parts of the largest
 * of them: code·scale becomes code'·largest/FINE_ONE, code' = ⌊code·factor/128⌉ and factor =
 * ⌊FINE_FACTOR·scale/largest⌉. What is rounded away is far below what 8 bits of x lose, and only once in
 * a stretch a sum has to leave the integers: 256·2^12·2047 still is one of 32 bits. */
#ifndef DSMOE_KERNELS_BLOCK_KERNELS_H
#define DSMOE_KERNELS_BLOCK_KERNELS_H

#include <stdint.h>

/* What a type needs x to be. */
typedef enum block_form {
    BLOCK_BYTES, /* 8 bits, with a scale for each block */
    BLOCK_FINE,  /* 12 bits, with a scale for each stretch */
    BLOCK_FORMS,
} block_form;

enum {
    BLOCK = 32,          /* numbers of x that share a scale */
    BLOCK_STRETCH = 256, /* columns whose sum joins those before: a block of the largest types */
    BLOCK_OCTET = 8,     /* rows of w that are read together */
    BLOCK_ROWS_MAX = 32, /* no kernel takes more rows of x together */
    FINE_X = 2047,       /* the largest q in 12 bits */
    FINE_FACTOR = 4096,  /* what the largest scale of a stretch becomes, */
    FINE_ONE = 32,       /* and a code of 1 with that scale */
};

/* Some rows of x in integers. A row begins with them, [k] bytes or words, as `quantize` and
 * `quantize_fine` give them; the rest is so many bytes after its beginning, the same for all rows. */
typedef struct block_x {
    const char *row[BLOCK_ROWS_MAX];
    int64_t scale;    /* float [k/BLOCK], or in BLOCK_FINE one for each stretch and no more */
    int64_t sum;      /* float [k/BLOCK]: scale·Σ q */
    int64_t half_sum; /* int16_t [k/BLOCK][2]: Σ q of each half of a block */
} block_x;

/* Rows of x in integers, made once for all products: each form, or NULL. See gemm_blocks.h. */
typedef struct x_home {
    const char *form[BLOCK_FORMS];
} x_home;

/* Kernels read weights eight rows at a time: an octet. It has the bytes of its rows in an order that is
 * the set's own, so that one load brings a few columns of all eight. */
typedef struct block_kernels {
    block_form form;
    int most_rows; /* of x that `rows` takes */
    /* One octet of eight rows of k columns. */
    void (*interleave)(const unsigned char *const row[BLOCK_OCTET], int64_t k, void *octet);
    /* y[i·ldy + BLOCK_OCTET·o + j] = x_i · (row j of octet o) for n octets, one after the other, and m
     * rows of x. Weights go from memory to registers, once. A row of x has the same bits in any company. */
    void (*rows)(int m, const block_x *x, const void *octets, int64_t n, int64_t k, float *y,
                 int64_t ldy);
} block_kernels;

#endif
