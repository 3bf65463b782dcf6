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
    DSMOE_ERROR_STOPPED = 7,   /* the caller's own callback ended the work: nothing is wrong */
    DSMOE_ERROR_PEER = 8,      /* another rank is lost, or does not fit this one */
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
    const char *scoring_func; /* "softmax", or NULL for the same; "sigmoid" */
    float aux_loss_alpha;     /* expert-level balance factor (alpha1); 0: no such loss */
    bool seq_aux;             /* balance per sequence, averaged, instead of over the batch */
    int64_t n_device_groups;  /* equal consecutive expert groups (D); 0: no device-level loss */
    float device_loss_alpha;  /* device-level balance factor (alpha2) */
    /* Of the paper's successors, DeepSeek-V2 and V3; all 0 is the paper's own gate. */
    const char
        *topk_method; /* "greedy", or NULL for the same; "group_limited_greedy"; "noaux_tc" */
    int64_t n_group,
        topk_group; /* only experts of topk_group of n_group groups are chosen from; 0: any */
    float routed_scaling_factor; /* of the gate values: with "noaux_tc" always, else unless they are
                                    renormalised; 0: 1 */
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
    float *e_score_correction_bias;      /* of "noaux_tc": [n_routed_experts]; else NULL */
    dsmoe_expert_weights *experts;       /* [n_routed_experts], width moe_intermediate_size */
    dsmoe_expert_weights shared_experts; /* fused: width n_shared_experts * moe_intermediate_size */
} dsmoe_layer_weights;

/* All matrices of a layer in one zeroed allocation. Free with dsmoe_layer_weights_free. */
DSMOE_API dsmoe_status dsmoe_layer_weights_create(const dsmoe_layer_config *config,
                                                  dsmoe_layer_weights **weights,
                                                  dsmoe_error *error);
DSMOE_API void dsmoe_layer_weights_free(dsmoe_layer_weights *weights);

/* Fresh weights as the public model initialises them: the router uniform in ±1/sqrt(hidden_size), its
 * bias 0, the rest normal(0, initializer_range). The same seed gives the same bits on every machine. */
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
 * of a token come by falling score ("noaux_tc": score plus bias), ties by rising index. */
typedef struct dsmoe_routing {
    float *scores; /* [n_tokens, n_routed_experts] of the routed experts, as scoring_func says */
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
 * written. The balance losses enter the router with weight 1 whatever dy is scaled by. A bias of
 * "noaux_tc" has no gradient: that of `gradients` is left as it is, and may be NULL. */
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
/* DSMOE_ERROR_ARGUMENT if DSMOE_KERNELS names a set that does not exist or that this processor cannot
 * run: the best one is used then. The message lists those there are. */
DSMOE_API dsmoe_status dsmoe_kernels_check(dsmoe_error *error);

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

/* Number of processors this process may use, and no more than a container gives it time for. */
DSMOE_API int dsmoe_machine_threads(void);
/* Bytes of memory that it could still get; UINT64_MAX if nothing says. */
DSMOE_API uint64_t dsmoe_machine_memory(void);

/* ---- checking against a reference --------------------------------------------------------- */

/* One compared tensor. For routing, `max_abs` counts tokens whose expert sets differ. */
typedef struct dsmoe_check {
    const char *name; /* "infer y", "grad.gate.weight", … */
    double max_abs;   /* largest absolute difference */
    double max_rel;   /* the same over the largest magnitude of the expected tensor */
    double tolerance; /* what it may be: ten times the given one after steps of the optimizer */
    bool ok;
    bool skipped; /* expected in the file but not checked: neither right nor wrong */
} dsmoe_check;
typedef void dsmoe_check_fn(void *context, const dsmoe_check *check);

/* Runs a reference layer file (safetensors; see docs/verify.md) through inference, training forward
 * and backward and reports each tensor. DSMOE_OK means that the file could be run, `all_ok` that
 * every tensor was within tolerance (relative to its largest magnitude). */
DSMOE_API dsmoe_status dsmoe_verify_layer_file(const char *path, double tolerance, int n_threads,
                                               dsmoe_check_fn *report, void *context, bool *all_ok,
                                               dsmoe_error *error);

/* The same for a folder with a model and its expected.safetensors: logits of the whole prompt, in
 * odd pieces and token by token, loss, balance loss, greedy continuation and gradients; and the steps of
 * training in a train.safetensors, if there is one. What cannot be checked is reported with `skipped`. */
DSMOE_API dsmoe_status dsmoe_verify_model_folder(const char *path, double tolerance, int n_threads,
                                                 dsmoe_check_fn *report, void *context,
                                                 bool *all_ok, dsmoe_error *error);

/* ---- model configuration and plan --------------------------------------------------------- */

/* How positions beyond the trained ones are turned: not at all differently; slower by the factor;
 * with a base that grows once a sequence is longer than max_position_embeddings. */
typedef enum dsmoe_rope_scaling {
    DSMOE_ROPE_NONE = 0,
    DSMOE_ROPE_LINEAR = 1,
    DSMOE_ROPE_DYNAMIC = 2,
    DSMOE_ROPE_YARN = 3, /* of DeepSeek-V2 and V3 */
} dsmoe_rope_scaling;

/* Whose model it is. V2 and V3 have the paper's experts, latent attention, and other gates. */
typedef enum dsmoe_model_type {
    DSMOE_DEEPSEEK = 0,    /* the paper's */
    DSMOE_DEEPSEEK_V2 = 1, /* DeepSeek-V2, V2-Lite, Coder-V2-Lite */
    DSMOE_DEEPSEEK_V3 = 2, /* DeepSeek-V3, Moonlight */
} dsmoe_model_type;
typedef enum dsmoe_scoring_func {
    DSMOE_SCORING_SOFTMAX = 0,
    DSMOE_SCORING_SIGMOID = 1
} dsmoe_scoring_func;
typedef enum dsmoe_topk_method {
    DSMOE_TOPK_GREEDY = 0,
    DSMOE_TOPK_GROUP_LIMITED_GREEDY = 1, /* groups of experts by their best one */
    DSMOE_TOPK_NOAUX_TC =
        2, /* by score plus a bias that follows the load; groups by their two best */
} dsmoe_topk_method;

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
    dsmoe_rope_scaling rope_scaling;
    double rope_scaling_factor; /* 1 without scaling */
    int64_t bos_token_id;       /* -1: none */
    int64_t eos_token_id;       /* -1: none; the first where a file gives a list */
    /* The rest belongs to V2 and V3, and is 0 in the paper's model. */
    dsmoe_model_type model_type;
    int64_t q_lora_rank; /* 0: queries are not compressed (null in config.json) */
    int64_t
        kv_lora_rank; /* of the latent that keys and values are made from; 0: attention is not latent */
    int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    dsmoe_scoring_func scoring_func;
    dsmoe_topk_method topk_method;
    int64_t n_group, topk_group;              /* 0: experts are not grouped */
    double routed_scaling_factor;             /* 0 in the paper's model: none */
    int64_t original_max_position_embeddings; /* of YaRN, as are the next */
    double beta_fast, beta_slow, mscale, mscale_all_dim;
} dsmoe_config;

/* Reads and checks a config.json; the message names the file and the offending key. */
DSMOE_API dsmoe_status dsmoe_config_read(const char *path, dsmoe_config *config,
                                         dsmoe_error *error);
/* The configuration of a preset: "tiny" (a model to try things with), "2b" and "16b" (the paper's),
 * "tiny-v2" and "tiny-v3" (tiny with the attention and the gates of V2 and V3), "v2-lite", "moonlight". */
DSMOE_API dsmoe_status dsmoe_config_preset(const char *name, dsmoe_config *config,
                                           dsmoe_error *error);
/* Sizes of a model that differ from those of a configuration; -1: as it says. */
typedef struct dsmoe_model_sizes {
    int64_t num_hidden_layers, hidden_size;
    int64_t num_attention_heads, num_key_value_heads; /* the latter follows where it was the same */
    int64_t moe_intermediate_size, intermediate_size;
    int64_t n_routed_experts, n_shared_experts, num_experts_per_tok; /* no routed ones: dense */
    int64_t first_k_dense_replace;
    /* Of latent attention; q_lora_rank 0: queries are not compressed. */
    int64_t kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
} dsmoe_model_sizes;
DSMOE_API dsmoe_model_sizes dsmoe_model_sizes_default(void); /* all -1 */
/* Gives a configuration other sizes. What cannot be is an error that names the key, and leaves it. */
DSMOE_API dsmoe_status dsmoe_config_resize(dsmoe_config *config, const dsmoe_model_sizes *sizes,
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

/* ---- a model ------------------------------------------------------------------------------ */

/* How numbers of a weight are stored. Arithmetic is float32; products with the block types, in
 * which 32 or 256 numbers share scales, are sums of integers, for which x is rounded too (see
 * docs/quantised.md). */
typedef enum dsmoe_dtype {
    DSMOE_F32 = 0,
    DSMOE_F16 = 1,
    DSMOE_BF16 = 2,
    DSMOE_Q8_0 = 3,
    DSMOE_Q4_0 = 4,
    DSMOE_Q5_0 = 5,
    DSMOE_Q4_K = 6,
    DSMOE_Q5_K = 7,
    DSMOE_Q6_K = 8,
    DSMOE_Q5_1 = 9,
} dsmoe_dtype;
enum { DSMOE_N_DTYPES = 10 };
DSMOE_API const char *dsmoe_dtype_name(dsmoe_dtype dtype); /* "f32", "f16", "q4_k", … */
DSMOE_API double dsmoe_dtype_bits(dsmoe_dtype dtype); /* that a number takes, scales included */

/* generation_config.json: how the makers of a model want it sampled. */
typedef struct dsmoe_generation_config {
    bool do_sample; /* false: greedy */
    double temperature, top_p, repetition_penalty;
    int64_t top_k; /* 0: no such limit */
    int64_t bos_token_id;
    int64_t eos_token_id[8]; /* any of these ends a text */
    int n_eos_token_ids;
} dsmoe_generation_config;

/* The weights of a model, mapped read-only and kept in their own type: opening reads headers only,
 * and processes that open the same files share their memory. But for matrices of block types: from their
 * second use on a model keeps a copy of its own, in the order that kernels read, as long as the memory that
 * is available then can hold all such copies; the file's pages are given back. Immutable: any number of
 * engines and threads may use one model. */
typedef struct dsmoe_model dsmoe_model;
/* `path` is a folder in the public layout (config.json, model.safetensors or shards with
 * model.safetensors.index.json, perhaps generation_config.json), or a .gguf file of the
 * architecture deepseek (of a split one, any part). Every tensor's presence, shape and type is
 * checked; the message names the file and the tensor.
 *
 * A file that becomes shorter while it is mapped is an error of the call that uses it, not a crash:
 * the first file that is mapped installs a handler for SIGBUS. An address outside such files goes
 * to the handler that was there before. A program that installs one of its own later should hand on
 * what it does not know to the one it finds. A file that somebody writes to is an error as well. */
DSMOE_API dsmoe_status dsmoe_model_open(const char *path, dsmoe_model **model, dsmoe_error *error);
/* The same with options; NULL: as dsmoe_model_open does it. */
typedef struct dsmoe_model_options {
    /* No copies: weights stay as they lie in the file, shared between processes. Slower with block
     * types; results have the same bits. */
    bool share_weights;
} dsmoe_model_options;
DSMOE_API dsmoe_status dsmoe_model_open_with(const char *path, const dsmoe_model_options *options,
                                             dsmoe_model **model, dsmoe_error *error);
/* Ranks that hold experts of it (dsmoe_model_divide) end with it. */
DSMOE_API void dsmoe_model_free(dsmoe_model *model);

/* What a model's weights take, in bytes; of a model over another's weights, what that one's take. */
typedef struct dsmoe_model_memory {
    size_t mapped;      /* of the files; pages come when touched and can be dropped again */
    size_t copied;      /* of copies that are kept by now */
    size_t copied_most; /* what they can become; 0 if none are kept */
} dsmoe_model_memory;
DSMOE_API dsmoe_model_memory dsmoe_model_memory_size(const dsmoe_model *model);

DSMOE_API const dsmoe_config *dsmoe_model_config(const dsmoe_model *model);
DSMOE_API const dsmoe_generation_config *dsmoe_model_generation_config(const dsmoe_model *model);

/* The tensors of the model, in the order of the computation. The name is NULL beyond the last. */
typedef struct dsmoe_tensor_info {
    const char *name;
    dsmoe_dtype dtype;
    int n_dims;
    int64_t shape[2];
    size_t size; /* bytes */
} dsmoe_tensor_info;
DSMOE_API size_t dsmoe_model_tensor_count(const dsmoe_model *model);
DSMOE_API dsmoe_tensor_info dsmoe_model_tensor(const dsmoe_model *model, size_t index);
/* Tensors in the files that the model does not have; NULL beyond the last. */
DSMOE_API size_t dsmoe_model_extra_count(const dsmoe_model *model);
DSMOE_API const char *dsmoe_model_extra(const dsmoe_model *model, size_t index);
/* Bytes of weights that decoding one token reads, the row of the embedding among them. */
DSMOE_API size_t dsmoe_model_bytes_per_token(const dsmoe_model *model);
/* [n_routed_experts]: the bias by which the gate of a layer corrects its choice; NULL where it has none ("noaux_tc"). */
DSMOE_API const float *dsmoe_model_gate_bias(const dsmoe_model *model, int64_t layer);

/* The paper's probes of what experts know, on a model that was trained without them. */
typedef struct dsmoe_probe {
    double mask_top;             /* share of a token's highest-scoring routed experts, rounded to a
                                    whole number, that it may not use: it takes the best of the
                                    others instead; 0: none */
    bool replace_shared;         /* no shared experts: for each a token takes one more routed one */
    int64_t num_experts_per_tok; /* routed experts of a token, before that; 0: as many as ever */
} dsmoe_probe;
/* A model over the weights of another one, which must outlive it, with the probe applied. Gate values
 * stay the softmax scores over all routed experts. */
DSMOE_API dsmoe_status dsmoe_model_probe(const dsmoe_model *model, const dsmoe_probe *probe,
                                         dsmoe_model **probed, dsmoe_error *error);

/* Called now and then during long work with the share that is done; false stops the work, which ends with
 * DSMOE_ERROR_STOPPED. */
typedef bool dsmoe_progress_fn(void *context, double done, double total);

/* Writes a freshly initialised model to a folder that is new or holds a tokenizer at most:
 * config.json, generation_config.json and safetensors, in shards of at most 5 GB. Linear layers and embedding
 * normal(0, initializer_range), the router uniform in ±1/sqrt(hidden_size), norms 1, biases 0. The
 * same seed gives the same bits on every machine and for any number of threads. `progress` (may be
 * NULL) counts bytes; what was written is removed if it stops the work (DSMOE_ERROR_STOPPED) or
 * the disk is full. n_threads 0: all processors. */
DSMOE_API dsmoe_status dsmoe_model_init(const char *path, const dsmoe_config *config,
                                        dsmoe_dtype dtype, uint64_t seed, int n_threads,
                                        dsmoe_progress_fn *progress, void *context,
                                        dsmoe_error *error);

/* ---- what may be overwritten --------------------------------------------------------------- */

/* A file that is going to be written. The rule: never one of the inputs, under whatever name; a file
 * that is there (as PATH.partial too, where a writer uses that name on the way) only if it is of the same
 * kind (or empty) and may be replaced; and its folder must be there and writable. Functions that write for
 * long ask this first, and so should a program. */
typedef enum dsmoe_output_kind {
    DSMOE_OUTPUT_MODEL = 0,        /* a GGUF file with a model */
    DSMOE_OUTPUT_IMATRIX = 1,      /* a GGUF file of dsmoe_imatrix_make, or of llama.cpp */
    DSMOE_OUTPUT_PAGE = 2,         /* HTML that dsmoe made */
    DSMOE_OUTPUT_CONVERSATION = 3, /* JSON messages that dsmoe saved */
    DSMOE_OUTPUT_TOKENIZER = 4,    /* tokenizer.json or tokenizer_config.json */
    DSMOE_OUTPUT_ADAPTER = 5,      /* a GGUF file with an adapter */
} dsmoe_output_kind;
typedef struct dsmoe_output {
    const char *path;
    dsmoe_output_kind kind;
    bool replace;              /* a file of that kind that is there; the command's --force */
    const char *const *inputs; /* [n_inputs] files that are read for it; NULL and "" are none */
    int n_inputs;
} dsmoe_output;
DSMOE_API dsmoe_status dsmoe_output_check(const dsmoe_output *output, dsmoe_error *error);
/* The same of a folder that is going to be filled: it is new, or empty but for the names in `own`
 * [n_own], for what a writer left half-written of those, and for names that begin with a dot. */
DSMOE_API dsmoe_status dsmoe_output_folder_check(const char *path, const char *const *own,
                                                 int n_own, dsmoe_error *error);

/* ---- GGUF and quantised models ------------------------------------------------------------- */

/* What becomes of the matrices of a model that are quantised already. */
typedef struct dsmoe_type_changes {
    int64_t n_kept;        /* keep their type and are copied byte by byte */
    int64_t n_larger;      /* get a type of more bits, and are no better for it */
    int64_t n_requantised; /* get another one, which adds its own error */
} dsmoe_type_changes;
typedef struct dsmoe_convert_options {
    /* Of the matrices: the name of a dsmoe_dtype, or "q4_k_m", the usual mixture of Q4_K, Q6_K and
     * their stand-ins; NULL: as they are. Vectors and routers are always float32 in GGUF files,
     * rows that a type's blocks do not divide take the usual stand-in. */
    const char *type;
    const char *imatrix; /* a file of dsmoe_imatrix_make that quantising goes by; may be NULL */
    int n_threads;       /* 0: all processors */
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes that are written */
    void *context;
    bool replace; /* a model that is there under the name of a .gguf file: see dsmoe_output */
    /* Receives, if it is not NULL, how many of the matrices that should be weighed by the imatrix are
     * not in it, and how many there are. If it has none of them, or in another size, it was made for
     * another model, which is an error. */
    int64_t *n_without_importance, *n_weighed;
    dsmoe_type_changes *changes; /* may be NULL; known when `progress` is called first */
} dsmoe_convert_options;
/* Writes the model `from` (a folder or a .gguf file) as `to`: a single file if its name ends with
 * .gguf, else a new or empty folder in the public layout (float types only). Config, tokenizer and weights
 * go along; between float types nothing is lost but what a narrower type cannot hold. A model that
 * the other form cannot express is refused. Memory does not grow with the model. `options` may be
 * NULL. */
DSMOE_API dsmoe_status dsmoe_convert(const char *from, const char *to,
                                     const dsmoe_convert_options *options, dsmoe_error *error);
/* A freshly initialised model straight as a .gguf file of any type (NULL: f32); `tokenizer` (may be
 * NULL) is what dsmoe_tokenizer_open takes. In float types the numbers are those of
 * dsmoe_model_init; in block types, where looking for good scales would take most of an hour for a
 * large model, blocks are drawn from a stock of some thousand that were quantised once: as random,
 * of the same deviation, and as much the same for the same seed. */
DSMOE_API dsmoe_status dsmoe_model_init_gguf(const char *path, const dsmoe_config *config,
                                             const char *tokenizer, uint64_t seed,
                                             const dsmoe_convert_options *options,
                                             dsmoe_error *error);

/* Runs tokens through a model in pieces of n_ctx and writes how large the inputs of every matrix
 * are, column by column: what quantising should take most care of. The file is GGUF, as llama.cpp
 * makes and reads it. An expert that few tokens chose leans on the mean of its layer's experts.
 * `progress` counts tokens. */
typedef struct dsmoe_imatrix_options {
    int64_t n_ctx;       /* 0: 512 */
    int n_threads;       /* 0: all processors */
    const char *dataset; /* a name for what the tokens are, kept in the file; may be NULL */
    dsmoe_progress_fn *progress;
    void *context;
    /* Receives, if it is not NULL, how many experts (of all layers) no token chose. */
    int64_t *n_unused_experts;
    bool replace; /* a file of importances that is there: see dsmoe_output */
} dsmoe_imatrix_options;
DSMOE_API dsmoe_status dsmoe_imatrix_make(const dsmoe_model *model, const int32_t *tokens,
                                          int64_t n_tokens, const dsmoe_imatrix_options *options,
                                          const char *path, dsmoe_error *error);

/* How far a model is from another one of the same vocabulary, on a text: means over all tokens but
 * the first of each piece of n_ctx. */
typedef struct dsmoe_comparison {
    double kl;       /* Σ p·log(p/q) of the next token, p being those of `against`, in nats */
    double kl_error; /* standard error of that mean */
    double kl_99;    /* the value that 99 % of the tokens do not exceed */
    double kl_max;   /* and the largest */
    double same_top; /* share of tokens where both find the same one likeliest */
    double perplexity, perplexity_against;
    int64_t n_tokens;
} dsmoe_comparison;
DSMOE_API dsmoe_status dsmoe_model_compare(const dsmoe_model *model, const dsmoe_model *against,
                                           const int32_t *tokens, int64_t n_tokens, int64_t n_ctx,
                                           int n_threads, dsmoe_progress_fn *progress,
                                           void *context, dsmoe_comparison *comparison,
                                           dsmoe_error *error);

/* ---- adapters --------------------------------------------------------------------------------- */

/* A LoRA adapter: what fine-tuning adds to some matrices of a model, W + scale·B·A. It is a folder as PEFT writes it
 * (adapter_config.json, adapter_model.safetensors) or a GGUF file as llama.cpp takes it. */
typedef struct dsmoe_adapter dsmoe_adapter;
/* Whether a path is one, by its files; what is in them is looked at by dsmoe_adapter_open. */
DSMOE_API bool dsmoe_adapter_is(const char *path);
/* Checks it against the model, which must outlive it: one of another model is an error. What it cannot mean here (other
 * types of adapters than LoRA, biases, DoRA …) is refused by name. */
DSMOE_API dsmoe_status dsmoe_adapter_open(const char *path, const dsmoe_model *model,
                                          dsmoe_adapter **adapter, dsmoe_error *error);
DSMOE_API void dsmoe_adapter_free(dsmoe_adapter *adapter);
/* As a GGUF file if the name ends with .gguf (which a file of the same kind that is there gives way to with `replace`
 * only), else as PEFT's folder, which must be new or empty. */
DSMOE_API dsmoe_status dsmoe_adapter_write(const dsmoe_adapter *adapter, const char *to,
                                           bool replace, dsmoe_error *error);

typedef struct dsmoe_adapter_info {
    const char *path;   /* valid as long as the adapter */
    int64_t n_matrices; /* that it adapts */
    int64_t rank;       /* the largest of them */
    int64_t n_parameters;
} dsmoe_adapter_info;
DSMOE_API dsmoe_adapter_info dsmoe_adapter_get_info(const dsmoe_adapter *adapter);

/* A model of a base and what fine-tuning made of it: an adapter, whose additions are multiplied by `scale`, or a folder
 * with changed tensors only, as training of some experts leaves it (scale 1). Written as dsmoe_convert does; matrices that
 * are not changed keep their bytes, where they keep their type. */
DSMOE_API dsmoe_status dsmoe_merge(const char *base, const char *change, double scale,
                                   const char *to, const dsmoe_convert_options *options,
                                   dsmoe_error *error);

/* ---- an engine: many sequences at once ------------------------------------------------------ */

/* Runs texts through a model: any number of sequences that come and go, prompts and single tokens mixed, in
 * one pass over the weights. It owns the workspace of a pass and the pages in which keys and values are
 * kept. All memory is reserved when it is created; pages become real as they are used. One thread at a time
 * may use an engine and its sequences; engines do not know of each other. */
typedef struct dsmoe_engine dsmoe_engine;

typedef struct dsmoe_engine_options {
    int64_t n_ctx;       /* most tokens of a sequence; 0: max_position_embeddings */
    int64_t n_sequences; /* most sequences at a time; 0: 1 */
    int64_t n_kv;    /* tokens of all sequences that the KV cache has room for, those that several
                            share counted once; 0: n_sequences · n_ctx */
    int64_t n_batch; /* tokens that go through the model together; 0: 512 */
    int n_threads;   /* 0: all processors */
    /* How the cache keeps keys and values: DSMOE_F32 (0), exact; DSMOE_F16, half the memory; or
     * DSMOE_Q8_0, about a quarter. */
    dsmoe_dtype kv_type;
    /* A sequence's logits have the same bits whoever else is there, however its tokens come and whether
     * its beginning was found in pages or computed. So it always is for weights of block types; for float
     * types only with this, which makes decoding slower (docs/model.md). */
    bool same_bits;
    /* Asked before each layer, from the calling thread; may be NULL. True ends all turns that are not
     * through yet with DSMOE_ERROR_STOPPED. */
    bool (*stop)(void *context);
    void *stop_context;
    /* Adapters of the model that sequences may use, at most DSMOE_ADAPTERS_MAX, which must outlive the engine; and the
     * scales that sequences begin with: NULL: 1 each. Of the head and of kv_b_proj none can be used here: dsmoe_merge
     * makes a model with those. */
    const dsmoe_adapter *const *adapters; /* [n_adapters] */
    const double *adapter_scales;         /* [n_adapters] */
    int n_adapters;
} dsmoe_engine_options;
enum { DSMOE_ADAPTERS_MAX = 16 };

/* `options` may be NULL. The model must outlive the engine. */
DSMOE_API dsmoe_status dsmoe_engine_create(const dsmoe_model *model,
                                           const dsmoe_engine_options *options,
                                           dsmoe_engine **engine, dsmoe_error *error);
/* Its sequences go with it. */
DSMOE_API void dsmoe_engine_free(dsmoe_engine *engine);
DSMOE_API const dsmoe_model *dsmoe_engine_model(const dsmoe_engine *engine);

/* Bytes that an engine takes, without creating it; 0 and 0 if they cannot fit. */
typedef struct dsmoe_engine_memory {
    size_t kv_cache, workspace;
} dsmoe_engine_memory;
DSMOE_API dsmoe_engine_memory dsmoe_engine_memory_size(const dsmoe_model *model,
                                                       const dsmoe_engine_options *options);

/* What an engine has, and what of it is in use. */
typedef struct dsmoe_engine_info {
    int64_t n_ctx, n_batch;
    int n_threads;
    int64_t n_sequences, n_sequences_used;
    size_t kv_cache, workspace; /* bytes */
    dsmoe_model_memory weights; /* of the model, which several engines may share */
    int64_t page_tokens;        /* tokens of a page */
    int64_t n_pages, n_pages_used;
    int64_t n_pages_shared;  /* that several sequences use */
    int64_t n_pages_kept;    /* that nobody uses, but whose text may come again */
    int64_t n_tokens_reused; /* that dsmoe_sequence_begin found in pages, so far */
    /* That queries spent with keys and values of the context so far; with latent attention this counts the products
     * with kv_b_proj too. */
    double attention_seconds;
} dsmoe_engine_info;
DSMOE_API dsmoe_engine_info dsmoe_engine_get_info(const dsmoe_engine *engine);

/* A text that grows token by token, with the pages of its keys and values. */
typedef struct dsmoe_sequence dsmoe_sequence;
/* An empty one. DSMOE_ERROR_MEMORY if the engine has no place for another. */
DSMOE_API dsmoe_status dsmoe_sequence_create(dsmoe_engine *engine, dsmoe_sequence **sequence,
                                             dsmoe_error *error);
/* One for a text that begins with these tokens: as much of their beginning as the engine still holds in
 * full pages, whoever made them, is there already (dsmoe_sequence_length), but never the last token. The
 * rest is the caller's to append. */
DSMOE_API dsmoe_status dsmoe_sequence_begin(dsmoe_engine *engine, const int32_t *tokens,
                                            int64_t n_tokens, dsmoe_sequence **sequence,
                                            dsmoe_error *error);
/* The same with adapters of its own: `scales` has a factor for each adapter of the engine, 0 for one that it does not
 * use; NULL: those that the engine was created with. What texts with other adapters or scales left in pages is not
 * theirs. */
DSMOE_API dsmoe_status dsmoe_sequence_begin_adapted(dsmoe_engine *engine, const int32_t *tokens,
                                                    int64_t n_tokens, const double *scales,
                                                    dsmoe_sequence **sequence, dsmoe_error *error);
/* Another one with the first `length` tokens of this one, and its adapters. Pages are shared until either writes to one. */
DSMOE_API dsmoe_status dsmoe_sequence_fork(const dsmoe_sequence *sequence, int64_t length,
                                           dsmoe_sequence **other, dsmoe_error *error);
/* Its pages go back to the engine. May be NULL. */
DSMOE_API void dsmoe_sequence_free(dsmoe_sequence *sequence);

DSMOE_API dsmoe_engine *dsmoe_sequence_engine(const dsmoe_sequence *sequence);
DSMOE_API int64_t dsmoe_sequence_length(const dsmoe_sequence *sequence); /* tokens so far */
/* Back to an earlier length, at most the present one: what came after is forgotten. */
DSMOE_API dsmoe_status dsmoe_sequence_rewind(dsmoe_sequence *sequence, int64_t length,
                                             dsmoe_error *error);
/* Appends tokens. `logits` [vocab_size] (may be NULL) receives the scores of what follows the last one. If
 * it fails the sequence is as before. */
DSMOE_API dsmoe_status dsmoe_sequence_append(dsmoe_sequence *sequence, const int32_t *tokens,
                                             int64_t n_tokens, float *logits, dsmoe_error *error);

/* Tokens to append to a sequence. The logits of the last n_logits of them are shown to `visit` row by
 * row (`row` counts from 0 for the first of those) and are gone after the call. `visit` is called from
 * the calling thread; `targets`, if given, holds for each of those rows the token that truly comes next,
 * and `loss` receives their -log probabilities. */
typedef void dsmoe_logits_fn(void *context, int64_t row, const float *logits);
typedef struct dsmoe_turn {
    dsmoe_sequence *sequence;
    const int32_t *tokens;
    int64_t n_tokens; /* at least 1 */
    int64_t n_logits;
    dsmoe_logits_fn *visit; /* may be NULL */
    void *context;
    const int32_t *targets; /* [n_logits], may be NULL */
    float *loss;            /* [n_logits], with targets */
    /* `visit` sees the last hidden states of those rows, after the final norm [hidden_size], in the place of
     * logits, which are not computed. */
    bool hidden;
    /* How it ended. A turn that fails leaves its sequence as it was before, and all other turns their
     * results: DSMOE_ERROR_NONFINITE, a score that is not a finite number; DSMOE_ERROR_MEMORY, no page is
     * free; DSMOE_ERROR_ARGUMENT, the context is full, or nonsense was asked for; DSMOE_ERROR_STOPPED. Logits
     * that were shown before count for nothing then. */
    dsmoe_error error;
} dsmoe_turn;
/* Turns of any sequences of the engine, each at most once, through the model together. Returns the status
 * of the first one that failed. */
DSMOE_API dsmoe_status dsmoe_engine_forward(dsmoe_engine *engine, dsmoe_turn *turns,
                                            int64_t n_turns, dsmoe_error *error);

/* Watches the routing of a sequence: called for each MoE layer with the routing of its next n_tokens tokens,
 * of which `position` is the first one's place in the sequence. All three arrays are filled. NULL stops
 * watching. */
typedef void dsmoe_routing_fn(void *context, int64_t layer, int64_t position, int64_t n_tokens,
                              const dsmoe_routing *routing);
DSMOE_API void dsmoe_sequence_watch(dsmoe_sequence *sequence, dsmoe_routing_fn *watch,
                                    void *context);

/* ---- choosing the next token -------------------------------------------------------------- */

/* Logits become a token in these steps:
 *   1. repeat_penalty: a logit above 0 is divided by it, another one multiplied, for each token that
 *      is among the last repeat_last_n of prompt and text; once, however often it is there.
 *   2. presence_penalty is subtracted for each token that the text has, and frequency_penalty as many
 *      times as the text has it. The text is what was accepted since the sampler was created or
 *      reset, of any length and without the prompt.
 *   3. logit_bias is added, more than once to an id that is listed more than once.
 *   4. At temperature 0 the token of the highest score is taken, and that is all.
 *   5. top_k, then top_p among those left, then min_p, on the probabilities at temperature 1.
 *   6. One of those left is drawn at the temperature.
 * Of equal scores the lower id comes first. A logit of -INFINITY is a token that cannot come: so the
 * caller bans a token for one step. A NaN or +INFINITY is refused wherever it is, and so is a row of
 * which no token is left. */
enum { DSMOE_LOGIT_BIAS_BAN = -100, DSMOE_LOGIT_BIAS_MAX = 1024 };
typedef struct dsmoe_logit_bias {
    int32_t id;
    double bias; /* DSMOE_LOGIT_BIAS_BAN or less, down to -INFINITY: the token never comes */
} dsmoe_logit_bias;

typedef struct dsmoe_sampler_options {
    double temperature;    /* 0: always the likeliest token */
    int64_t top_k;         /* only the k likeliest; 0: all */
    double top_p;          /* only the likeliest that together have this probability; 1: all */
    double min_p;          /* only those with at least this share of the likeliest's; 0: all */
    double repeat_penalty; /* for recent tokens; 1: none */
    int64_t repeat_last_n; /* how many tokens count as recent */
    uint64_t seed;
    double presence_penalty, frequency_penalty; /* for tokens of the text, -100 to 100; 0: none */
    const dsmoe_logit_bias *logit_bias; /* [n_logit_bias], copied; may be NULL if there are none */
    int64_t n_logit_bias;               /* at most DSMOE_LOGIT_BIAS_MAX */
} dsmoe_sampler_options;
/* temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, no penalty over the last 64, seed 0, no bias. */
DSMOE_API dsmoe_sampler_options dsmoe_sampler_options_default(void);

/* A sampler belongs to one sequence. Samplers share nothing: each may have its own thread. */
typedef struct dsmoe_sampler dsmoe_sampler;
DSMOE_API dsmoe_status dsmoe_sampler_create(const dsmoe_sampler_options *options,
                                            int64_t vocab_size, dsmoe_sampler **sampler,
                                            dsmoe_error *error);
DSMOE_API void dsmoe_sampler_free(dsmoe_sampler *sampler);
/* The next token. The same seed, options, logits and history give the same token. */
DSMOE_API dsmoe_status dsmoe_sampler_pick(dsmoe_sampler *sampler, const float *logits,
                                          int32_t *token, dsmoe_error *error);
/* Tells the sampler of a token of the text, whether it was picked or not, for all penalties. */
DSMOE_API void dsmoe_sampler_accept(dsmoe_sampler *sampler, int32_t token);
/* Tells it of tokens of the prompt, which repeat_penalty alone looks at. */
DSMOE_API void dsmoe_sampler_accept_prompt(dsmoe_sampler *sampler, const int32_t *tokens,
                                           int64_t n_tokens);
/* Forgets prompt and text. Its random numbers go on; another sampler of the same seed begins them
 * again. */
DSMOE_API void dsmoe_sampler_reset(dsmoe_sampler *sampler);

/* How likely the model finds tokens: natural logarithms of its own probabilities, the softmax of a row
 * of logits as they are, before temperature, penalties and biases. */
enum { DSMOE_LOGPROBS_MAX = 20 };
typedef struct dsmoe_logprob {
    int32_t id;
    double logprob; /* at most 0 */
} dsmoe_logprob;
typedef struct dsmoe_logprobs {
    dsmoe_logprob token;                   /* -INFINITY if it cannot come */
    int n_top;                             /* fewer than asked for if no more tokens can come */
    dsmoe_logprob top[DSMOE_LOGPROBS_MAX]; /* the likeliest first, of equals the lower id */
} dsmoe_logprobs;
/* Of a token, which may be any of the vocabulary, and of the n_top likeliest, 0 to DSMOE_LOGPROBS_MAX.
 * Logits that are NaN, +INFINITY, or all of them -INFINITY, are refused. Nothing is allocated. */
DSMOE_API dsmoe_status dsmoe_logprobs_compute(const float *logits, int64_t vocab_size,
                                              int32_t token, int n_top, dsmoe_logprobs *logprobs,
                                              dsmoe_error *error);

/* ---- text --------------------------------------------------------------------------------- */

/* A byte-level BPE tokenizer from tokenizer.json. Immutable; threads may share one. */
typedef struct dsmoe_tokenizer dsmoe_tokenizer;
/* `path` is a tokenizer.json, a folder that holds one and perhaps a tokenizer_config.json, or a
 * .gguf file. */
DSMOE_API dsmoe_status dsmoe_tokenizer_open(const char *path, dsmoe_tokenizer **tokenizer,
                                            dsmoe_error *error);
DSMOE_API void dsmoe_tokenizer_free(dsmoe_tokenizer *tokenizer);

DSMOE_API int64_t dsmoe_tokenizer_size(const dsmoe_tokenizer *tokenizer); /* ids are below it */
DSMOE_API int32_t dsmoe_tokenizer_bos(const dsmoe_tokenizer *tokenizer);  /* -1: none */
DSMOE_API int32_t dsmoe_tokenizer_eos(const dsmoe_tokenizer *tokenizer);  /* -1: none */
/* Whether the model expects the BOS token before a text (add_bos_token). */
DSMOE_API bool dsmoe_tokenizer_adds_bos(const dsmoe_tokenizer *tokenizer);
/* Whether the model's files say how conversations are written (chat_template), as those of models that were
 * trained to converse do; the template itself is never run. */
DSMOE_API bool dsmoe_tokenizer_has_chat(const dsmoe_tokenizer *tokenizer);
DSMOE_API bool dsmoe_tokenizer_is_special(const dsmoe_tokenizer *tokenizer, int32_t id);

/* Flags of dsmoe_tokenizer_encode. */
enum {
    DSMOE_ENCODE_BOS = 1, /* put the BOS token first, if there is one and the model expects it */
    DSMOE_ENCODE_SPECIAL = 2, /* text that spells a special token becomes that token; without this
                                 flag it stays text, which is what text of a user should be */
};
/* Any bytes are text: what is not UTF-8 survives as bytes, except that a byte for which the
 * vocabulary has no token becomes U+FFFD. *ids is to be freed with free(). */
DSMOE_API dsmoe_status dsmoe_tokenizer_encode(const dsmoe_tokenizer *tokenizer, const char *text,
                                              size_t length, int flags, int32_t **ids,
                                              size_t *n_ids, dsmoe_error *error);
/* Text of the ids, special tokens included, ended by a NUL that *length does not count; to be freed
 * with free(). An id the tokenizer does not have is an error. */
DSMOE_API dsmoe_status dsmoe_tokenizer_decode(const dsmoe_tokenizer *tokenizer, const int32_t *ids,
                                              size_t n_ids, char **text, size_t *length,
                                              dsmoe_error *error);
/* The bytes of one token, maybe a part of a character only; NULL if there is no such id. */
DSMOE_API const char *dsmoe_tokenizer_piece(const dsmoe_tokenizer *tokenizer, int32_t id,
                                            size_t *length);

/* How many of the bytes can be shown now: all but the beginning of a character at the end that may
 * still be completed. Bytes that never become a character do not hold anything back. */
DSMOE_API size_t dsmoe_utf8_complete(const char *bytes, size_t length);

/* How much of a text can be shown if it ends where the first stop text begins: all before that one, whose
 * index *stopped becomes; or, with *stopped -1, all before one that may be beginning at the text's end. What
 * comes before `from` was shown already. */
DSMOE_API size_t dsmoe_stop_find(const char *text, size_t length, size_t from,
                                 const char *const *stops, int n_stops, int *stopped);

/* A conversation, and the form in which a model reads it. */
typedef struct dsmoe_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} dsmoe_message;
/* Which texts and special tokens stand around what is said: "deepseek" ("User: …\n\nAssistant: …" and EOS),
 * "deepseek-v3", "deepseek-v3-0324", "moonlight", "chatml", "alpaca" or "none". A row of a table; nothing is to be
 * freed. */
typedef struct dsmoe_chat_form dsmoe_chat_form;
/* The form of that name. NULL: the one that the model's chat_template is recognised as, or "deepseek" where its files have
 * none; a template that is not known is an error, and so is a form of which the tokenizer lacks a token. */
DSMOE_API dsmoe_status dsmoe_chat_form_find(const dsmoe_tokenizer *tokenizer, const char *name,
                                            const dsmoe_chat_form **form, dsmoe_error *error);
DSMOE_API const char *dsmoe_chat_form_name(const dsmoe_chat_form *form);
/* What begins every answer but is not part of what is said: " ", or "". */
DSMOE_API const char *dsmoe_chat_form_lead(const dsmoe_chat_form *form);
/* The token that ends an answer; -1: the tokenizer has none. */
DSMOE_API int32_t dsmoe_chat_form_end(const dsmoe_tokenizer *tokenizer,
                                      const dsmoe_chat_form *form);
/* Ids of the messages, with the opening of an assistant's answer if asked for. Contents are plain
 * text; only the frame has special tokens. *ids is to be freed with free(). */
DSMOE_API dsmoe_status dsmoe_chat_encode(const dsmoe_tokenizer *tokenizer,
                                         const dsmoe_chat_form *form, const dsmoe_message *messages,
                                         size_t n_messages, bool add_generation_prompt,
                                         int32_t **ids, size_t *n_ids, dsmoe_error *error);

/* ---- questions with known answers ----------------------------------------------------------- */

/* A file of JSON lines, each a question with choices, or with an answer that the model is to write; see
 * docs/tasks.md. Messages name the file and the line. `n_ctx` is the most tokens that a question may have together
 * with its answer. */
typedef struct dsmoe_tasks dsmoe_tasks;
DSMOE_API dsmoe_status dsmoe_tasks_read(const char *path, const dsmoe_tokenizer *tokenizer,
                                        int64_t n_ctx, dsmoe_tasks **tasks, dsmoe_error *error);
DSMOE_API void dsmoe_tasks_free(dsmoe_tasks *tasks);
DSMOE_API int64_t dsmoe_tasks_count(const dsmoe_tasks *tasks);

/* What became of one question. */
typedef struct dsmoe_task_result {
    int64_t line; /* of the file, from 1 */
    int64_t n_choices;
    /* With choices: which one is right, and which one has the highest log probability: of all of its tokens, by
     * character, by token. */
    int64_t answer, chosen, chosen_by_character, chosen_by_token;
    const double *log_probabilities; /* [n_choices] of all tokens */
    const char *text;                /* what the model wrote, where there are no choices */
    bool right;                      /* what it wrote, or `chosen` */
} dsmoe_task_result;

/* A mean over n questions and its standard error, the deviation over sqrt(n - 1). */
typedef struct dsmoe_task_score {
    int64_t n;
    double mean, error;
} dsmoe_task_score;
typedef struct dsmoe_task_scores {
    dsmoe_task_score acc, acc_norm; /* `chosen` is right; chosen_by_character is */
    dsmoe_task_score acc_token;     /* chosen_by_token is */
    dsmoe_task_score exact_match;   /* what was written is */
    int64_t n_run; /* tokens that went through the model, and those that were found in pages: */
    int64_t n_reused;
} dsmoe_task_scores;

typedef struct dsmoe_task_options {
    int n_threads; /* 0: all processors */
    dsmoe_dtype kv_type;
    const dsmoe_adapter *const *adapters; /* as in dsmoe_engine_options */
    const double *adapter_scales;
    int n_adapters;
    dsmoe_progress_fn *progress; /* may be NULL; counts questions */
    /* Each result, in the order in which they are known; may be NULL. */
    void (*visit)(void *context, const dsmoe_task_result *result);
    void *context;
} dsmoe_task_options;
/* The model must be that of the tokenizer. If `progress` stops the work (DSMOE_ERROR_STOPPED), *scores has what is
 * known so far. `options` may be NULL. */
DSMOE_API dsmoe_status dsmoe_tasks_run(const dsmoe_tasks *tasks, const dsmoe_model *model,
                                       const dsmoe_task_options *options, dsmoe_task_scores *scores,
                                       dsmoe_error *error);

/* ---- files to learn from -------------------------------------------------------------------- */

enum { DSMOE_PATH = 1024 };

/* What becomes of bytes in a text that are not UTF-8 (or are NUL). A file that is binary, which means a
 * NUL among its first 8000 bytes, is left out whatever is asked for. */
typedef enum dsmoe_bad_bytes {
    DSMOE_BAD_BYTES_REPLACE = 0, /* each is read as U+FFFD, as editors show it; a file in which they
                                    are more than three in ten is left out, as it is not text */
    DSMOE_BAD_BYTES_KEEP = 1,    /* they are learnt as they are; in JSON lines they are an error */
    DSMOE_BAD_BYTES_SKIP = 2,    /* the whole file is left out */
} dsmoe_bad_bytes;
/* "replace", "keep" or "skip"; false for any other name. */
DSMOE_API bool dsmoe_bad_bytes_find(const char *name, dsmoe_bad_bytes *bad_bytes);

typedef enum dsmoe_left_out {
    DSMOE_LEFT_OUT_BINARY,    /* not text, or a .bin file that is not a shard of tokens */
    DSMOE_LEFT_OUT_BAD_BYTES, /* because of DSMOE_BAD_BYTES_SKIP */
    DSMOE_LEFT_OUT_EMPTY,
    DSMOE_LEFT_OUT_LINK,    /* leads nowhere, or to a folder that the link lies in */
    DSMOE_LEFT_OUT_SPECIAL, /* a device, a FIFO, a socket */
    DSMOE_LEFT_OUT_TWICE,   /* a file or folder that was reached before by another name */
    DSMOE_N_LEFT_OUT,
} dsmoe_left_out;

/* What was found at the paths of some data. Hidden files of folders are not counted at all. */
typedef struct dsmoe_data_files {
    int64_t n_files, n_bytes; /* that are read */
    int64_t n_left_out[DSMOE_N_LEFT_OUT], n_bytes_left_out;
    char first_left_out[DSMOE_PATH]; /* "" if there is none */
    dsmoe_bad_bytes bad_bytes;
    int64_t n_bad_files, n_bad_bytes; /* files that are read and have bad bytes, and those bytes */
    char first_bad[DSMOE_PATH];
} dsmoe_data_files;
/* One line that says what was left out or replaced and why, cut to `size`; "" if nothing was. */
DSMOE_API void dsmoe_data_files_describe(const dsmoe_data_files *files, char *text, size_t size);

/* Trains a byte-level BPE tokenizer of `vocab_size` tokens on the documents of the paths (see
 * dsmoe_dataset_options) and writes tokenizer.json and tokenizer_config.json into `folder`, which is
 * made if need be. The last two ids are the special tokens that begin and end a text. The same text
 * gives the same files, for any number of threads. A text that is too small for so many tokens is an
 * error that says how many it allows. Shards of tokens beside text are an error, as they were made by
 * another tokenizer. `progress` (may be NULL) counts bytes, then merges. */
typedef struct dsmoe_tokenizer_train_options {
    const char *const *paths;
    int n_paths;
    int64_t vocab_size; /* 0: 8192, or as many as the text allows */
    int64_t max_bytes;  /* of text that is looked at, evenly over the documents; 0: 100 MB */
    int n_threads;      /* 0: all processors */
    bool replace;       /* a tokenizer that is there; that of a run or a model never is */
    double held_out;    /* share of the text that is not looked at: that which a dataset of the same
                           paths, bad_bytes and held_out holds out */
    dsmoe_bad_bytes bad_bytes;
    /* Receive, if they are not NULL, the bytes that were looked at and the tokens they now have, and
     * what was found at the paths. */
    int64_t *n_text_bytes, *n_text_tokens;
    dsmoe_data_files *files;
} dsmoe_tokenizer_train_options;
DSMOE_API dsmoe_status dsmoe_tokenizer_train(const dsmoe_tokenizer_train_options *options,
                                             const char *folder, dsmoe_progress_fn *progress,
                                             void *context, dsmoe_error *error);

/* ---- data to train on ---------------------------------------------------------------------- */

/* Documents as one long row of tokens, each ended by EOS (and begun by BOS, if the tokenizer's prompts
 * are), cut into sequences of equal length. They are tokenised once into a cache file, which is mapped,
 * and made again when a source's content, held_out, the tokenizer or the form of the cache changes.
 *
 * What is held out is never trained on. Which documents that are follows from the documents, their order
 * and the share alone, whatever the seed, the sequence_length or the tokenizer: whole documents, of every
 * kind of text, in a fixed random order; and where a document is larger than what is still wanted, a
 * stretch at its end. They make a row of their own, so that no sequence has both.
 *
 * Conversations are not cut into a row: whole ones are packed into sequences, best fit, each to be learnt with its own
 * attention and positions, and the rest of a sequence is padding. Texts beside them are packed with them, in parts if
 * they are longer than a sequence. Held-out conversations have a sequence each. */
typedef struct dsmoe_dataset dsmoe_dataset;
typedef struct dsmoe_dataset_options {
    const char *const
        *paths;  /* each a text file, a .jsonl file with a text or a conversation on each
                                 line (docs/tune.md lists the forms), a shard of tokens (.bin), or a
                                 folder with such files, looked through in the order of their names.
                                 Links are followed; a file that is reached twice is read once */
    int n_paths; /* 0: the cache file as it is; an error if it is damaged, or was made with
                                 another vocab_size or held_out */
    const char *const
        *eval_paths; /* text to hold out, in the place of a share; held_out must be 0 */
    int n_eval_paths;
    dsmoe_bad_bytes bad_bytes;
    const dsmoe_tokenizer *tokenizer; /* NULL: there are only shards of tokens */
    /* Of conversations: */
    const char *chat_form; /* the name of their form; NULL: that of the tokenizer's model */
    bool learns_all;       /* questions and frame too, rather than the answers */
    bool drops_long;       /* leaves out what is too long for a sequence, rather than to cut it */
    bool packs_nothing;    /* each has a sequence of its own */
    const char *cache;     /* the folder for the cache file */
    int64_t vocab_size;    /* every token is below it */
    int64_t sequence_length;
    double held_out; /* share of the text that is never trained on; 0: none */
    uint64_t seed;   /* of the order */
    int n_threads;   /* 0: all processors */
    uint64_t
        expected_hash; /* not 0: the data must have this dsmoe_dataset_info.hash, as it is that of
                               a run which goes on; a cache file with it is not replaced */
} dsmoe_dataset_options;
DSMOE_API dsmoe_status dsmoe_dataset_open(const dsmoe_dataset_options *options,
                                          dsmoe_progress_fn *progress, void *context,
                                          dsmoe_dataset **dataset, dsmoe_error *error);
DSMOE_API void dsmoe_dataset_free(dsmoe_dataset *dataset);

typedef struct dsmoe_dataset_info {
    int64_t n_tokens, n_documents, n_bytes; /* bytes of text; 0 for shards of tokens */
    int64_t n_train, n_held_out;            /* sequences */
    int64_t n_tokens_held_out;              /* of n_tokens */
    int64_t sequence_length;
    uint64_t hash;    /* of all tokens and the way they are cut: another number, other data */
    bool cache_built; /* this time, rather than found */
    int n_kinds;      /* kinds of text: the entries of the folders given, or the files themselves */
    /* Where there are conversations: */
    bool is_packed;
    int64_t n_conversations; /* in the training sequences, parts of texts included */
    int64_t n_packed_tokens,
        n_targets;            /* of the training sequences: without padding, and to be learnt */
    int64_t n_cut, n_dropped; /* conversations that are too long for a sequence */
    int64_t n_unanswered;     /* that were left out, as there is nothing in them to learn */
} dsmoe_dataset_info;
DSMOE_API dsmoe_dataset_info dsmoe_dataset_get_info(const dsmoe_dataset *dataset);
/* What was found at the paths; lives as long as the data. */
DSMOE_API const dsmoe_data_files *dsmoe_dataset_files(const dsmoe_dataset *dataset);
DSMOE_API const char *dsmoe_dataset_kind_name(const dsmoe_dataset *dataset, int kind);

/* n training sequences from number `first` on, an endless row: every n_train of them are a new random
 * order of all. The arrays are [n, sequence_length], as dsmoe_batch has them; the target of a token is the one
 * after it; positions may be NULL, which where info.is_packed leaves something out. A pure function of the data, the seed and `first`. Returns how many there are: n, or 0 if a number
 * is negative or the row would go beyond INT64_MAX. */
DSMOE_API int64_t dsmoe_dataset_train(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                      int32_t *tokens, int32_t *targets, int32_t *positions);
/* How many targets and tokens, padding apart, those sequences have. */
DSMOE_API void dsmoe_dataset_count(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                   int64_t *n_targets, int64_t *n_tokens);
/* The same for the held-out sequences from `first` on, in a fixed random order; `kinds` (may be NULL)
 * receives the kind of text that each begins in. Returns how many there are: fewer than n where
 * n_held_out is reached, and 0 from there on or if a number is negative. */
DSMOE_API int64_t dsmoe_dataset_held_out(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                                         int32_t *tokens, int32_t *targets, int32_t *positions,
                                         int *kinds);
/* Fails once the cache file changed while it was in use: tokens that the two gave since may
 * not be those of the data. Cheap enough to ask after each batch. */
DSMOE_API dsmoe_status dsmoe_dataset_check(const dsmoe_dataset *dataset, dsmoe_error *error);

/* Mean -log probability of the targets of the first n held-out sequences under a model (all of them
 * if n is 0 or larger), all targets together, and where to look: `watch` sees the routing of sequence after sequence. */
typedef struct dsmoe_held_out_options {
    int64_t n;
    int n_threads;               /* 0: all processors */
    double *losses;              /* [n] may be NULL: those of each sequence */
    int64_t *n_targets;          /* [n] may be NULL: of how many targets that is the mean */
    dsmoe_routing_fn *watch;     /* may be NULL; `first` counts tokens from the first sequence on */
    dsmoe_progress_fn *progress; /* may be NULL; counts sequences */
    void *context;
} dsmoe_held_out_options;
DSMOE_API dsmoe_status dsmoe_held_out_loss(const dsmoe_model *model, const dsmoe_dataset *dataset,
                                           const dsmoe_held_out_options *options, double *loss,
                                           dsmoe_error *error);

/* ---- several machines ---------------------------------------------------------------------- */

/* Ranks that work on one model together, a process each. The library knows them by this table alone; the
 * command fills it in with Open MPI. All ranks call the same functions in the same order, with sizes that
 * agree, each from one thread. Bytes arrive as they were sent: numbers are never added up on their way,
 * so that a sum has one order, whatever the number of ranks. Once a rank is lost, every call fails with
 * DSMOE_ERROR_PEER. */
typedef struct dsmoe_bytes {
    void *bytes;
    size_t size;
} dsmoe_bytes;
typedef struct dsmoe_peers {
    int rank, size;
    const char *host; /* the machine of this rank, for messages */
    void *context;
    /* The largest number that any rank has. */
    dsmoe_status (*agree)(void *context, int64_t mine, int64_t *largest, dsmoe_error *error);
    /* Bytes of the rank `root` to all. */
    dsmoe_status (*broadcast)(void *context, int root, void *bytes, size_t size,
                              dsmoe_error *error);
    /* parts[i] of each rank i to all; this rank's own lies there already. */
    dsmoe_status (*gather)(void *context, const dsmoe_bytes *parts, dsmoe_error *error);
    /* send[i] goes to rank i, who finds it in its receive[] at the place of this rank; nothing goes to the
     * rank itself. Between begin and end the buffers belong to the table, and only `poll` may be called;
     * the two lists need not last. */
    dsmoe_status (*exchange_begin)(void *context, const dsmoe_bytes *send,
                                   const dsmoe_bytes *receive, dsmoe_error *error);
    dsmoe_status (*exchange_end)(void *context, dsmoe_error *error);
    /* Called now and then between the two, so that bytes travel while this rank computes. */
    void (*poll)(void *context); /* may be NULL */
} dsmoe_peers;

/* A model that no machine holds: the routed experts of every layer are divided over the ranks, in ranges. Rank 0 alone
 * has the files. It opens the model, divides it, and then runs engines over it as ever, from one thread; logits have the
 * bits of one machine. The other ranks get their experts from it, and run them until it frees the model. */
typedef struct dsmoe_rank_memory {
    size_t experts;   /* bytes of those that the rank holds; on rank 0 they lie in the files */
    size_t workspace; /* to run them; of rank 0 its engines' */
} dsmoe_rank_memory;
typedef struct dsmoe_divide_options {
    const dsmoe_peers *peers; /* NULL: alone. They must outlive the model */
    /* That of the engines to come (dsmoe_engine_options); 0: 512. A larger one of theirs works too, in pieces, which
     * may change the last digits for float types. */
    int64_t n_batch;
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes that are sent */
    void *context;
    dsmoe_rank_memory *memory; /* [peers->size], may be NULL: receives what each rank takes */
} dsmoe_divide_options;
/* On rank 0, before there is an engine. `model` NULL tells the others, who wait, that there is none. If it fails, all
 * ranks have the same error, and the model is as it was. */
DSMOE_API dsmoe_status dsmoe_model_divide(dsmoe_model *model, const dsmoe_divide_options *options,
                                          dsmoe_error *error);

typedef struct dsmoe_follow_options {
    const dsmoe_peers *peers;
    int n_threads; /* 0: all processors */
    /* Asked before each layer; may be NULL. True ends what rank 0 is doing with DSMOE_ERROR_STOPPED. */
    bool (*stop)(void *context);
    void *context;
} dsmoe_follow_options;
/* On every other rank: all that it does, to the end. Whether memory suffices is known before anything is sent. */
DSMOE_API dsmoe_status dsmoe_model_follow(const dsmoe_follow_options *options, dsmoe_error *error);

/* ---- training ------------------------------------------------------------------------------ */

typedef enum dsmoe_schedule_kind {
    DSMOE_SCHEDULE_STEP = 0,   /* the paper's: times 0.316 at 80 % and again at 90 % of the steps */
    DSMOE_SCHEDULE_COSINE = 1, /* down to a tenth */
    DSMOE_SCHEDULE_CONSTANT = 2,
} dsmoe_schedule_kind;
typedef struct dsmoe_schedule {
    dsmoe_schedule_kind kind;
    double lr;        /* the highest */
    int64_t n_warmup; /* steps that climb to it in a line */
    int64_t n_steps;
} dsmoe_schedule;
/* The learning rate of a step, counted from 0. */
DSMOE_API double dsmoe_schedule_lr(const dsmoe_schedule *schedule, int64_t step);

/* What ranks divide among them, beside the batches of a step and the optimizer's work. */
typedef enum dsmoe_parallel {
    DSMOE_PARALLEL_DATA = 0,    /* nothing: each has all weights */
    DSMOE_PARALLEL_EXPERTS = 1, /* the routed experts of every layer, in ranges */
} dsmoe_parallel;

/* What of a model is trained. */
typedef enum dsmoe_train_what {
    DSMOE_TRAIN_ALL = 0,
    DSMOE_TRAIN_EXPERTS = 1, /* some routed experts (ESFT, arXiv 2407.01906) */
    DSMOE_TRAIN_LORA = 2,    /* low-rank additions: y = W·x + scale·B·(A·x) */
} dsmoe_train_what;

/* Training a part of a model. The rest stays as it is, in the type that it has, mapped and shared. */
typedef struct dsmoe_tuning {
    const dsmoe_model *base; /* it must outlive the trainer */
    dsmoe_train_what train;
    const unsigned char *experts; /* [num_hidden_layers, n_routed_experts] 1: is trained */
    /* Of low-rank additions: */
    int64_t rank;
    double alpha;  /* scale = alpha / rank, */
    bool rslora;   /* or with this alpha / √rank */
    /* Words between commas: attention, shared, dense, routed, or names of modules as in PEFT's target_modules. */
    const char *targets;
} dsmoe_tuning;

/* ESFT: which routed experts a text uses. An expert's score in a layer is the mean over tokens of its gate value, 0
 * where it is not chosen, or of chosen / num_experts_per_tok. Tables are [num_hidden_layers, n_routed_experts]. */
typedef enum dsmoe_expert_score {
    DSMOE_EXPERT_SCORE_GATE = 0,
    DSMOE_EXPERT_SCORE_TOKEN = 1,
} dsmoe_expert_score;
/* By its name, "gate" or "token"; false if there is none. */
DSMOE_API bool dsmoe_expert_score_find(const char *name, dsmoe_expert_score *score);
/* The paper's share: 0.1 of gate scores, 0.2 of token scores. */
DSMOE_API double dsmoe_expert_share_default(dsmoe_expert_score score);
/* The best of each layer, until their scores sum up to `share`: 1 in chosen, else 0. */
DSMOE_API void dsmoe_experts_choose(const dsmoe_config *config, const double *scores, double share,
                                    unsigned char *chosen);
/* ESFT's expert_cfg.json. */
DSMOE_API dsmoe_status dsmoe_experts_read(const char *path, const dsmoe_config *config,
                                          unsigned char *chosen, dsmoe_error *error);
DSMOE_API dsmoe_status dsmoe_experts_write(const char *path, const dsmoe_config *config,
                                           const unsigned char *chosen, dsmoe_error *error);

/* A model being trained: float32 weights, gradients, AdamW's moments, activations of one batch. Weights, gradients and
 * moments are those of what is trained alone.
 *
 * Ranks that train together have a trainer each, and make the same calls in the same order. What they
 * compute has the same bits as one rank's work on all batches. */
typedef struct dsmoe_trainer dsmoe_trainer;
typedef struct dsmoe_trainer_options {
    int64_t n_sequences; /* of a batch that goes through the model at once */
    int64_t sequence_length;
    double beta1, beta2, eps;
    double weight_decay;     /* of matrices; norms and biases have none */
    double clip_norm;        /* the gradient is scaled down to this norm; 0: never */
    int64_t n_device_groups; /* for the device-level balance loss; 0: none */
    double device_loss_alpha;
    double
        bias_speed; /* of "noaux_tc": how far an update moves the bias of each expert whose load was not the mean */
    bool recompute;           /* keep only each layer's input, and run it once more in backward */
    const dsmoe_tuning *tuning; /* NULL: all of the model is trained; it must outlive the trainer */
    /* With tuning: bytes that all of it may take, the base included, 0: what can be had. As many layers as fit
     * keep what backward needs; the first ones are run once more. */
    size_t most_memory;
    int n_threads;            /* 0: all processors */
    const dsmoe_peers *peers; /* NULL: alone */
    dsmoe_parallel parallel;
} dsmoe_trainer_options;
/* A batch of 8 x 256; the paper's 0.9, 0.95, 1e-8, 0.1, 1.0; the 0.001 of DeepSeek-V3. */
DSMOE_API dsmoe_trainer_options dsmoe_trainer_options_default(void);

/* Bytes, known before anything is allocated; all 0 if they cannot fit. */
typedef struct dsmoe_trainer_memory {
    size_t weights, gradients, moments, activations, workspace;
    size_t base; /* of tuning: the frozen tensors, mapped */
} dsmoe_trainer_memory;
DSMOE_API dsmoe_trainer_memory dsmoe_trainer_memory_size(const dsmoe_config *config,
                                                         const dsmoe_trainer_options *options);

/* Weights are zero until one of the two after it. */
DSMOE_API dsmoe_status dsmoe_trainer_create(const dsmoe_config *config,
                                            const dsmoe_trainer_options *options,
                                            dsmoe_trainer **trainer, dsmoe_error *error);
DSMOE_API void dsmoe_trainer_free(dsmoe_trainer *trainer);
/* The numbers that dsmoe_model_init writes for this seed. */
DSMOE_API void dsmoe_trainer_init(dsmoe_trainer *trainer, uint64_t seed);
/* The weights of a model of the same configuration. */
DSMOE_API dsmoe_status dsmoe_trainer_load(dsmoe_trainer *trainer, const dsmoe_model *model,
                                          dsmoe_error *error);
/* The model as it is now, for engines: valid as long as the trainer, changed by every update. */
DSMOE_API const dsmoe_model *dsmoe_trainer_model(const dsmoe_trainer *trainer);

typedef struct dsmoe_batch_losses {
    double loss;                      /* mean -log probability of the targets: see dsmoe_batch */
    double aux_loss, device_loss;     /* balance losses, the sum over all layers */
    const dsmoe_layer_losses *layers; /* [n_moe_layers]; valid until the next batch */
} dsmoe_batch_losses;
/* Each array is [n_sequences, sequence_length].
 *
 * A sequence may hold several conversations, one after the other: a token sees those of its own conversation
 * alone, from its position 0 on. The balance losses are then taken over each conversation (without seq_aux, and
 * among device groups, over all tokens of the batch) and count by its number of tokens, so that they do not
 * depend on which conversations share a sequence. Padding reaches no loss and no expert's load.
 *
 * The objective of a step of several batches is the sum over its targets over their number: its update takes the
 * mean of the batches, so each of them is to be divided by the mean numbers of targets and tokens of a batch. */
typedef struct dsmoe_batch {
    const int32_t *tokens;
    const int32_t *targets; /* what should come next; -1: does not count */
    const int32_t *
        positions; /* of each token in its conversation: 0, 1, 2 … up to the next 0; -1: padding, with
                                 any token and no target. NULL: each sequence is one conversation */
    double n_targets,
        n_tokens; /* of a batch of the step, the mean, padding apart; 0: those of this one */
} dsmoe_batch;
/* Forward and backward of one batch. The first one after an update writes the gradients of loss + balance losses,
 * the next ones add theirs, each computed from zero. `losses` may be NULL. DSMOE_ERROR_NONFINITE if the
 * loss is not a finite number: the next update then skips.
 * Ranks that train together bring a batch each, or none (NULL, or no tokens), which are added in their order; the
 * losses are those of this rank's batch. */
DSMOE_API dsmoe_status dsmoe_trainer_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch,
                                              dsmoe_batch_losses *losses, dsmoe_error *error);

typedef struct dsmoe_update {
    double grad_norm; /* of the mean gradient of the batches since the last update, unclipped */
    bool skipped;     /* something was not finite: weights and moments are as before */
} dsmoe_update;
/* Clips and takes one step of AdamW with the mean gradient of the batches since the last one. Unless it skips, gates
 * with "noaux_tc" then follow the load of those batches, of all ranks: the bias of an expert goes up by bias_speed where
 * fewer tokens than the mean chose it, and down where more did. */
DSMOE_API dsmoe_status dsmoe_trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                                            dsmoe_error *error);

/* Tokens that chose each expert since dsmoe_trainer_reset_load, of all ranks: [n_moe_layers,
 * n_routed_experts]. */
DSMOE_API const int64_t *dsmoe_trainer_expert_load(const dsmoe_trainer *trainer);
DSMOE_API void dsmoe_trainer_reset_load(dsmoe_trainer *trainer);
/* The worst layer's largest load over its mean. */
DSMOE_API double dsmoe_trainer_imbalance(const dsmoe_trainer *trainer);

/* What is trained. All of a model: the tensors of dsmoe_model_tensor(dsmoe_trainer_model(…), index). Low-rank additions
 * have the names that PEFT gives them. */
DSMOE_API size_t dsmoe_trainer_parameter_count(const dsmoe_trainer *trainer);
DSMOE_API dsmoe_tensor_info dsmoe_trainer_parameter(const dsmoe_trainer *trainer, size_t index);
/* Their numbers; NULL where another rank has them. */
DSMOE_API const float *dsmoe_trainer_weight(const dsmoe_trainer *trainer, size_t index);
DSMOE_API const float *dsmoe_trainer_gradient(const dsmoe_trainer *trainer, size_t index);

/* Where the time went since the last call, in seconds; the last two with several ranks only. */
typedef struct dsmoe_trainer_times {
    double attention, experts, router, head, optimizer, rest;
    double
        sending; /* gradients, weights and rows of experts to and from other ranks, their sums included */
    double waiting; /* for the other ranks to be as far as this one */
} dsmoe_trainer_times;
DSMOE_API dsmoe_trainer_times dsmoe_trainer_take_times(dsmoe_trainer *trainer);

/* ---- planning several machines ------------------------------------------------------------- */

/* How fast a rank trains: FLOP/s in the parts of a step, counted as dsmoe_model_plan does, with half of
 * attention's square; and bytes/s of what only reads and writes, such as the optimizer. */
typedef struct dsmoe_training_speed {
    double attention, experts,
        head; /* router and norms count as attention, dense FFNs as experts */
    double memory;
} dsmoe_training_speed;
/* What the times of a step of n_units batches, made by a rank alone, tell. */
DSMOE_API dsmoe_status dsmoe_training_speed_find(const dsmoe_config *config,
                                                 const dsmoe_trainer_options *options,
                                                 int64_t n_units, const dsmoe_trainer_times *times,
                                                 dsmoe_training_speed *speed, dsmoe_error *error);

typedef struct dsmoe_scale_options {
    dsmoe_trainer_options trainer; /* of each rank; peers is not looked at */
    int n_ranks;
    int64_t n_units;  /* batches of a step, of all ranks together */
    double bandwidth; /* bytes/s of the cable of a rank, either way */
    double latency;   /* seconds from one rank to another */
    dsmoe_training_speed speed;
    /* How often experts are chosen over the mean, [n_load_layers, n_routed_experts]: MoE layer i takes row i mod
     * n_load_layers. NULL: the experts of one rank `imbalance` times as often as the mean, the others alike; an
     * imbalance of 0 is one of 1. */
    const double *loads;
    int64_t n_load_layers;
    double imbalance;
} dsmoe_scale_options;

/* A training step of n_units batches on n_ranks ranks, foretold. */
typedef struct dsmoe_scale {
    dsmoe_trainer_memory memory;      /* of the rank that takes most */
    size_t most_memory, least_memory; /* all of it together; and of the rank that takes least */
    /* Bytes that a rank sends in a step, the mean over the ranks: */
    double gradients, weights, rows, words; /* words: reports, counts of rows, norms */
    /* Seconds: */
    double step; /* the sum of the next three, which are means over the ranks */
    double computing;
    double waiting; /* for ranks that have more to do */
    double sending; /* as far as computing does not hide it */
    double hidden;  /* as far as it does */
    double
        useful; /* of computing: the products of the model, each once; the rest are sums, the optimizer and
                       what is computed again */
} dsmoe_scale;
DSMOE_API dsmoe_status dsmoe_scale_predict(const dsmoe_config *config,
                                           const dsmoe_scale_options *options, dsmoe_scale *scale,
                                           dsmoe_error *error);

/* ---- a training run ------------------------------------------------------------------------ */

enum { DSMOE_MAX_DATA = 16 };

/* All that decides what a run computes; it is saved with the run as settings.json, and can be read
 * from such a file. A run is a folder:
 *   settings.json, tokenizer.json, data.cache, metrics.jsonl, events.out.tfevents.*, report.html
 *   checkpoints/step-00000200/   a model folder, with training.safetensors beside the weights
 *   latest, best                 links to checkpoints */
typedef struct dsmoe_run_settings {
    char data[DSMOE_MAX_DATA][DSMOE_PATH];      /* "" after the last */
    char eval_data[DSMOE_MAX_DATA][DSMOE_PATH]; /* held out, in the place of a share of the data */
    char out[DSMOE_PATH];
    char bad_bytes[16];         /* "replace", "keep", "skip" (dsmoe_bad_bytes) */
    char chat_form[32];         /* of conversations; "": the model's own */
    char train_on[16];          /* of conversations: "answers", "all" */
    char too_long[16];          /* conversations: "cut", "drop" */
    char tokenizer[DSMOE_PATH]; /* "": that of `init`, else one is trained on the data */
    char config[DSMOE_PATH];    /* a config.json; or */
    char preset[32];            /* a preset; or */
    char init[DSMOE_PATH];      /* a model to go on from; all "": the preset tiny */
    dsmoe_model_sizes model; /* over those of config or preset; the keys are those of config.json */
    int64_t vocab_size;      /* of a tokenizer that is trained here; 0: 8192, or what it can be */
    int64_t steps, batch, seq, accumulate;
    double lr;
    char schedule[16]; /* "step", "cosine", "constant" */
    int64_t warmup;    /* -1: a twentieth of the steps, at most 2000 */
    double weight_decay, clip, beta1, beta2, eps;
    double aux_loss_alpha; /* -1: the configuration's */
    int64_t device_groups;
    double device_loss_alpha;
    double bias_speed; /* of models whose topk_method is noaux_tc; 0: the bias stays as it is */
    double init_std;   /* -1: the configuration's initializer_range */
    bool recompute;
    char train[16]; /* what of `init` is trained: "all", "experts" or "lora" (dsmoe_train_what) */
    int64_t rank;   /* of low-rank additions, and the rest of dsmoe_tuning */
    double alpha;
    bool rslora;
    char targets[512];
    char expert_score[8]; /* "gate" or "token": how experts are chosen, */
    double expert_share;  /* and up to which sum; -1: the paper's; */
    char experts[DSMOE_PATH]; /* or a file that names them, as expert_cfg.json does */
    double memory;            /* GB that training a part may take; 0: what can be had */
    int64_t seed;
    double held_out;                    /* not looked at if there are eval_data */
    int64_t eval_every, eval_sequences; /* 0: never; 0: all */
    int64_t patience; /* ends when so many evaluations in a row were not better; 0: never */
    int64_t sample_every, sample_tokens; /* 0: never */
    char sample_prompt[256];
    int64_t save_every, keep; /* 0: at the end only; last checkpoints kept, beside the best */
    char dtype[8]; /* of the checkpoints' weights: "f32", "f16" or "bf16"; resuming is exact
                                 with each */
    int64_t log_every, report_every;
} dsmoe_run_settings;
DSMOE_API dsmoe_run_settings dsmoe_run_settings_default(void);
/* Keys of the file that are not there leave the setting as it is; an unknown one is an error. */
DSMOE_API dsmoe_status dsmoe_run_settings_read(const char *path, dsmoe_run_settings *settings,
                                               dsmoe_error *error);

typedef enum dsmoe_run_event_kind {
    DSMOE_RUN_PROGRESS,   /* `what` is being done: done of total */
    DSMOE_RUN_START,      /* everything is ready: the facts below are known; text: the settings that
                             changed, "lr 0.001 -> 0.0003, …", or NULL */
    DSMOE_RUN_STEP,       /* a step is done */
    DSMOE_RUN_EVAL,       /* held_out_loss */
    DSMOE_RUN_SAMPLE,     /* text, after the prompt */
    DSMOE_RUN_CHECKPOINT, /* path */
    DSMOE_RUN_SKIP,       /* a step was skipped: text says why */
    DSMOE_RUN_MESSAGE,    /* text for the user */
    DSMOE_RUN_SEQUENCE,   /* one of the first training sequences, in `sequence` */
} dsmoe_run_event_kind;

/* What show_data asks for. */
typedef struct dsmoe_run_sequence {
    const dsmoe_tokenizer *tokenizer; /* NULL: the data are tokens */
    const dsmoe_batch *batch;         /* this sequence alone */
    int64_t length;                   /* places in it */
    int64_t number, total;            /* of those that are shown, from 1 on */
} dsmoe_run_sequence;

typedef struct dsmoe_run_event {
    dsmoe_run_event_kind kind;
    const char *what, *text, *path;
    double done, total;
    /* of the run */
    const dsmoe_config *config;
    const dsmoe_dataset_info *data;
    const dsmoe_trainer_memory *memory;
    int64_t first_step; /* where it begins: 0, or after what a resumed run had done */
    int64_t parameters, active_parameters;
    /* of a step */
    int64_t step, n_steps;              /* step counts from 1 */
    double loss, aux_loss, device_loss; /* means since the last step that log_every names */
    double lr, grad_norm, imbalance;
    double tokens_per_s, seconds_left; /* of the last few steps */
    int64_t n_skipped;
    double held_out_loss, best_loss;
    const dsmoe_run_sequence *sequence;
} dsmoe_run_event;

typedef struct dsmoe_run_options {
    const char *resume; /* a run's folder to go on with, with the settings it has; or NULL */
    /* With resume: keys of the settings (as in settings.json) that the caller gives and that hold from
     * now on; the others are not looked at. What decides the model's shape and the order of the data
     * (out, tokenizer, config, preset, init, sizes, vocab_size, seq, init_std, seed, held_out, chat_form, train_on,
     * too_long) cannot change:
     * another value is refused. */
    const char *const *given;
    int n_given;
    /* What messages call a setting, such as the option of a command that sets it; NULL: its key. */
    const char *(*setting_name)(const char *key);
    int64_t
        show_data; /* not 0: tells so many of the first training sequences, and ends; nothing is trained, and a new
                           run's folder is as it was before */
    int64_t stop_after; /* end with a checkpoint after this many steps in all; 0: at the end */
    double
        time_limit; /* end with a checkpoint after the step in which it passes, in seconds since the
                           call; 0: none */
    int n_threads;  /* 0: all processors */
    /* Ranks that train together, each of which calls dsmoe_run with the same settings; NULL: alone. Rank 0 alone
     * reads and writes files and tells events. What is computed, and so every checkpoint, does not depend on
     * the ranks: they may be others when a run is resumed. */
    const dsmoe_peers *peers;
    dsmoe_parallel parallel;
    /* Called after everything of note, from the calling thread; may be NULL. */
    void (*event)(void *context, const dsmoe_run_event *event);
    /* Asked after each step (and during long preparations): true, from any rank, ends the run with a
     * checkpoint. */
    bool (*stop)(void *context);
    void *context;
} dsmoe_run_options;

typedef enum dsmoe_run_end {
    DSMOE_RUN_FINISHED = 0,        /* all steps are done */
    DSMOE_RUN_STOPPED = 1,         /* by stop_after, or as the caller wished */
    DSMOE_RUN_OUT_OF_TIME = 2,     /* time_limit */
    DSMOE_RUN_OUT_OF_PATIENCE = 3, /* the held-out loss did not improve any more */
} dsmoe_run_end;

typedef struct dsmoe_run_result {
    int64_t step;  /* steps done in all */
    bool finished; /* all of them */
    dsmoe_run_end end;
    double loss; /* the mean that was logged last */
    double held_out_loss, best_loss;
    char checkpoint[DSMOE_PATH + 64]; /* the last one written */
    char report[DSMOE_PATH + 64];
} dsmoe_run_result;
/* Trains as the settings say, or goes on with what a folder holds: a run that was stopped and resumed
 * gives the same bits as one that was not, for any numbers of threads. A step whose loss or gradient is not
 * finite is skipped; after ten in a row the run ends with an error that names the last checkpoint. */
DSMOE_API dsmoe_status dsmoe_run(const dsmoe_run_settings *settings,
                                 const dsmoe_run_options *options, dsmoe_run_result *result,
                                 dsmoe_error *error);

/* ---- seeing -------------------------------------------------------------------------------- */

/* FOLDER/report.html from FOLDER/metrics.jsonl: one page, nothing beside it. */
DSMOE_API dsmoe_status dsmoe_report_run(const char *folder, dsmoe_error *error);
/* The page of a comparison of architectures from its JSON (see docs/ablation.md). */
DSMOE_API dsmoe_status dsmoe_report_ablation(const char *json_path, const char *html_path,
                                             dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
