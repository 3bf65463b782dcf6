/* avx2_cache.c - keys and values in every type of a cache, for AVX2, FMA and F16C.
 *
 * One query reads each number once and does one multiply-add with it: memory is the limit, and what
 * counts is that it never waits. So rows come in a few long streams, each asked for ahead. */
#include "kernels/avx2.h"

#include <math.h>
#include <string.h>

#include "kernels/blocks.h"

enum { STREAMS = 4 };

/* ---- numbers to registers ------------------------------------------------------------------- */

/* Eight numbers of a plain type as float32. */
INLINE __m256 load_plain(const dsmoe_dtype type, const unsigned char *at)
{
    if (type == DSMOE_F32) return _mm256_loadu_ps((const float *)at);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

/* The first n < 8 of them, zeros after: nothing past them is read. */
INLINE __m256 load_plain_rest(const dsmoe_dtype type, const unsigned char *at, int64_t n)
{
    unsigned char bytes[8 * sizeof(float)] = {0};
    memcpy(bytes, at, (size_t)dtype_bytes(type, n));
    return load_plain(type, bytes);
}

/* Eight codes of a block. */
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

/* A block whose numbers are all finite. */
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

/* ---- asking memory ahead --------------------------------------------------------------------- */

/* Rows are read in STREAMS streams, row i of each together, and the rows some way ahead are asked
 * for. Towards its end a stream goes on with the same stream of the rows that are needed next: so
 * there is no break where one page ends and another begins. */
typedef struct stream {
    int64_t length, row; /* rows of each; bytes of one */
    int64_t next;        /* bytes from these rows to the next */
} stream;

INLINE stream stream_of(const dsmoe_dtype type, int64_t n, int64_t width, const unsigned char *at,
                        const unsigned char *next)
{
    return (stream){n / STREAMS, dtype_bytes(type, width), next ? next - at : 0};
}

/* How many bytes ahead of row i memory is asked. */
INLINE int64_t stream_ahead(const stream *s, int64_t i)
{
    int64_t lead = (STREAM + s->row - 1) / s->row;
    return i + lead < s->length ? lead * s->row : s->next - (s->length - lead) * s->row;
}

/* ---- scores --------------------------------------------------------------------------------- */

/* n keys, one in each stream. */
typedef struct key_rows {
    const unsigned char *at;
    int64_t apart; /* bytes from one to the next */
    int64_t ahead; /* bytes to what is asked for */
} key_rows;

/* m queries against n keys: their sums of eight lanes. */
INLINE void dot_plain(const dsmoe_dtype type, const int m, const int n, const float *q,
                      key_rows keys, int64_t width, __m256 *sum)
{
    int64_t k = 0;
    for (; k + 16 <= width; k += 16) {
        const unsigned char *at = keys.at + dtype_bytes(type, k);
        if (type == DSMOE_F32 || k % 32 == 0) { /* once for each cache line */
            UNROLL
            for (int j = 0; j < n; j++) _mm_prefetch(at + j * keys.apart + keys.ahead, _MM_HINT_T0);
        }
        UNROLL
        for (int half = 0; half < 2; half++) {
            UNROLL
            for (int j = 0; j < n; j++) {
                __m256 w = load_plain(type, at + j * keys.apart + dtype_bytes(type, 8 * half));
                UNROLL
                for (int i = 0; i < m; i++)
                    sum[i * n + j] = _mm256_fmadd_ps(_mm256_loadu_ps(q + i * width + k + 8 * half),
                                                     w, sum[i * n + j]);
            }
        }
    }
    for (; k < width; k += 8) {
        int64_t left = width - k;
        UNROLL
        for (int j = 0; j < n; j++) {
            const unsigned char *at = keys.at + j * keys.apart + dtype_bytes(type, k);
            __m256 w = left >= 8 ? load_plain(type, at) : load_plain_rest(type, at, left);
            UNROLL
            for (int i = 0; i < m; i++) {
                __m256 x = _mm256_maskload_ps(q + i * width + k, first_lanes(left));
                sum[i * n + j] = _mm256_fmadd_ps(x, w, sum[i * n + j]);
            }
        }
    }
}

/* The same for blocks: their scale comes in once the codes are summed. */
INLINE void dot_blocks(const int m, const int n, const float *q, key_rows keys, int64_t width,
                       __m256 *sum)
{
    for (int64_t k = 0; k < width; k += BLOCK) {
        UNROLL
        for (int j = 0; j < n; j++) {
            const unsigned char *at = keys.at + j * keys.apart + dtype_bytes(DSMOE_Q8_0, k);
            const block_q8_0 *block = (const block_q8_0 *)at;
            _mm_prefetch(at + keys.ahead, _MM_HINT_T0);
            const __m256 scale = _mm256_set1_ps(load_scale(block));
            __m256 part[2];
            UNROLL
            for (int c = 0; c < 4; c++) {
                __m256 w = load_codes(block->q + 8 * c);
                UNROLL
                for (int i = 0; i < m; i++) {
                    __m256 x = _mm256_loadu_ps(q + i * width + k + 8 * c);
                    part[i] = c == 0 ? _mm256_mul_ps(x, w) : _mm256_fmadd_ps(x, w, part[i]);
                }
            }
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i * n + j] = _mm256_fmadd_ps(part[i], scale, sum[i * n + j]);
        }
    }
}

INLINE void dot_tile(const dsmoe_dtype type, const int m, const int n, const float *q,
                     key_rows keys, int64_t width, float *scores, int64_t ld, int64_t step)
{
    __m256 sum[2 * STREAMS];
    UNROLL
    for (int i = 0; i < m * n; i++) sum[i] = _mm256_setzero_ps();
    if (type == DSMOE_Q8_0)
        dot_blocks(m, n, q, keys, width, sum);
    else
        dot_plain(type, m, n, q, keys, width, sum);
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < n; j++) scores[i * ld + j * step] = fold(sum[i * n + j]);
    }
}

/* m queries against all keys. */
INLINE void dot_streams(const dsmoe_dtype type, const int m, const float *q,
                        const unsigned char *keys, int64_t n, int64_t width, float *scores,
                        int64_t ld, const unsigned char *next)
{
    const stream s = stream_of(type, n, width, keys, next);
    for (int64_t j = 0; j < s.length; j++) {
        key_rows these = {keys + j * s.row, s.length * s.row, stream_ahead(&s, j)};
        dot_tile(type, m, STREAMS, q, these, width, scores + j, ld, s.length);
    }
    for (int64_t j = s.length * STREAMS; j < n; j++)
        dot_tile(type, m, 1, q, (key_rows){keys + j * s.row, 0, 0}, width, scores + j, ld, 0);
}

/* Two queries at a time: keys are in a cache from the second pair on. */
INLINE void dot_rows(const dsmoe_dtype type, int64_t m, const float *q, const void *keys, int64_t n,
                     int64_t width, float *scores, int64_t ld, const void *next)
{
    for (; m >= 2; m -= 2, q += 2 * width, scores += 2 * ld, next = NULL)
        dot_streams(type, 2, q, keys, n, width, scores, ld, next);
    if (m > 0) dot_streams(type, 1, q, keys, n, width, scores, ld, next);
}

static void dot_rows_f32(int64_t m, const float *q, const void *keys, int64_t n, int64_t width,
                         float *scores, int64_t ld, const void *next)
{
    dot_rows(DSMOE_F32, m, q, keys, n, width, scores, ld, next);
}

static void dot_rows_f16(int64_t m, const float *q, const void *keys, int64_t n, int64_t width,
                         float *scores, int64_t ld, const void *next)
{
    dot_rows(DSMOE_F16, m, q, keys, n, width, scores, ld, next);
}

static void dot_rows_q8_0(int64_t m, const float *q, const void *keys, int64_t n, int64_t width,
                          float *scores, int64_t ld, const void *next)
{
    dot_rows(DSMOE_Q8_0, m, q, keys, n, width, scores, ld, next);
}

/* ---- weighted values ------------------------------------------------------------------------ */

/* `columns` vectors of eight columns, summed in registers over n rows from each of `streams`
 * places, `apart` rows apart. */
INLINE void add_columns_f32(const int columns, const int streams, int64_t n, int64_t apart,
                            const float *weights, const float *row, int64_t width, float *y)
{
    __m256 sum[8];
    UNROLL
    for (int c = 0; c < columns; c++) sum[c] = _mm256_loadu_ps(y + 8 * c);
    for (int64_t i = 0; i < n; i++) {
        UNROLL
        for (int s = 0; s < streams; s++) {
            const float *at = row + (s * apart + i) * width;
            __m256 w = _mm256_broadcast_ss(weights + s * apart + i);
            UNROLL
            for (int c = 0; c < columns; c += 2)
                _mm_prefetch((const char *)(at + 8 * c) + STREAM, _MM_HINT_T0);
            UNROLL
            for (int c = 0; c < columns; c++)
                sum[c] = _mm256_fmadd_ps(w, _mm256_loadu_ps(at + 8 * c), sum[c]);
        }
    }
    UNROLL
    for (int c = 0; c < columns; c++) _mm256_storeu_ps(y + 8 * c, sum[c]);
}

/* Memory is read in streams, as by few_rows: a few rows from each, whole, then the next. */
static void add_rows_f32(int64_t n, const float *weights, const void *values, int64_t width,
                         float *y, const void *next)
{
    (void)next;
    enum { ROWS = 2 };
    const float *row = values;
    int64_t length = n / (STREAMS * ROWS) * ROWS;
    for (int64_t i = 0; i < length; i += ROWS) {
        const float *w = weights + i, *at = row + i * width;
        int64_t j = 0;
        for (; j + 64 <= width; j += 64)
            add_columns_f32(8, STREAMS, ROWS, length, w, at + j, width, y + j);
        for (; j + 8 <= width; j += 8)
            add_columns_f32(1, STREAMS, ROWS, length, w, at + j, width, y + j);
        for (; j < width; j++)
            for (int64_t r = 0; r < STREAMS * ROWS; r++) {
                int64_t k = r / ROWS * length + r % ROWS;
                y[j] = fmaf(w[k], at[k * width + j], y[j]);
            }
    }
    for (int64_t i = length * STREAMS; i < n; i++) axpy_avx2(width, weights[i], row + i * width, y);
}

/* 32·blocks columns of one row of each of some streams, `apart` rows apart. */
INLINE void add_tile(const dsmoe_dtype type, const int blocks, const int streams, int64_t apart,
                     const float *weights, const unsigned char *value, int64_t row, int64_t ahead,
                     float *y)
{
    __m256 sum[8];
    UNROLL
    for (int c = 0; c < 4 * blocks; c++) sum[c] = _mm256_loadu_ps(y + 8 * c);
    UNROLL
    for (int s = 0; s < streams; s++) {
        const unsigned char *at = value + s * apart * row;
        float weight = weights[s * apart];
        UNROLL
        for (int b = 0; b < blocks; b++, at += dtype_bytes(type, BLOCK)) {
            const block_q8_0 *block = (const block_q8_0 *)at;
            _mm_prefetch(at + ahead, _MM_HINT_T0);
            const __m256 w =
                _mm256_set1_ps(type == DSMOE_F16 ? weight : weight * load_scale(block));
            UNROLL
            for (int c = 0; c < 4; c++) {
                __m256 v = type == DSMOE_F16 ? load_plain(type, at + dtype_bytes(type, 8 * c))
                                             : load_codes(block->q + 8 * c);
                sum[4 * b + c] = _mm256_fmadd_ps(w, v, sum[4 * b + c]);
            }
        }
    }
    UNROLL
    for (int c = 0; c < 4 * blocks; c++) _mm256_storeu_ps(y + 8 * c, sum[c]);
}

/* What is left of columns of float16 behind the last 32 of each row. */
static void add_columns_f16(int64_t n, const float *weights, const unsigned char *value,
                            int64_t row, int64_t width, float *y)
{
    for (int64_t j = 0; j < width; j += 8) {
        int64_t left = width - j;
        __m256 sum = _mm256_maskload_ps(y + j, first_lanes(left));
        for (int64_t i = 0; i < n; i++) {
            const unsigned char *at = value + i * row + dtype_bytes(DSMOE_F16, j);
            __m256 v = left >= 8 ? load_plain(DSMOE_F16, at) : load_plain_rest(DSMOE_F16, at, left);
            sum = _mm256_fmadd_ps(_mm256_broadcast_ss(weights + i), v, sum);
        }
        _mm256_maskstore_ps(y + j, first_lanes(left), sum);
    }
}

INLINE void add_rows(const dsmoe_dtype type, int64_t n, const float *weights,
                     const unsigned char *values, int64_t width, float *y,
                     const unsigned char *next)
{
    const stream s = stream_of(type, n, width, values, next);
    int64_t whole = width / BLOCK * BLOCK;
    for (int64_t i = 0; i < s.length; i++) {
        int64_t ahead = stream_ahead(&s, i), j = 0;
        const unsigned char *value = values + i * s.row;
        for (; j + 2 * BLOCK <= whole; j += 2 * BLOCK)
            add_tile(type, 2, STREAMS, s.length, weights + i, value + dtype_bytes(type, j), s.row,
                     ahead, y + j);
        if (j < whole)
            add_tile(type, 1, STREAMS, s.length, weights + i, value + dtype_bytes(type, j), s.row,
                     ahead, y + j);
    }
    for (int64_t i = s.length * STREAMS; i < n; i++)
        for (int64_t j = 0; j < whole; j += BLOCK)
            add_tile(type, 1, 1, 0, weights + i, values + i * s.row + dtype_bytes(type, j), s.row,
                     0, y + j);
    if (whole < width)
        add_columns_f16(n, weights, values + dtype_bytes(type, whole), s.row, width - whole,
                        y + whole);
}

static void add_rows_f16(int64_t n, const float *weights, const void *values, int64_t width,
                         float *y, const void *next)
{
    add_rows(DSMOE_F16, n, weights, values, width, y, next);
}

static void add_rows_q8_0(int64_t n, const float *weights, const void *values, int64_t width,
                          float *y, const void *next)
{
    add_rows(DSMOE_Q8_0, n, weights, values, width, y, next);
}

const cache_kernels caches_avx2[N_DTYPES] = {
    [DSMOE_F32] = {narrow_f32, dot_rows_f32, add_rows_f32},
    [DSMOE_F16] = {narrow_f16, dot_rows_f16, add_rows_f16},
    [DSMOE_Q8_0] = {narrow_q8_0, dot_rows_q8_0, add_rows_q8_0},
};
