/* latent_keys.h - the rows of kv_b_proj that make keys, as the absorbed form of latent attention needs
 * them.
 *
 * It multiplies a query by the transpose of these rows, which is a sum over rows. The cache kernels
 * compute it for the types of a cache. Rows of other types are copied: block types as float16, whose
 * rounding error is far below their own, and bfloat16 as float32. If kv_b_proj is split there are none:
 * k_b_proj is the transpose. */
#ifndef DSMOE_MODEL_LATENT_KEYS_H
#define DSMOE_MODEL_LATENT_KEYS_H

#include "model/model.h"

/* The rows of one layer: for each head qk_nope_head_dim rows of kv_lora_rank numbers. */
typedef struct latent_key_rows {
    const unsigned char *data;
    int64_t head; /* bytes from one head to the next */
    dsmoe_dtype type;
} latent_key_rows;

typedef struct latent_keys {
    latent_key_rows *layers; /* [num_hidden_layers]; NULL if they are not needed */
    unsigned char *memory;   /* of the copies */
    size_t size;
} latent_keys;

/* Bytes of the copies. */
size_t latent_keys_size(const dsmoe_model *model);
/* False if out of memory. The model must outlive the keys; rows that are not copied may be changed
 * meanwhile. */
bool latent_keys_open(latent_keys *keys, const dsmoe_model *model, int n_threads);
void latent_keys_close(latent_keys *keys);

#endif
