/* dsmoe/convert.h - models in other forms: GGUF, quantised types, importances, merged adapters; and how far two
 * models are from each other. */
#ifndef DSMOE_CONVERT_H
#define DSMOE_CONVERT_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of the matrices of a model that are quantised already. */
typedef struct dsmoe_type_changes {
    int64_t n_kept;        /* keep their type and are copied byte by byte */
    int64_t n_larger;      /* get a type with more bits, and are no better */
    int64_t n_requantised; /* get another one, which adds its own error */
} dsmoe_type_changes;
typedef struct dsmoe_convert_options {
    /* Of the matrices: the name of a dsmoe_dtype, or "q4_k_m", the usual mixture of Q4_K, Q6_K and
     * their stand-ins; NULL: as they are. Vectors and routers are always float32 in GGUF files,
     * rows that a type's blocks do not divide take the usual stand-in. */
    const char *type;
    const char *imatrix;         /* a file of dsmoe_imatrix_make to quantise by; may be NULL */
    int n_threads;               /* 0: all processors */
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes that are written */
    void *context;
    bool replace; /* an existing model of that name, if it is a .gguf file: see dsmoe_output */
    /* Receives, if it is not NULL, how many of the matrices that should be weighed by the imatrix are
     * not in it, and how many there are. If it has none of them, or in another size, it was made for
     * another model, which is an error. */
    int64_t *n_without_importance, *n_weighed;
    dsmoe_type_changes *changes; /* may be NULL; known when `progress` is called first */
} dsmoe_convert_options;
/* Writes the model `from` (a folder or a .gguf file) as `to`: a single file if its name ends with
 * .gguf, otherwise a new or empty folder in the public layout (float types only). Config, tokenizer and weights
 * are copied; between float types nothing is lost except what a narrower type cannot hold. A model that
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
 * are, column by column, so that quantising can keep errors small where they matter. The file is GGUF, as llama.cpp
 * makes and reads it. An expert that few tokens chose borrows from the mean of its layer.
 * `progress` counts tokens. */
typedef struct dsmoe_imatrix_options {
    int64_t n_ctx;       /* 0: 512 */
    int n_threads;       /* 0: all processors */
    const char *dataset; /* a name for what the tokens are, kept in the file; may be NULL */
    dsmoe_progress_fn *progress;
    void *context;
    /* Receives, if it is not NULL, how many experts (of all layers) no token chose. */
    int64_t *n_unused_experts;
    bool replace; /* an existing file of importances: see dsmoe_output */
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

/* Puts the changes of fine-tuning into the weights of a base: an adapter, whose additions are multiplied by `scale`,
 * or a folder with changed tensors only, as training of some experts leaves it (scale 1). Written as dsmoe_convert
 * does; matrices that are not changed keep their bytes, where they keep their type. */
DSMOE_API dsmoe_status dsmoe_merge(const char *base, const char *change, double scale,
                                   const char *to, const dsmoe_convert_options *options,
                                   dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
