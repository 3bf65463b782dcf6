/* avx2.c - kernels for AVX2, FMA and F16C: 16 registers of 8 floats.
 *
 * The tile is 6×16: 12 registers of sums, 2 of b and 1 of a broadcast a. That is 8 loads for 12
 * multiply-adds, enough for two multiply-adds a cycle with a latency of 4, as long as the loads hit the
 * L1 cache. */
#include "kernels/avx2.h"

#include <string.h>

#include "kernels/avx2_blocks.h"

enum {
    TILE_M = 6,
    TILE_N = 16,
    FEW = 6,
};

/* ---- packing ------------------------------------------------------------------------------- */

/* Transposes the first four columns of eight rows: column[k] becomes element k of each row. r[i] holds row i
 * in its lower and row i + 4 in its upper half, so that only shuffles within 128 bits are needed. */
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

/* Loads eight columns of eight rows of any plain type, as float32 and transposed. */
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

/* Loads eight numbers as float32. */
INLINE __m256 load_eight(const dsmoe_dtype type, const void *at)
{
    if (type == DSMOE_F32) return _mm256_loadu_ps(at);
    __m128i half = _mm_loadu_si128(at);
    if (type == DSMOE_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Loads n < 8 numbers and pads with zeros. Bytes after the n may be outside of the mapped file. */
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

/* Packs `count` rows into columns [0, 8) of a panel that is `group` wide. Eight floats are stored for each k
 * even if the group is narrower; the next k overwrites the surplus. Missing rows must be copies of the
 * first. */
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

/* Writes zeros to the columns of a panel that have no row. */
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

/* Computes the first `height` rows of a tile and stores m of them. */
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

/* The last tile of an expert's rows is rarely full. A tile of fewer rows saves the work for missing rows. */
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

/* Products of m rows of x with n rows of w, which are `stride` bytes apart. */
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

/* Takes rows 0, n/streams, 2·n/streams … of w together, then the rows after them. So memory is read in a few
 * long streams, each from its beginning to its end, which is fastest. */
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

/* ---- panels -------------------------------------------------------------------------------- */

/* Products of m rows of x with n panels. `count` columns, beginning with column `first`, are added to y. */
INLINE void add_panels_tile(const dsmoe_dtype type, const int m, const int n, const float *x,
                            int64_t ldx, int64_t k, const unsigned char *w, int64_t first,
                            int64_t count, float *y, int64_t ldy)
{
    const int64_t size = dtype_bytes(type, k * PANEL_COLUMNS);
    __m256 sum[12];
    UNROLL
    for (int i = 0; i < 2 * m * n; i++) sum[i] = _mm256_setzero_ps();
    for (int64_t r = 0; r < k; r++) {
        UNROLL
        for (int j = 0; j < 2 * n; j++) {
            const unsigned char *at =
                w + j / 2 * size + dtype_bytes(type, r * PANEL_COLUMNS + j % 2 * LANES);
            __m256 wj = load_eight(type, at);
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i * 2 * n + j] =
                    _mm256_fmadd_ps(_mm256_set1_ps(x[i * ldx + r]), wj, sum[i * 2 * n + j]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++) {
        float some[PANEL_COLUMNS];
        UNROLL
        for (int j = 0; j < 2 * n; j++) {
            float *at = y + i * ldy + j * LANES;
            if (count == n * PANEL_COLUMNS)
                _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), sum[i * 2 * n + j]));
            else
                _mm256_storeu_ps(some + j % 2 * LANES, sum[i * 2 * n + j]);
        }
        for (int64_t j = 0; count < n * PANEL_COLUMNS && j < count; j++)
            y[i * ldy + j] += some[first + j];
    }
}

/* add_panels for m rows together. */
INLINE void add_panels_of(const dsmoe_dtype type, const int m, const float *x, int64_t ldx,
                          int64_t k, const unsigned char *w, int64_t column, int64_t n, float *y,
                          int64_t ldy)
{
    const int64_t size = dtype_bytes(type, k * PANEL_COLUMNS);
    w += column / PANEL_COLUMNS * size;
    for (int64_t first = column % PANEL_COLUMNS, count; n > 0; n -= count, y += count, first = 0) {
        count = n < PANEL_COLUMNS - first ? n : PANEL_COLUMNS - first;
        if (n >= 2 * PANEL_COLUMNS && first == 0) {
            count = 2 * PANEL_COLUMNS;
            add_panels_tile(type, m, 2, x, ldx, k, w, 0, count, y, ldy);
        } else {
            add_panels_tile(type, m, 1, x, ldx, k, w, first, count, y, ldy);
        }
        w += (first + count + PANEL_COLUMNS - 1) / PANEL_COLUMNS * size;
    }
}

INLINE void add_panels(const dsmoe_dtype type, int64_t m, const float *x, int64_t ldx, int64_t k,
                       const void *w, int64_t column, int64_t n, float *y, int64_t ldy)
{
    for (; m >= 3; m -= 3, x += 3 * ldx, y += 3 * ldy)
        add_panels_of(type, 3, x, ldx, k, w, column, n, y, ldy);
    for (; m > 0; m--, x += ldx, y += ldy) add_panels_of(type, 1, x, ldx, k, w, column, n, y, ldy);
}

static void add_panels_f32(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                           int64_t column, int64_t n, float *y, int64_t ldy)
{
    add_panels(DSMOE_F32, m, x, ldx, k, w, column, n, y, ldy);
}

static void add_panels_f16(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                           int64_t column, int64_t n, float *y, int64_t ldy)
{
    add_panels(DSMOE_F16, m, x, ldx, k, w, column, n, y, ldy);
}

static void add_panels_bf16(int64_t m, const float *x, int64_t ldx, int64_t k, const void *w,
                            int64_t column, int64_t n, float *y, int64_t ldy)
{
    add_panels(DSMOE_BF16, m, x, ldx, k, w, column, n, y, ldy);
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

/* ---- measuring the machine ----------------------------------------------------------------- */

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

/* Reads four streams, as few_rows does: one stream alone does not keep memory busy. */
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
    .dtypes = {[DSMOE_F32] = {.widen = widen_f32,
                              .pack = pack_f32,
                              .few_rows = few_rows_f32,
                              .add_panels = add_panels_f32},
               [DSMOE_F16] = {.widen = widen_f16,
                              .pack = pack_f16,
                              .few_rows = few_rows_f16,
                              .add_panels = add_panels_f16},
               [DSMOE_BF16] = {.widen = widen_bf16,
                               .pack = pack_bf16,
                               .few_rows = few_rows_bf16,
                               .add_panels = add_panels_bf16},
               [DSMOE_Q8_0] = {.widen = widen_q8_0, .blocks = &blocks_avx2[DSMOE_Q8_0]},
               [DSMOE_Q4_0] = {.widen = widen_q4_0, .blocks = &blocks_avx2[DSMOE_Q4_0]},
               [DSMOE_Q5_0] = {.widen = widen_q5_0, .blocks = &blocks_avx2[DSMOE_Q5_0]},
               [DSMOE_Q4_K] = {.widen = widen_q4_k, .blocks = &blocks_avx2[DSMOE_Q4_K]},
               [DSMOE_Q5_K] = {.widen = widen_q5_k, .blocks = &blocks_avx2[DSMOE_Q5_K]},
               [DSMOE_Q6_K] = {.widen = widen_q6_k, .blocks = &blocks_avx2[DSMOE_Q6_K]},
               [DSMOE_Q5_1] = {.widen = widen_q5_1, .blocks = &blocks_avx2[DSMOE_Q5_1]}},
    .quantize = quantize_avx2,
    .quantize_fine = quantize_fine_avx2,
    .caches = caches_avx2,
    .latents = latents_avx2,
    .swiglu = swiglu_avx2,
    .swiglu_backward = swiglu_backward_avx2,
    .axpy = axpy_avx2,
    .rms_norm = rms_norm_avx2,
    .softmax_part = softmax_part_avx2,
    .softmax = softmax_avx2,
    .rms_norm_backward = rms_norm_backward_avx2,
    .softmax_backward = softmax_backward_avx2,
    .scale = scale_avx2,
    .sum_squares = sum_squares_avx2,
    .adamw = adamw_avx2,
    .probe_fma = probe_fma,
    .probe_read = probe_read,
};
