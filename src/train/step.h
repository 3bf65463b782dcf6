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
    float *x;      /* its input; [n_tokens, hidden_size], like `middle` */
    float *middle; /* its input plus attention's output */
    attention_saved attention;
    void *moe; /* for an MoE layer: see dsmoe_layer_saved_size */
    size_t moe_size;
    float *g, *u; /* for a dense layer: [n_tokens, intermediate_size] */
    /* With quantised weights all layers use the same memory for these, and some have a store to keep them
     * in: see halves.h. */
    kept_piece pieces[KEPT_PIECES];
    void *store;
} layer_saved;

struct step_space {
    int64_t n_tokens;
    attention_batch attention;
    layer_batch experts; /* the same batch, for MoE layers */
    norm_rows norm;
    layer_saved *layers; /* with recomputation all share the same memory, except for `x` */
    /* [n_tokens, hidden_size] each */
    float *x_last; /* output of the last layer */
    float *normed, *y;
    float *dx, *d_normed;
    float *cos, *sin, *sin_back; /* [sequence_length, config_rope_dim / 2] */
    double *reference, *margins; /* [n_tokens / 2 + 1] for the pairs of a batch of preferences */
    float *shares; /* [n_tokens] see preference.h. All three: NULL without additions */
    void *phase;   /* memory for one part of the work, reused by the next */
    size_t phase_size;
};

/* Places everything in the arena, beginning with the struct itself. What backward needs is counted in
 * *activations, the rest is workspace. The same function measures and places. */
step_space *step_place(arena *a, const dsmoe_trainer *trainer, size_t *activations);
/* Computes what does not change from batch to batch. */
void step_begin(dsmoe_trainer *trainer);

/* Forward up to the last layer. Fails with DSMOE_ERROR_NONFINITE if a router's scores are not finite. NULL
 * for `batch`: this rank has no batch and runs its experts for others. The batch must stay until backward. */
dsmoe_status step_forward(dsmoe_trainer *trainer, const dsmoe_batch *batch, dsmoe_error *error);
/* For preferences, before step_forward: forward without the additions, to get the reference margins. */
dsmoe_status step_refer(dsmoe_trainer *trainer, const dsmoe_batch *batch, dsmoe_error *error);
/* The head: computes the losses, which may be NaN, and the gradient by the last layer's output. */
preference_sums step_predict(dsmoe_trainer *trainer, const dsmoe_batch *batch);
/* The rest of backward. */
dsmoe_status step_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch, dsmoe_error *error);

#endif
