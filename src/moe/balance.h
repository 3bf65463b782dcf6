/* balance.h - the losses that keep experts evenly used. */
#ifndef DSMOE_MOE_BALANCE_H
#define DSMOE_MOE_BALANCE_H

#include "base/arena.h"
#include "moe/train.h"

/* What the balance losses need to know about a batch. */
typedef struct balance_batch {
    const dsmoe_layer_config *config;
    dsmoe_routing routing;
    layer_batch of;
} balance_batch;

/* The values of the losses. `scratch` holds 2·n_routed_experts doubles. */
dsmoe_layer_losses balance_losses(const balance_batch *batch, double *scratch);

/* Gradient of the sum of the losses with respect to each score's share s_i / Σ_j s_j. (Softmax scores are
 * their own shares.) All tokens of a sequence have the same gradient, so d_scores is [n_sequences,
 * n_routed_experts]. With positions it has a row for each token instead, zeros for padding. `scratch` as
 * above. */
void balance_gradient(const balance_batch *batch, float *d_scores, double *scratch);

/* How many tokens share a row of d_scores. */
static inline int64_t balance_tokens_per_row(const layer_batch *of)
{
    return of->positions ? 1 : of->sequence_length;
}

#endif
