/* kernels.h - the table of everything that is written once per instruction set.
 *
 * Kernels are pure functions: no allocation, no I/O, no threads. scalar.c is the specification;
 * every other file is tested against it. gemm.c builds matrix products of any size out of the tiles
 * and never names an instruction set; tile sizes live beside the kernels they belong to.
 *
 * One tile serves all three products of a linear layer, forward and backward: c += Σ_k a_k ⊗ b_k.
 * Its vectors lie across the sum, so both operands are packed. For a few rows packing would cost
 * more than the product: few_rows has its vectors along the sum and takes weights straight from
 * memory. The two add in different orders; which one a row meets depends only on how many rows come
 * together. */
#ifndef DSMOE_KERNELS_KERNELS_H
#define DSMOE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/block_kernels.h"
#include "kernels/matrix.h"

/* A patch of memory that will be needed soon: AHEAD_ROWS rows, `stride` bytes apart, of AHEAD_LINES
 * cache lines each. A tile asks for one patch while it computes, evenly spread, so that what the
 * next block needs arrives without a burst. */
typedef struct patch {
    const unsigned char *at;
    int64_t stride;
} patch;

enum {
    LANES = 8,          /* floats that few_rows takes at once along the sum */
    PANEL_COLUMNS = 16, /* columns that lie together for add_panels */
    AHEAD_ROWS = 16,
    AHEAD_LINES = 2,
    CACHE_LINE = 64, /* bytes */
};

/* What is written once for each type of weights. Numbers become float32 on the way, exactly. */
typedef struct dtype_kernels {
    /* n numbers as float32. */
    void (*widen)(int64_t n, const void *src, float *dst);
    /* Plain types only: */
    /* Columns [column, column + width) of n rows, for a product that sums over columns:
     * [⌈n/group⌉][width][group], zeros beyond. A panel may be written up to 8 floats past its end.
     */
    void (*pack)(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group);
    /* y[i·ldy + j] = x_i · w_j for m ≤ few rows of x, packed as [steps][m][LANES] with zeros beyond
     * column k, and n rows of w. Weights go from memory to registers, once. */
    void (*few_rows)(int m, const float *x, matrix w, int64_t n, int64_t k, float *y, int64_t ldy);
    /* y[i·ldy + j] += Σ_r x[i·ldx + r]·w_r[column + j] for m rows of x, k rows of w and n columns of it, which lie as
     * [⌈columns/PANEL_COLUMNS⌉][k][PANEL_COLUMNS], zeros beyond: for a small k, read in one stream. Each sum begins at
     * zero and goes on row by row, as in a tile, whatever m is. */
    void (*add_panels)(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                       int64_t column, int64_t n, float *y, int64_t ldy);
    const block_kernels *blocks; /* block types only */
} dtype_kernels;

/* Backward through weights in blocks, c = a·w: see gemm.c. The sum runs over rows of w, and with them change the scales
 * of its blocks. So a stretch of rows is brought into words, with one scale for each BLOCK columns; rows of a get
 * 12 bits and one scale for the stretch, by quantize_fine. 256·2047·4095 still is a number of 32 bits: a sum leaves the
 * integers once for each stretch. Whatever rows come together, a row has the same bits. */
enum { WORD_TOP = 4095 }; /* the largest word of a weight */

typedef struct word_row {
    int16_t q[BLOCK_STRETCH]; /* as quantize_fine gives them, zeros after the last */
    float scale, unused[15];  /* rows lie an odd number of cache lines apart */
} word_row;

typedef struct word_kernels {
    int tile_m, tile_n; /* BLOCK is a multiple of tile_n */
    /* n columns from `column` on, whole blocks, of `sum` ≤ BLOCK_STRETCH rows of w. `panel` has room for as many words, the
     * rows being filled up to fours; scale[n]. Their order is the set's own. */
    void (*pack)(void (*widen)(int64_t n, const void *src, float *dst), matrix w, int64_t column,
                 int64_t sum, int64_t n, int16_t *panel, float *scale);
    /* c[i·ldc + j] = (accumulate ? c : 0) + Σ_k a_i[k]·w_k[j] for i < m and the tile_n columns that begin at `panel`. */
    void (*tile)(int64_t sum, const word_row *a, const int16_t *panel, const float *scale, float *c,
                 int64_t ldc, bool accumulate, int m);
} word_kernels;

/* What is written once for each type that keys and values of one head are kept in, at any address that
 * suits its numbers. Values are rows of `width` numbers, one after the other. Keys come in groups of
 * KEY_GROUP that lie column by column, [width][KEY_GROUP] (Q8_0: see cache_keys.h), the groups one
 * after the other: so vectors lie across keys, and no sum has to be folded.
 *
 * The order of every sum is fixed: a score is one multiply-add after the other along the columns (Q8_0:
 * of codes along a block, then one with the scale for each block), a weighted sum of values one after
 * the other along the values (Q8_0: of codes, the weight being multiplied by the scale first). So a row gets the same bits alone and
 * in any company. Rows of queries see more and more: row i the first seen[i] keys or values, seen[i] ≤
 * seen[i + 1]. What a row does not see has no part in it, not even times 0: it may be a NaN.
 *
 * Few rows take numbers from memory to registers, once, and are limited by reading. What is needed
 * after this, as much as these, begins at `next` (may be NULL): memory is asked for it towards the end.
 */
enum { KEY_GROUP = 16 };

typedef struct cache_kernels {
    /* n numbers (whole blocks) to the nearest of the type. What is not a finite number, or too large for
     * the type, is none when it is read again. NULL: a cache cannot have this type. */
    void (*narrow)(int64_t n, const float *src, void *dst);
    /* The same for key `at` of a group. */
    void (*put_key)(int64_t width, const float *key, void *group, int at);
    /* scores[i·ld + j] = q_i · key_j for m rows of q, `width` apart, and j < seen[i]. Up to the end of the
     * last group that any row sees, other scores may be overwritten by anything. */
    void (*score)(int64_t m, const float *q, const int32_t *seen, const void *keys, int64_t width,
                  float *scores, int64_t ld, const void *next);
    /* y_i += Σ_j weights[i·ld + j]·value_j for m rows of y, `width` apart, and j < seen[i]. */
    void (*add)(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                const void *values, int64_t width, float *y, const void *next);
} cache_kernels;

/* What is written once for each type that the latents of a layer are kept in: rows of `width` numbers, one after the
 * other, each of them key and value of a token for all heads at once. So a row is brought into registers' form once,
 * for the scores and the sums of some dozen queries: LATENT_KEYS rows at most in a panel, whose form is the set's own,
 * as is that of packed queries. All memory has the size that latent_floats says, and lies at multiples of CACHE_LINE.
 *
 * A set may bring rows of F16 and Q8_0, and queries and weights that meet them, into integers: rows to one of 4064
 * equal steps of the largest of BLOCK_STRETCH columns, queries to half a step of 2047, weights times such a step to half
 * of one of 8191 of the largest in a panel.
 *
 * The order of every sum is fixed and that of a row alone: what a query gets does not depend on those that come with it,
 * nor on rows after those that it sees, if their weights are 0 and they are finite. */
enum {
    LATENT_KEYS = 64,    /* rows of a panel, */
    LATENT_QUERIES = 16, /* queries of a group, whose last one may be filled up with zeros, */
    LATENT_COLUMNS = 32, /* and columns likewise */
};

/* Floats that n rows of `width` numbers take, packed queries or half as many rows of a panel. */
static inline int64_t latent_floats(int64_t n, int64_t width)
{
    return (n + LATENT_QUERIES - 1) / LATENT_QUERIES * LATENT_QUERIES *
           ((width + LATENT_COLUMNS - 1) / LATENT_COLUMNS * LATENT_COLUMNS);
}

static inline int64_t latent_panel_floats(int64_t width)
{
    return 2 * latent_floats(LATENT_KEYS, width);
}

/* Bytes that will be needed soon; none of them may be. */
typedef struct latent_next {
    const unsigned char *at;
    int64_t bytes;
} latent_next;

typedef struct latent_kernels {
    /* n ≤ LATENT_KEYS rows. */
    void (*load)(int64_t n, const void *rows, int64_t width, float *panel);
    /* The same with rows of float32, `stride` floats apart. */
    void (*load_floats)(int64_t n, const float *rows, int64_t stride, int64_t width, float *panel);
    /* m rows of queries, one after the other. */
    void (*pack)(int64_t m, const float *q, int64_t width, float *packed);
    /* scores[i·ld + j] = q_i · row_j for m packed queries and the n rows of a panel; ld ≥ LATENT_KEYS, and scores of
     * rows after the last may be overwritten by anything. Memory is asked for what is loaded next, evenly spread. */
    void (*score)(int64_t m, const float *packed, int64_t n, const float *panel, int64_t width,
                  float *scores, int64_t ld, latent_next next);
    /* y_i += Σ_j weights[i·ld + j]·row_j over the first n_sums columns of `width`; rows of y lie n_sums apart. Of the
     * weights all LATENT_KEYS of a row can be read; those after the first n are 0. */
    void (*add)(int64_t m, const float *weights, int64_t ld, int64_t n, const float *panel,
                int64_t width, float *y, int64_t n_sums);
} latent_kernels;

/* One step of AdamW, the same for all parameters of a kind. */
typedef struct adamw_step {
    float scale;        /* of the gradient: mean over batches and clipping */
    float beta1, beta2; /* decay of the moments, */
    float new1, new2;   /* and 1 - beta, which float32 would not give exactly */
    float keep;         /* 1 - learning rate · weight decay */
    float rate;         /* learning rate / (1 - beta1^t) */
    float root;         /* 1 / sqrt(1 - beta2^t) */
    float eps;
} adamw_step;

typedef struct kernels {
    const char *name;

    /* -- matrix products: see gemm.c ----------------------------------------------------------- */
    int tile_m, tile_n; /* size of the tile */
    int few;            /* the most rows that few_rows takes */

    /* `width` columns of n rows, n being the sum: [⌈width/group⌉][n][group], zeros beyond. A panel
     * may be written up to 8 floats past its end. Groups are the sides of the set's own tile. */
    void (*pack)(float *panel, rows src, int64_t n, int64_t width, int group);
    /* The transpose of that source: n rows, `width` columns being the sum:
     * [⌈n/group⌉][width][group]. */
    void (*pack_transposed)(float *panel, rows src, int64_t n, int64_t width, int group);

    /* c[i·ldc + j] = (accumulate ? c : 0) + Σ_k a[k][i]·b[k][j] for i < m, j < n. */
    void (*tile)(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate,
                 int m, int n, patch ahead);

    dtype_kernels dtypes[N_DTYPES]; /* by dsmoe_dtype */
    const word_kernels *words;      /* NULL: backward takes weights in blocks as float32 */
    const cache_kernels *caches;    /* the same: [N_DTYPES], */
    const latent_kernels *latents;  /* and of latent attention */

    /* One row of x in 8 bits, n a multiple of BLOCK: see block_x. A block with a NaN or an infinity gets
     * the scale NaN. In which order the q lie is the set's own; scales and sums have the order of blocks. */
    void (*quantize)(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum);
    /* The same in 12 bits, with one scale for each stretch. Of four columns 0 and 2 come first. */
    void (*quantize_fine)(int64_t n, const float *x, int16_t *q, float *scale);

    /* -- element by element ------------------------------------------------------------------- */
    /* h = silu(g)·u */
    void (*swiglu)(int64_t n, const float *g, const float *u, float *h);
    /* dh is the gradient by the expert's unweighted hidden row h. Returns Σ h·dh (the gradient of
     * the gate value), and replaces g, u, dh by their successors in the chain: dg, du of weight·dh,
     * and weight·h. */
    float (*swiglu_backward)(int64_t n, float weight, float *g, float *u, float *dh);
    /* y += weight·x */
    void (*axpy)(int64_t n, float weight, const float *x, float *y);
    /* y = weight·x / sqrt(mean(x²) + eps), element by element; y may be x. */
    void (*rms_norm)(int64_t n, const float *x, const float *weight, float eps, float *y);
    /* One more part of a long softmax, whose largest input and whose sum so far are *max and *sum:
     * x becomes e^(x - max) with the new max. Returns what the earlier parts must be multiplied by.
     */
    float (*softmax_part)(int64_t n, float *x, float *max, float *sum);
    /* In place; false if any input is NaN or infinite (the output is then undefined). */
    bool (*softmax)(int64_t n, float *x);

    /* -- training ------------------------------------------------------------------------------ */
    /* Backward of rms_norm: added to dx and to d_weight. */
    void (*rms_norm_backward)(int64_t n, const float *x, const float *weight, float eps,
                              const float *dy, float *dx, float *d_weight);
    /* ds = p·(dp - mean): backward of a softmax with the output p and mean = Σ p·dp. ds may be dp. */
    void (*softmax_backward)(int64_t n, const float *p, const float *dp, float mean, float *ds);
    /* x = factor·x */
    void (*scale)(int64_t n, float factor, float *x);
    /* Σ x², added up in double. */
    double (*sum_squares)(int64_t n, const float *x);
    /* g' = scale·g; m = beta1·m + new1·g'; v = beta2·v + new2·g'²;
     * w = keep·w - rate·m / (root·sqrt(v) + eps) */
    void (*adamw)(int64_t n, const adamw_step *step, const float *g, float *w, float *m, float *v);

    /* -- what the machine can do -------------------------------------------------------------- */
    /* Runs `rounds` rounds of independent multiply-adds on registers; returns how many floating-
     * point operations that was. `sink` keeps the compiler from leaving it out. */
    double (*probe_fma)(int64_t rounds, float *sink);
    /* Reads n floats (a multiple of 64) and returns something that depends on all of them. */
    float (*probe_read)(int64_t n, const float *x);
} kernels;

extern const kernels kernels_scalar;
#if defined(__x86_64__)
extern const kernels kernels_avx2;
/* Turns a copy of AVX2's set into AVX-512's. */
void kernels_add_avx512(kernels *set);
#endif

/* The best set this processor runs. */
const kernels *kernels_get(void);
/* All sets this processor runs, weakest first; the count. For tests and benchmarks. */
int kernels_all(const kernels *const **list);
/* Their names, in the same order. */
void kernels_names(const char *between, char *out, size_t size);

/* What a processor may be able to do beyond what every one of its kind can. */
enum {
    CPU_AVX2 = 1,
    CPU_FMA = 2,
    CPU_F16C = 4,
    CPU_AVX512 = 8
}; /* the last with BW, DQ, VL and VNNI */
/* How many of the sets, weakest first, one with these features runs. */
int kernels_with(unsigned features);

#endif
