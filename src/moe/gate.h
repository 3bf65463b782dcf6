/* gate.h - which experts a token goes to, and with what weight. Training and inference share it, so
 * a model routes in serving exactly as it was trained. */
#ifndef DSMOE_MOE_GATE_H
#define DSMOE_MOE_GATE_H

#include "moe/moe.h"
#include "moe/scratch.h"

/* What experts and groups of them are compared by: room for each thread. */
float *gate_keys_place(arena *a, const dsmoe_layer *layer, int n_threads);

/* Fills all three arrays of `routing`. A token whose scores are not finite numbers, or that a bias which is none
 * would choose for, is spoilt: it gets the first experts, with scores and gate values that are not numbers. */
void gate_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens, dsmoe_routing routing,
                  thread_scratch *threads, float *keys, int n_threads);
bool gate_is_spoilt(const dsmoe_layer *layer, dsmoe_routing routing, int64_t token);
/* DSMOE_ERROR_NONFINITE if a token is spoilt; the message counts from the caller's token `first`. */
dsmoe_status gate_check(const dsmoe_layer *layer, int64_t n_tokens, int64_t first,
                        dsmoe_routing routing, dsmoe_error *error);

/* From the gradient by the gate values [n_tokens, k] and the gradient of the balance losses by the
 * scores' shares (one row of n_routed_experts for every `tokens_per_row` tokens; see balance.h) to
 * that by the logits. */
void gate_backward(const dsmoe_layer *layer, int64_t n_tokens, dsmoe_routing routing,
                   const float *d_topk_weight, const float *d_scores, int64_t tokens_per_row,
                   float *d_logits, int n_threads);

#endif
