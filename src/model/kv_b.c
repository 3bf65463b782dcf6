/* kv_b.c - the two forms of kv_b_proj, and conversion between them. */
#include "model/kv_b.h"

enum { BLOCK_MOST = 256 }; /* the most numbers of a quantised block */

static int64_t head_rows(const dsmoe_config *c) { return c->qk_nope_head_dim + c->v_head_dim; }

int64_t kv_b_value_row(const dsmoe_config *c, int64_t row)
{
    return row / c->v_head_dim * head_rows(c) + c->qk_nope_head_dim + row % c->v_head_dim;
}

int64_t kv_b_key_row(const dsmoe_config *c, int64_t row)
{
    return row / c->kv_lora_rank * head_rows(c);
}

int64_t kv_b_key_column(const dsmoe_config *c, int64_t row) { return row % c->kv_lora_rank; }

/* One column of the first n rows. If the matrix is quantised, whole blocks are widened. */
static void widen_column(const kernels *kn, matrix m, int64_t n, int64_t column, float *out)
{
    int64_t block = dtype_table[m.type].block, within = column % block;
    for (int64_t i = 0; i < n; i++) {
        float numbers[BLOCK_MOST];
        kn->dtypes[m.type].widen(block, matrix_at(m, i, column - within), numbers);
        out[i] = numbers[within];
    }
}

void kv_b_key(const kernels *kn, const dsmoe_config *c, matrix kv_b, int64_t row, float *out)
{
    widen_column(kn, matrix_from(kv_b, kv_b_key_row(c, row)), c->qk_nope_head_dim,
                 kv_b_key_column(c, row), out);
}

void kv_b_whole(const kernels *kn, const dsmoe_config *c, const layer_weights *halves, int64_t row,
                float *out)
{
    int64_t head = row / head_rows(c), within = row % head_rows(c);
    int64_t nope = c->qk_nope_head_dim, rank = c->kv_lora_rank;
    if (within < nope) {
        widen_column(kn, matrix_from(halves->k_b_proj, head * rank), rank, within, out);
        return;
    }
    matrix values = halves->v_b_proj;
    kn->dtypes[values.type].widen(rank, matrix_at(values, head * c->v_head_dim + within - nope, 0),
                                  out);
}
