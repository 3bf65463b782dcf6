/* naive_loss.h - the loss that training minimises, in plain double arithmetic: the mean cross entropy of a
 * batch and the balance losses of all its MoE layers. */
#ifndef DSMOE_TESTS_NAIVE_LOSS_H
#define DSMOE_TESTS_NAIVE_LOSS_H

#include "naive_model.h"

typedef struct naive_batch {
    const int32_t *tokens, *targets; /* [n_sequences, sequence_length]; a target of -1: none */
    int64_t n_sequences, sequence_length;
    int64_t n_device_groups; /* 0: no device-level loss */
    double device_loss_alpha;
    int64_t **topk_idx; /* of each sequence, as in naive_result; filled by naive_batch_route */
    double margin;      /* the smallest margin of the routing */
} naive_batch;

/* Computes the routing of the batch, which then stays fixed. */
void naive_batch_route(naive_batch *batch, const made_model *model);
void naive_batch_free(naive_batch *batch);

enum { NAIVE_LAYERS = 8 };
typedef struct naive_losses {
    double loss, aux_loss, device_loss;
    double layer_aux[NAIVE_LAYERS], layer_device[NAIVE_LAYERS]; /* by MoE layer */
    double total;
} naive_losses;
naive_losses naive_batch_losses(const naive_batch *batch, const made_model *model);

#endif
