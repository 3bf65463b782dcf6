/* dsmoe/engine.h - an engine: many sequences at once over one model. */
#ifndef DSMOE_ENGINE_H
#define DSMOE_ENGINE_H

#include "adapter.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    /* A sequence's logits have the same bits whatever other sequences are there, however its tokens come and whether
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
    int64_t n_pages_kept;    /* that no sequence uses, but whose text may come again */
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
 * full pages, whichever sequence made them, is there already (dsmoe_sequence_length), but never the last token. The
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
    /* `visit` sees the last hidden states of those rows, after the final norm [hidden_size], instead of logits,
     * which are not computed. */
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

#ifdef __cplusplus
}
#endif
#endif
