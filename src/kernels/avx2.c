/* avx2.c - kernels for AVX2, FMA and F16C: 16 registers of 8 floats.
 *
 * Tile 6×16: 12 sums, 2 registers of b, 1 broadcast a: 8 loads for 12 multiply-adds, which keeps
 * two of them a cycle busy behind a latency of 4 as long as the loads hit the first-level cache. */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum {
    TILE_M = 6,
    TILE_N = 16,
    FEW = 6,
    STREAM = 8 * CACHE_LINE, /* how far ahead of a stream memory is asked */
};

#define INLINE static inline __attribute__((always_inline))

/* Sums stay in registers only if every loop over them is unrolled before those are given out. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* The first n lanes; all if n is 8 or more. */
INLINE __m256i first_lanes(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* The sum of eight lanes, in one fixed order. */
INLINE float fold(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* ---- packing ------------------------------------------------------------------------------- */

/* The first four columns of eight rows, transposed: column[k] holds element k of each row, given
 * rows that lie four apart in the halves of a register, which leaves only shuffles within 128 bits.
 */
INLINE void transpose(__m256 column[4], const __m256 r[4])
{
    __m256 low01 = _mm256_unpacklo_ps(r[0], r[1]), high01 = _mm256_unpackhi_ps(r[0], r[1]);
    __m256 low23 = _mm256_unpacklo_ps(r[2], r[3]), high23 = _mm256_unpackhi_ps(r[2], r[3]);
    column[0] = _mm256_shuffle_ps(low01, low23, 0x44);
    column[1] = _mm256_shuffle_ps(low01, low23, 0xee);
    column[2] = _mm256_shuffle_ps(high01, high23, 0x44);
    column[3] = _mm256_shuffle_ps(high01, high23, 0xee);
}

INLINE __m256 halves(__m128 low, __m128 high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}

/* Eight columns of eight rows, transposed, element by element from whatever type they have. */
INLINE void load_transposed(__m256 column[8], const dsmoe_dtype type,
                            const unsigned char *const row[8])
{
    __m256 left[4], right[4]; /* columns 0-3 and 4-7 of rows i and i + 4 */
    UNROLL
    for (int i = 0; i < 4; i++) {
        const unsigned char *low = row[i], *high = row[i + 4];
        if (type == DSMOE_F32) {
            left[i] = halves(_mm_loadu_ps((const float *)low), _mm_loadu_ps((const float *)high));
            right[i] =
                halves(_mm_loadu_ps((const float *)low + 4), _mm_loadu_ps((const float *)high + 4));
        } else if (type == DSMOE_BF16) { /* the upper half of a float32 */
            __m256i both = _mm256_inserti128_si256(
                _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                _mm_loadu_si128((const __m128i *)high), 1);
            const __m256i zero = _mm256_setzero_si256();
            left[i] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, both));
            right[i] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, both));
        } else {
            __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)low));
            __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)high));
            left[i] = _mm256_permute2f128_ps(a, b, 0x20);
            right[i] = _mm256_permute2f128_ps(a, b, 0x31);
        }
    }
    transpose(column, left);
    transpose(column + 4, right);
}

/* Eight numbers as float32. */
INLINE __m256 load_eight(const dsmoe_dtype type, const void *at)
{
    if (type == DSMOE_F32) return _mm256_loadu_ps(at);
    __m128i half = _mm_loadu_si128(at);
    if (type == DSMOE_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* The first n < 8 of them, zeros behind: bytes past them may lie outside of the mapping. */
INLINE __m256 load_rest(const dsmoe_dtype type, const void *at, int64_t n)
{
    unsigned char bytes[8 * sizeof(float)] = {0};
    memcpy(bytes, at, (size_t)dtype_bytes(type, n));
    return load_eight(type, bytes);
}

static void pack(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t j = 0; j < width; j += group, panel += n * group) {
        int count = width - j < group ? (int)(width - j) : group;
        if (count == TILE_N) {
            for (int64_t k = 0; k < n; k++) {
                const float *row = rows_at(src, k) + j;
                _mm256_storeu_ps(panel + k * TILE_N, _mm256_loadu_ps(row));
                _mm256_storeu_ps(panel + k * TILE_N + 8, _mm256_loadu_ps(row + 8));
            }
            continue;
        }
        for (int64_t k = 0; k < n; k++) {
            const float *row = rows_at(src, k) + j;
            for (int r = 0; r < group; r++) panel[k * group + r] = r < count ? row[r] : 0.0f;
        }
    }
}

/* `count` rows into columns [0, 8) of a panel `group` wide. Eight floats are stored for each k even
 * where the group is narrower: the next k overwrites what is too much. Rows that are missing repeat
 * the first. */
INLINE void pack_eight(float *panel, const dsmoe_dtype type, const unsigned char *const row[8],
                       int count, int64_t width, int group)
{
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) {
        const unsigned char *at[8];
        __m256 column[8];
        UNROLL
        for (int r = 0; r < 8; r++) at[r] = row[r] + dtype_bytes(type, k);
        load_transposed(column, type, at);
        UNROLL
        for (int q = 0; q < 8; q++) _mm256_storeu_ps(panel + (k + q) * group, column[q]);
    }
    if (k == width) return;
    for (int r = 0; r < count; r++) {
        float rest[8];
        _mm256_storeu_ps(rest, load_rest(type, row[r] + dtype_bytes(type, k), width - k));
        for (int64_t q = k; q < width; q++) panel[q * group + r] = rest[q - k];
    }
}

/* Zeros in the columns of a panel that no row reaches. */
static void clear_columns(float *panel, int64_t width, int group, int first)
{
    for (int64_t k = 0; k < width; k++)
        for (int r = first; r < group; r++) panel[k * group + r] = 0.0f;
}

static void pack_transposed(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t i = 0; i < n; i += group, panel += width * group) {
        int count = n - i < group ? (int)(n - i) : group;
        for (int at = 0; at < count; at += 8) {
            int here = count - at < 8 ? count - at : 8;
            const unsigned char *row[8];
            for (int r = 0; r < 8; r++)
                row[r] = (const unsigned char *)rows_at(src, i + at + (r < here ? r : 0));
            pack_eight(panel + at, DSMOE_F32, row, here, width, group);
        }
        if (count < group) clear_columns(panel, width, group, count);
    }
}

INLINE void pack_weights(const dsmoe_dtype type, float *panel, matrix w, int64_t column, int64_t n,
                         int64_t width, int group)
{
    for (int64_t i = 0; i < n; i += group, panel += width * group) {
        int count = n - i < group ? (int)(n - i) : group;
        for (int at = 0; at < count; at += 8) {
            int here = count - at < 8 ? count - at : 8;
            const unsigned char *row[8];
            for (int r = 0; r < 8; r++)
                row[r] = matrix_at(w, i + at + (r < here ? r : 0), 0) + dtype_bytes(type, column);
            pack_eight(panel + at, type, row, here, width, group);
        }
        if (count < group) clear_columns(panel, width, group, count);
    }
}

static void pack_f32(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group)
{
    pack_weights(DSMOE_F32, panel, w, column, n, width, group);
}

static void pack_f16(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group)
{
    pack_weights(DSMOE_F16, panel, w, column, n, width, group);
}

static void pack_bf16(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group)
{
    pack_weights(DSMOE_BF16, panel, w, column, n, width, group);
}

/* ---- the tile ------------------------------------------------------------------------------ */

/* The first `height` rows of a tile, of which m count. */
INLINE void tile_of(const int height, int64_t k, const float *a, const float *b, float *c,
                    int64_t ldc, bool accumulate, int m, int n, patch ahead)
{
    __m256 sum[TILE_M][2];
    UNROLL
    for (int i = 0; i < height; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (int i = 0; i < m; i++) _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);

    const int64_t part = (k + AHEAD_ROWS * AHEAD_LINES - 1) / (AHEAD_ROWS * AHEAD_LINES);
    const unsigned char *next = ahead.at;
    for (int asked = 1; k > 0; k -= part, asked++) {
        _mm_prefetch(next, _MM_HINT_T1);
        next = asked % AHEAD_ROWS ? next + ahead.stride : ahead.at + CACHE_LINE;
        UNROLL_4
        for (int64_t s = part < k ? part : k; s > 0; s--, a += TILE_M, b += TILE_N) {
            __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
            UNROLL
            for (int i = 0; i < height; i++) {
                __m256 ai = _mm256_broadcast_ss(a + i);
                sum[i][0] = _mm256_fmadd_ps(ai, b0, sum[i][0]);
                sum[i][1] = _mm256_fmadd_ps(ai, b1, sum[i][1]);
            }
        }
    }

    if (m == height && n == TILE_N) {
        UNROLL
        for (int i = 0; i < height; i++, c += ldc) {
            if (accumulate) {
                sum[i][0] = _mm256_add_ps(_mm256_loadu_ps(c), sum[i][0]);
                sum[i][1] = _mm256_add_ps(_mm256_loadu_ps(c + 8), sum[i][1]);
            }
            _mm256_storeu_ps(c, sum[i][0]);
            _mm256_storeu_ps(c + 8, sum[i][1]);
        }
        return;
    }
    float edge[TILE_M][TILE_N];
    UNROLL
    for (int i = 0; i < height; i++) {
        _mm256_storeu_ps(edge[i], sum[i][0]);
        _mm256_storeu_ps(edge[i] + 8, sum[i][1]);
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            c[i * ldc + j] = accumulate ? c[i * ldc + j] + edge[i][j] : edge[i][j];
}

/* The last tile of an expert's rows is rarely full: a lower one spares the work on rows not there.
 */
static void tile(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate,
                 int m, int n, patch ahead)
{
    if (m > 4)
        tile_of(TILE_M, k, a, b, c, ldc, accumulate, m, n, ahead);
    else if (m > 2)
        tile_of(4, k, a, b, c, ldc, accumulate, m, n, ahead);
    else
        tile_of(2, k, a, b, c, ldc, accumulate, m, n, ahead);
}

/* ---- few rows ------------------------------------------------------------------------------ */

/* m rows of x against n rows of w, `stride` bytes apart. */
INLINE void few_rows_tile(const dsmoe_dtype type, const int m, const int n, const float *x,
                          const unsigned char *w, int64_t stride, int64_t k, float *y, int64_t ldy,
                          int64_t y_step)
{
    __m256 sum[12];
    UNROLL
    for (int i = 0; i < m * n; i++) sum[i] = _mm256_setzero_ps();
    for (; k >= 2 * LANES; k -= 2 * LANES, w += dtype_bytes(type, 2 * LANES)) {
        UNROLL
        for (int j = 0; j < n; j++) _mm_prefetch(w + j * stride + STREAM, _MM_HINT_T0);
        UNROLL
        for (int half = 0; half < 2; half++, x += m * LANES) {
            UNROLL
            for (int j = 0; j < n; j++) {
                __m256 wj = load_eight(type, w + j * stride + dtype_bytes(type, half * LANES));
                UNROLL
                for (int i = 0; i < m; i++)
                    sum[i * n + j] =
                        _mm256_fmadd_ps(_mm256_loadu_ps(x + i * LANES), wj, sum[i * n + j]);
            }
        }
    }
    for (; k > 0; k -= LANES, x += m * LANES, w += dtype_bytes(type, LANES)) {
        for (int j = 0; j < n; j++) {
            const unsigned char *at = w + j * stride;
            __m256 wj = k >= LANES ? load_eight(type, at) : load_rest(type, at, k);
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i * n + j] =
                    _mm256_fmadd_ps(_mm256_loadu_ps(x + i * LANES), wj, sum[i * n + j]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < n; j++) y[i * ldy + j * y_step] = fold(sum[i * n + j]);
    }
}

/* Rows 0, n/streams, 2·n/streams … of w together, then the rows after them: so memory is read in a
 * few long streams, each from its beginning to its end, which keeps it busiest. */
INLINE void few_rows_of(const dsmoe_dtype type, const int m, const int streams, const float *x,
                        matrix w, int64_t n, int64_t k, float *y, int64_t ldy)
{
    int64_t length = n / streams;
    for (int64_t j = 0; j < length; j++)
        few_rows_tile(type, m, streams, x, matrix_at(w, j, 0), length * w.stride, k, y + j, ldy,
                      length);
    for (int64_t j = length * streams; j < n; j++)
        few_rows_tile(type, m, 1, x, matrix_at(w, j, 0), 0, k, y + j, ldy, 0);
}

INLINE void few_rows(const dsmoe_dtype type, int m, const float *x, matrix w, int64_t n, int64_t k,
                     float *y, int64_t ldy)
{
    switch (m) {
    case 1: few_rows_of(type, 1, 4, x, w, n, k, y, ldy); break;
    case 2: few_rows_of(type, 2, 4, x, w, n, k, y, ldy); break;
    case 3: few_rows_of(type, 3, 4, x, w, n, k, y, ldy); break;
    case 4: few_rows_of(type, 4, 3, x, w, n, k, y, ldy); break;
    case 5: few_rows_of(type, 5, 2, x, w, n, k, y, ldy); break;
    case 6: few_rows_of(type, 6, 2, x, w, n, k, y, ldy); break;
    default: break; /* no rows */
    }
}

static void few_rows_f32(int m, const float *x, matrix w, int64_t n, int64_t k, float *y,
                         int64_t ldy)
{
    few_rows(DSMOE_F32, m, x, w, n, k, y, ldy);
}

static void few_rows_f16(int m, const float *x, matrix w, int64_t n, int64_t k, float *y,
                         int64_t ldy)
{
    few_rows(DSMOE_F16, m, x, w, n, k, y, ldy);
}

static void few_rows_bf16(int m, const float *x, matrix w, int64_t n, int64_t k, float *y,
                          int64_t ldy)
{
    few_rows(DSMOE_BF16, m, x, w, n, k, y, ldy);
}

INLINE void widen(const dsmoe_dtype type, int64_t n, const unsigned char *src, float *dst)
{
    for (; n >= 8; n -= 8, dst += 8, src += dtype_bytes(type, 8))
        _mm256_storeu_ps(dst, load_eight(type, src));
    if (n == 0) return;
    float rest[8];
    _mm256_storeu_ps(rest, load_rest(type, src, n));
    memcpy(dst, rest, (size_t)n * sizeof *dst);
}

static void widen_f32(int64_t n, const void *src, float *dst) { widen(DSMOE_F32, n, src, dst); }
static void widen_f16(int64_t n, const void *src, float *dst) { widen(DSMOE_F16, n, src, dst); }
static void widen_bf16(int64_t n, const void *src, float *dst) { widen(DSMOE_BF16, n, src, dst); }

/* ---- element by element -------------------------------------------------------------------- */

/* e^x to about one unit in the last place: x = n·ln2 + r, |r| ≤ ln2/2, and a polynomial in r. The
 * ends are clamped so that 2^n stays a normal number; NaN stays NaN. */
INLINE __m256 exp8(__m256 x)
{
    const __m256 log2e = _mm256_set1_ps(1.44269504088896341f);
    const __m256 ln2_high = _mm256_set1_ps(0.693359375f);
    const __m256 ln2_low = _mm256_set1_ps(-2.12194440e-4f);
    x = _mm256_max_ps(_mm256_set1_ps(-87.3f), x); /* the second operand survives a NaN */
    x = _mm256_min_ps(_mm256_set1_ps(88.3f), x);
    __m256 n =
        _mm256_round_ps(_mm256_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, ln2_high, x);
    r = _mm256_fnmadd_ps(n, ln2_low, r);
    /* Taylor's coefficients to the seventh power: the remainder is below 1e-8 on this interval. */
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

/* 1 / (1 + e^-x) */
INLINE __m256 sigmoid8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, exp8(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

/* Eight floats, or the first n where fewer are left: masked stores are slow, so only there. */
INLINE __m256 load_first(const float *x, int64_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes(n));
}

INLINE void store_first(float *x, __m256 v, int64_t n)
{
    if (n >= 8)
        _mm256_storeu_ps(x, v);
    else
        _mm256_maskstore_ps(x, first_lanes(n), v);
}

static void swiglu(int64_t n, const float *g, const float *u, float *h)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256 gi = load_first(g + i, n - i), ui = load_first(u + i, n - i);
        store_first(h + i, _mm256_mul_ps(_mm256_mul_ps(gi, sigmoid8(gi)), ui), n - i);
    }
}

static float swiglu_backward(int64_t n, float weight, float *g, float *u, float *dh)
{
    const __m256 one = _mm256_set1_ps(1.0f), w = _mm256_set1_ps(weight);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i;
        __m256 gi = load_first(g + i, left), ui = load_first(u + i, left);
        __m256 d = load_first(dh + i, left);
        __m256 s = sigmoid8(gi), silu = _mm256_mul_ps(gi, s), h = _mm256_mul_ps(silu, ui);
        sum = _mm256_fmadd_ps(h, d, sum);
        d = _mm256_mul_ps(d, w);
        /* silu'(g) = s·(1 + g·(1 - s)) */
        __m256 slope = _mm256_mul_ps(s, _mm256_fmadd_ps(gi, _mm256_sub_ps(one, s), one));
        store_first(g + i, _mm256_mul_ps(_mm256_mul_ps(d, ui), slope), left);
        store_first(u + i, _mm256_mul_ps(d, silu), left);
        store_first(dh + i, _mm256_mul_ps(h, w), left);
    }
    return fold(sum);
}

static void axpy(int64_t n, float weight, const float *x, float *y)
{
    const __m256 w = _mm256_set1_ps(weight);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(w, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++) y[i] = fmaf(weight, x[i], y[i]);
}

/* `columns` vectors of eight columns, summed in registers over n rows from each of `streams` places,
 * `apart` rows apart. */
INLINE void add_rows_of(const int columns, const int streams, int64_t n, int64_t apart,
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
static void add_rows(int64_t n, const float *weights, const float *row, int64_t width, float *y)
{
    enum { STREAMS = 4, ROWS = 2 };
    int64_t length = n / (STREAMS * ROWS) * ROWS;
    for (int64_t i = 0; i < length; i += ROWS) {
        const float *w = weights + i, *at = row + i * width;
        int64_t j = 0;
        for (; j + 64 <= width; j += 64)
            add_rows_of(8, STREAMS, ROWS, length, w, at + j, width, y + j);
        for (; j + 8 <= width; j += 8)
            add_rows_of(1, STREAMS, ROWS, length, w, at + j, width, y + j);
        for (; j < width; j++)
            for (int64_t r = 0; r < STREAMS * ROWS; r++) {
                int64_t k = r / ROWS * length + r % ROWS;
                y[j] = fmaf(w[k], at[k * width + j], y[j]);
            }
    }
    for (int64_t i = length * STREAMS; i < n; i++) axpy(width, weights[i], row + i * width, y);
}

static void rms_norm(int64_t n, const float *x, const float *weight, float eps, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        __m256 xi = load_first(x + i, n - i);
        sum = _mm256_fmadd_ps(xi, xi, sum);
    }
    const __m256 scale = _mm256_set1_ps(1.0f / sqrtf(fold(sum) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 8) {
        __m256 xi = _mm256_mul_ps(load_first(x + i, n - i), scale);
        store_first(y + i, _mm256_mul_ps(load_first(weight + i, n - i), xi), n - i);
    }
}

static float softmax_part(int64_t n, float *x, float *max, float *sum)
{
    float largest = *max;
    int64_t i = 0;
    if (n >= 8) {
        __m256 m = _mm256_set1_ps(largest);
        for (; i + 8 <= n; i += 8) m = _mm256_max_ps(_mm256_loadu_ps(x + i), m);
        float lane[8];
        _mm256_storeu_ps(lane, m);
        for (int j = 0; j < 8; j++) largest = lane[j] > largest ? lane[j] : largest;
    }
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    float factor = *max == largest ? 1.0f : expf(*max - largest);
    const __m256 shift = _mm256_set1_ps(largest);
    __m256 part = _mm256_setzero_ps();
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), shift));
        _mm256_storeu_ps(x + i, e);
        part = _mm256_add_ps(part, e);
    }
    float rest = 0.0f;
    for (; i < n; i++) {
        x[i] = expf(x[i] - largest);
        rest += x[i];
    }
    *sum = *sum * factor + (fold(part) + rest);
    *max = largest;
    return factor;
}

static bool softmax(int64_t n, float *x)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
        if (x[i] > max) max = x[i];
    }
    const __m256 shift = _mm256_set1_ps(max);
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i < 8 ? n - i : 8;
        __m256 e = exp8(_mm256_sub_ps(load_first(x + i, left), shift));
        store_first(x + i, e, left);
        for (int64_t j = i; j < i + left; j++) sum += x[j];
    }
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
    return true;
}

/* ---- what the machine can do --------------------------------------------------------------- */

static double probe_fma(int64_t rounds, float *sink)
{
    enum { CHAINS = 12 };
    __m256 c[CHAINS];
    UNROLL
    for (int i = 0; i < CHAINS; i++) c[i] = _mm256_set1_ps(1.0f + (float)i);
    const __m256 a = _mm256_set1_ps(0.9999f), b = _mm256_set1_ps(0.0001f);
    for (int64_t r = 0; r < rounds; r++) UNROLL
    for (int i = 0; i < CHAINS; i++) c[i] = _mm256_fmadd_ps(c[i], a, b);
    __m256 sum = c[0];
    UNROLL
    for (int i = 1; i < CHAINS; i++) sum = _mm256_add_ps(sum, c[i]);
    *sink = _mm_cvtss_f32(_mm256_castps256_ps128(sum));
    return (double)rounds * CHAINS * 8 * 2;
}

/* Four streams, as a tile of weight rows is read: one alone does not keep memory busy. */
static float probe_read(int64_t n, const float *x)
{
    enum { AHEAD = 128 };
    const int64_t quarter = n / 4;
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
    for (int64_t i = 0; i + 16 <= quarter; i += 16) {
        UNROLL
        for (int q = 0; q < 4; q++) {
            const float *at = x + q * quarter + i;
            _mm_prefetch((const char *)(at + AHEAD), _MM_HINT_T0);
            s[q] = _mm256_add_ps(s[q], _mm256_loadu_ps(at));
            s[q] = _mm256_add_ps(s[q], _mm256_loadu_ps(at + 8));
        }
    }
    return fold(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

const kernels kernels_avx2 = {
    .name = "avx2",
    .tile_m = TILE_M,
    .tile_n = TILE_N,
    .few = FEW,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .tile = tile,
    .dtypes = {[DSMOE_F32] = {widen_f32, pack_f32, few_rows_f32},
               [DSMOE_F16] = {widen_f16, pack_f16, few_rows_f16},
               [DSMOE_BF16] = {widen_bf16, pack_bf16, few_rows_bf16}},
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .axpy = axpy,
    .add_rows = add_rows,
    .rms_norm = rms_norm,
    .softmax_part = softmax_part,
    .softmax = softmax,
    .probe_fma = probe_fma,
    .probe_read = probe_read,
};
