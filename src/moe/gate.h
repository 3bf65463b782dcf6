/* gate.h - which experts a token goes to, and with what weight. Training and inference share this code, so a
 * model routes the same way when it is served as when it was trained. */
#ifndef DSMOE_MOE_GATE_H
#define DSMOE_MOE_GATE_H

#include "moe/moe.h"
#include "moe/scratch.h"

/* Space, for each thread, for the keys that experts and groups of experts are compared by. */
float *gate_keys_place(arena *a, const dsmoe_layer *layer, int n_threads);

/* Fills all three arrays of `routing`. A token is spoilt if one of its scores is NaN or infinite, or becomes
 * so with the bias. It then gets the first k experts, and all its scores and gate values are NaN. */
void gate_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens, dsmoe_routing routing,
                  thread_scratch *threads, float *keys, int n_threads);
bool gate_is_spoilt(const dsmoe_layer *layer, dsmoe_routing routing, int64_t token);
/* DSMOE_ERROR_NONFINITE if a token is spoilt. Token 0 here is token `first` in the message. */
dsmoe_status gate_check(const dsmoe_layer *layer, int64_t n_tokens, int64_t first,
                        dsmoe_routing routing, dsmoe_error *error);

/* Computes the gradient with respect to the logits, d_logits. d_topk_weight [n_tokens, k] is the gradient
 * with respect to the gate values; d_scores is that of the balance losses with respect to the scores' shares,
 * with a row of n_routed_experts for every `tokens_per_row` tokens (see balance.h). */
void gate_backward(const dsmoe_layer *layer, int64_t n_tokens, dsmoe_routing routing,
                   const float *d_topk_weight, const float *d_scores, int64_t tokens_per_row,
                   float *d_logits, int n_threads);

#endif
