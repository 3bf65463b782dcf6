/* cache_kernels.h - products with the keys and values of a KV cache, and with the latents of latent attention,
 * which each instruction set implements for each type of cache. */
#ifndef DSMOE_KERNELS_CACHE_KERNELS_H
#define DSMOE_KERNELS_CACHE_KERNELS_H

#include <stdint.h>

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

#endif
