/* avx2.c - kernels for AVX2 and FMA: 16 registers of 8 floats.
 *
 * Dot tile 3×4: 12 sums, 3 registers of x, 1 of w: 7 loads for 12 multiply-adds. Outer tile 6×16: 12
 * sums, 2 registers of b, 1 broadcast a: 8 loads for 12. Both keep two multiply-adds a cycle busy
 * behind a latency of 4-5 as long as the loads hit the first-level cache. */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { LANES = 8, DOT_M = 3, DOT_N = 4, OUTER_M = 6, OUTER_N = 16 };

#define INLINE static inline __attribute__((always_inline))

/* Sums live in registers only if every loop over them is unrolled before registers are given out. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The first n (< 8) lanes. */
INLINE __m256i first_lanes(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* Four sums of eight lanes each, folded in one fixed order. Unpacking leaves the multiply-add units
 * free where a horizontal add would not. */
INLINE __m128 fold4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

/* y[0..n) = (accumulate ? y : 0) + v */
INLINE void add_first(float *y, __m128 v, bool accumulate, int n)
{
    if (n == 4) {
        if (accumulate) v = _mm_add_ps(_mm_loadu_ps(y), v);
        _mm_storeu_ps(y, v);
        return;
    }
    float t[4];
    _mm_storeu_ps(t, v);
    for (int i = 0; i < n; i++) y[i] = accumulate ? y[i] + t[i] : t[i];
}

/* ---- dot tile ------------------------------------------------------------------------------ */

/* One group: row after row of a step, so that stores run through the panel in order. A row beyond the
 * last stands for zeros. */
INLINE void dot_pack_group(float *panel, rows src, int64_t i, int64_t n, const int group,
                           int64_t k0, int64_t k1)
{
    const float *row[DOT_N];
    for (int r = 0; r < group; r++) row[r] = rows_at(src, i + r < n ? i + r : i) + k0;
    int64_t full = (k1 - k0) / LANES, tail = (k1 - k0) % LANES, present = n - i;
    for (int64_t s = 0; s < full; s++, panel += group * LANES) {
        UNROLL
        for (int r = 0; r < group; r++)
            _mm256_storeu_ps(panel + r * LANES, _mm256_loadu_ps(row[r] + s * LANES));
    }
    if (tail) {
        for (int r = 0; r < group; r++)
            _mm256_storeu_ps(panel + r * LANES,
                             _mm256_maskload_ps(row[r] + full * LANES, first_lanes(tail)));
        panel += group * LANES;
    }
    int64_t steps = full + (tail != 0);
    for (int64_t r = present; r < group; r++)
        for (int64_t s = 1; s <= steps; s++)
            _mm256_storeu_ps(panel - s * group * LANES + r * LANES, _mm256_setzero_ps());
}

static void dot_pack(float *panel, rows src, int64_t n, int group, int64_t k0, int64_t k1)
{
    int64_t steps = (k1 - k0 + LANES - 1) / LANES;
    for (int64_t i = 0; i < n; i += group, panel += steps * group * LANES) {
        if (group == DOT_N) dot_pack_group(panel, src, i, n, DOT_N, k0, k1);
        else dot_pack_group(panel, src, i, n, DOT_M, k0, k1);
    }
}

static void dot_tile(int64_t steps, const float *x, const float *w, float *y, int64_t ldy,
                     bool accumulate, int m, int n, const float *ahead)
{
    __m256 c[DOT_M][DOT_N];
    UNROLL
    for (int i = 0; i < DOT_M; i++)
        UNROLL
        for (int j = 0; j < DOT_N; j++) c[i][j] = _mm256_setzero_ps();

    int64_t part = (steps + AHEAD_LINES - 1) / AHEAD_LINES;
    for (; steps > 0; steps -= part, ahead += AHEAD_LINE) {
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        for (int64_t s = part < steps ? part : steps; s > 0; s--) {
            __m256 x0 = _mm256_loadu_ps(x), x1 = _mm256_loadu_ps(x + LANES),
                   x2 = _mm256_loadu_ps(x + 2 * LANES);
            UNROLL
            for (int j = 0; j < DOT_N; j++) {
                __m256 wj = _mm256_loadu_ps(w + j * LANES);
                c[0][j] = _mm256_fmadd_ps(x0, wj, c[0][j]);
                c[1][j] = _mm256_fmadd_ps(x1, wj, c[1][j]);
                c[2][j] = _mm256_fmadd_ps(x2, wj, c[2][j]);
            }
            x += DOT_M * LANES;
            w += DOT_N * LANES;
        }
    }

    UNROLL
    for (int i = 0; i < DOT_M; i++)
        if (i < m) add_first(y + i * ldy, fold4(c[i][0], c[i][1], c[i][2], c[i][3]), accumulate, n);
}

/* m rows of x against 4 rows of w at once, or fewer at the end: four streams from memory. */
INLINE void dot_direct_rows(rows x, const int m, rows w, int64_t n, int64_t k, int64_t block,
                            float *y, int64_t ldy)
{
    enum { AHEAD = 128 }; /* floats: far enough for memory, near enough to stay in the cache */
    const float *xi[DOT_M];
    for (int i = 0; i < m; i++) xi[i] = rows_at(x, i);

    for (int64_t j = 0; j < n; j += DOT_N) {
        int count = n - j < DOT_N ? (int)(n - j) : DOT_N;
        const float *wj[DOT_N];
        for (int q = 0; q < DOT_N; q++) wj[q] = rows_at(w, j + (q < count ? q : 0));
        for (int64_t k0 = 0; k0 < k; k0 += block) {
            int64_t k1 = k - k0 < block ? k : k0 + block, full = k0 + (k1 - k0) / LANES * LANES;
            __m256 c[DOT_M][DOT_N];
            UNROLL
            for (int i = 0; i < m; i++)
                UNROLL
                for (int q = 0; q < DOT_N; q++) c[i][q] = _mm256_setzero_ps();
            for (int64_t s = k0; s < full; s += LANES) {
                UNROLL
                for (int q = 0; q < DOT_N; q++) {
                    _mm_prefetch((const char *)(wj[q] + s + AHEAD), _MM_HINT_T0);
                    __m256 v = _mm256_loadu_ps(wj[q] + s);
                    UNROLL
                    for (int i = 0; i < m; i++)
                        c[i][q] = _mm256_fmadd_ps(_mm256_loadu_ps(xi[i] + s), v, c[i][q]);
                }
            }
            if (full < k1) {
                __m256i mask = first_lanes(k1 - full);
                UNROLL
                for (int q = 0; q < DOT_N; q++) {
                    __m256 v = _mm256_maskload_ps(wj[q] + full, mask);
                    UNROLL
                    for (int i = 0; i < m; i++)
                        c[i][q] = _mm256_fmadd_ps(_mm256_maskload_ps(xi[i] + full, mask), v, c[i][q]);
                }
            }
            UNROLL
            for (int i = 0; i < m; i++)
                add_first(y + i * ldy + j, fold4(c[i][0], c[i][1], c[i][2], c[i][3]), k0 > 0, count);
        }
    }
}

static void dot_direct(rows x, int m, rows w, int64_t n, int64_t k, int64_t block, float *y,
                       int64_t ldy)
{
    if (m == 1) dot_direct_rows(x, 1, w, n, k, block, y, ldy);
    else if (m == 2) dot_direct_rows(x, 2, w, n, k, block, y, ldy);
    else if (m == 3) dot_direct_rows(x, 3, w, n, k, block, y, ldy);
}

/* ---- outer tile ---------------------------------------------------------------------------- */

static void outer_pack(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t j = 0; j < width; j += group, panel += n * group) {
        int count = width - j < group ? (int)(width - j) : group;
        if (count == OUTER_N && group == OUTER_N) {
            for (int64_t k = 0; k < n; k++) {
                const float *row = rows_at(src, k) + j;
                _mm256_storeu_ps(panel + k * OUTER_N, _mm256_loadu_ps(row));
                _mm256_storeu_ps(panel + k * OUTER_N + 8, _mm256_loadu_ps(row + 8));
            }
            continue;
        }
        for (int64_t k = 0; k < n; k++) {
            const float *row = rows_at(src, k) + j;
            for (int r = 0; r < group; r++) panel[k * group + r] = r < count ? row[r] : 0.0f;
        }
    }
}

static void outer_pack_transposed(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t i = 0; i < n; i += group, panel += width * group)
        for (int r = 0; r < group; r++) {
            const float *row = i + r < n ? rows_at(src, i + r) : NULL;
            for (int64_t k = 0; k < width; k++) panel[k * group + r] = row ? row[k] : 0.0f;
        }
}

static void outer_tile(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                       bool accumulate, int m, int n, const float *ahead)
{
    __m256 sum[OUTER_M][2];
    UNROLL
    for (int i = 0; i < OUTER_M; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();

    for (int i = 0; i < m; i++) _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);

    int64_t part = (k + AHEAD_LINES - 1) / AHEAD_LINES;
    for (; k > 0; k -= part, ahead += AHEAD_LINE) {
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        for (int64_t s = part < k ? part : k; s > 0; s--, a += OUTER_M, b += OUTER_N) {
            __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
            UNROLL
            for (int i = 0; i < OUTER_M; i++) {
                __m256 ai = _mm256_broadcast_ss(a + i);
                sum[i][0] = _mm256_fmadd_ps(ai, b0, sum[i][0]);
                sum[i][1] = _mm256_fmadd_ps(ai, b1, sum[i][1]);
            }
        }
    }

    if (m == OUTER_M && n == OUTER_N) {
        UNROLL
        for (int i = 0; i < OUTER_M; i++, c += ldc) {
            if (accumulate) {
                sum[i][0] = _mm256_add_ps(_mm256_loadu_ps(c), sum[i][0]);
                sum[i][1] = _mm256_add_ps(_mm256_loadu_ps(c + 8), sum[i][1]);
            }
            _mm256_storeu_ps(c, sum[i][0]);
            _mm256_storeu_ps(c + 8, sum[i][1]);
        }
        return;
    }
    float edge[OUTER_M][OUTER_N];
    UNROLL
    for (int i = 0; i < OUTER_M; i++) {
        _mm256_storeu_ps(edge[i], sum[i][0]);
        _mm256_storeu_ps(edge[i] + 8, sum[i][1]);
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            c[i * ldc + j] = accumulate ? c[i * ldc + j] + edge[i][j] : edge[i][j];
}

/* ---- element by element -------------------------------------------------------------------- */

/* e^x to about one unit in the last place: x = n·ln2 + r, |r| ≤ ln2/2, and a polynomial in r. The ends
 * are clamped so that 2^n stays a normal number; NaN stays NaN. */
INLINE __m256 exp8(__m256 x)
{
    const __m256 log2e = _mm256_set1_ps(1.44269504088896341f);
    const __m256 ln2_high = _mm256_set1_ps(0.693359375f);
    const __m256 ln2_low = _mm256_set1_ps(-2.12194440e-4f);
    x = _mm256_max_ps(_mm256_set1_ps(-87.3f), x); /* the second operand survives a NaN */
    x = _mm256_min_ps(_mm256_set1_ps(88.3f), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
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

static void swiglu(int64_t n, const float *g, const float *u, float *h)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256i mask = first_lanes(n - i < 8 ? n - i : 8);
        __m256 gi = _mm256_maskload_ps(g + i, mask), ui = _mm256_maskload_ps(u + i, mask);
        _mm256_maskstore_ps(h + i, mask, _mm256_mul_ps(_mm256_mul_ps(gi, sigmoid8(gi)), ui));
    }
}

static float swiglu_backward(int64_t n, float weight, float *g, float *u, float *dh)
{
    const __m256 one = _mm256_set1_ps(1.0f), w = _mm256_set1_ps(weight);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        __m256i mask = first_lanes(n - i < 8 ? n - i : 8);
        __m256 gi = _mm256_maskload_ps(g + i, mask), ui = _mm256_maskload_ps(u + i, mask);
        __m256 d = _mm256_maskload_ps(dh + i, mask);
        __m256 s = sigmoid8(gi), silu = _mm256_mul_ps(gi, s), h = _mm256_mul_ps(silu, ui);
        sum = _mm256_fmadd_ps(h, d, sum);
        d = _mm256_mul_ps(d, w);
        /* silu'(g) = s·(1 + g·(1 - s)) */
        __m256 slope = _mm256_mul_ps(s, _mm256_fmadd_ps(gi, _mm256_sub_ps(one, s), one));
        _mm256_maskstore_ps(g + i, mask, _mm256_mul_ps(_mm256_mul_ps(d, ui), slope));
        _mm256_maskstore_ps(u + i, mask, _mm256_mul_ps(d, silu));
        _mm256_maskstore_ps(dh + i, mask, _mm256_mul_ps(h, w));
    }
    return _mm_cvtss_f32(fold4(sum, sum, sum, sum));
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
        __m256i mask = first_lanes(left);
        __m256 e = exp8(_mm256_sub_ps(_mm256_maskload_ps(x + i, mask), shift));
        _mm256_maskstore_ps(x + i, mask, e);
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
    for (int64_t r = 0; r < rounds; r++)
        UNROLL
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
    __m128 sum = fold4(s[0], s[1], s[2], s[3]);
    return _mm_cvtss_f32(_mm_hadd_ps(_mm_hadd_ps(sum, sum), sum));
}

const kernels kernels_avx2 = {
    .name = "avx2",
    .lanes = LANES,
    .dot_m = DOT_M,
    .dot_n = DOT_N,
    .dot_k = 512,
    .dot_pack = dot_pack,
    .dot_tile = dot_tile,
    .dot_direct = dot_direct,
    .outer_m = OUTER_M,
    .outer_n = OUTER_N,
    .outer_pack = outer_pack,
    .outer_pack_transposed = outer_pack_transposed,
    .outer_tile = outer_tile,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .axpy = axpy,
    .softmax = softmax,
    .probe_fma = probe_fma,
    .probe_read = probe_read,
};
