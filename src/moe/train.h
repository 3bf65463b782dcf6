/* train.h - the layer in training, forward and backward. */
#ifndef DSMOE_MOE_TRAIN_H
#define DSMOE_MOE_TRAIN_H

#include "moe/moe.h"

/* Seconds that parts of a layer took. */
typedef struct layer_times {
    double router;  /* scores, choice, sorting and balance losses */
    double sending; /* rows to and from other ranks, as far as nothing was computed meanwhile */
    double waiting; /* for the other ranks to be as far as this one */
} layer_times;

/* What a training batch looks like to the balance losses. */
typedef struct layer_batch {
    int64_t n_sequences, sequence_length;
    /* As dsmoe_batch has them, to stay until backward; NULL: each sequence is one conversation. */
    const int32_t *positions;
    /* With positions: what sums over tokens are divided by; 0: the number of tokens without padding. */
    double n_tokens;
} layer_batch;

/* dsmoe_layer_forward_train of such a batch, and dsmoe_layer_backward; both add to *times. Weights may have any type:
 * gradients are made of those that have a place for them, which must be float32, and of low-rank additions. `again`:
 * forward is run once more for what it keeps alone; y may then be anything. */
dsmoe_status layer_forward_train(const dsmoe_layer *layer, const float *x, const layer_batch *batch,
                                 float *y, void *saved, size_t saved_size,
                                 dsmoe_layer_losses *losses, const dsmoe_workspace *workspace,
                                 bool again, layer_times *times, dsmoe_error *error);
dsmoe_status layer_backward(const dsmoe_layer *layer, const float *x, const float *dy, void *saved,
                            float *dx, dsmoe_layer_weights *gradients, bool accumulate,
                            const dsmoe_workspace *workspace, layer_times *times,
                            dsmoe_error *error);

/* Of the memory that forward fills, aligned to a cache line, this is the routing; after it come floats alone, the hidden
 * numbers of experts. */
size_t layer_saved_head(const dsmoe_layer *layer, int64_t n_tokens);

#endif
