/* dsmoe/convert.h - converting models: GGUF, quantised types, importances, merging adapters; and comparing
 * two models. */
#ifndef DSMOE_CONVERT_H
#define DSMOE_CONVERT_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a conversion does with matrices that are already quantised. */
typedef struct dsmoe_type_changes {
    int64_t n_kept;        /* keep their type; copied byte by byte */
    int64_t n_larger;      /* get a type with more bits, which makes them no better */
    int64_t n_requantised; /* get another type, which adds its own error */
} dsmoe_type_changes;
typedef struct dsmoe_convert_options {
    /* The type of the matrices: the name of a dsmoe_dtype, or "q4_k_m", the usual mixture of Q4_K and Q6_K;
     * NULL: unchanged. In GGUF files, vectors and routers are always float32. A matrix whose rows the type's
     * blocks do not divide evenly gets another type (docs/quantised.md). */
    const char *type;
    const char *imatrix; /* importances from dsmoe_imatrix_make to quantise by; may be NULL */
    int n_threads;       /* 0: all processors */
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes written */
    void *context;
    bool replace; /* replace an existing .gguf model of that name: see dsmoe_output */
    /* If not NULL, these receive how many of the matrices that the imatrix should weigh are missing from it,
     * and how many it should weigh. If all are missing, or one has another size, the imatrix was made for
     * another model, which is an error. */
    int64_t *n_without_importance, *n_weighed;
    dsmoe_type_changes *changes; /* may be NULL; filled in before the first call of `progress` */
} dsmoe_convert_options;
/* Writes the model `from` (a folder or a .gguf file) as `to`: a single file if its name ends with .gguf,
 * otherwise a new or empty folder in the public layout (float types only). Config, tokenizer and weights are
 * copied. Between float types nothing is lost except what a narrower type cannot hold. A model that cannot be
 * expressed in the other form is an error. Memory use does not grow with the model. `options` may be NULL. */
DSMOE_API dsmoe_status dsmoe_convert(const char *from, const char *to,
                                     const dsmoe_convert_options *options, dsmoe_error *error);
/* Writes a freshly initialised model directly as a .gguf file of any type (NULL: f32). `tokenizer` (may be
 * NULL) is a path as for dsmoe_tokenizer_open. In float types the numbers are those of dsmoe_model_init. In
 * block types, searching for good scales would take most of an hour for a large model. Blocks are drawn
 * instead from a stock of several thousand that were quantised once: they are as random, have the same
 * deviation, and are the same for the same seed. */
DSMOE_API dsmoe_status dsmoe_model_init_gguf(const char *path, const dsmoe_config *config,
                                             const char *tokenizer, uint64_t seed,
                                             const dsmoe_convert_options *options,
                                             dsmoe_error *error);

/* Runs tokens through a model in pieces of n_ctx and records how large the inputs of every matrix are, column
 * by column, so that quantising can keep errors small where they matter. The file is GGUF, in llama.cpp's
 * form. For an expert that few tokens chose, the mean of its layer is mixed in. `progress` counts tokens. */
typedef struct dsmoe_imatrix_options {
    int64_t n_ctx;       /* 0: 512 */
    int n_threads;       /* 0: all processors */
    const char *dataset; /* a name for the text, kept in the file; may be NULL */
    dsmoe_progress_fn *progress;
    void *context;
    /* If not NULL, receives how many experts (of all layers) no token chose. */
    int64_t *n_unused_experts;
    bool replace; /* replace an existing file of importances: see dsmoe_output */
} dsmoe_imatrix_options;
DSMOE_API dsmoe_status dsmoe_imatrix_make(const dsmoe_model *model, const int32_t *tokens,
                                          int64_t n_tokens, const dsmoe_imatrix_options *options,
                                          const char *path, dsmoe_error *error);

/* How far a model's predictions are from those of another model (`against`) with the same vocabulary, on a
 * text. Means are over all tokens except the first of each piece of n_ctx. */
typedef struct dsmoe_comparison {
    double kl;       /* Σ p·log(p/q) over the next token, in nats; p is `against`, q the model */
    double kl_error; /* standard error of that mean */
    double kl_99;    /* 99 % of the tokens do not exceed this */
    double kl_max;   /* the largest of any token */
    double same_top; /* share of tokens for which both models rank the same next token first */
    double perplexity, perplexity_against;
    int64_t n_tokens;
} dsmoe_comparison;
DSMOE_API dsmoe_status dsmoe_model_compare(const dsmoe_model *model, const dsmoe_model *against,
                                           const int32_t *tokens, int64_t n_tokens, int64_t n_ctx,
                                           int n_threads, dsmoe_progress_fn *progress,
                                           void *context, dsmoe_comparison *comparison,
                                           dsmoe_error *error);

/* Merges fine-tuning into the weights of a base model. `change` is an adapter, whose additions are multiplied
 * by `scale`, or a folder with only changed tensors, as training of some experts writes it (then scale must
 * be 1). The result is written as dsmoe_convert does. Unchanged matrices that keep their type keep their
 * bytes. */
DSMOE_API dsmoe_status dsmoe_merge(const char *base, const char *change, double scale,
                                   const char *to, const dsmoe_convert_options *options,
                                   dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
