/* gemm.c - how large products are cut into tiles. No instruction set is named here.
 *
 * All three products consist of parts c += A·B of limited size. A is packed in groups of tile_m and B in
 * groups of tile_n, both in the order of the sum. Where things are while such a part is computed:
 *   registers     one tile of c
 *   L1 cache      one group of B, and each group of A in turn
 *   L2 cache      all of A
 *   memory        the weights, each read once and prefetched one part ahead
 * Packing copies each weight once for every GEMM_ROWS rows. In return all loads are contiguous. Unpacked rows
 * of 2048 floats are 8 KiB apart, and a cache maps those to the same few sets. */
#include "kernels/gemm.h"

#include <assert.h>
#include <string.h>

#include "kernels/gemm_blocks.h"

enum {
    FEW_STRETCH = 32, /* rows of w that stay in a cache from one group to the next */
    SUM = 256,        /* terms of the sum that are added at a time */
    NN_WIDTH = 128,   /* columns of w that gemm_nn packs at once */
    TN_HEIGHT = 96,   /* columns of a that gemm_tn packs at once */
    PACK_SLACK = 16,  /* floats that packing may write past a panel: a cache line */
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* ---- scratch ------------------------------------------------------------------------------- */

/* Each panel has the size that the largest of the three products needs. One function measures and places. */
static size_t layout(const kernels *kn, int64_t max_k, gemm *g, float *at)
{
    int64_t nt_x = round_up(GEMM_ROWS, kn->tile_m) * round_up(max64(max_k, SUM), LANES);
    int64_t tn_x = GEMM_ROWS * round_up(max_k, kn->tile_n);
    int64_t nn_w = SUM * round_up(max64(NN_WIDTH, GEMM_WIDE), kn->tile_n);
    int64_t tn_w = GEMM_ROWS * round_up(TN_HEIGHT, kn->tile_m);
    int64_t x = round_up(max64(nt_x, tn_x) + PACK_SLACK, PACK_SLACK);
    int64_t w = round_up(max64(nn_w, tn_w) + PACK_SLACK, PACK_SLACK);
    int64_t words = kn->words ? SUM * GEMM_WIDE / 2 : 0;
    int64_t octet = BLOCK_OCTET * round_up(max_k, 2 * BLOCK); /* at most 2 bytes per number */
    if (g)
        *g = (gemm){.kernels = kn,
                    .x_panel = at,
                    .w_panel = at + x,
                    .words = (int16_t *)(at + x + w),
                    .word_scale = at + x + w + words,
                    .octet = (char *)(at + x + w + words + GEMM_WIDE)};
    return (size_t)(x + w + words + GEMM_WIDE + octet / 2) * sizeof(float);
}

size_t gemm_scratch_size(const kernels *kn, int64_t max_k) { return layout(kn, max_k, NULL, NULL); }

gemm gemm_init(const kernels *kn, int64_t max_k, void *scratch)
{
    gemm g;
    layout(kn, max_k, &g, scratch);
    return g;
}

/* ---- prefetching --------------------------------------------------------------------------- */

/* Weights that are needed soon, and how far their patches have been prefetched. */
typedef struct ahead {
    const unsigned char *data;
    int64_t stride, n_rows, n_bytes; /* n_bytes of each row */
    int64_t row, byte;
} ahead;

static ahead ahead_of(matrix w, int64_t row, int64_t n_rows, int64_t column, int64_t n_columns)
{
    return (ahead){.data = matrix_at(w, row, column),
                   .stride = w.stride,
                   .n_rows = n_rows,
                   .n_bytes = dtype_bytes(w.type, n_columns)};
}

/* The next patch. After the last one, a line that is in the cache anyway. */
static patch ahead_next(ahead *a, const void *at_hand)
{
    if (a->byte >= a->n_bytes) return (patch){at_hand, 0};
    patch p = {a->data + a->row * a->stride + a->byte, a->stride};
    a->row += AHEAD_ROWS;
    if (a->row >= a->n_rows) {
        a->row = 0;
        a->byte += AHEAD_LINES * CACHE_LINE;
    }
    return p;
}

/* Prefetches the next n patches at once, in case there are more patches than tiles. */
static void ahead_ask(ahead *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        patch p = ahead_next(a, NULL);
        if (!p.at) return;
        for (int row = 0; row < AHEAD_ROWS; row++)
            for (int line = 0; line < AHEAD_LINES; line++)
                __builtin_prefetch(p.at + row * p.stride + line * CACHE_LINE, 0, 2);
    }
}

static int64_t ahead_patches(const ahead *a)
{
    return ceil_div(a->n_rows, AHEAD_ROWS) * ceil_div(a->n_bytes, AHEAD_LINES * CACHE_LINE);
}

/* ---- all tiles of c ------------------------------------------------------------------------ */

/* c [m, n] (+)= A·B over `sum` terms, both packed. */
static void run_tiles(const kernels *kn, const float *a, int64_t m, const float *b, int64_t n,
                      int64_t sum, float *c, int64_t ldc, bool accumulate, ahead next)
{
    int64_t n_tiles = max64(1, ceil_div(n, kn->tile_n) * ceil_div(m, kn->tile_m));
    int64_t burst = ceil_div(ahead_patches(&next), n_tiles) - 1;
    for (int64_t j = 0; j < n; j += kn->tile_n)
        for (int64_t i = 0; i < m; i += kn->tile_m) {
            ahead_ask(&next, burst);
            kn->tile(sum, a + i * sum, b + j * sum, c + i * ldc + j, ldc, accumulate,
                     (int)min64(kn->tile_m, m - i), (int)min64(kn->tile_n, n - j),
                     ahead_next(&next, b));
        }
}

/* ---- y = x·wᵀ ------------------------------------------------------------------------------ */

/* Packs few rows as [steps][m][LANES], with zeros after the last column. */
static void pack_few(float *panel, rows x, int64_t m, int64_t k)
{
    int64_t whole = k / LANES * LANES, rest = k - whole;
    for (int64_t i = 0; i < m; i++) {
        const float *row = rows_at(x, i);
        float *to = panel + i * LANES;
        for (int64_t k0 = 0; k0 < whole; k0 += LANES, to += m * LANES)
            memcpy(to, row + k0, LANES * sizeof *to);
        if (rest == 0) continue;
        memset(to, 0, LANES * sizeof *to);
        memcpy(to, row + whole, (size_t)rest * sizeof *to);
    }
}

/* Few rows are cut into as few groups as `few` allows, about equal. Returns the rows of all groups but the
 * last. */
static int64_t few_group(const kernels *kn, int64_t m)
{
    return ceil_div(m, max64(1, ceil_div(m, kn->few)));
}

/* Whether to add in the order of few rows, without packing the weights. */
static bool is_few(const gemm *g)
{
    if (g->few_order) return true;
    return !g->same_order && g->m <= GEMM_FEW_GROUPS * g->kernels->few;
}

void gemm_nt_load(gemm *g, rows x, int64_t m, int64_t k)
{
    g->source = x;
    g->m = m;
    g->k = k;
    g->home = NULL;
    g->form = GEMM_UNPACKED;
}

void gemm_nt_load_made(gemm *g, rows x, const x_home *home, int64_t home_row, int64_t m, int64_t k)
{
    gemm_nt_load(g, x, m, k);
    g->home = home;
    g->home_row = home_row;
}

static void load_floats(gemm *g)
{
    const kernels *kn = g->kernels;
    rows x = g->source;
    int64_t m = g->m, k = g->k;
    g->form = GEMM_FLOATS;
    g->x = g->x_panel;
    if (is_few(g) && m == 1 && k % LANES == 0) { /* a single row is its own packed form */
        g->x = rows_at(x, 0);
        return;
    }
    if (is_few(g)) {
        int64_t group = few_group(kn, m), steps = round_up(k, LANES);
        for (int64_t i = 0; i < m; i += group)
            pack_few(g->x_panel + i * steps, rows_from(x, i), min64(group, m - i), k);
        return;
    }
    for (int64_t k0 = 0; k0 < k; k0 += SUM)
        kn->pack_transposed(g->x_panel + k0 * round_up(m, kn->tile_m), rows_columns(x, k0), m,
                            min64(SUM, k - k0), kn->tile_m);
}

/* Each stretch of w is read from memory for the first group, and from the cache for the others. */
static void nt_few(const gemm *g, matrix w, int64_t n, float *y, int64_t ldy)
{
    const kernels *kn = g->kernels;
    int64_t group = few_group(kn, g->m), steps = round_up(g->k, LANES);
    int64_t stretch = group == g->m ? n : FEW_STRETCH;
    for (int64_t j = 0; j < n; j += stretch)
        for (int64_t i = 0; i < g->m; i += group)
            kn->dtypes[w.type].few_rows((int)min64(group, g->m - i), g->x + i * steps,
                                        matrix_from(w, j), min64(stretch, n - j), g->k,
                                        y + i * ldy + j, ldy);
}

static void nt_many(const gemm *g, matrix w, int64_t n, float *y, int64_t ldy, bool accumulate)
{
    const kernels *kn = g->kernels;
    for (int64_t k0 = 0; k0 < g->k; k0 += SUM) {
        int64_t sum = min64(SUM, g->k - k0);
        const float *x = g->x + k0 * round_up(g->m, kn->tile_m);
        for (int64_t j = 0; j < n; j += kn->tile_n) {
            int64_t count = min64(kn->tile_n, n - j), left = n - j - count;
            ahead next = {0};
            if (left > 0)
                next = ahead_of(w, j + count, min64(kn->tile_n, left), k0, sum);
            else if (k0 + sum < g->k)
                next = ahead_of(w, 0, min64(kn->tile_n, n), k0 + sum, min64(SUM, g->k - k0 - sum));
            kn->dtypes[w.type].pack(g->w_panel, matrix_from(w, j), k0, count, sum, kn->tile_n);
            run_tiles(kn, x, g->m, g->w_panel, count, sum, y + j, ldy, accumulate || k0 > 0, next);
        }
    }
}

void gemm_nt(gemm *g, matrix w, int64_t n, float *y, int64_t ldy)
{
    if (dtype_is_block(w.type)) {
        gemm_blocks_nt(g, w, n, y, ldy);
        return;
    }
    if (g->form != GEMM_FLOATS) load_floats(g);
    if (is_few(g))
        nt_few(g, w, n, y, ldy);
    else
        nt_many(g, w, n, y, ldy, false);
}

void gemm_nt_add(gemm *g, matrix w, int64_t n, float *y, int64_t ldy)
{
    assert(g->same_order && !dtype_is_block(w.type));
    if (g->form != GEMM_FLOATS) load_floats(g);
    nt_many(g, w, n, y, ldy, true);
}

/* ---- c = a·w ------------------------------------------------------------------------------- */

void gemm_nn(const gemm *g, rows a, int64_t m, rows w, int64_t k, int64_t n, float *c, int64_t ldc,
             bool accumulate)
{
    const kernels *kn = g->kernels;
    int64_t width = round_up(NN_WIDTH, kn->tile_n);
    matrix all = matrix_f32(w.data, w.stride);
    for (int64_t k0 = 0; k0 < k; k0 += SUM) {
        int64_t sum = min64(SUM, k - k0);
        rows block = rows_from(w, k0);
        kn->pack_transposed(g->x_panel, rows_columns(a, k0), m, sum, kn->tile_m);
        for (int64_t j = 0; j < n; j += width) {
            int64_t columns = min64(width, n - j), left = n - j - columns;
            ahead next = {0};
            if (left > 0)
                next = ahead_of(all, k0, sum, j + columns, min64(width, left));
            else if (k0 + sum < k)
                next = ahead_of(all, k0 + sum, min64(SUM, k - k0 - sum), 0, min64(width, n));
            kn->pack(g->w_panel, rows_columns(block, j), sum, columns, kn->tile_n);
            run_tiles(kn, g->x_panel, m, g->w_panel, columns, sum, c + j, ldc, accumulate || k0 > 0,
                      next);
        }
    }
}

/* Widens columns [column, column + n) of `sum` rows and packs them like kernels.pack. */
static void pack_widened(const kernels *kn, matrix w, int64_t column, int64_t sum, int64_t n,
                         float *panel)
{
    int64_t group = kn->tile_n;
    float wide[GEMM_WIDE];
    for (int64_t r = 0; r < sum; r++) {
        kn->dtypes[w.type].widen(n, matrix_at(w, r, column), wide);
        for (int64_t j = 0; j < n; j += group) {
            float *to = panel + j * sum + r * group;
            int64_t here = min64(group, n - j);
            memcpy(to, wide + j, (size_t)here * sizeof *to);
            if (here < group) memset(to + here, 0, (size_t)(group - here) * sizeof *to);
        }
    }
}

static void nn_floats(const gemm *g, int64_t m, matrix w, int64_t column, int64_t sum, int64_t n,
                      float *c, int64_t ldc, bool accumulate, ahead next)
{
    pack_widened(g->kernels, w, column, sum, n, g->w_panel);
    run_tiles(g->kernels, g->x_panel, m, g->w_panel, n, sum, c, ldc, accumulate, next);
}

/* Quantises columns [column, column + sum) of the rows of a. They take the place of the packed panel. */
static void load_words(const gemm *g, rows a, int64_t m, int64_t column, int64_t sum)
{
    word_row *to = (word_row *)g->x_panel;
    for (int64_t i = 0; i < m; i++) {
        const float *from = rows_at(a, i) + column;
        float filled[SUM] = {0};
        if (sum % BLOCK != 0) from = memcpy(filled, from, (size_t)sum * sizeof *from);
        g->kernels->quantize_fine(round_up(sum, BLOCK), from, to[i].q, &to[i].scale);
    }
}

static void nn_words(const gemm *g, int64_t m, matrix w, int64_t column, int64_t sum, int64_t n,
                     float *c, int64_t ldc, bool accumulate, ahead next)
{
    const word_kernels *wk = g->kernels->words;
    const word_row *a = (const word_row *)g->x_panel;
    int64_t n_tiles = n / wk->tile_n * ceil_div(m, wk->tile_m), filled = round_up(sum, 4);
    int64_t burst = ceil_div(ahead_patches(&next), max64(1, n_tiles));
    wk->pack(g->kernels->dtypes[w.type].widen, w, column, sum, n, g->words, g->word_scale);
    for (int64_t j = 0; j < n; j += wk->tile_n)
        for (int64_t i = 0; i < m; i += wk->tile_m) {
            ahead_ask(&next, burst);
            wk->tile(filled, a + i, g->words + j * filled, g->word_scale + j, c + i * ldc + j, ldc,
                     accumulate, (int)min64(wk->tile_m, m - i));
        }
}

void gemm_nn_matrix(const gemm *g, rows a, int64_t m, matrix w, int64_t column, int64_t k,
                    int64_t n, float *c, int64_t ldc, bool accumulate)
{
    const kernels *kn = g->kernels;
    bool in_words = kn->words && dtype_is_block(w.type);
    if (w.type == DSMOE_F32) {
        rows plain = {(const float *)w.data + column, w.stride / (int64_t)sizeof(float), NULL};
        gemm_nn(g, a, m, plain, k, n, c, ldc, accumulate);
        return;
    }
    for (int64_t k0 = 0; k0 < k; k0 += SUM) {
        int64_t sum = min64(SUM, k - k0);
        if (in_words)
            load_words(g, a, m, k0, sum);
        else
            kn->pack_transposed(g->x_panel, rows_columns(a, k0), m, sum, kn->tile_m);
        for (int64_t j = 0; j < n; j += GEMM_WIDE) {
            int64_t columns = min64(GEMM_WIDE, n - j), left = n - j - columns;
            ahead next = {0};
            if (left > 0)
                next = ahead_of(w, k0, sum, column + j + columns, min64(GEMM_WIDE, left));
            else if (k0 + sum < k)
                next = ahead_of(w, k0 + sum, min64(SUM, k - k0 - sum), column, min64(GEMM_WIDE, n));
            (in_words ? nn_words : nn_floats)(g, m, matrix_from(w, k0), column + j, sum, columns,
                                              c + j, ldc, accumulate || k0 > 0, next);
        }
    }
}

/* ---- c = aᵀ·b ------------------------------------------------------------------------------ */

void gemm_tn(const gemm *g, rows a, int64_t m, rows b, int64_t n, int64_t k, float *c, int64_t ldc,
             bool accumulate)
{
    const kernels *kn = g->kernels;
    int64_t height = round_up(TN_HEIGHT, kn->tile_m);
    if (k == 0 && !accumulate) /* an expert without rows */
        for (int64_t i = 0; i < m; i++) memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    /* c is far larger than a and b, so GEMM_ROWS terms are added at a time: that keeps the passes over c
     * few. */
    for (int64_t k0 = 0; k0 < k; k0 += GEMM_ROWS) {
        int64_t sum = min64(GEMM_ROWS, k - k0);
        kn->pack(g->x_panel, rows_from(b, k0), sum, n, kn->tile_n);
        for (int64_t i = 0; i < m; i += height) {
            int64_t rows_here = min64(height, m - i);
            kn->pack(g->w_panel, rows_columns(rows_from(a, k0), i), sum, rows_here, kn->tile_m);
            run_tiles(kn, g->w_panel, rows_here, g->x_panel, n, sum, c + i * ldc, ldc,
                      accumulate || k0 > 0, (ahead){0});
        }
    }
}
