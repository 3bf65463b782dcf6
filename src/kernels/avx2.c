/* avx2.c - kernels for AVX2 and FMA: 16 registers of 8 floats.
 *
 * Tile 6×16: 12 sums, 2 registers of b, 1 broadcast a: 8 loads for 12 multiply-adds, which keeps
 * two of them a cycle busy behind a latency of 4 as long as the loads hit the first-level cache. */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { TILE_M = 6, TILE_N = 16, FEW = 6 };

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

/* Four columns of eight rows, transposed: column[k] holds element k of each row. Loading rows that
 * lie four apart into the halves of a register leaves only shuffles within 128 bits. */
INLINE void load_transposed(__m256 column[4], const float *const row[8])
{
    __m256 r[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[i])),
                                    _mm_loadu_ps(row[i + 4]), 1);
    __m256 low01 = _mm256_unpacklo_ps(r[0], r[1]), high01 = _mm256_unpackhi_ps(r[0], r[1]);
    __m256 low23 = _mm256_unpacklo_ps(r[2], r[3]), high23 = _mm256_unpackhi_ps(r[2], r[3]);
    column[0] = _mm256_shuffle_ps(low01, low23, 0x44);
    column[1] = _mm256_shuffle_ps(low01, low23, 0xee);
    column[2] = _mm256_shuffle_ps(high01, high23, 0x44);
    column[3] = _mm256_shuffle_ps(high01, high23, 0xee);
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

/* `count` rows from the i-th on into columns [0, 8) of a panel `group` wide. Eight floats are
 * stored for each k even where the group is narrower: the next k overwrites what is too much. */
INLINE void pack_eight(float *panel, rows src, int64_t i, int count, int64_t width, int group)
{
    const float *row[8]; /* missing rows repeat the first; what they leave is overwritten */
    for (int r = 0; r < 8; r++) row[r] = rows_at(src, i + (r < count ? r : 0));
    int64_t k = 0;
    for (; k + 4 <= width; k += 4) {
        const float *at[8];
        __m256 column[4];
        UNROLL
        for (int r = 0; r < 8; r++) at[r] = row[r] + k;
        load_transposed(column, at);
        UNROLL
        for (int q = 0; q < 4; q++) _mm256_storeu_ps(panel + (k + q) * group, column[q]);
    }
    for (; k < width; k++)
        for (int r = 0; r < count; r++) panel[k * group + r] = row[r][k];
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
        for (int at = 0; at < count; at += 8)
            pack_eight(panel + at, src, i + at, count - at < 8 ? count - at : 8, width, group);
        if (count < group) clear_columns(panel, width, group, count);
    }
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
    const float *next = ahead.at;
    for (int asked = 1; k > 0; k -= part, asked++) {
        _mm_prefetch((const char *)next, _MM_HINT_T1);
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

/* m rows of x against n rows of w, `stride` apart. */
INLINE void few_rows_tile(const int m, const int n, const float *x, const float *w, int64_t stride,
                          int64_t k, float *y, int64_t ldy, int64_t y_step)
{
    enum { AHEAD = 8 * CACHE_LINE };
    __m256 sum[12];
    UNROLL
    for (int i = 0; i < m * n; i++) sum[i] = _mm256_setzero_ps();
    for (; k >= LANES; k -= LANES, x += m * LANES, w += LANES) {
        UNROLL
        for (int j = 0; j < n; j++) {
            _mm_prefetch((const char *)(w + j * stride + AHEAD), _MM_HINT_T0);
            __m256 wj = _mm256_loadu_ps(w + j * stride);
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i * n + j] =
                    _mm256_fmadd_ps(_mm256_loadu_ps(x + i * LANES), wj, sum[i * n + j]);
        }
    }
    if (k > 0) {
        UNROLL
        for (int j = 0; j < n; j++) {
            __m256 wj = _mm256_maskload_ps(w + j * stride, first_lanes(k));
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
INLINE void few_rows_of(const int m, const int streams, const float *x, rows w, int64_t n,
                        int64_t k, float *y, int64_t ldy)
{
    int64_t length = n / streams;
    for (int64_t j = 0; j < length; j++)
        few_rows_tile(m, streams, x, rows_at(w, j), length * w.stride, k, y + j, ldy, length);
    for (int64_t j = length * streams; j < n; j++)
        few_rows_tile(m, 1, x, rows_at(w, j), 0, k, y + j, ldy, 0);
}

static void few_rows(int m, const float *x, rows w, int64_t n, int64_t k, float *y, int64_t ldy)
{
    switch (m) {
    case 1: few_rows_of(1, 4, x, w, n, k, y, ldy); break;
    case 2: few_rows_of(2, 4, x, w, n, k, y, ldy); break;
    case 3: few_rows_of(3, 4, x, w, n, k, y, ldy); break;
    case 4: few_rows_of(4, 3, x, w, n, k, y, ldy); break;
    case 5: few_rows_of(5, 2, x, w, n, k, y, ldy); break;
    case 6: few_rows_of(6, 2, x, w, n, k, y, ldy); break;
    default: break; /* no rows */
    }
}

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
    .few_rows = few_rows,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .axpy = axpy,
    .softmax = softmax,
    .probe_fma = probe_fma,
    .probe_read = probe_read,
};
