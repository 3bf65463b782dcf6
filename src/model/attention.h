/* attention.h - causal self-attention over the KV cache, multi-head, grouped-query or latent. */
#ifndef DSMOE_MODEL_ATTENTION_H
#define DSMOE_MODEL_ATTENTION_H

#include "model/pass.h"

/* Bytes of p->phase that attention takes. */
size_t attention_size(const dsmoe_model *model, int64_t n_rows, int n_threads);

/* p->y = o_proj · Attention(p->normed); stores the keys and values of the rows in the cache. */
void attention_forward(pass *p, int64_t layer);

#endif
