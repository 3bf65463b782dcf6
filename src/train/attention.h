/* attention.h - causal attention over whole sequences, forward and backward. */
#ifndef DSMOE_TRAIN_ATTENTION_H
#define DSMOE_TRAIN_ATTENTION_H

#include "model/weights.h"
#include "moe/low_rank_backward.h"

/* What backward needs from forward, or the gradient of the same, [n_tokens, …]. */
typedef struct attention_saved {
    float *q, *k; /* [heads · config_head_dim], rotated by their position; q is also scaled */
    float *v;     /* [heads · config_value_dim] */
    float *heads; /* the input of o_proj: like v, but with as many heads as q */
    /* For latent attention, before the norms: */
    float *latent; /* [kv_lora_rank] */
    float *q_a;    /* [q_lora_rank], if queries are compressed */
} attention_saved;

/* A batch of sequences of equal length, each with one conversation or several. */
typedef struct attention_batch {
    const dsmoe_config *config;
    const kernels *kernels;
    int64_t n_sequences, sequence_length;
    const float *cos, *sin;   /* [sequence_length, config_rope_dim / 2] */
    const float *sin_back;    /* -sin: rotates gradients back */
    const int32_t *positions; /* as dsmoe_batch has them; NULL: one conversation */
    int n_threads;
    bool rope_pairs;  /* rows of q_proj and k_proj are as in GGUF files: see rope_turn_pairs */
    unsigned x_forms; /* forms of x that the weights need: see ints.h */
    const low_rank_training *low_rank; /* NULL: there are no low-rank additions */
} attention_batch;

/* The position by which a token is rotated. Padding uses the first position. */
static inline int64_t attention_position(const attention_batch *b, int64_t token)
{
    if (!b->positions) return token % b->sequence_length;
    return b->positions[token] < 0 ? 0 : b->positions[token];
}

attention_saved attention_saved_place(arena *a, const attention_batch *batch);
/* Bytes of workspace. */
size_t attention_train_size(const attention_batch *batch);

/* y = Attention(x) */
void attention_train_forward(const attention_batch *batch, const layer_weights *w, const float *x,
                             attention_saved saved, float *y, void *workspace);
/* dx = gradient of sum(y·dy) by x; gradients of weights are written too, if `gradients` has memory for
 * them. */
void attention_train_backward(const attention_batch *batch, const layer_weights *w, const float *x,
                              attention_saved saved, const float *dy, float *dx,
                              const layer_weights *gradients, void *workspace);

#endif
