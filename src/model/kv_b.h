/* kv_b.h - the two forms of kv_b_proj, and conversion between them.
 *
 * Whole, it is [heads·(nope + v), kv_lora_rank]: each head has first the rows that make its key, then the
 * rows that make its value. Split, the key rows are transposed, k_b_proj [heads·kv_lora_rank, nope], and the
 * value rows are separate, v_b_proj [heads·v, kv_lora_rank]. So rows of v_b_proj are rows of kv_b_proj, and
 * rows of k_b_proj are columns of it. */
#ifndef DSMOE_MODEL_KV_B_H
#define DSMOE_MODEL_KV_B_H

#include "model/weights.h"

/* The row of kv_b_proj that is row `row` of v_b_proj. */
int64_t kv_b_value_row(const dsmoe_config *config, int64_t row);
/* Row `row` of k_b_proj is a column of some rows of kv_b_proj: the first of these rows, and the column. */
int64_t kv_b_key_row(const dsmoe_config *config, int64_t row);
int64_t kv_b_key_column(const dsmoe_config *config, int64_t row);

/* Row `row` of k_b_proj [nope] as float32, from a whole kv_b_proj of any type. */
void kv_b_key(const kernels *kn, const dsmoe_config *config, matrix kv_b, int64_t row, float *out);
/* Row `row` of kv_b_proj [kv_lora_rank] as float32, from its halves. */
void kv_b_whole(const kernels *kn, const dsmoe_config *config, const layer_weights *halves,
                int64_t row, float *out);

#endif
