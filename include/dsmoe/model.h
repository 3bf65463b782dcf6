/* dsmoe/model.h - a model: opening its files, what it holds, making a new one. */
#ifndef DSMOE_MODEL_H
#define DSMOE_MODEL_H

#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * and processes that open the same files share their memory. Matrices of block types are an exception: from their
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
 * what it does not know to the one it finds. A file that someone writes to is an error as well. */
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
    bool replace_shared;         /* no shared experts: one more routed expert for each of them */
    int64_t num_experts_per_tok; /* routed experts of a token, before that; 0: unchanged */
    bool
        mask_before_softmax; /* what mask_top masks is gone before the softmax, so that the scores of
                                    the others add up to 1; otherwise gate values stay the scores over all */
} dsmoe_probe;
/* A model over the weights of another one, which must outlive it, with the probe applied.
 * mask_before_softmax changes nothing where gate values are normalised or scores are sigmoids. */
DSMOE_API dsmoe_status dsmoe_model_probe(const dsmoe_model *model, const dsmoe_probe *probe,
                                         dsmoe_model **probed, dsmoe_error *error);

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

#ifdef __cplusplus
}
#endif
#endif
