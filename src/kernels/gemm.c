/* gemm.c - how large products are cut into tiles. No instruction set is named here.
 *
 * What lives where while a product runs:
 *   registers     one tile of sums
 *   first cache   a packed block of weights (gemm_nt) or one panel of it (gemm_nn, gemm_tn)
 *   second cache  the packed rows for this stretch of the sum, streamed past the block
 *   memory        the weights, read once, asked for one block ahead
 * Packing costs one copy of each weight for every GEMM_ROWS rows and buys contiguous loads: rows of
 * 2048 floats lie 8 KiB apart, which a cache maps onto the same few sets. */
#include "kernels/gemm.h"

#include <string.h>

enum {
    NT_TILES = 3,   /* dot tiles across one packed block of w */
    NN_SUM = 256,   /* rows of w in one packed block */
    NN_WIDTH = 128, /* columns of it: AHEAD_LINES cache lines */
    TN_SUM = 192,   /* rows of a and b in one packed block: fewer passes over the result */
    TN_HEIGHT = 96, /* columns of a packed at once */
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* ---- scratch ------------------------------------------------------------------------------- */

/* The larger panel of each kind over the three products. One function measures and places. */
static size_t layout(const kernels *kn, int64_t max_k, gemm *g, float *at)
{
    int64_t nt_x = round_up(GEMM_ROWS, kn->dot_m) * round_up(max_k, kn->lanes);
    int64_t nn_x = round_up(GEMM_ROWS, kn->outer_m) * NN_SUM;
    int64_t tn_x = TN_SUM * round_up(max_k, kn->outer_n);
    int64_t nt_w = NT_TILES * kn->dot_n * round_up(kn->dot_k, kn->lanes);
    int64_t nn_w = NN_SUM * round_up(NN_WIDTH, kn->outer_n);
    int64_t tn_w = TN_SUM * round_up(TN_HEIGHT, kn->outer_m);
    int64_t x = round_up(max64(nt_x, max64(nn_x, tn_x)), AHEAD_LINE);
    int64_t w = round_up(max64(nt_w, max64(nn_w, tn_w)), AHEAD_LINE);
    if (g) *g = (gemm){.kernels = kn, .x_panel = at, .w_panel = at + x};
    return (size_t)(x + w) * sizeof(float);
}

size_t gemm_scratch_size(const kernels *kn, int64_t max_k) { return layout(kn, max_k, NULL, NULL); }

gemm gemm_init(const kernels *kn, int64_t max_k, void *scratch)
{
    gemm g;
    layout(kn, max_k, &g, scratch);
    return g;
}

/* ---- asking memory ahead ------------------------------------------------------------------- */

/* A block of a matrix that is needed soon, and how far it has been asked for. */
typedef struct ahead {
    rows src;
    int64_t n_rows, n_columns;
    int64_t row, column;
    int64_t share; /* stretches of AHEAD_LINES lines to ask for with each tile */
} ahead;

static ahead ahead_of(rows src, int64_t n_rows, int64_t n_columns, int64_t n_tiles)
{
    int64_t stretches = n_rows * ceil_div(n_columns, AHEAD_LINES * AHEAD_LINE);
    return (ahead){.src = src, .n_rows = n_rows, .n_columns = n_columns,
                   .share = ceil_div(stretches, n_tiles)};
}

/* The next stretch, or `fallback` when all is asked for. */
static const float *ahead_next(ahead *a, const float *fallback)
{
    if (a->row >= a->n_rows) return fallback;
    const float *at = rows_at(a->src, a->row) + a->column;
    a->column += AHEAD_LINES * AHEAD_LINE;
    if (a->column >= a->n_columns) {
        a->column = 0;
        a->row++;
    }
    return at;
}

/* What the next tile should ask for; where there are more stretches than tiles, the rest is asked for
 * at once. */
static const float *ahead_for_tile(ahead *a, const float *fallback)
{
    for (int64_t i = 1; i < a->share; i++) {
        const float *at = ahead_next(a, NULL);
        for (int line = 0; at && line < AHEAD_LINES; line++)
            __builtin_prefetch(at + line * AHEAD_LINE, 0, 2);
    }
    return ahead_next(a, fallback);
}

/* ---- y = x·wᵀ ------------------------------------------------------------------------------ */

/* The sum is cut into equal blocks of at most dot_k columns, each a whole number of steps. */
static int64_t nt_block_columns(const kernels *kn, int64_t k)
{
    return round_up(ceil_div(k, ceil_div(k, kn->dot_k)), kn->lanes);
}

void gemm_nt_load(gemm *g, rows x, int64_t m, int64_t k)
{
    const kernels *kn = g->kernels;
    g->x = x;
    g->m = m;
    g->k = k;
    if (m <= kn->dot_m) return; /* gemm_nt reads them in place */
    int64_t columns = nt_block_columns(kn, k), padded = round_up(m, kn->dot_m);
    for (int64_t k0 = 0; k0 < k; k0 += columns)
        kn->dot_pack(g->x_panel + k0 * padded, x, m, kn->dot_m, k0, min64(k, k0 + columns));
}

/* The packed rows against one packed block of w: n rows of it, columns [k0, k1). */
static void nt_block(const gemm *g, int64_t k0, int64_t k1, int64_t n, float *y, int64_t ldy,
                     ahead next)
{
    const kernels *kn = g->kernels;
    int64_t steps = ceil_div(k1 - k0, kn->lanes);
    const float *x = g->x_panel + k0 * round_up(g->m, kn->dot_m);
    for (int64_t i = 0; i < g->m; i += kn->dot_m, x += steps * kn->dot_m * kn->lanes) {
        const float *w = g->w_panel;
        for (int64_t j = 0; j < n; j += kn->dot_n, w += steps * kn->dot_n * kn->lanes)
            kn->dot_tile(steps, x, w, y + i * ldy + j, ldy, k0 > 0, (int)min64(kn->dot_m, g->m - i),
                         (int)min64(kn->dot_n, n - j), ahead_for_tile(&next, w));
    }
}

void gemm_nt(const gemm *g, rows w, int64_t n, float *y, int64_t ldy)
{
    const kernels *kn = g->kernels;
    int64_t columns = nt_block_columns(kn, g->k), width = NT_TILES * kn->dot_n;
    if (g->m <= kn->dot_m) {
        kn->dot_direct(g->x, (int)g->m, w, n, g->k, columns, y, ldy);
        return;
    }
    int64_t n_tiles = ceil_div(g->m, kn->dot_m) * NT_TILES;
    for (int64_t k0 = 0; k0 < g->k; k0 += columns) {
        int64_t k1 = min64(g->k, k0 + columns);
        for (int64_t j = 0; j < n; j += width) {
            int64_t count = min64(width, n - j), left = n - j - count;
            kn->dot_pack(g->w_panel, rows_from(w, j), count, kn->dot_n, k0, k1);
            ahead next = {0};
            if (left > 0)
                next = ahead_of(rows_columns(rows_from(w, j + count), k0), min64(width, left),
                                k1 - k0, n_tiles);
            else if (k1 < g->k)
                next = ahead_of(rows_columns(w, k1), min64(width, n), min64(columns, g->k - k1),
                                n_tiles);
            nt_block(g, k0, k1, count, y + j, ldy, next);
        }
    }
}

/* ---- c = a·w ------------------------------------------------------------------------------- */

/* The packed rows of a against one packed block of w: `sum` rows of it, n columns. */
static void nn_block(const gemm *g, int64_t m, int64_t sum, int64_t n, float *c, int64_t ldc,
                     bool accumulate, ahead next)
{
    const kernels *kn = g->kernels;
    for (int64_t j = 0; j < n; j += kn->outer_n) {
        const float *w = g->w_panel + j * sum;
        for (int64_t i = 0; i < m; i += kn->outer_m)
            kn->outer_tile(sum, g->x_panel + i * sum, w, c + i * ldc + j, ldc, accumulate,
                           (int)min64(kn->outer_m, m - i), (int)min64(kn->outer_n, n - j),
                           ahead_for_tile(&next, w));
    }
}

void gemm_nn(const gemm *g, rows a, int64_t m, rows w, int64_t k, int64_t n, float *c, int64_t ldc,
             bool accumulate)
{
    const kernels *kn = g->kernels;
    int64_t width = round_up(NN_WIDTH, kn->outer_n);
    int64_t n_tiles = ceil_div(m, kn->outer_m) * (width / kn->outer_n);
    for (int64_t k0 = 0; k0 < k; k0 += NN_SUM) {
        int64_t sum = min64(NN_SUM, k - k0);
        rows block = rows_from(w, k0);
        kn->outer_pack_transposed(g->x_panel, rows_columns(a, k0), m, sum, kn->outer_m);
        for (int64_t j = 0; j < n; j += width) {
            int64_t columns = min64(width, n - j), left = n - j - columns;
            kn->outer_pack(g->w_panel, rows_columns(block, j), sum, columns, kn->outer_n);
            ahead next = {0};
            if (left > 0)
                next = ahead_of(rows_columns(block, j + columns), sum, min64(width, left), n_tiles);
            else if (k0 + sum < k)
                next = ahead_of(rows_from(block, sum), min64(NN_SUM, k - k0 - sum),
                                min64(width, n), n_tiles);
            nn_block(g, m, sum, columns, c + j, ldc, accumulate || k0 > 0, next);
        }
    }
}

/* ---- c = aᵀ·b ------------------------------------------------------------------------------ */

/* One block of k ≤ TN_SUM terms. */
static void tn_block(const gemm *g, rows a, int64_t m, rows b, int64_t n, int64_t k, float *c,
                     int64_t ldc, bool accumulate)
{
    const kernels *kn = g->kernels;
    int64_t height = round_up(TN_HEIGHT, kn->outer_m);
    kn->outer_pack(g->x_panel, b, k, n, kn->outer_n);
    for (int64_t i0 = 0; i0 < m; i0 += height) {
        int64_t columns = min64(height, m - i0);
        kn->outer_pack(g->w_panel, rows_columns(a, i0), k, columns, kn->outer_m);
        for (int64_t j = 0; j < n; j += kn->outer_n)
            for (int64_t i = 0; i < columns; i += kn->outer_m)
                kn->outer_tile(k, g->w_panel + i * k, g->x_panel + j * k, c + (i0 + i) * ldc + j,
                               ldc, accumulate, (int)min64(kn->outer_m, columns - i),
                               (int)min64(kn->outer_n, n - j), g->w_panel);
    }
}

void gemm_tn(const gemm *g, rows a, int64_t m, rows b, int64_t n, int64_t k, float *c, int64_t ldc,
             bool accumulate)
{
    if (k == 0 && !accumulate) /* an expert without rows */
        for (int64_t i = 0; i < m; i++) memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    for (int64_t k0 = 0; k0 < k; k0 += TN_SUM)
        tn_block(g, rows_from(a, k0), m, rows_from(b, k0), n, min64(TN_SUM, k - k0), c, ldc,
                 accumulate || k0 > 0);
}
