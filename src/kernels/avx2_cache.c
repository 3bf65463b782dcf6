/* avx2_cache.c - keys and values in every type of a cache, for AVX2, FMA and F16C.
 *
 * One query reads each number once and does one multiply-add with it. Memory is then the limit and must never
 * idle, so numbers are prefetched. The limit for many queries is arithmetic, so numbers are converted to
 * float32 once for all queries, in a panel that fits in the L1 cache. Both use the same tiles, which add
 * in the order that cache_kernels requires. */
#include "kernels/avx2.h"

#include <string.h>

#include "kernels/cache_keys.h"

enum {
    TILE_M = 6,        /* rows of queries in a tile; up to this many are few */
    PANEL = 128,       /* columns of keys, or number of values, in a panel */
    TILE_N = 16,       /* keys, or columns of values, in a tile */
    VALUES = 16,       /* values that few rows take at once */
    LEAD = 2 * STREAM, /* how many bytes ahead a stream of keys is prefetched */
    /* If all keys or values take no more than this, `next` is prefetched instead: the L1 cache holds
     * both. */
    SMALL = 24 << 10,
};

/* ---- numbers to registers ------------------------------------------------------------------- */

/* Loads eight numbers of a plain type as float32. */
INLINE __m256 load_plain(const dsmoe_dtype type, const unsigned char *at)
{
    if (type == DSMOE_F32) return _mm256_loadu_ps((const float *)at);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

/* Loads n < 8 numbers and pads with zeros. Nothing after them is read. */
INLINE __m256 load_plain_rest(const dsmoe_dtype type, const unsigned char *at, int64_t n)
{
    unsigned char bytes[8 * sizeof(float)] = {0};
    memcpy(bytes, at, (size_t)dtype_bytes(type, n));
    return load_plain(type, bytes);
}

/* Loads eight codes of a block. */
INLINE __m256 load_codes(const int8_t *q)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)q)));
}

INLINE float load_scale(const block_q8_0 *block)
{
    uint16_t half;
    memcpy(&half, block->d, sizeof half);
    return _cvtsh_ss(half);
}

/* sum[i, j] += a_i·b_j for m numbers a, which are `apart` from each other, and n vectors b. */
INLINE void multiply_add(const int m, const int n, const float *a, int64_t apart, const __m256 *b,
                         __m256 *sum)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        const __m256 ai = _mm256_broadcast_ss(a + i * apart);
        UNROLL
        for (int j = 0; j < n; j++) sum[i * n + j] = _mm256_fmadd_ps(ai, b[j], sum[i * n + j]);
    }
}

/* ---- narrowing ------------------------------------------------------------------------------ */

static void narrow_f32(int64_t n, const float *src, void *dst)
{
    memcpy(dst, src, (size_t)n * sizeof *src);
}

static void narrow_f16(int64_t n, const float *src, void *dst)
{
    unsigned char *to = dst;
    for (; n >= 8; n -= 8, src += 8, to += 16)
        _mm_storeu_si128((__m128i *)to,
                         _mm256_cvtps_ph(_mm256_loadu_ps(src), _MM_FROUND_TO_NEAREST_INT));
    if (n == 0) return;
    unsigned char rest[16];
    __m256 last = _mm256_maskload_ps(src, first_lanes(n));
    _mm_storeu_si128((__m128i *)rest, _mm256_cvtps_ph(last, _MM_FROUND_TO_NEAREST_INT));
    memcpy(to, rest, (size_t)n * 2);
}

INLINE float largest(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

/* Narrows a block whose numbers are all finite. */
INLINE void narrow_block(const __m256 x[4], float max, block_q8_0 *to)
{
    uint16_t half = (uint16_t)_cvtss_sh(max / 127.0f, _MM_FROUND_TO_NEAREST_INT);
    float scale = _cvtsh_ss(half);
    const __m256 inverse = _mm256_set1_ps(scale > 0.0f ? 1.0f / scale : 0.0f);
    const __m256 most = _mm256_set1_ps(127.0f), least = _mm256_set1_ps(-127.0f);
    memcpy(to->d, &half, sizeof half);
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m256 q = _mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(x[i], inverse), least), most);
        __m256i whole = _mm256_cvtps_epi32(q); /* to nearest, ties to even */
        __m128i words =
            _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        _mm_storel_epi64((__m128i *)(to->q + 8 * i), _mm_packs_epi16(words, words));
    }
}

static void narrow_q8_0(int64_t n, const float *src, void *dst)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    block_q8_0 *to = dst;
    for (; n > 0; n -= BLOCK, src += BLOCK, to++) {
        __m256 x[4], max = _mm256_setzero_ps(), check = _mm256_setzero_ps();
        UNROLL
        for (int i = 0; i < 4; i++) {
            x[i] = _mm256_loadu_ps(src + 8 * i);
            max = _mm256_max_ps(max, _mm256_and_ps(x[i], magnitude));
            check = _mm256_add_ps(check, _mm256_sub_ps(x[i], x[i])); /* 0, or NaN */
        }
        if (_mm256_movemask_ps(_mm256_cmp_ps(check, check, _CMP_UNORD_Q)) == 0) {
            narrow_block(x, largest(max), to);
            continue;
        }
        *to = (block_q8_0){.d = {0x00, 0x7e}}; /* NaN */
    }
}

/* ---- scores --------------------------------------------------------------------------------- */

static void put_key_f32(int64_t width, const float *key, void *group, int at)
{
    key_put(DSMOE_F32, narrow_f32, width, key, group, at);
}

static void put_key_f16(int64_t width, const float *key, void *group, int at)
{
    key_put(DSMOE_F16, narrow_f16, width, key, group, at);
}

static void put_key_q8_0(int64_t width, const float *key, void *group, int at)
{
    key_put(DSMOE_Q8_0, narrow_q8_0, width, key, group, at);
}

/* The scales of a group's keys in one chunk of Q8_0. */
INLINE void load_key_scales(const unsigned char *chunk, __m256 scale[2])
{
    scale[0] = load_plain(DSMOE_F16, chunk);
    scale[1] = load_plain(DSMOE_F16, chunk + 16);
}

/* Column k of a chunk for keys 8·half to 8·half + 7: numbers, or codes of Q8_0. */
INLINE __m256 load_keys(const dsmoe_dtype type, const unsigned char *chunk, int64_t k, int half)
{
    if (type == DSMOE_Q8_0) return load_codes(((const key_block_q8_0 *)chunk)->q[k] + 8 * half);
    return load_plain(type, chunk + dtype_bytes(type, k * KEY_GROUP + 8 * half));
}

/* Groups of keys that are read together, `apart` bytes from each other. Each is in a stream of which `left`
 * bytes are left. Each stream is prefetched some way ahead; after its end, prefetching continues `jump` bytes
 * further on. */
typedef struct key_groups {
    const unsigned char *at;
    int64_t apart, left, jump;
    bool ask;
    const float *scale; /* [chunks][KEY_GROUP] if a panel has codes; otherwise NULL */
} key_groups;

/* Adds the products of m queries with n columns of one chunk, of each of `groups` groups. */
INLINE void add_columns(const dsmoe_dtype type, const int m, const int groups, int64_t n,
                        const float *q, int64_t width, const key_groups *keys, int64_t ahead,
                        __m256 *sum)
{
    const int64_t bytes = key_chunk_size(type) / BLOCK;  /* per column, scales included */
    const int64_t step = 2 * bytes > CACHE_LINE ? 1 : 2; /* columns per prefetch: a line or less */
    for (int64_t k = 0; k < n; k++) {
        if (keys->ask && k % step == 0) {
            UNROLL
            for (int g = 0; g < groups; g++)
                _mm_prefetch(keys->at + g * keys->apart + ahead + k * bytes, _MM_HINT_T0);
        }
        __m256 w[8];
        UNROLL
        for (int i = 0; i < 2 * groups; i++)
            w[i] = load_keys(type, keys->at + i / 2 * keys->apart, k, i % 2);
        multiply_add(m, 2 * groups, q + k, width, w, sum);
    }
}

/* Adds the products with one chunk. If it is coded, codes are summed first and then multiplied by their
 * scale. */
INLINE void score_chunk(const dsmoe_dtype type, const bool coded, const int m, const int groups,
                        int64_t n, const float *q, int64_t width, const key_groups *keys,
                        int64_t ahead, __m256 *sum)
{
    if (!coded) {
        add_columns(type, m, groups, n, q, width, keys, ahead, sum);
        return;
    }
    __m256 part[2 * TILE_M];
    UNROLL
    for (int i = 0; i < m * groups * 2; i++) part[i] = _mm256_setzero_ps();
    add_columns(type, m, groups, n, q, width, keys, ahead, part);
    UNROLL
    for (int g = 0; g < groups; g++) {
        __m256 scale[2];
        if (type == DSMOE_Q8_0) {
            load_key_scales(keys->at + g * keys->apart, scale);
        } else {
            scale[0] = _mm256_loadu_ps(keys->scale);
            scale[1] = _mm256_loadu_ps(keys->scale + 8);
        }
        UNROLL
        for (int i = 0; i < 2 * m; i++) {
            const int at = (i / 2 * groups + g) * 2 + i % 2;
            sum[at] = _mm256_fmadd_ps(part[at], scale[i % 2], sum[at]);
        }
    }
}

/* Scores of m queries for n columns of some groups. The scores of the groups begin `step` apart. With go_on
 * they already hold the sums of earlier columns. */
INLINE void score_tile(const dsmoe_dtype type, const bool coded, const int m, const int groups,
                       int64_t n, const float *q, int64_t width, key_groups keys, float *scores,
                       int64_t ld, int64_t step, bool go_on)
{
    __m256 sum[2 * TILE_M];
    UNROLL
    for (int i = 0; i < m * groups * 2; i++) {
        const float *from = scores + i / 2 / groups * ld + i / 2 % groups * step + i % 2 * 8;
        sum[i] = go_on ? _mm256_loadu_ps(from) : _mm256_setzero_ps();
    }
    const int64_t chunk = key_chunk_size(type), lead = LEAD;
    for (; n > 0; n -= BLOCK, q += BLOCK) {
        const int64_t ahead = keys.left > lead ? lead : lead + keys.jump;
        score_chunk(type, coded, m, groups, n < BLOCK ? n : BLOCK, q, width, &keys, ahead, sum);
        keys.at += chunk;
        keys.left -= chunk;
        if (keys.scale) keys.scale += KEY_GROUP;
    }
    UNROLL
    for (int i = 0; i < m * groups * 2; i++)
        _mm256_storeu_ps(scores + i / 2 / groups * ld + i / 2 % groups * step + i % 2 * 8, sum[i]);
}

/* Scores of groups that are read in `streams` long streams. Towards the end of a stream, prefetching
 * continues with the same stream of `next`, so that there is no break between two pages. Returns the number
 * of groups. */
INLINE int64_t score_streams(const dsmoe_dtype type, const int m, const int streams, const float *q,
                             int64_t n_groups, const unsigned char *keys, int64_t width,
                             float *scores, int64_t ld, const unsigned char *next)
{
    const int64_t group = KEY_GROUP * dtype_bytes(type, width), length = n_groups / streams;
    const bool small = next && n_groups * group <= SMALL;
    int64_t jump = next ? next - keys - length * group : -LEAD;
    if (small) jump = next - keys - LEAD;
    for (int64_t j = 0; j < length; j++) {
        key_groups these = {keys + j * group, length * group, 0, jump, true, NULL};
        if (!small) these.left = (length - j) * group;
        score_tile(type, type == DSMOE_Q8_0, m, streams, width, q, width, these,
                   scores + j * KEY_GROUP, ld, length * KEY_GROUP, false);
    }
    return length * streams;
}

/* Scores for few queries, in as many streams as there are registers for. */
INLINE void score_few(const dsmoe_dtype type, const int m, const float *q, int64_t n_groups,
                      const unsigned char *keys, int64_t width, float *scores, int64_t ld,
                      const unsigned char *next)
{
    const int64_t group = KEY_GROUP * dtype_bytes(type, width);
    int64_t done = 0;
    if (m == 1) done = score_streams(type, 1, 4, q, n_groups, keys, width, scores, ld, next);
    if (m <= 3)
        done += score_streams(type, m, 2, q, n_groups - done, keys + done * group, width,
                              scores + done * KEY_GROUP, ld, next);
    score_streams(type, m, 1, q, n_groups - done, keys + done * group, width,
                  scores + done * KEY_GROUP, ld, next);
}

/* Scores of the rows of one tile for n columns of one group. */
INLINE void score_rows(const bool coded, int64_t m, int64_t n, const float *q, int64_t width,
                       key_groups keys, float *scores, int64_t ld, bool go_on)
{
    switch (m) {
    case 1: score_tile(DSMOE_F32, coded, 1, 1, n, q, width, keys, scores, ld, 0, go_on); break;
    case 2: score_tile(DSMOE_F32, coded, 2, 1, n, q, width, keys, scores, ld, 0, go_on); break;
    case 3: score_tile(DSMOE_F32, coded, 3, 1, n, q, width, keys, scores, ld, 0, go_on); break;
    case 4: score_tile(DSMOE_F32, coded, 4, 1, n, q, width, keys, scores, ld, 0, go_on); break;
    case 5: score_tile(DSMOE_F32, coded, 5, 1, n, q, width, keys, scores, ld, 0, go_on); break;
    default: score_tile(DSMOE_F32, coded, 6, 1, n, q, width, keys, scores, ld, 0, go_on); break;
    }
}

/* One group of keys as float32. */
typedef struct key_panel {
    float numbers[PANEL * KEY_GROUP];       /* or codes */
    float scale[PANEL / BLOCK * KEY_GROUP]; /* the scales of codes */
} key_panel;

/* n columns of a group as float32: float32 keys where they are, others in the panel. */
INLINE key_groups widen_keys(const dsmoe_dtype type, const unsigned char *at, int64_t n,
                             key_panel *panel)
{
    if (type == DSMOE_F32) return (key_groups){.at = at};
    for (int64_t k0 = 0; k0 < n; k0 += BLOCK, at += key_chunk_size(type)) {
        if (type == DSMOE_Q8_0) {
            __m256 scale[2];
            load_key_scales(at, scale);
            _mm256_storeu_ps(panel->scale + k0 / BLOCK * KEY_GROUP, scale[0]);
            _mm256_storeu_ps(panel->scale + k0 / BLOCK * KEY_GROUP + 8, scale[1]);
        }
        for (int64_t k = 0; k < BLOCK && k0 + k < n; k++) {
            float *to = panel->numbers + (k0 + k) * KEY_GROUP;
            _mm256_storeu_ps(to, load_keys(type, at, k, 0));
            _mm256_storeu_ps(to + 8, load_keys(type, at, k, 1));
        }
    }
    return (key_groups){.at = (const unsigned char *)panel->numbers, .scale = panel->scale};
}

INLINE void score_many(const dsmoe_dtype type, int64_t m, const float *q, const int32_t *seen,
                       const unsigned char *keys, int64_t width, float *scores, int64_t ld)
{
    key_panel panel;
    for (int64_t j = 0; j < seen[m - 1]; j += KEY_GROUP)
        for (int64_t k = 0; k < width; k += PANEL) {
            int64_t n = width - k < PANEL ? width - k : PANEL;
            const unsigned char *at =
                keys + j * dtype_bytes(type, width) + KEY_GROUP * dtype_bytes(type, k);
            key_groups columns = widen_keys(type, at, n, &panel);
            for (int64_t i = 0; i < m; i += TILE_M) {
                int64_t count = m - i < TILE_M ? m - i : TILE_M;
                if (seen[i + count - 1] > j)
                    score_rows(type == DSMOE_Q8_0, count, n, q + i * width + k, width, columns,
                               scores + i * ld + j, ld, k > 0);
            }
        }
}

INLINE void score(const dsmoe_dtype type, int64_t m, const float *q, const int32_t *seen,
                  const void *keys, int64_t width, float *scores, int64_t ld, const void *next)
{
    if (m == 0) return;
    int64_t n = (seen[m - 1] + KEY_GROUP - 1) / KEY_GROUP;
    switch (m) {
    case 1: score_few(type, 1, q, n, keys, width, scores, ld, next); break;
    case 2: score_few(type, 2, q, n, keys, width, scores, ld, next); break;
    case 3: score_few(type, 3, q, n, keys, width, scores, ld, next); break;
    case 4: score_few(type, 4, q, n, keys, width, scores, ld, next); break;
    case 5: score_few(type, 5, q, n, keys, width, scores, ld, next); break;
    case 6: score_few(type, 6, q, n, keys, width, scores, ld, next); break;
    default: score_many(type, m, q, seen, keys, width, scores, ld); break;
    }
}

static void score_f32(int64_t m, const float *q, const int32_t *seen, const void *keys,
                      int64_t width, float *scores, int64_t ld, const void *next)
{
    score(DSMOE_F32, m, q, seen, keys, width, scores, ld, next);
}

static void score_f16(int64_t m, const float *q, const int32_t *seen, const void *keys,
                      int64_t width, float *scores, int64_t ld, const void *next)
{
    score(DSMOE_F16, m, q, seen, keys, width, scores, ld, next);
}

static void score_q8_0(int64_t m, const float *q, const int32_t *seen, const void *keys,
                       int64_t width, float *scores, int64_t ld, const void *next)
{
    score(DSMOE_Q8_0, m, q, seen, keys, width, scores, ld, next);
}

/* ---- weighted values ------------------------------------------------------------------------ */

/* n values, and their weights for some rows; the weights of rows are `ld` apart. */
typedef struct value_rows {
    const unsigned char *at; /* the first value */
    int64_t row, n;          /* row: bytes from one value to the next */
    const float *weights;
    int64_t ld;
    int64_t ahead; /* how many bytes ahead to prefetch; 0: no prefetching */
} value_rows;

/* Loads columns j + 8·c … j + 8·c + 7, numbers or codes. If c can be 4 or more, j must begin a block. */
INLINE __m256 load_value(const dsmoe_dtype type, const unsigned char *row, int64_t j, int c)
{
    if (type != DSMOE_Q8_0) return load_plain(type, row + dtype_bytes(type, j + 8 * c));
    const block_q8_0 *block = (const block_q8_0 *)row + j / BLOCK + c / 4;
    return load_codes(block->q + j % BLOCK + c % 4 * 8);
}

/* Adds one value to up to eight vectors of columns of m rows. For codes, the weights are multiplied by the
 * scale of the block. */
INLINE void add_value(const dsmoe_dtype type, const int m, const int columns,
                      const unsigned char *row, int64_t j, const float *weights, int64_t ld,
                      __m256 *sum)
{
    __m256 x[8];
    UNROLL
    for (int c = 0; c < columns; c++) x[c] = load_value(type, row, j, c);
    if (type != DSMOE_Q8_0) {
        multiply_add(m, columns, weights, ld, x, sum);
        return;
    }
    UNROLL
    for (int c = 0; c < columns; c += 4) {
        const float scale = load_scale((const block_q8_0 *)row + j / BLOCK + c / 4);
        UNROLL
        for (int i = 0; i < m; i++) {
            const __m256 w = _mm256_set1_ps(weights[i * ld] * scale);
            UNROLL
            for (int a = c; a < (c + 4 < columns ? c + 4 : columns); a++)
                sum[i * columns + a] = _mm256_fmadd_ps(w, x[a], sum[i * columns + a]);
        }
    }
}

/* Adds all values to `columns` vectors of columns, beginning with column j, of m rows of y that are
 * `width` apart. */
INLINE void add_tile(const dsmoe_dtype type, const int m, const int columns, value_rows v,
                     int64_t j, float *y, int64_t width)
{
    __m256 sum[2 * TILE_M];
    UNROLL
    for (int i = 0; i < m * columns; i++)
        sum[i] = _mm256_loadu_ps(y + i / columns * width + j + i % columns * 8);
    const int lines = (int)((dtype_bytes(type, BLOCK) * columns / 4 + CACHE_LINE - 1) / CACHE_LINE);
    const unsigned char *at = v.at;
    for (int64_t s = 0; s < v.n; s++, at += v.row) {
        if (v.ahead != 0) {
            UNROLL
            for (int i = 0; i < lines; i++)
                _mm_prefetch(at + dtype_bytes(type, j / BLOCK * BLOCK) + v.ahead + i * CACHE_LINE,
                             _MM_HINT_T0);
        }
        add_value(type, m, columns, at, j, v.weights + s, v.ld, sum);
    }
    UNROLL
    for (int i = 0; i < m * columns; i++)
        _mm256_storeu_ps(y + i / columns * width + j + i % columns * 8, sum[i]);
}

/* Adds to the columns from j on, too few for a vector, of one row of y. Only for plain types. */
static void add_rest(const dsmoe_dtype type, value_rows v, int64_t j, float *y, int64_t width)
{
    const __m256i lanes = first_lanes(width - j);
    __m256 sum = _mm256_maskload_ps(y + j, lanes);
    for (int64_t s = 0; s < v.n; s++) {
        __m256 x = load_plain_rest(type, v.at + s * v.row + dtype_bytes(type, j), width - j);
        sum = _mm256_fmadd_ps(_mm256_broadcast_ss(v.weights + s), x, sum);
    }
    _mm256_maskstore_ps(y + j, lanes, sum);
}

/* Adds to all columns from j on of m rows of y. */
INLINE void add_values(const dsmoe_dtype type, const int m, value_rows v, int64_t j, float *y,
                       int64_t width)
{
    const int most = m == 1 ? 8 : m <= 3 ? 4 : 2;
    for (; j + 8 * most <= width; j += 8 * most) add_tile(type, m, most, v, j, y, width);
    if (m == 1 && j + BLOCK <= width) {
        add_tile(type, 1, 4, v, j, y, width);
        j += BLOCK;
    }
    for (; j + 8 <= width; j += 8) add_tile(type, m, 1, v, j, y, width);
    for (int i = 0; i < m && j < width; i++, v.weights += v.ld)
        add_rest(type, v, j, y + i * width, width);
}

/* Few rows: takes some values at a time, so that memory is read from its beginning to its end. */
INLINE void add_few(const dsmoe_dtype type, const int m, const float *weights, int64_t ld,
                    const int32_t *seen, const unsigned char *values, int64_t width, float *y,
                    const unsigned char *next)
{
    const int64_t row = dtype_bytes(type, width), all = seen[0];
    for (int64_t s = 0; s < all; s += VALUES) {
        value_rows v = {values + s * row, row, VALUES, weights + s, ld, VALUES * row};
        if (all - s <= VALUES) {
            v.n = all - s;
            v.ahead = next ? next - v.at : 0;
        }
        if (next && all * row <= SMALL) v.ahead = next - values;
        add_values(type, m, v, 0, y, width);
    }
    for (int i = 1; i < m; i++) {
        value_rows v = {values + all * row, row, seen[i] - all, weights + i * ld + all, ld, 0};
        if (v.n > 0) add_values(type, 1, v, 0, y + i * width, width);
    }
}

/* Some columns of values as float32, [n][columns]. */
typedef struct value_panel {
    int64_t first, n, columns;
    float numbers[PANEL * BLOCK]; /* or codes */
    float scale[PANEL];           /* the scales of codes */
} value_panel;

INLINE void widen_values(const dsmoe_dtype type, const unsigned char *values, int64_t row,
                         int64_t j, value_panel *panel)
{
    float *to = panel->numbers;
    for (int64_t s = 0; s < panel->n; s++) {
        const unsigned char *at = values + (panel->first + s) * row;
        if (type == DSMOE_Q8_0) panel->scale[s] = load_scale((const block_q8_0 *)at + j / BLOCK);
        for (int64_t c = 0; c < panel->columns; c += 8, to += 8)
            _mm256_storeu_ps(to, load_value(type, at, j + c, 0));
    }
}

/* Multiplies the weights of a tile's rows by the scales of a panel's codes. */
static void scale_weights(int64_t m, const float *weights, int64_t ld, const value_panel *panel,
                          float scaled[TILE_M * PANEL])
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t s = 0; s < panel->n; s++)
            scaled[i * PANEL + s] = weights[i * ld + s] * panel->scale[s];
}

/* Adds a panel to its columns of m ≤ TILE_M rows of y. */
static void add_panel(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                      const value_panel *panel, float *y, int64_t width)
{
    const int64_t row = panel->columns * (int64_t)sizeof(float);
    int64_t all = seen[0] - panel->first;
    all = all < 0 ? 0 : all > panel->n ? panel->n : all;
    for (int64_t j = 0; j < panel->columns; j += TILE_N) {
        value_rows v = {(const unsigned char *)panel->numbers, row, all, weights, ld, 0};
        switch (m) {
        case 1: add_tile(DSMOE_F32, 1, 2, v, j, y, width); break;
        case 2: add_tile(DSMOE_F32, 2, 2, v, j, y, width); break;
        case 3: add_tile(DSMOE_F32, 3, 2, v, j, y, width); break;
        case 4: add_tile(DSMOE_F32, 4, 2, v, j, y, width); break;
        case 5: add_tile(DSMOE_F32, 5, 2, v, j, y, width); break;
        default: add_tile(DSMOE_F32, 6, 2, v, j, y, width); break;
        }
        for (int64_t i = 1; i < m; i++) { /* what row i sees beyond row 0 */
            int64_t end = seen[i] - panel->first < panel->n ? seen[i] - panel->first : panel->n;
            if (end <= all) continue;
            v = (value_rows){(const unsigned char *)(panel->numbers + all * panel->columns),
                             row,
                             end - all,
                             weights + i * ld + all,
                             ld,
                             0};
            add_tile(DSMOE_F32, 1, 2, v, j, y + i * width, width);
        }
    }
}

INLINE void add_many(const dsmoe_dtype type, int64_t m, const float *weights, int64_t ld,
                     const int32_t *seen, const unsigned char *values, int64_t width, float *y)
{
    value_panel panel = {.columns = type == DSMOE_Q8_0 ? BLOCK : TILE_N};
    float scaled[TILE_M * PANEL];
    const int64_t row = dtype_bytes(type, width), whole = width / TILE_N * TILE_N;
    for (; panel.first < seen[m - 1]; panel.first += PANEL) {
        int64_t left = seen[m - 1] - panel.first;
        panel.n = left < PANEL ? left : PANEL;
        for (int64_t j = 0; j < whole; j += panel.columns) {
            widen_values(type, values, row, j, &panel);
            for (int64_t i = 0; i < m; i += TILE_M) {
                int64_t count = m - i < TILE_M ? m - i : TILE_M;
                const float *w = weights + i * ld + panel.first;
                if (type == DSMOE_Q8_0) {
                    scale_weights(count, w, ld, &panel, scaled);
                    add_panel(count, scaled, PANEL, seen + i, &panel, y + i * width + j, width);
                } else {
                    add_panel(count, w, ld, seen + i, &panel, y + i * width + j, width);
                }
            }
        }
    }
    for (int64_t i = 0; i < m && whole < width; i++)
        add_values(type, 1, (value_rows){values, row, seen[i], weights + i * ld, ld, 0}, whole,
                   y + i * width, width);
}

INLINE void add(const dsmoe_dtype type, int64_t m, const float *weights, int64_t ld,
                const int32_t *seen, const void *values, int64_t width, float *y, const void *next)
{
    switch (m) {
    case 0: break;
    case 1: add_few(type, 1, weights, ld, seen, values, width, y, next); break;
    case 2: add_few(type, 2, weights, ld, seen, values, width, y, next); break;
    case 3: add_few(type, 3, weights, ld, seen, values, width, y, next); break;
    case 4: add_few(type, 4, weights, ld, seen, values, width, y, next); break;
    case 5: add_few(type, 5, weights, ld, seen, values, width, y, next); break;
    case 6: add_few(type, 6, weights, ld, seen, values, width, y, next); break;
    default: add_many(type, m, weights, ld, seen, values, width, y); break;
    }
}

static void add_f32(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                    const void *values, int64_t width, float *y, const void *next)
{
    add(DSMOE_F32, m, weights, ld, seen, values, width, y, next);
}

static void add_f16(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                    const void *values, int64_t width, float *y, const void *next)
{
    add(DSMOE_F16, m, weights, ld, seen, values, width, y, next);
}

static void add_q8_0(int64_t m, const float *weights, int64_t ld, const int32_t *seen,
                     const void *values, int64_t width, float *y, const void *next)
{
    add(DSMOE_Q8_0, m, weights, ld, seen, values, width, y, next);
}

const cache_kernels caches_avx2[N_DTYPES] = {
    [DSMOE_F32] = {narrow_f32, put_key_f32, score_f32, add_f32},
    [DSMOE_F16] = {narrow_f16, put_key_f16, score_f16, add_f16},
    [DSMOE_Q8_0] = {narrow_q8_0, put_key_q8_0, score_q8_0, add_q8_0},
};
