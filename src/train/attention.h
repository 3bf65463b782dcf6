/* attention.h - causal attention over whole sequences, forward and backward. */
#ifndef DSMOE_TRAIN_ATTENTION_H
#define DSMOE_TRAIN_ATTENTION_H

#include "model/weights.h"
#include "moe/low_rank_backward.h"

/* What backward needs of forward, or its gradient, [n_tokens, …]. */
typedef struct attention_saved {
    float *q, *k; /* [heads · config_head_dim], turned by their position; q scaled */
    float *v;     /* [heads · config_value_dim] */
    float *heads; /* what o_proj gets: as v, but as many heads as q */
    /* Of latent attention, before their norms: */
    float *latent; /* [kv_lora_rank] */
    float *q_a;    /* [q_lora_rank], if queries are compressed */
} attention_saved;

/* A batch of sequences of one length, each of one conversation or several. */
typedef struct attention_batch {
    const dsmoe_config *config;
    const kernels *kernels;
    int64_t n_sequences, sequence_length;
    const float *cos, *sin;   /* [sequence_length, config_rope_dim / 2] */
    const float *sin_back;    /* -sin: turns gradients back */
    const int32_t *positions; /* as dsmoe_batch has them; NULL: one conversation */
    int n_threads;
    bool rope_pairs;  /* rows of q_proj and k_proj lie as in GGUF files: see rope_turn_pairs */
    unsigned x_forms; /* that weights want of x: see ints.h */
    const low_rank_training *low_rank; /* NULL: nothing is adapted */
} attention_batch;

/* Of a token, by which it is turned. Padding has the first one. */
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
/* dx = gradient by x of sum(y·dy); those of the weights are written too, where they have a place. */
void attention_train_backward(const attention_batch *batch, const layer_weights *w, const float *x,
                              attention_saved saved, const float *dy, float *dx,
                              const layer_weights *gradients, void *workspace);

#endif
