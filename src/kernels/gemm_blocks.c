/* gemm_blocks.c - y = x·wᵀ for weights of block types. As in gemm.c, no instruction set is named here.
 *
 * First x is converted to integers, row by row: by the caller once for all tasks of a product (x_home),
 * otherwise here. Then groups of rows are multiplied with octets of w (see block_kernels), which are either
 * kept or made here. If there are several groups, each of them is multiplied with the same few octets, while
 * these are in a cache. */
#include "kernels/gemm_blocks.h"

#include <string.h>

enum { NEAR_OCTETS = 8 }; /* octets that stay in a cache while all groups of x use them */

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- x in integers ------------------------------------------------------------------------------- */

/* Where the parts of a row begin: see block_x. */
typedef struct row_parts {
    int64_t scale, sum, half_sum;
} row_parts;

static row_parts parts_of(block_form form, int64_t k)
{
    int64_t n = k / BLOCK * (int64_t)sizeof(float);
    if (form == BLOCK_FINE) return (row_parts){.scale = k * (int64_t)sizeof(int16_t)};
    return (row_parts){.scale = k, .sum = k + n, .half_sum = k + 2 * n};
}

/* An odd number of cache lines, since a cache maps lines that are a power of two apart to the same few
 * sets. */
int64_t gemm_blocks_stride(block_form form, int64_t k)
{
    row_parts at = parts_of(form, k);
    int64_t fine = at.scale + ceil_div(k, BLOCK_STRETCH) * (int64_t)sizeof(float);
    int64_t bytes = at.half_sum + 2 * (k / BLOCK) * (int64_t)sizeof(int16_t);
    return (ceil_div(form == BLOCK_FINE ? fine : bytes, CACHE_LINE) | 1) * CACHE_LINE;
}

void gemm_blocks_quantize(const kernels *kn, block_form form, rows x, int64_t i, int64_t k,
                          char *to)
{
    row_parts at = parts_of(form, k);
    char *row = to + i * gemm_blocks_stride(form, k);
    float *scale = (float *)(row + at.scale), *sum = (float *)(row + at.sum);
    if (form == BLOCK_FINE) {
        kn->quantize_fine(k, rows_at(x, i), (int16_t *)row, scale);
        return;
    }
    int16_t(*half_sum)[2] = (int16_t(*)[2])(row + at.half_sum);
    kn->quantize(k, rows_at(x, i), (int8_t *)row, scale, half_sum[0]);
    for (int64_t b = 0; b < k / BLOCK; b++)
        sum[b] = scale[b] * (float)(half_sum[b][0] + half_sum[b][1]);
}

/* Converts all rows to integers in the scratch, unless they are there already or the caller has made them. */
static void load_rows(gemm *g, block_form form)
{
    gemm_form wanted = (gemm_form)(GEMM_BLOCKS + form);
    if (g->form == wanted || (g->home && g->home->form[form])) return;
    for (int64_t i = 0; i < g->m; i++)
        gemm_blocks_quantize(g->kernels, form, g->source, i, g->k, (char *)g->x_panel);
    g->form = wanted;
}

/* Points *taken to m rows, beginning with row `first`. It is called often, so it does not clear the rest
 * of *taken. */
static void take_rows(const gemm *g, block_form form, int64_t first, int64_t m, block_x *taken)
{
    const int32_t *index = g->source.index;
    row_parts at = parts_of(form, g->k);
    taken->scale = at.scale;
    taken->sum = at.sum;
    taken->half_sum = at.half_sum;
    int64_t stride = gemm_blocks_stride(form, g->k);
    const char *home = g->home ? g->home->form[form] : NULL;
    for (int64_t i = 0; i < m; i++) {
        int64_t row = !home ? first + i : index ? index[first + i] : g->home_row + first + i;
        taken->row[i] = (home ? home : (const char *)g->x_panel) + row * stride;
    }
}

/* ---- octets -------------------------------------------------------------------------------------- */

/* The kept octets of w, or NULL. */
static const unsigned char *kept_octets(matrix w)
{
    if (!w.home || w.home_row % BLOCK_OCTET != 0) return NULL;
    const unsigned char *all = atomic_load_explicit(&w.home->octets, memory_order_acquire);
    return all ? all + w.home_row * w.stride : NULL;
}

/* Makes octet i of n rows of w. Rows after the last are copies of it. */
static void make_octet(const kernels *kn, matrix w, int64_t k, int64_t n, int64_t i, void *octet)
{
    const unsigned char *row[BLOCK_OCTET];
    for (int r = 0; r < BLOCK_OCTET; r++)
        row[r] = matrix_at(w, min64(i * BLOCK_OCTET + r, n - 1), 0);
    kn->dtypes[w.type].blocks->interleave(row, k, octet);
}

/* Octet i: a kept one, or one made now in the scratch. */
static const void *octet_of(const gemm *g, matrix w, const unsigned char *kept, int64_t n,
                            int64_t i)
{
    int64_t bytes = BLOCK_OCTET * w.stride;
    if (kept && (i + 1) * BLOCK_OCTET <= n) return kept + i * bytes;
    make_octet(g->kernels, w, g->k, n, i, g->octet);
    return g->octet;
}

/* Rows of w that will be made into the next octet. They are prefetched while the present one is multiplied
 * with x, an equal share for each group of rows. */
typedef struct coming {
    const unsigned char *at, *end;
    int64_t step; /* bytes of a share */
} coming;

static coming coming_octet(matrix w, int64_t i, int64_t n_groups)
{
    coming c = {.at = matrix_at(w, i * BLOCK_OCTET, 0)};
    c.end = c.at + BLOCK_OCTET * w.stride;
    c.step = ceil_div(ceil_div(c.end - c.at, n_groups), CACHE_LINE) * CACHE_LINE;
    return c;
}

static void ask(coming *c)
{
    const unsigned char *end = c->end - c->at > c->step ? c->at + c->step : c->end;
    for (; c->at < end; c->at += CACHE_LINE) __builtin_prefetch(c->at, 0, 2);
}

void gemm_blocks_interleave(const kernels *kn, matrix w, int64_t k, int64_t first, int64_t n,
                            void *octets)
{
    for (int64_t i = first; i < first + n; i++)
        make_octet(kn, w, k, (first + n) * BLOCK_OCTET, i,
                   (char *)octets + i * BLOCK_OCTET * w.stride);
}

/* ---- products ---------------------------------------------------------------------------------- */

/* Rows of x are cut into as few groups as the kernel allows, about equal. Returns the rows of all groups
 * but the last. */
static int64_t group_rows(const gemm *g, const block_kernels *bk)
{
    return ceil_div(g->m, ceil_div(g->m, bk->most_rows));
}

/* Multiplies all rows of x with n whole octets. */
static void run_whole(const gemm *g, dsmoe_dtype type, const void *octets, int64_t n, coming next,
                      float *y, int64_t ldy)
{
    const block_kernels *bk = g->kernels->dtypes[type].blocks;
    int64_t group = group_rows(g, bk);
    for (int64_t i = 0; i < g->m; i += group) {
        int64_t m = min64(group, g->m - i);
        block_x x;
        take_rows(g, bk->form, i, m, &x);
        ask(&next);
        bk->rows((int)m, &x, octets, n, g->k, y + i * ldy, ldy);
    }
}

/* Multiplies all rows of x with an octet of which only n rows count. */
static void run_part(const gemm *g, dsmoe_dtype type, const void *octet, int64_t n, float *y,
                     int64_t ldy)
{
    const block_kernels *bk = g->kernels->dtypes[type].blocks;
    int64_t group = group_rows(g, bk);
    for (int64_t i = 0; i < g->m; i += group) {
        int64_t m = min64(group, g->m - i);
        block_x x;
        take_rows(g, bk->form, i, m, &x);
        float some[BLOCK_ROWS_MAX][BLOCK_OCTET];
        bk->rows((int)m, &x, octet, 1, g->k, some[0], BLOCK_OCTET);
        for (int64_t r = 0; r < m; r++) memcpy(y + (i + r) * ldy, some[r], (size_t)n * sizeof *y);
    }
}

void gemm_blocks_nt(gemm *g, matrix w, int64_t n, float *y, int64_t ldy)
{
    const block_kernels *bk = g->kernels->dtypes[w.type].blocks;
    const unsigned char *kept = kept_octets(w);
    int64_t whole = n / BLOCK_OCTET;
    int64_t near = !kept ? 1 : g->m <= bk->most_rows ? whole : NEAR_OCTETS;
    if (g->m == 0) return;
    load_rows(g, bk->form);
    for (int64_t i = 0; i < whole; i += near) {
        coming next = {0};
        if (!kept && i + 1 < whole)
            next = coming_octet(w, i + 1, ceil_div(g->m, group_rows(g, bk)));
        run_whole(g, w.type, octet_of(g, w, kept, n, i), min64(near, whole - i), next,
                  y + i * BLOCK_OCTET, ldy);
    }
    if (whole * BLOCK_OCTET < n)
        run_part(g, w.type, octet_of(g, w, kept, n, whole), n - whole * BLOCK_OCTET,
                 y + whole * BLOCK_OCTET, ldy);
}
