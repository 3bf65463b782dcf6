/* latent_attention.h - queries, keys and values of latent attention, forward and backward. */
#ifndef DSMOE_TRAIN_LATENT_ATTENTION_H
#define DSMOE_TRAIN_LATENT_ATTENTION_H

#include "train/attention.h"
#include "train/norm.h"

/* Workspace, [n_tokens, …]. */
typedef struct latent_space {
    norm_rows norm, q_norm;
    float *kv; /* [heads · (nope + v)]: per head, keys without positions and values; or gradient */
    float *k_rope; /* [rope]: the part of keys with positions, shared by all heads; or gradient */
    float *normed, *d_normed; /* [the larger of kv_lora_rank and q_lora_rank] */
} latent_space;

latent_space latent_place(arena *a, const attention_batch *batch);

/* Fills q, k and v from x, and saves what backward needs. */
void latent_forward(const attention_batch *batch, const layer_weights *w, const float *x,
                    const attention_saved *saved, const latent_space *space,
                    thread_scratch *threads);
/* From `d`, the gradients by q, k and v, which are overwritten, to dx. Gradients of the weights are
 * written too. `t` is linear_backward's. */
void latent_backward(const attention_batch *batch, const layer_weights *w, const float *x,
                     const attention_saved *saved, const attention_saved *d, float *dx,
                     const layer_weights *gradients, const latent_space *space,
                     thread_scratch *threads, float *t);

#endif
