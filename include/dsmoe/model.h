/* dsmoe/model.h - a model: opening its files, what it holds, making a new one. */
#ifndef DSMOE_MODEL_H
#define DSMOE_MODEL_H

#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the numbers of a weight are stored. Arithmetic is float32. Products with the block types, in which 32
 * or 256 numbers share scales, are sums of integers, so x is rounded too (see docs/quantised.md). */
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
DSMOE_API double dsmoe_dtype_bits(dsmoe_dtype dtype);      /* per number, scales included */

/* generation_config.json: how the makers of a model recommend to sample from it. */
typedef struct dsmoe_generation_config {
    bool do_sample; /* false: greedy */
    double temperature, top_p, repetition_penalty;
    int64_t top_k; /* 0: no such limit */
    int64_t bos_token_id;
    int64_t eos_token_id[8]; /* any of these ends a text */
    int n_eos_token_ids;
} dsmoe_generation_config;

/* The weights of a model, mapped read-only and kept in their own type. Opening reads headers only, and
 * processes that open the same files share their memory. Matrices of block types are an exception: on the
 * second use of a matrix the model makes its own copy, in the order in which kernels read, and gives the
 * file's pages back. It does so only while the available memory can hold all such copies. A model is
 * immutable: any number of engines and threads may use it. */
typedef struct dsmoe_model dsmoe_model;
/* `path` is a folder in the public layout (config.json, model.safetensors or shards with
 * model.safetensors.index.json, and optionally generation_config.json), or a .gguf file of the architecture
 * deepseek or deepseek2 (of a split one, any part). Every tensor's presence, shape and type is checked; the
 * message names the file and the tensor.
 *
 * If a file becomes shorter while it is mapped, the call that uses it fails, but the program does not crash:
 * mapping the first file installs a handler for SIGBUS. For an address outside mapped files, it calls the
 * handler that was installed before. A program that later installs a handler of its own should pass on what
 * it does not recognise to the one it finds. It is also an error if someone writes to a mapped file. */
DSMOE_API dsmoe_status dsmoe_model_open(const char *path, dsmoe_model **model, dsmoe_error *error);
/* The same with options; NULL: as dsmoe_model_open. */
typedef struct dsmoe_model_options {
    /* Makes no copies: weights are used as they are in the file and shared between processes. Slower with
     * block types; results have the same bits. */
    bool share_weights;
} dsmoe_model_options;
DSMOE_API dsmoe_status dsmoe_model_open_with(const char *path, const dsmoe_model_options *options,
                                             dsmoe_model **model, dsmoe_error *error);
/* Also ends the work of ranks that hold its experts (dsmoe_model_divide). */
DSMOE_API void dsmoe_model_free(dsmoe_model *model);

/* Bytes that a model's weights take. For a model over another one's weights, those of the other model. */
typedef struct dsmoe_model_memory {
    size_t mapped;      /* files; pages are loaded when used and can be dropped again */
    size_t copied;      /* copies made so far */
    size_t copied_most; /* most that copies can take; 0: none are made */
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
/* Tensors in the files that the model does not use; NULL beyond the last. */
DSMOE_API size_t dsmoe_model_extra_count(const dsmoe_model *model);
DSMOE_API const char *dsmoe_model_extra(const dsmoe_model *model, size_t index);
/* Bytes of weights that decoding one token reads, including one row of the embedding. */
DSMOE_API size_t dsmoe_model_bytes_per_token(const dsmoe_model *model);
/* [n_routed_experts]: the bias that the gate of a layer adds to scores to choose experts ("noaux_tc"); NULL
 * if it has none. */
DSMOE_API const float *dsmoe_model_gate_bias(const dsmoe_model *model, int64_t layer);

/* The paper's probes of what experts know, for a model that was trained without them. */
typedef struct dsmoe_probe {
    double mask_top;             /* share of the routed experts, rounded to a whole number: a token
                                    may not use that many of its highest-scoring ones, and takes the
                                    best of the others; 0: none */
    bool replace_shared;         /* no shared experts; one more routed expert for each of them */
    int64_t num_experts_per_tok; /* before replace_shared; 0: unchanged */
    /* Mask before the softmax, so that the scores of the others add up to 1; otherwise gate values remain the
     * scores over all experts. */
    bool mask_before_softmax;
} dsmoe_probe;
/* Makes a model with the probe applied over the weights of another model, which must outlive it.
 * mask_before_softmax changes nothing if gate values are normalised or scores are sigmoids. */
DSMOE_API dsmoe_status dsmoe_model_probe(const dsmoe_model *model, const dsmoe_probe *probe,
                                         dsmoe_model **probed, dsmoe_error *error);

/* Writes a freshly initialised model to a folder that is new or holds only a tokenizer: config.json,
 * generation_config.json and safetensors, in shards of at most 5 GB. Linear layers and embedding are
 * normal(0, initializer_range), the router is uniform in ±1/sqrt(hidden_size), norms are 1, biases 0. The
 * same seed gives the same bits on every machine and for any number of threads. `progress` (may be NULL)
 * counts bytes. If it stops the work (DSMOE_ERROR_STOPPED) or the disk is full, what was written is removed.
 * n_threads 0: all processors. */
DSMOE_API dsmoe_status dsmoe_model_init(const char *path, const dsmoe_config *config,
                                        dsmoe_dtype dtype, uint64_t seed, int n_threads,
                                        dsmoe_progress_fn *progress, void *context,
                                        dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
