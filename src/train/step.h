/* step.h - one batch through the model and back. */
#ifndef DSMOE_TRAIN_STEP_H
#define DSMOE_TRAIN_STEP_H

#include "moe/experts.h"
#include "moe/train.h"
#include "train/attention.h"
#include "train/halves.h"
#include "train/norm.h"
#include "train/preference.h"
#include "train/trainer.h"

/* What one layer keeps from forward to backward. */
typedef struct layer_saved {
    float *x;      /* its input; [n_tokens, hidden_size], as is */
    float *middle; /* its input after attention was added */
    attention_saved attention;
    void *moe; /* of an MoE layer: see dsmoe_layer_saved_size */
    size_t moe_size;
    float *g, *u; /* of a dense one: [n_tokens, intermediate_size] */
    /* With weights in blocks all layers have one place for that, and some a store that it is kept in: see halves.h. */
    kept_piece pieces[KEPT_PIECES];
    void *store;
} layer_saved;

struct step_space {
    int64_t n_tokens;
    attention_batch attention;
    layer_batch experts; /* the same batch, as MoE layers see it */
    norm_rows norm;
    layer_saved *layers; /* with recomputation all but `x` is the same memory in each */
    /* [n_tokens, hidden_size] each */
    float *x_last; /* output of the last layer */
    float *normed, *y;
    float *dx, *d_normed;
    float *cos, *sin, *sin_back; /* [sequence_length, config_rope_dim / 2] */
    double *reference,
        *margins;  /* [n_tokens / 2 + 1] of the pairs of a batch of preferences, and */
    float *shares; /* [n_tokens] of its tokens: see preference.h; NULL without additions */
    void *phase;   /* memory of one part of the work, free for the next */
    size_t phase_size;
};

/* Where everything lies; the struct itself is the first thing placed. What backward needs is counted
 * in *activations, the rest is workspace. One function measures and places. */
step_space *step_place(arena *a, const dsmoe_trainer *trainer, size_t *activations);
/* Fills in what does not change from batch to batch. */
void step_begin(dsmoe_trainer *trainer);

/* Forward up to the last layer. DSMOE_ERROR_NONFINITE if a router's scores are not finite numbers. The batch may be
 * NULL: a rank without one, which runs its experts for others. It is to stay until backward. */
dsmoe_status step_forward(dsmoe_trainer *trainer, const dsmoe_batch *batch, dsmoe_error *error);
/* Of preferences, before that: forward without the additions, for what they are compared with. */
dsmoe_status step_refer(dsmoe_trainer *trainer, const dsmoe_batch *batch, dsmoe_error *error);
/* The head: the losses, which may be NaN, and the gradient by the last layer's output. */
preference_sums step_predict(dsmoe_trainer *trainer, const dsmoe_batch *batch);
/* The rest of the way back. */
dsmoe_status step_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch, dsmoe_error *error);

#endif
