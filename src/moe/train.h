/* train.h - the layer in training, forward and backward. */
#ifndef DSMOE_MOE_TRAIN_H
#define DSMOE_MOE_TRAIN_H

#include "moe/moe.h"

/* Seconds spent in parts of a layer. */
typedef struct layer_times {
    double router;  /* scores, choice, sorting and balance losses */
    double sending; /* rows to and from other ranks, while nothing was computed */
    double waiting; /* for the other ranks to catch up */
} layer_times;

/* A training batch, as the balance losses see it. */
typedef struct layer_batch {
    int64_t n_sequences, sequence_length;
    /* As in dsmoe_batch. They must stay until backward. NULL: each sequence is one conversation. */
    const int32_t *positions;
    /* With positions: what sums over tokens are divided by. 0: the number of tokens that are not padding. */
    double n_tokens;
} layer_batch;

/* dsmoe_layer_forward_train for such a batch, and dsmoe_layer_backward. Both add to *times. Weights may have
 * any type. Gradients are computed for the weights that have a place for them, which must be float32, and for
 * low-rank additions. With `again`, forward runs a second time only to fill `saved`; y is then undefined. */
dsmoe_status layer_forward_train(const dsmoe_layer *layer, const float *x, const layer_batch *batch,
                                 float *y, void *saved, size_t saved_size,
                                 dsmoe_layer_losses *losses, const dsmoe_workspace *workspace,
                                 bool again, layer_times *times, dsmoe_error *error);
dsmoe_status layer_backward(const dsmoe_layer *layer, const float *x, const float *dy, void *saved,
                            float *dx, dsmoe_layer_weights *gradients, bool accumulate,
                            const dsmoe_workspace *workspace, layer_times *times,
                            dsmoe_error *error);

/* Bytes at the beginning of `saved` (aligned to a cache line) that hold the routing. After them come only
 * floats, the experts' g and u. */
size_t layer_saved_head(const dsmoe_layer *layer, int64_t n_tokens);

#endif
