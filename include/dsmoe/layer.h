/* dsmoe/layer.h - the MoE layer of the paper: gate, experts, balance losses; forward and backward. */
#ifndef DSMOE_LAYER_H
#define DSMOE_LAYER_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names are keys of config.json, except those of the paper's device-level balance loss, which has no public
 * key. */
typedef struct dsmoe_layer_config {
    int64_t hidden_size;
    int64_t moe_intermediate_size; /* width of one (fine-grained) expert */
    int64_t n_routed_experts;
    int64_t n_shared_experts; /* 0: none (null in config.json) */
    int64_t num_experts_per_tok;
    bool norm_topk_prob;      /* renormalise the chosen gate values to a sum of 1 (only if k > 1) */
    const char *scoring_func; /* "softmax" (also NULL) or "sigmoid" */
    float aux_loss_alpha;     /* expert-level balance factor (alpha1); 0: no such loss */
    bool seq_aux;             /* balance per sequence, averaged, instead of over the batch */
    int64_t n_device_groups;  /* equal consecutive expert groups (D); 0: no device-level loss */
    float device_loss_alpha;  /* device-level balance factor (alpha2) */
    /* For the paper's successors, DeepSeek-V2 and V3; all 0: the paper's own gate. */
    const char *topk_method;     /* "greedy" (also NULL), "group_limited_greedy", "noaux_tc" */
    int64_t n_group, topk_group; /* experts come from topk_group of n_group groups; 0: from all */
    /* Multiplies gate values: with "noaux_tc" always, otherwise only if they are not renormalised; 0: 1. */
    float routed_scaling_factor;
} dsmoe_layer_config;

/* A configuration with the public defaults for what a checkpoint may leave out. */
DSMOE_API dsmoe_layer_config dsmoe_layer_config_default(void);

/* Checks whether a layer of this configuration can be built; the message names the offending key. */
DSMOE_API dsmoe_status dsmoe_layer_config_check(const dsmoe_layer_config *config,
                                                dsmoe_error *error);

/* One SwiGLU expert: down_proj · (silu(gate_proj · x) * (up_proj · x)). */
typedef struct dsmoe_expert_weights {
    float *gate_proj; /* [width, hidden_size] */
    float *up_proj;   /* [width, hidden_size] */
    float *down_proj; /* [hidden_size, width] */
} dsmoe_expert_weights;

/* The parameters of a layer, or their gradients. */
typedef struct dsmoe_layer_weights {
    float *gate;                         /* the router: [n_routed_experts, hidden_size] */
    float *e_score_correction_bias;      /* with "noaux_tc": [n_routed_experts]; otherwise NULL */
    dsmoe_expert_weights *experts;       /* [n_routed_experts], width moe_intermediate_size */
    dsmoe_expert_weights shared_experts; /* fused: width n_shared_experts * moe_intermediate_size */
} dsmoe_layer_weights;

/* Allocates all matrices of a layer together, zeroed. Free with dsmoe_layer_weights_free. */
DSMOE_API dsmoe_status dsmoe_layer_weights_create(const dsmoe_layer_config *config,
                                                  dsmoe_layer_weights **weights,
                                                  dsmoe_error *error);
DSMOE_API void dsmoe_layer_weights_free(dsmoe_layer_weights *weights);

/* Fills in fresh weights as the public model initialises them: the router uniform in ±1/sqrt(hidden_size),
 * its bias 0, the rest normal(0, initializer_range). The same seed gives the same bits on every machine. */
DSMOE_API dsmoe_status dsmoe_layer_weights_init(const dsmoe_layer_config *config,
                                                dsmoe_layer_weights *weights,
                                                float initializer_range, uint64_t seed,
                                                int n_threads, dsmoe_error *error);

/* An immutable layer over weights that the caller keeps alive. Several threads may use one layer, each with
 * its own workspace. The table of pointers is copied, the matrices are not. */
typedef struct dsmoe_layer dsmoe_layer;
DSMOE_API dsmoe_status dsmoe_layer_create(const dsmoe_layer_config *config,
                                          const dsmoe_layer_weights *weights, dsmoe_layer **layer,
                                          dsmoe_error *error);
DSMOE_API void dsmoe_layer_free(dsmoe_layer *layer);

/* Scratch memory that the caller provides, at least as large as the matching *_size function says, and the
 * number of threads to use (at least 1). Nothing is allocated during forward or backward. */
typedef struct dsmoe_workspace {
    void *memory;
    size_t size;
    int n_threads;
} dsmoe_workspace;

/* Allocates zeroed memory that suits a workspace best: aligned, and in huge pages if the system grants them,
 * which makes large products a few per cent faster. NULL if there is not enough. Any other memory works
 * too. */
DSMOE_API void *dsmoe_memory_alloc(size_t size);
DSMOE_API void dsmoe_memory_free(void *memory);

/* Bytes of workspace; 0 if they cannot fit into memory. Inference works through long inputs in pieces, so its
 * workspace is bounded. That of training grows with n_tokens. */
DSMOE_API size_t dsmoe_layer_workspace_size(const dsmoe_layer *layer, int64_t n_tokens,
                                            int n_threads);
DSMOE_API size_t dsmoe_layer_train_workspace_size(const dsmoe_layer *layer, int64_t n_tokens,
                                                  int n_threads);
/* Bytes that training keeps from forward to backward. */
DSMOE_API size_t dsmoe_layer_saved_size(const dsmoe_layer *layer, int64_t n_tokens);

/* y = MoE(x) for x, y [n_tokens, hidden_size]; n_tokens may be 0. The residual of the paper's formula (+ u)
 * is NOT added: the caller adds it, as in the public model. y must not overlap x. The routing of a token has
 * the same bits alone and in a batch. Its output may differ in the last digits (about 1e-7 of its size),
 * because an expert adds up few rows in a different order from many. */
DSMOE_API dsmoe_status dsmoe_layer_forward(const dsmoe_layer *layer, const float *x,
                                           int64_t n_tokens, float *y,
                                           const dsmoe_workspace *workspace, dsmoe_error *error);

/* What the gate decides. dsmoe_layer_route computes it without running an expert; any of the three outputs
 * may be NULL. The experts of a token are in order of falling score ("noaux_tc": score plus bias); ties are
 * in order of rising index. */
typedef struct dsmoe_routing {
    float *scores;      /* [n_tokens, n_routed_experts] as scoring_func says */
    int32_t *topk_idx;  /* [n_tokens, num_experts_per_tok] */
    float *topk_weight; /* [n_tokens, num_experts_per_tok] gate values */
} dsmoe_routing;
DSMOE_API dsmoe_status dsmoe_layer_route(const dsmoe_layer *layer, const float *x, int64_t n_tokens,
                                         dsmoe_routing routing, const dsmoe_workspace *workspace,
                                         dsmoe_error *error);

/* The balance losses of one batch, already multiplied by their factors. */
typedef struct dsmoe_layer_losses {
    float aux_loss;    /* expert-level, per sequence or per batch as seq_aux says */
    float device_loss; /* device-level, over the whole batch */
} dsmoe_layer_losses;

/* The training form of forward: x is [n_sequences, sequence_length, hidden_size]. `saved` receives what
 * backward needs: 2·(k + n_shared)·moe_intermediate_size floats per token, and the routing. `losses` may be
 * NULL. */
DSMOE_API dsmoe_status dsmoe_layer_forward_train(const dsmoe_layer *layer, const float *x,
                                                 int64_t n_sequences, int64_t sequence_length,
                                                 float *y, void *saved, size_t saved_size,
                                                 dsmoe_layer_losses *losses,
                                                 const dsmoe_workspace *workspace,
                                                 dsmoe_error *error);

/* The routing inside `saved`, valid until dsmoe_layer_backward, which overwrites `saved`. */
DSMOE_API dsmoe_routing dsmoe_layer_saved_routing(const dsmoe_layer *layer, const void *saved);

/* Gradients of sum(y*dy) + aux_loss + device_loss. x must be the input of the forward pass; `saved` is
 * overwritten. dx is written. Weight gradients are added to `gradients` if `accumulate`, otherwise written.
 * The balance losses affect the router with weight 1, however dy is scaled. The bias of "noaux_tc" has no
 * gradient: `gradients` may have NULL for it, and it is not written. */
DSMOE_API dsmoe_status dsmoe_layer_backward(const dsmoe_layer *layer, const float *x,
                                            const float *dy, void *saved, float *dx,
                                            dsmoe_layer_weights *gradients, bool accumulate,
                                            const dsmoe_workspace *workspace, dsmoe_error *error);

/* The device-level balance loss of a routing for any number of equal groups, with factor 1. */
DSMOE_API dsmoe_status dsmoe_device_loss(const dsmoe_layer_config *config, dsmoe_routing routing,
                                         int64_t n_tokens, int64_t n_device_groups, double *loss,
                                         dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
