/* kernels.h - the table of all functions that are written once per instruction set.
 *
 * Kernels are pure functions: no allocation, no I/O, no threads. scalar.c is the specification; every other
 * set is tested against it. gemm.c builds matrix products of any size from the tiles and never names an
 * instruction set. Tile sizes are defined next to the kernels that have them.
 *
 * One tile serves all three products of a linear layer, forward and backward: c += Σ_k a_k ⊗ b_k. Each lane
 * of its vectors is another output, so both operands must be packed. For a few rows packing would take longer
 * than the product. few_rows therefore has the terms of one sum in the lanes, and reads weights straight from
 * memory. The two add in different orders. Which one a row gets depends only on how many rows are multiplied
 * together. */
#ifndef DSMOE_KERNELS_KERNELS_H
#define DSMOE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/block_kernels.h"
#include "kernels/matrix.h"

/* A patch of memory that will be needed soon: AHEAD_ROWS rows, `stride` bytes apart, of AHEAD_LINES cache
 * lines each. A tile prefetches one patch while it computes, evenly spread over its time, so that requests to
 * memory do not come in bursts. */
typedef struct patch {
    const unsigned char *at;
    int64_t stride;
} patch;

enum {
    LANES = 8,          /* terms of a sum that few_rows adds at once */
    PANEL_COLUMNS = 16, /* columns of a panel of add_panels */
    AHEAD_ROWS = 16,
    AHEAD_LINES = 2,
    CACHE_LINE = 64, /* bytes */
};

/* The functions that are written once for each type of weights. They convert weights to float32 exactly. */
typedef struct dtype_kernels {
    /* Converts n numbers to float32. */
    void (*widen)(int64_t n, const void *src, float *dst);
    /* Plain types only: */
    /* Packs columns [column, column + width) of n rows, for a product that sums over columns, as
     * [⌈n/group⌉][width][group] with zeros after row n. May write up to 8 floats past the end of the
     * panel. */
    void (*pack)(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group);
    /* y[i·ldy + j] = x_i · w_j for m ≤ few rows of x, packed as [steps][m][LANES] with zeros from column k to
     * the end, and n rows of w. Reads each weight once, straight from memory. */
    void (*few_rows)(int m, const float *x, matrix w, int64_t n, int64_t k, float *y, int64_t ldy);
    /* y[i·ldy + j] += Σ_r x[i·ldx + r]·w_r[column + j] for m rows of x, k rows of w and n columns of w. It is
     * meant for small k. w is [⌈columns/PANEL_COLUMNS⌉][k][PANEL_COLUMNS] with zeros after the last column,
     * which makes it one stream of memory. Each sum begins at zero and adds row after row, as in a tile, for
     * any m. */
    void (*add_panels)(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                       int64_t column, int64_t n, float *y, int64_t ldy);
    const block_kernels *blocks; /* block types only */
} dtype_kernels;

/* Backward through weights of block types, c = a·w: see gemm.c. The sum runs over rows of w, and each row has
 * its own scales. So a stretch of BLOCK_STRETCH rows is converted to words with one scale for each BLOCK
 * columns. quantize_fine gives the rows of `a` 12 bits and one scale for the stretch. 256·2047·4095 fits in
 * 32 bits, so sums are integers within a stretch. The bits of a row do not depend on the other rows. */
enum { WORD_TOP = 4095 }; /* the largest word of a weight */

typedef struct word_row {
    int16_t q[BLOCK_STRETCH]; /* from quantize_fine, then zeros */
    float scale, unused[15];  /* makes a row an odd number of cache lines long */
} word_row;

typedef struct word_kernels {
    int tile_m, tile_n; /* BLOCK is a multiple of tile_n */
    /* Packs n columns from `column` on (whole blocks) of `sum` ≤ BLOCK_STRETCH rows of w. `panel` has space
     * for these words, with `sum` rounded up to a multiple of 4; scale is [n]. Each set has its own order of
     * words. */
    void (*pack)(void (*widen)(int64_t n, const void *src, float *dst), matrix w, int64_t column,
                 int64_t sum, int64_t n, int16_t *panel, float *scale);
    /* c[i·ldc + j] = (accumulate ? c : 0) + Σ_k a_i[k]·w_k[j] for i < m and the tile_n columns that begin
     * at `panel`. */
    void (*tile)(int64_t sum, const word_row *a, const int16_t *panel, const float *scale, float *c,
                 int64_t ldc, bool accumulate, int m);
} word_kernels;

/* The functions that are written once for each type in which a KV cache keeps the keys and values of a head.
 * The address must be aligned for the numbers of the type. Values are rows of `width` numbers, one after the
 * other. Keys come in groups of KEY_GROUP, one group after the other. A group is stored column by column,
 * [width][KEY_GROUP] (for Q8_0 see cache_keys.h): the lanes of a vector are then different keys, and no sum
 * has to be folded.
 *
 * The order of every sum is fixed, so a row gets the same bits with and without other rows. A score adds one
 * product after the other along the columns. (Q8_0: the codes of a block first, then their sum times the
 * scale.) A weighted sum adds one product after the other along the values. (Q8_0: codes, with weight times
 * scale.) Row i of the queries sees the first seen[i] keys or values; seen[i] ≤ seen[i + 1]. Those that a row
 * does not see are not even multiplied by 0, so they may be NaN.
 *
 * Few rows read each number once, straight from memory, and reading is their limit. `next` (may be NULL)
 * points to the memory that will be needed after this call, as much as for this call. It is prefetched
 * towards the end. */
enum { KEY_GROUP = 16 };

typedef struct cache_kernels {
    /* Rounds n numbers (whole blocks) to the nearest of the type. A number that is not finite, or too large
     * for the type, is not finite when it is read again. NULL: a cache cannot have this type. */
    void (*narrow)(int64_t n, const float *src, void *dst);
    /* narrow for key `at` of a group. */
    void (*put_key)(int64_t width, const float *key, void *group, int at);
    /* scores[i·ld + j] = q_i · key_j for m rows of q, `width` apart, and j < seen[i]. Scores with larger j
     * are undefined up to the end of the last group that any row sees. */
    void (*score)(int64_t m, const float *q, const int32_t *seen, const void *keys, int64_t width,
                  float *scores, int64_t ld, const void *next);
    /* y_i += Σ_j weights[i·ld + j]·value_j for m rows of y, `width` apart, and j < seen[i]. */
    void (*add)(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                const void *values, int64_t width, float *y, const void *next);
} cache_kernels;

/* The functions that are written once for each type in which a cache keeps the latents of a layer. A latent
 * is a row of `width` numbers: the key and the value of a token for all heads. A few dozen queries use each
 * row, so `load` converts up to LATENT_KEYS rows once into a panel, for their scores and sums. Each set has
 * its own form of panels and of packed queries. All memory has the size that latent_floats says, and begins
 * at a multiple of CACHE_LINE.
 *
 * With rows of F16 and Q8_0, a set may compute in integers. Rows are then rounded to within one of 4064 equal
 * steps of the largest number in BLOCK_STRETCH columns, queries to within half a step of 2047, and weights
 * times the row's scale to within half a step of 8191 of the largest in a panel.
 *
 * The order of every sum is fixed. The result of a query does not depend on the other queries. It does not
 * depend on rows after those that it sees either, if these are finite and have weight 0. */
enum {
    LATENT_KEYS = 64,    /* the most rows of a panel */
    LATENT_QUERIES = 16, /* queries of a group; the last group is padded with zeros */
    LATENT_COLUMNS = 32, /* the width is padded to a multiple of this */
};

/* Floats for n packed queries of `width` numbers, or for half as many rows of a panel. */
static inline int64_t latent_floats(int64_t n, int64_t width)
{
    return (n + LATENT_QUERIES - 1) / LATENT_QUERIES * LATENT_QUERIES *
           ((width + LATENT_COLUMNS - 1) / LATENT_COLUMNS * LATENT_COLUMNS);
}

static inline int64_t latent_panel_floats(int64_t width)
{
    return 2 * latent_floats(LATENT_KEYS, width);
}

/* Memory that will be needed soon; it may be empty. */
typedef struct latent_next {
    const unsigned char *at;
    int64_t bytes;
} latent_next;

typedef struct latent_kernels {
    /* Makes a panel of n ≤ LATENT_KEYS rows. */
    void (*load)(int64_t n, const void *rows, int64_t width, float *panel);
    /* Makes a panel of rows of float32 that are `stride` floats apart. */
    void (*load_floats)(int64_t n, const float *rows, int64_t stride, int64_t width, float *panel);
    /* Packs m queries, which are stored one after the other. */
    void (*pack)(int64_t m, const float *q, int64_t width, float *packed);
    /* scores[i·ld + j] = q_i · row_j for m packed queries and the n rows of a panel. ld ≥ LATENT_KEYS, and
     * the scores after the first n of a query are undefined. Prefetches `next`, evenly spread over the
     * time. */
    void (*score)(int64_t m, const float *packed, int64_t n, const float *panel, int64_t width,
                  float *scores, int64_t ld, latent_next next);
    /* y_i += Σ_j weights[i·ld + j]·row_j for the first n_sums columns of `width`; rows of y are n_sums apart.
     * Each row of weights must have LATENT_KEYS numbers, which are 0 after the first n. */
    void (*add)(int64_t m, const float *weights, int64_t ld, int64_t n, const float *panel,
                int64_t width, float *y, int64_t n_sums);
} latent_kernels;

/* One step of AdamW, the same for all parameters of a kind. */
typedef struct adamw_step {
    float scale;        /* the gradient is multiplied by it: mean over batches and clipping */
    float beta1, beta2; /* decay of the moments */
    float new1, new2;   /* 1 - beta, which would be less exact if computed in float32 */
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

    /* Packs `width` columns of n rows, for a sum over the rows, as [⌈width/group⌉][n][group] with zeros after
     * the last column. May write up to 8 floats past the end of the panel. `group` is tile_m or tile_n. */
    void (*pack)(float *panel, rows src, int64_t n, int64_t width, int group);
    /* Packs n rows of `width` columns, for a sum over the columns, as [⌈n/group⌉][width][group]. */
    void (*pack_transposed)(float *panel, rows src, int64_t n, int64_t width, int group);

    /* c[i·ldc + j] = (accumulate ? c : 0) + Σ_k a[k][i]·b[k][j] for i < m, j < n. */
    void (*tile)(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate,
                 int m, int n, patch ahead);

    dtype_kernels dtypes[N_DTYPES]; /* by dsmoe_dtype */
    const word_kernels *words;      /* NULL: backward converts block types to float32 instead */
    const cache_kernels *caches;    /* [N_DTYPES] */
    const latent_kernels *latents;  /* [N_DTYPES] */

    /* Quantises a row of x to 8 bits, n a multiple of BLOCK: see block_x. A block with a NaN or an infinity
     * gets the scale NaN. Each set has its own order of the q; scales and sums are in the order of the
     * blocks. */
    void (*quantize)(int64_t n, const float *x, int8_t *q, float *scale, int16_t *half_sum);
    /* Quantises to 12 bits, with one scale for each stretch. Each four columns are stored in the order 0,
     * 2, 1, 3. */
    void (*quantize_fine)(int64_t n, const float *x, int16_t *q, float *scale);

    /* -- element by element ------------------------------------------------------------------- */
    /* h = silu(g)·u */
    void (*swiglu)(int64_t n, const float *g, const float *u, float *h);
    /* dh is the gradient with respect to an expert's hidden row h, without the gate value. Returns Σ h·dh,
     * the gradient of the gate value. Replaces g and u by dg and du, computed from weight·dh, and dh by
     * weight·h. */
    float (*swiglu_backward)(int64_t n, float weight, float *g, float *u, float *dh);
    /* y += weight·x */
    void (*axpy)(int64_t n, float weight, const float *x, float *y);
    /* y = weight·x / sqrt(mean(x²) + eps), element by element; y may be x. */
    void (*rms_norm)(int64_t n, const float *x, const float *weight, float eps, float *y);
    /* The next part of a long softmax, of which *max is the largest input and *sum the sum so far. Updates
     * both, and replaces x by e^(x - max). Returns the factor by which the results of earlier parts must be
     * multiplied. */
    float (*softmax_part)(int64_t n, float *x, float *max, float *sum);
    /* Softmax in place; false if any input is NaN or infinite (the output is then undefined). */
    bool (*softmax)(int64_t n, float *x);

    /* -- training ------------------------------------------------------------------------------ */
    /* Backward of rms_norm: adds to dx and to d_weight. */
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

    /* -- measuring the machine ---------------------------------------------------------------- */
    /* Runs `rounds` rounds of independent multiply-adds on registers, and returns the number of
     * floating-point operations. Writing to `sink` keeps the compiler from removing the work. */
    double (*probe_fma)(int64_t rounds, float *sink);
    /* Reads n floats (a multiple of 64) and returns a number that depends on all of them. */
    float (*probe_read)(int64_t n, const float *x);
} kernels;

extern const kernels kernels_scalar;
#if defined(__x86_64__)
extern const kernels kernels_avx2;
/* Turns a copy of the AVX2 set into the AVX-512 set. */
void kernels_add_avx512(kernels *set);
#endif

/* The set in use: the best that this processor runs, or the one that DSMOE_KERNELS names. */
const kernels *kernels_get(void);
/* Lists all sets that this processor runs, weakest first, and returns their number. For tests and
 * benchmarks. */
int kernels_all(const kernels *const **list);
/* The names of these sets, with `between` between them. */
void kernels_names(const char *between, char *out, size_t size);

/* Features that not every processor has. */
enum {
    CPU_AVX2 = 1,
    CPU_FMA = 2,
    CPU_F16C = 4,
    CPU_AVX512 = 8
}; /* CPU_AVX512 is F with BW, DQ, VL and VNNI */
/* How many of the sets, weakest first, a processor with these features runs. */
int kernels_with(unsigned features);

#endif
