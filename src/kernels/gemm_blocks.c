/* gemm_blocks.c - y = x·wᵀ for weights in blocks. As in gemm.c no instruction set is named here.
 *
 * x is quantised once; then panels of BLOCK_TILE_N rows of w are unpacked, a stretch of the
 * sum at a time, and meet all rows of x while they lie in the first cache. Unpacking a weight costs
 * about as much as its product with two rows, so that already a few rows are worth it; a single one
 * needs no unpacking. Rows of w come in octets (kernels.h): best made once and kept, else made here. */
#include "kernels/gemm_blocks.h"

#include <string.h>

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- what lies where in the scratch ------------------------------------------------------------ */

/* Rows of x, filled up to whole tiles. */
static int64_t padded_rows(const gemm *g)
{
    int64_t tile = g->kernels->block_tile_m;
    return (g->m + tile - 1) / tile * tile;
}

/* A float holds a number of x as a word, its share of the scale and of the sum: 2 + 1/4 bytes. */
static block_rows rows_place(const gemm *g)
{
    int64_t n = padded_rows(g) * (g->k / BLOCK);
    float *at = g->x_panel;
    return (block_rows){.scale = at, .sum = at + n, .q = at + 2 * n, .stride = padded_rows(g)};
}

static block_row row_place(const gemm *g)
{
    int64_t n = g->k / BLOCK;
    float *at = g->x_panel;
    return (block_row){.scale = at,
                       .sum = at + n,
                       .half_sum = (int16_t *)(at + 2 * n),
                       .q = (int8_t *)(at + 3 * n),
                       .fine = (int16_t *)(at + 3 * n)};
}

static block_panel panel_place(const gemm *g)
{
    int64_t n = BLOCK_STRETCH / BLOCK * BLOCK_TILE_N;
    float *at = g->w_panel;
    return (block_panel){.scale = at,
                         .min = at + n,
                         .d = at + 2 * n,
                         .dmin = at + 2 * n + BLOCK_TILE_N,
                         .code = at + 2 * n + 2 * BLOCK_TILE_N};
}

static int code_bytes(block_form form) { return form == BLOCK_BYTES ? 1 : 2; }

/* ---- taking x ---------------------------------------------------------------------------------- */

/* What is taken off for each unit of a minimum. */
static float block_sum(float scale, const int16_t half_sum[2])
{
    return scale * (float)(half_sum[0] + half_sum[1]);
}

/* `width` columns from k0 on of row i, in 8 bits. */
static void load_bytes(const gemm *g, int64_t i, int64_t k0, int64_t width, int8_t *q)
{
    block_rows x = rows_place(g);
    float scale[BLOCK_STRETCH / BLOCK];
    int16_t half_sum[2 * BLOCK_STRETCH / BLOCK];
    g->kernels->quantize(width, rows_at(g->source, i) + k0, q, scale, half_sum);
    for (int64_t b = 0; b < width / BLOCK; b++) {
        int64_t to = (k0 / BLOCK + b) * x.stride + i;
        ((float *)x.scale)[to] = scale[b];
        ((float *)x.sum)[to] = block_sum(scale[b], half_sum + 2 * b);
    }
}

/* The rows of one tile from row `first` on, `width` columns from k0 on; rows after the last are 0, and
 * nobody asks for their scales. */
static void load_tile(const gemm *g, block_form form, int64_t first, int64_t k0, int64_t width)
{
    const kernels *kn = g->kernels;
    block_rows x = rows_place(g);
    int16_t fine[BLOCK_TILE_M_MAX * BLOCK_STRETCH] = {0};
    int8_t *bytes = (int8_t *)fine;
    for (int r = 0; r < kn->block_tile_m && first + r < g->m; r++)
        if (form == BLOCK_FINE)
            kn->quantize_fine(width, rows_at(g->source, first + r) + k0, fine + r * BLOCK_STRETCH,
                              (float *)x.scale + k0 / BLOCK * x.stride + first + r);
        else
            load_bytes(g, first + r, k0, width, bytes + r * BLOCK_STRETCH);
    kn->gather(form, width, fine, (char *)x.q + (k0 * x.stride + first * width) * code_bytes(form));
}

static void load_rows(const gemm *g, block_form form)
{
    for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK_STRETCH)
        for (int64_t i = 0; i < g->m; i += g->kernels->block_tile_m)
            load_tile(g, form, i, k0, min64(BLOCK_STRETCH, g->k - k0));
}

static void load_row(const gemm *g, block_form form)
{
    block_row x = row_place(g);
    if (form == BLOCK_FINE) {
        g->kernels->quantize_fine(g->k, rows_at(g->source, 0), (int16_t *)x.fine, (float *)x.scale);
        return;
    }
    g->kernels->quantize(g->k, rows_at(g->source, 0), (int8_t *)x.q, (float *)x.scale,
                         (int16_t *)x.half_sum);
    for (int64_t b = 0; b < g->k / BLOCK; b++)
        ((float *)x.sum)[b] = block_sum(x.scale[b], x.half_sum + 2 * b);
}

/* ---- octets -------------------------------------------------------------------------------------- */

/* The octets of w that somebody keeps, or NULL. */
static const unsigned char *kept_octets(matrix w)
{
    if (!w.home || w.home_row % BLOCK_OCTET != 0) return NULL;
    const unsigned char *all = atomic_load_explicit(&w.home->octets, memory_order_acquire);
    return all ? all + w.home_row * w.stride : NULL;
}

/* Octet i of n rows of w; rows after the last repeat it. */
static void make_octet(const kernels *kn, matrix w, int64_t k, int64_t n, int64_t i, void *octet)
{
    const unsigned char *row[BLOCK_OCTET];
    for (int r = 0; r < BLOCK_OCTET; r++)
        row[r] = matrix_at(w, min64(i * BLOCK_OCTET + r, n - 1), 0);
    kn->dtypes[w.type].blocks->interleave(row, k, octet);
}

/* The same: a kept one, or made now in the scratch, which has room for two. */
static const void *octet_of(const gemm *g, matrix w, const unsigned char *kept, int64_t n,
                            int64_t i)
{
    int64_t bytes = BLOCK_OCTET * w.stride;
    if (kept && (i + 1) * BLOCK_OCTET <= n) return kept + i * bytes;
    void *octet = g->octets + i % 2 * bytes;
    make_octet(g->kernels, w, g->k, n, i, octet);
    return octet;
}

void gemm_blocks_interleave(const kernels *kn, matrix w, int64_t k, int64_t first, int64_t n,
                            void *octets)
{
    for (int64_t i = first; i < first + n; i++)
        make_octet(kn, w, k, (first + n) * BLOCK_OCTET, i,
                   (char *)octets + i * BLOCK_OCTET * w.stride);
}

/* ---- products ---------------------------------------------------------------------------------- */

/* What is unpacked next, asked for little by little while tiles run. */
typedef struct ahead {
    const char *at[2]; /* of each octet */
    int64_t bytes;     /* of each that are not asked for yet */
} ahead;

/* The next stretch of the same octets, or the first of those that come two later. */
static ahead ahead_of(const gemm *g, const void *const octet[2], dsmoe_dtype type, int64_t column)
{
    int64_t whole = BLOCK_OCTET * dtype_bytes(type, g->k);
    int64_t here = BLOCK_OCTET * dtype_bytes(type, column);
    int64_t at = column < g->k ? here : 2 * whole, left = column < g->k ? whole - here : whole;
    return (ahead){{(const char *)octet[0] + at, (const char *)octet[1] + at},
                   min64(left, BLOCK_OCTET * dtype_bytes(type, BLOCK_STRETCH))};
}

static void ahead_ask(ahead *a, int64_t bytes)
{
    for (; bytes > 0 && a->bytes > 0; bytes -= CACHE_LINE, a->bytes -= CACHE_LINE)
        for (int i = 0; i < 2; i++, a->at[i - 1] += CACHE_LINE) __builtin_prefetch(a->at[i], 0, 2);
}

/* A panel of rows of w, all of the sum. */
static void run_panel(const gemm *g, dsmoe_dtype type, const void *const octet[2], int n, float *y,
                      int64_t ldy)
{
    const block_kernels *bk = g->kernels->dtypes[type].blocks;
    block_rows all = rows_place(g);
    block_panel panel = panel_place(g);
    int tile = g->kernels->block_tile_m, size = code_bytes(bk->form);
    for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK_STRETCH) {
        int64_t width = min64(BLOCK_STRETCH, g->k - k0), first = k0 / BLOCK * all.stride;
        const char *q = (const char *)all.q + k0 * all.stride * size;
        ahead next = ahead_of(g, octet, type, k0 + width);
        int64_t share = next.bytes / (all.stride / tile) + 1; /* for each tile */
        bk->unpack(panel, octet, k0, width);
        for (int64_t i = 0; i < g->m; i += tile) {
            block_rows x = {q + i * width * size, all.scale + first + i, all.sum + first + i,
                            all.stride};
            ahead_ask(&next, share);
            bk->tile(width, x, panel, y + i * ldy, ldy, k0 > 0, (int)min64(tile, g->m - i), n);
        }
    }
}

static void run_tiles(const gemm *g, matrix w, int64_t n, float *y, int64_t ldy)
{
    const unsigned char *kept = kept_octets(w);
    for (int64_t j = 0; j < n; j += BLOCK_TILE_N) {
        int64_t i = j / BLOCK_OCTET;
        const void *first = octet_of(g, w, kept, n, i);
        bool second = j + BLOCK_OCTET < n;
        const void *octet[2] = {first, second ? octet_of(g, w, kept, n, i + 1) : first};
        run_panel(g, w.type, octet, (int)min64(BLOCK_TILE_N, n - j), y + j, ldy);
    }
}

static void run_row(const gemm *g, matrix w, int64_t n, float *y)
{
    const block_kernels *bk = g->kernels->dtypes[w.type].blocks;
    block_row x = row_place(g);
    const unsigned char *kept = kept_octets(w);
    int64_t whole = kept ? n / BLOCK_OCTET : 0;
    if (whole > 0) bk->row(x, kept, whole, g->k, y);
    for (int64_t i = whole; i * BLOCK_OCTET < n; i++) {
        float some[BLOCK_OCTET];
        bk->row(x, octet_of(g, w, kept, n, i), 1, g->k, some);
        memcpy(y + i * BLOCK_OCTET, some,
               (size_t)min64(BLOCK_OCTET, n - i * BLOCK_OCTET) * sizeof *y);
    }
}

void gemm_blocks_nt(gemm *g, matrix w, int64_t n, float *y, int64_t ldy)
{
    block_form form = g->kernels->dtypes[w.type].blocks->form;
    gemm_form row = form == BLOCK_FINE ? GEMM_FINE_ROW : GEMM_BLOCK_ROW;
    gemm_form wanted = g->m == 1 ? row : (gemm_form)(GEMM_BLOCKS + form);
    if (g->form != wanted) {
        if (g->m == 1)
            load_row(g, form);
        else
            load_rows(g, form);
        g->form = wanted;
    }
    if (g->m == 1)
        run_row(g, w, n, y);
    else
        run_tiles(g, w, n, y, ldy);
}
