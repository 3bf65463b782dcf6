/* dsmoe/plan.h - what architectures and models cost in parameters and operations, without building them. */
#ifndef DSMOE_PLAN_H
#define DSMOE_PLAN_H

#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exact number of ways to choose k of n, as a string of decimal digits to free(). */
DSMOE_API dsmoe_status dsmoe_combinations(int64_t n, int64_t k, char **digits, dsmoe_error *error);

/* One of the paper's three architectures and its costs. */
typedef struct dsmoe_plan_row {
    int64_t n_routed_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size;
    int64_t expert_parameters; /* all experts, without the router */
    int64_t active_parameters; /* of the experts that one token uses */
    int64_t flops_per_token;   /* two for each active parameter */
    int64_t router_parameters;
    char *combinations; /* exact, decimal */
} dsmoe_plan_row;

/* Conventional top-K of N experts; each expert split into m; and Ks of the parts shared. */
typedef struct dsmoe_plan {
    dsmoe_plan_row conventional, fine_grained, shared_isolation;
} dsmoe_plan;
/* Fails if parameters and compute cannot stay constant; the message names the number at fault. */
DSMOE_API dsmoe_status dsmoe_plan_make(int64_t n_experts, int64_t k_active, int64_t m_split,
                                       int64_t k_shared, int64_t hidden_size, int64_t ffn_size,
                                       dsmoe_plan *plan, dsmoe_error *error);
DSMOE_API void dsmoe_plan_free(dsmoe_plan *plan);

/* Parameters of a whole model, part by part, and the cost of training on one sequence. */
typedef struct dsmoe_model_plan {
    int64_t embedding, attention, dense_ffn, routed_experts, shared_experts, router, norms, lm_head;
    int64_t total, active;
    int64_t active_routed_experts; /* the part of routed_experts that one token uses */
    int64_t n_moe_layers;
    double matmul_flops;    /* forward and backward over n_tokens: 6 · (active - embedding) each */
    double attention_flops; /* scores and weighted values over the full square: 12·L·d·T each */
} dsmoe_model_plan;
DSMOE_API dsmoe_status dsmoe_model_plan_make(const dsmoe_config *config, int64_t n_tokens,
                                             dsmoe_model_plan *plan, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
