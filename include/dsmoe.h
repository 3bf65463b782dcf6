/* dsmoe.h - the only public header of libdsmoe: DeepSeekMoE in C.
 *
 * Conventions
 *   Names are those of the paper and of a checkpoint's config.json.
 *   Matrices are row-major float32; a weight is [out, in], as in a checkpoint.
 *   A fallible function returns a dsmoe_status and, if `error` is not NULL, fills it with one line
 *   that says what is wrong. The library never prints, exits or aborts.
 *   Results are bit-identical for any number of threads. */
#ifndef DSMOE_H
#define DSMOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DSMOE_API __attribute__((visibility("default")))
#else
#define DSMOE_API
#endif

#define DSMOE_VERSION "0.1.0"
DSMOE_API const char *dsmoe_version(void);

/* ---- status ------------------------------------------------------------------------------- */

/* The numbers are part of the ABI: append, never renumber. */
typedef enum dsmoe_status {
    DSMOE_OK = 0,
    DSMOE_ERROR_ARGUMENT = 1,  /* the caller passed something impossible */
    DSMOE_ERROR_CONFIG = 2,    /* a configuration key has a value that cannot work */
    DSMOE_ERROR_MEMORY = 3,    /* out of memory, or a size that does not fit */
    DSMOE_ERROR_IO = 4,        /* a file cannot be opened, read or written */
    DSMOE_ERROR_FORMAT = 5,    /* a file's content breaks its format's rules */
    DSMOE_ERROR_NONFINITE = 6, /* a NaN or an infinity where a number must be */
} dsmoe_status;

typedef struct dsmoe_error {
    dsmoe_status status;
    char message[512]; /* one line, no newline at its end */
} dsmoe_error;

/* "ok", "bad argument", …: the kind of failure in words. */
DSMOE_API const char *dsmoe_status_name(dsmoe_status status);

/* ---- the MoE layer ------------------------------------------------------------------------ */

/* Keys of config.json, then the paper's device-level balance loss, which has no public key. */
typedef struct dsmoe_layer_config {
    int64_t hidden_size;
    int64_t moe_intermediate_size; /* width of one (fine-grained) expert */
    int64_t n_routed_experts;
    int64_t n_shared_experts; /* 0: none (null in config.json) */
    int64_t num_experts_per_tok;
    bool norm_topk_prob;      /* renormalise the chosen gate values to sum 1 (only if k > 1) */
    const char *scoring_func; /* "softmax", or NULL for the same */
    float aux_loss_alpha;     /* expert-level balance factor (alpha1); 0: no such loss */
    bool seq_aux;             /* balance per sequence, averaged, instead of over the batch */
    int64_t n_device_groups;  /* equal consecutive expert groups (D); 0: no device-level loss */
    float device_loss_alpha;  /* device-level balance factor (alpha2) */
} dsmoe_layer_config;

/* A configuration with the public defaults for what a checkpoint may leave out. */
DSMOE_API dsmoe_layer_config dsmoe_layer_config_default(void);

/* Says whether a layer of this configuration can be built; the message names the offending key. */
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
    dsmoe_expert_weights *experts;       /* [n_routed_experts], width moe_intermediate_size */
    dsmoe_expert_weights shared_experts; /* fused: width n_shared_experts * moe_intermediate_size */
} dsmoe_layer_weights;

/* All matrices of a layer in one zeroed allocation. Free with dsmoe_layer_weights_free. */
DSMOE_API dsmoe_status dsmoe_layer_weights_create(const dsmoe_layer_config *config,
                                                  dsmoe_layer_weights **weights,
                                                  dsmoe_error *error);
DSMOE_API void dsmoe_layer_weights_free(dsmoe_layer_weights *weights);

/* Fresh weights as the public model initialises them: the router uniform in ±1/sqrt(hidden_size),
 * the rest normal(0, initializer_range). The same seed gives the same bits on every machine. */
DSMOE_API dsmoe_status dsmoe_layer_weights_init(const dsmoe_layer_config *config,
                                                dsmoe_layer_weights *weights,
                                                float initializer_range, uint64_t seed,
                                                int n_threads, dsmoe_error *error);

/* An immutable layer over weights that the caller keeps alive; several threads may use one layer,
 * each with its own workspace. The table of pointers is copied, the matrices are not. */
typedef struct dsmoe_layer dsmoe_layer;
DSMOE_API dsmoe_status dsmoe_layer_create(const dsmoe_layer_config *config,
                                          const dsmoe_layer_weights *weights, dsmoe_layer **layer,
                                          dsmoe_error *error);
DSMOE_API void dsmoe_layer_free(dsmoe_layer *layer);

/* Scratch memory of the caller, at least as large as the matching *_size function says, and the
 * number of threads to use (at least 1). Nothing is allocated inside forward or backward. */
typedef struct dsmoe_workspace {
    void *memory;
    size_t size;
    int n_threads;
} dsmoe_workspace;

/* Zeroed memory that suits a workspace best: aligned, and in huge pages where the system grants
 * them, which makes large products a few per cent faster. NULL if there is none. Any other memory
 * does. */
DSMOE_API void *dsmoe_memory_alloc(size_t size);
DSMOE_API void dsmoe_memory_free(void *memory);

/* Bytes of workspace; 0 if the answer does not fit into memory at all. The inference form works
 * through long inputs in pieces, so its workspace stops growing; that of training does not. */
DSMOE_API size_t dsmoe_layer_workspace_size(const dsmoe_layer *layer, int64_t n_tokens,
                                            int n_threads);
DSMOE_API size_t dsmoe_layer_train_workspace_size(const dsmoe_layer *layer, int64_t n_tokens,
                                                  int n_threads);
/* Bytes that training keeps from forward to backward. */
DSMOE_API size_t dsmoe_layer_saved_size(const dsmoe_layer *layer, int64_t n_tokens);

/* y = MoE(x) for x, y [n_tokens, hidden_size], any n_tokens from 0 up. The residual of the paper's
 * formula (+ u) is NOT added: it belongs to the caller, as in the public model. y must not overlap
 * x. A token is routed by the same bits alone or in a batch; its output may differ in the last
 * digits (about 1e-7 of its size), as an expert adds up few rows in another order than many. */
DSMOE_API dsmoe_status dsmoe_layer_forward(const dsmoe_layer *layer, const float *x,
                                           int64_t n_tokens, float *y,
                                           const dsmoe_workspace *workspace, dsmoe_error *error);

/* What the gate decides, without running an expert. Any of the three outputs may be NULL. Experts
 * of a token come by falling score, ties by rising index. */
typedef struct dsmoe_routing {
    float *scores;      /* [n_tokens, n_routed_experts] softmax over the routed experts */
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

/* The training form of forward: x is [n_sequences, sequence_length, hidden_size]. `saved` receives
 * what backward needs: 2·(k + n_shared)·moe_intermediate_size floats a token plus the routing.
 * `losses` may be NULL. */
DSMOE_API dsmoe_status dsmoe_layer_forward_train(const dsmoe_layer *layer, const float *x,
                                                 int64_t n_sequences, int64_t sequence_length,
                                                 float *y, void *saved, size_t saved_size,
                                                 dsmoe_layer_losses *losses,
                                                 const dsmoe_workspace *workspace,
                                                 dsmoe_error *error);

/* The routing inside `saved`, valid until backward has used it up. */
DSMOE_API dsmoe_routing dsmoe_layer_saved_routing(const dsmoe_layer *layer, const void *saved);

/* Gradients of sum(y*dy) + aux_loss + device_loss. x must be the input of the forward pass; `saved`
 * is used up. dx is written; weight gradients are added to `gradients` if `accumulate`, else
 * written. The balance losses enter the router with weight 1 whatever dy is scaled by. */
DSMOE_API dsmoe_status dsmoe_layer_backward(const dsmoe_layer *layer, const float *x,
                                            const float *dy, void *saved, float *dx,
                                            dsmoe_layer_weights *gradients, bool accumulate,
                                            const dsmoe_workspace *workspace, dsmoe_error *error);

/* The device-level balance loss of a routing for any number of equal groups, factor 1. */
DSMOE_API dsmoe_status dsmoe_device_loss(const dsmoe_layer_config *config, dsmoe_routing routing,
                                         int64_t n_tokens, int64_t n_device_groups, double *loss,
                                         dsmoe_error *error);

/* ---- the machine -------------------------------------------------------------------------- */

/* Name of the kernels in use ("scalar", "avx2", …). The environment variable DSMOE_KERNELS names a
 * weaker set to use instead. */
DSMOE_API const char *dsmoe_kernels_name(void);

/* What the machine can do on that many threads, averaged over that many seconds for each number.
 * The memory to read is the caller's: more than caches hold (64 MiB at least), and written to
 * before. */
typedef struct dsmoe_machine {
    double fma_gflops; /* fused multiply-adds on registers, two operations each */
    double read_gbs;   /* reading memory that no cache holds, 10^9 bytes a second */
} dsmoe_machine;
DSMOE_API dsmoe_status dsmoe_machine_measure(int n_threads, double seconds, const void *memory,
                                             size_t size, dsmoe_machine *machine,
                                             dsmoe_error *error);

/* Number of processors this process may use. */
DSMOE_API int dsmoe_machine_threads(void);

/* ---- checking against a reference --------------------------------------------------------- */

/* One compared tensor. For routing, `max_abs` counts tokens whose expert sets differ. */
typedef struct dsmoe_check {
    const char *name; /* "infer y", "grad.gate.weight", … */
    double max_abs;   /* largest absolute difference */
    double max_rel;   /* the same over the largest magnitude of the expected tensor */
    bool ok;
} dsmoe_check;
typedef void dsmoe_check_fn(void *context, const dsmoe_check *check);

/* Runs a reference layer file (safetensors; see docs/verify.md) through inference, training forward
 * and backward and reports each tensor. DSMOE_OK means that the file could be run, `all_ok` that
 * every tensor was within tolerance (relative to its largest magnitude). */
DSMOE_API dsmoe_status dsmoe_verify_layer_file(const char *path, double tolerance, int n_threads,
                                               dsmoe_check_fn *report, void *context, bool *all_ok,
                                               dsmoe_error *error);

/* ---- model configuration and plan --------------------------------------------------------- */

/* config.json of a DeepSeekMoE model. */
typedef struct dsmoe_config {
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t intermediate_size; /* of the dense layers */
    int64_t moe_intermediate_size;
    int64_t num_hidden_layers;
    int64_t num_attention_heads;
    int64_t num_key_value_heads;
    int64_t n_shared_experts;    /* 0: none */
    int64_t n_routed_experts;    /* 0: every layer is dense */
    int64_t num_experts_per_tok; /* 0 when every layer is dense */
    int64_t moe_layer_freq;
    int64_t first_k_dense_replace;
    int64_t max_position_embeddings;
    bool norm_topk_prob;
    bool seq_aux;
    bool attention_bias;
    bool tie_word_embeddings;
    double aux_loss_alpha;
    double initializer_range;
    double rms_norm_eps;
    double rope_theta;
} dsmoe_config;

/* Reads and checks a config.json; the message names the file and the offending key. */
DSMOE_API dsmoe_status dsmoe_config_read(const char *path, dsmoe_config *config,
                                         dsmoe_error *error);
DSMOE_API bool dsmoe_config_layer_is_moe(const dsmoe_config *config, int64_t layer);
/* The MoE layers of such a model. */
DSMOE_API dsmoe_layer_config dsmoe_config_layer(const dsmoe_config *config);

/* The exact number of ways to choose k of n, in decimal digits, in a string to free(). */
DSMOE_API dsmoe_status dsmoe_combinations(int64_t n, int64_t k, char **digits, dsmoe_error *error);

/* One of the paper's three architectures with what it costs. */
typedef struct dsmoe_plan_row {
    int64_t n_routed_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size;
    int64_t expert_parameters; /* all experts, without the router */
    int64_t active_parameters; /* of the experts one token runs through */
    int64_t flops_per_token;   /* two for each active parameter */
    int64_t router_parameters;
    char *combinations; /* exact, decimal */
} dsmoe_plan_row;

/* Conventional top-K of N experts; each split in m; and Ks of those shared. */
typedef struct dsmoe_plan {
    dsmoe_plan_row conventional, fine_grained, shared_isolation;
} dsmoe_plan;
/* Fails, naming the number at fault, where parameters and compute could not stay constant. */
DSMOE_API dsmoe_status dsmoe_plan_make(int64_t n_experts, int64_t k_active, int64_t m_split,
                                       int64_t k_shared, int64_t hidden_size, int64_t ffn_size,
                                       dsmoe_plan *plan, dsmoe_error *error);
DSMOE_API void dsmoe_plan_free(dsmoe_plan *plan);

/* Parameters of a whole model, part by part, and what it costs to train on one sequence. */
typedef struct dsmoe_model_plan {
    int64_t embedding, attention, dense_ffn, routed_experts, shared_experts, router, norms, lm_head;
    int64_t total, active;
    int64_t active_routed_experts; /* the part of routed_experts one token uses */
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
