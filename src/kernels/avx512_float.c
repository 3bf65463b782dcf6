/* avx512_float.c - products with float weights: 32 registers of 16 floats.
 *
 * The tile is 14×32: 28 registers of sums, 2 of b and 1 of a broadcast a. That is 16 loads for 28
 * multiply-adds. Edges are masked: nothing outside of an operand is read, and nothing outside of a panel is
 * written. */
#include "kernels/avx512.h"

enum {
    TILE_M = AVX512_TILE_M,
    TILE_N = AVX512_TILE_N,
    FEW = AVX512_FEW,
    STREAMS = 4, /* rows of w that few_rows reads at once */
    WIDE = 16,   /* floats in a register */
};

/* A mask of the first n lanes; none if n is below 1, all if n is 16 or more. */
INLINE __mmask16 lanes(int64_t n)
{
    return n >= WIDE ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
}

/* ---- 16 numbers of any type -------------------------------------------------------------------- */

INLINE __m512 widen_halves(const dsmoe_dtype type, __m256i halves)
{
    if (type == DSMOE_F16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

INLINE __m512 load_wide(const dsmoe_dtype type, const void *at)
{
    if (type == DSMOE_F32) return _mm512_loadu_ps(at);
    return widen_halves(type, _mm256_loadu_si256(at));
}

/* Loads n ≤ 16 numbers and pads with zeros. Bytes after the n may be outside of the mapped file. */
INLINE __m512 load_some(const dsmoe_dtype type, const void *at, int64_t n)
{
    if (type == DSMOE_F32) return _mm512_maskz_loadu_ps(lanes(n), at);
    return widen_halves(type, _mm256_maskz_loadu_epi16(lanes(n), at));
}

/* ---- packing ----------------------------------------------------------------------------------- */

void pack_avx512(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t j = 0; j < width; j += group, panel += n * group)
        for (int at = 0; at < group; at += WIDE) {
            const __mmask16 there = lanes(width - j - at), room = lanes(group - at);
            for (int64_t k = 0; k < n; k++) {
                const float *row = rows_at(src, k) + j;
                _mm512_mask_storeu_ps(panel + k * group + at, room,
                                      there ? _mm512_maskz_loadu_ps(there, row + at)
                                            : _mm512_setzero_ps());
            }
        }
}

/* Loads 16 bytes of each of rows i, i + 4, i + 8, i + 12. */
INLINE __m512i four_rows(const unsigned char *const row[WIDE], const int i, int64_t offset)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[i] + offset)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row[i + 4] + offset)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row[i + 8] + offset)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row[i + 12] + offset)), 3);
}

/* Transposes four columns of 16 rows. r[i] has rows i, i + 4, i + 8 and i + 12 in its quarters, so that only
 * shuffles within 128 bits are needed. */
INLINE void transpose(__m512 column[4], const __m512 r[4])
{
    __m512 low01 = _mm512_unpacklo_ps(r[0], r[1]), high01 = _mm512_unpackhi_ps(r[0], r[1]);
    __m512 low23 = _mm512_unpacklo_ps(r[2], r[3]), high23 = _mm512_unpackhi_ps(r[2], r[3]);
    column[0] = _mm512_shuffle_ps(low01, low23, 0x44);
    column[1] = _mm512_shuffle_ps(low01, low23, 0xee);
    column[2] = _mm512_shuffle_ps(high01, high23, 0x44);
    column[3] = _mm512_shuffle_ps(high01, high23, 0xee);
}

/* Loads eight columns of 16 rows, as float32 and transposed. */
INLINE void load_transposed(__m512 column[8], const dsmoe_dtype type,
                            const unsigned char *const row[WIDE], int64_t offset)
{
    __m512 left[4], right[4]; /* columns 0-3 and 4-7 */
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i v = four_rows(row, i, offset);
        if (type == DSMOE_F32) {
            left[i] = _mm512_castsi512_ps(v);
            right[i] = _mm512_castsi512_ps(four_rows(row, i, offset + 16));
        } else if (type == DSMOE_BF16) { /* the upper half of a float32 */
            const __m512i zero = _mm512_setzero_si512();
            left[i] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, v));
            right[i] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, v));
        } else {
            __m512 a = _mm512_cvtph_ps(_mm512_castsi512_si256(v));
            __m512 b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1));
            left[i] = _mm512_shuffle_f32x4(a, b, 0x88);
            right[i] = _mm512_shuffle_f32x4(a, b, 0xdd);
        }
    }
    transpose(column, left);
    transpose(column + 4, right);
}

/* Packs the first `count` of 16 rows into the columns of a panel that are in the mask `room`. All 16 must
 * be readable. */
INLINE void pack_rows(float *panel, const dsmoe_dtype type, const unsigned char *const row[WIDE],
                      int count, int64_t width, int group, __mmask16 room)
{
    const __mmask16 there = lanes(count);
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) {
        __m512 column[8];
        load_transposed(column, type, row, dtype_bytes(type, k));
        UNROLL
        for (int q = 0; q < 8; q++)
            _mm512_mask_storeu_ps(panel + (k + q) * group, room,
                                  _mm512_maskz_mov_ps(there, column[q]));
    }
    if (k == width) return;
    for (int r = 0; r < WIDE; r++) {
        float rest[WIDE];
        if (!(room >> r & 1)) break;
        _mm512_storeu_ps(rest, load_some(type, row[r] + dtype_bytes(type, k), width - k));
        for (int64_t q = k; q < width; q++) panel[q * group + r] = r < count ? rest[q - k] : 0.0f;
    }
}

/* Missing rows are replaced by the first when reading, and by zeros in the panel. */
void pack_transposed_avx512(float *panel, rows src, int64_t n, int64_t width, int group)
{
    for (int64_t i = 0; i < n; i += group, panel += width * group)
        for (int at = 0; at < group; at += WIDE) {
            const unsigned char *row[WIDE];
            int64_t left = n - i - at;
            for (int r = 0; r < WIDE; r++)
                row[r] = (const unsigned char *)rows_at(
                    src, i + (r < left && at + r < group ? at + r : 0));
            pack_rows(panel + at, DSMOE_F32, row, left < WIDE ? (int)left : WIDE, width, group,
                      lanes(group - at));
        }
}

INLINE void pack_weights(const dsmoe_dtype type, float *panel, matrix w, int64_t column, int64_t n,
                         int64_t width, int group)
{
    for (int64_t i = 0; i < n; i += group, panel += width * group)
        for (int at = 0; at < group; at += WIDE) {
            const unsigned char *row[WIDE];
            int64_t left = n - i - at;
            for (int r = 0; r < WIDE; r++)
                row[r] = matrix_at(w, i + (r < left && at + r < group ? at + r : 0), 0) +
                         dtype_bytes(type, column);
            pack_rows(panel + at, type, row, left < WIDE ? (int)left : WIDE, width, group,
                      lanes(group - at));
        }
}

void pack_f32_avx512(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group)
{
    pack_weights(DSMOE_F32, panel, w, column, n, width, group);
}
void pack_f16_avx512(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group)
{
    pack_weights(DSMOE_F16, panel, w, column, n, width, group);
}
void pack_bf16_avx512(float *panel, matrix w, int64_t column, int64_t n, int64_t width, int group)
{
    pack_weights(DSMOE_BF16, panel, w, column, n, width, group);
}

/* ---- the tile ---------------------------------------------------------------------------------- */

INLINE void add_to(float *c, __mmask16 there, bool accumulate, __m512 sum)
{
    if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, c), sum);
    _mm512_mask_storeu_ps(c, there, sum);
}

/* Computes the first `height` rows and `wide` registers of columns of a tile. Stores m rows and n columns
 * of it. */
INLINE void tile_of(const int height, const int wide, int64_t k, const float *a, const float *b,
                    float *c, int64_t ldc, bool accumulate, int m, int n, patch ahead)
{
    __m512 sum[TILE_M][2];
    UNROLL
    for (int i = 0; i < height; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (int i = 0; i < m; i++)
        for (int j = 0; j < wide; j++)
            _mm_prefetch((const char *)(c + i * ldc + j * WIDE), _MM_HINT_T0);
    const int64_t part = (k + AHEAD_ROWS * AHEAD_LINES - 1) / (AHEAD_ROWS * AHEAD_LINES);
    const unsigned char *next = ahead.at;
    for (int asked = 1; k > 0; k -= part, asked++) {
        _mm_prefetch(next, _MM_HINT_T1);
        next = asked % AHEAD_ROWS ? next + ahead.stride : ahead.at + CACHE_LINE;
        NO_UNROLL
        for (int64_t s = part < k ? part : k; s > 0; s--, a += TILE_M, b += TILE_N) {
            __m512 b0 = _mm512_loadu_ps(b), b1 = wide > 1 ? _mm512_loadu_ps(b + WIDE) : b0;
            UNROLL
            for (int i = 0; i < height; i++) {
                __m512 ai = _mm512_set1_ps(a[i]);
                sum[i][0] = _mm512_fmadd_ps(ai, b0, sum[i][0]);
                if (wide > 1) sum[i][1] = _mm512_fmadd_ps(ai, b1, sum[i][1]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < height; i++) {
        if (i < m) add_to(c + i * ldc, lanes(n), accumulate, sum[i][0]);
        if (i < m && wide > 1) add_to(c + i * ldc + WIDE, lanes(n - WIDE), accumulate, sum[i][1]);
    }
}

/* Half of the columns of a tile: enough for low-rank additions, whose columns are the rank. */
static void tile_narrow(int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                        bool accumulate, int m, int n, patch ahead)
{
    if (m <= TILE_M / 2)
        tile_of(TILE_M / 2, 1, k, a, b, c, ldc, accumulate, m, n, ahead);
    else
        tile_of(TILE_M, 1, k, a, b, c, ldc, accumulate, m, n, ahead);
}

/* The last tile of an expert's rows is rarely full. A tile of fewer rows saves the work for missing rows. */
void tile_avx512(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool accumulate,
                 int m, int n, patch ahead)
{
    if (n <= WIDE) {
        tile_narrow(k, a, b, c, ldc, accumulate, m, n, ahead);
        return;
    }
    switch ((m + 1) / 2) {
    case 1: tile_of(2, 2, k, a, b, c, ldc, accumulate, m, n, ahead); break;
    case 2: tile_of(4, 2, k, a, b, c, ldc, accumulate, m, n, ahead); break;
    case 3: tile_of(6, 2, k, a, b, c, ldc, accumulate, m, n, ahead); break;
    case 4: tile_of(8, 2, k, a, b, c, ldc, accumulate, m, n, ahead); break;
    case 5: tile_of(10, 2, k, a, b, c, ldc, accumulate, m, n, ahead); break;
    case 6: tile_of(12, 2, k, a, b, c, ldc, accumulate, m, n, ahead); break;
    default: tile_of(TILE_M, 2, k, a, b, c, ldc, accumulate, m, n, ahead); break;
    }
}

/* ---- few rows ---------------------------------------------------------------------------------- */

/* 16 columns of row i of x, which is packed as [steps][m][LANES]. If not `both`, only LANES columns are
 * left. */
INLINE __m512 x_wide(const float *x, const int m, const int i, const bool both)
{
    __m256 low = _mm256_loadu_ps(x + i * LANES);
    if (!both) return _mm512_zextps256_ps512(low);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), _mm256_loadu_ps(x + (m + i) * LANES), 1);
}

INLINE void add_columns(const int m, const int n, const float *x, const bool both,
                        const __m512 w[STREAMS], __m512 *sum)
{
    UNROLL
    for (int i = 0; i < m; i++) {
        __m512 xi = x_wide(x, m, i, both);
        UNROLL
        for (int j = 0; j < n; j++) sum[i * n + j] = _mm512_fmadd_ps(xi, w[j], sum[i * n + j]);
    }
}

/* The sum of 16 lanes, in one fixed order. */
INLINE float fold_wide(__m512 v)
{
    return fold(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

/* Products of m rows of x with n rows of w, which are `stride` bytes apart. */
INLINE void few_rows_tile(const dsmoe_dtype type, const int m, const int n, const float *x,
                          const unsigned char *w, int64_t stride, int64_t k, float *y, int64_t ldy,
                          int64_t y_step)
{
    __m512 sum[FEW * STREAMS], wj[STREAMS];
    UNROLL
    for (int i = 0; i < m * n; i++) sum[i] = _mm512_setzero_ps();
    for (; k >= WIDE; k -= WIDE, w += dtype_bytes(type, WIDE), x += 2 * m * LANES) {
        UNROLL
        for (int j = 0; j < n; j++) {
            _mm_prefetch(w + j * stride + STREAM, _MM_HINT_T0);
            wj[j] = load_wide(type, w + j * stride);
        }
        add_columns(m, n, x, true, wj, sum);
    }
    if (k > 0) {
        UNROLL
        for (int j = 0; j < n; j++) wj[j] = load_some(type, w + j * stride, k);
        if (k > LANES)
            add_columns(m, n, x, true, wj, sum);
        else
            add_columns(m, n, x, false, wj, sum);
    }
    UNROLL
    for (int i = 0; i < m; i++) {
        UNROLL
        for (int j = 0; j < n; j++) y[i * ldy + j * y_step] = fold_wide(sum[i * n + j]);
    }
}

/* Takes rows 0, n/STREAMS, 2·n/STREAMS … of w together, then the rows after them. So memory is read in a few
 * long streams, each from its beginning to its end, which is fastest. */
INLINE void few_rows_of(const dsmoe_dtype type, const int m, const float *x, matrix w, int64_t n,
                        int64_t k, float *y, int64_t ldy)
{
    int64_t length = n / STREAMS;
    for (int64_t j = 0; j < length; j++)
        few_rows_tile(type, m, STREAMS, x, matrix_at(w, j, 0), length * w.stride, k, y + j, ldy,
                      length);
    for (int64_t j = length * STREAMS; j < n; j++)
        few_rows_tile(type, m, 1, x, matrix_at(w, j, 0), 0, k, y + j, ldy, 0);
}

INLINE void few_rows(const dsmoe_dtype type, int m, const float *x, matrix w, int64_t n, int64_t k,
                     float *y, int64_t ldy)
{
    switch (m) {
    case 1: few_rows_of(type, 1, x, w, n, k, y, ldy); break;
    case 2: few_rows_of(type, 2, x, w, n, k, y, ldy); break;
    case 3: few_rows_of(type, 3, x, w, n, k, y, ldy); break;
    case 4: few_rows_of(type, 4, x, w, n, k, y, ldy); break;
    case 5: few_rows_of(type, 5, x, w, n, k, y, ldy); break;
    case 6: few_rows_of(type, 6, x, w, n, k, y, ldy); break;
    default: break; /* no rows */
    }
}

void few_rows_f32_avx512(int m, const float *x, matrix w, int64_t n, int64_t k, float *y,
                         int64_t ldy)
{
    few_rows(DSMOE_F32, m, x, w, n, k, y, ldy);
}
void few_rows_f16_avx512(int m, const float *x, matrix w, int64_t n, int64_t k, float *y,
                         int64_t ldy)
{
    few_rows(DSMOE_F16, m, x, w, n, k, y, ldy);
}
void few_rows_bf16_avx512(int m, const float *x, matrix w, int64_t n, int64_t k, float *y,
                          int64_t ldy)
{
    few_rows(DSMOE_BF16, m, x, w, n, k, y, ldy);
}
