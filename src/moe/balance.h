/* balance.h - the losses that keep experts evenly used. */
#ifndef DSMOE_MOE_BALANCE_H
#define DSMOE_MOE_BALANCE_H

#include "base/arena.h"
#include "moe/train.h"

/* What a batch of routing decisions looks like to the balance losses. */
typedef struct balance_batch {
    const dsmoe_layer_config *config;
    dsmoe_routing routing;
    layer_batch of;
} balance_batch;

/* Values. `scratch` holds 2·n_routed_experts doubles. */
dsmoe_layer_losses balance_losses(const balance_batch *batch, double *scratch);

/* Gradient of their sum by the scores' shares s_i / Σ_j s_j, which of softmax are the scores themselves.
 * It is the same for all tokens of a sequence, so there is one row a sequence: d_scores [n_sequences,
 * n_routed_experts]; but with positions one a token, that of padding being 0. `scratch` as above. */
void balance_gradient(const balance_batch *batch, float *d_scores, double *scratch);

/* Tokens that share a row of it. */
static inline int64_t balance_tokens_per_row(const layer_batch *of)
{
    return of->positions ? 1 : of->sequence_length;
}

#endif
