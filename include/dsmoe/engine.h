/* dsmoe/engine.h - an engine runs many sequences at once through one model. */
#ifndef DSMOE_ENGINE_H
#define DSMOE_ENGINE_H

#include "adapter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs texts through a model. Sequences can be added and removed at any time; one pass over the weights
 * computes prompts and single tokens of any number of them. The engine owns the workspace of a pass and the
 * pages that hold keys and values. All memory is reserved when the engine is created; pages take real memory
 * once they are used. An engine and its sequences may be used by one thread at a time. Engines are
 * independent of each other. */
typedef struct dsmoe_engine dsmoe_engine;

typedef struct dsmoe_engine_options {
    int64_t n_ctx;       /* most tokens of a sequence; 0: max_position_embeddings */
    int64_t n_sequences; /* most sequences at a time; 0: 1 */
    int64_t n_kv;    /* tokens that the KV cache has room for, of all sequences; shared ones count
                        once; 0: n_sequences · n_ctx */
    int64_t n_batch; /* tokens that go through the model together; 0: 512 */
    int n_threads;   /* 0: all processors */
    /* How the cache keeps keys and values: DSMOE_F32 (0), exact; DSMOE_F16, half the memory; or
     * DSMOE_Q8_0, about a quarter. */
    dsmoe_dtype kv_type;
    /* Gives a sequence's logits the same bits whatever other sequences there are, however its tokens are
     * divided into calls, and whether its beginning was found in pages or computed. Weights of block types
     * always do. Float types do only with this option, which makes decoding slower (docs/model.md). */
    bool same_bits;
    /* Called before each layer, from the calling thread; may be NULL. If it returns true, all turns that are
     * not finished end with DSMOE_ERROR_STOPPED. */
    bool (*stop)(void *context);
    void *stop_context;
    /* Adapters that sequences may use, at most DSMOE_ADAPTERS_MAX; they must outlive the engine.
     * adapter_scales are the scales that sequences begin with; NULL: all 1. Adapters of the head or of
     * kv_b_proj cannot be used here: dsmoe_merge makes a model that includes them. */
    const dsmoe_adapter *const *adapters; /* [n_adapters] */
    const double *adapter_scales;         /* [n_adapters] */
    int n_adapters;
} dsmoe_engine_options;
enum { DSMOE_ADAPTERS_MAX = 16 };

/* `options` may be NULL. The model must outlive the engine. */
DSMOE_API dsmoe_status dsmoe_engine_create(const dsmoe_model *model,
                                           const dsmoe_engine_options *options,
                                           dsmoe_engine **engine, dsmoe_error *error);
/* Also frees its sequences. */
DSMOE_API void dsmoe_engine_free(dsmoe_engine *engine);
DSMOE_API const dsmoe_model *dsmoe_engine_model(const dsmoe_engine *engine);

/* Bytes that an engine would take; 0 and 0 if they cannot fit. */
typedef struct dsmoe_engine_memory {
    size_t kv_cache, workspace;
} dsmoe_engine_memory;
DSMOE_API dsmoe_engine_memory dsmoe_engine_memory_size(const dsmoe_model *model,
                                                       const dsmoe_engine_options *options);

/* What an engine has, and how much of it is in use. */
typedef struct dsmoe_engine_info {
    int64_t n_ctx, n_batch;
    int n_threads;
    int64_t n_sequences, n_sequences_used;
    size_t kv_cache, workspace; /* bytes */
    dsmoe_model_memory weights; /* of the model, which engines may share */
    int64_t page_tokens;        /* tokens per page */
    int64_t n_pages, n_pages_used;
    int64_t n_pages_shared;  /* pages that several sequences use */
    int64_t n_pages_kept;    /* pages of no sequence, kept because their text may come again */
    int64_t n_tokens_reused; /* tokens that dsmoe_sequence_begin has found in pages */
    /* Time of attention so far: queries with the keys and values of the context. With latent attention this
     * includes the products with kv_b_proj. */
    double attention_seconds;
} dsmoe_engine_info;
DSMOE_API dsmoe_engine_info dsmoe_engine_get_info(const dsmoe_engine *engine);

/* A text that grows token by token, with the pages of its keys and values. */
typedef struct dsmoe_sequence dsmoe_sequence;
/* Creates an empty sequence. DSMOE_ERROR_MEMORY if the engine has no room for another. */
DSMOE_API dsmoe_status dsmoe_sequence_create(dsmoe_engine *engine, dsmoe_sequence **sequence,
                                             dsmoe_error *error);
/* Creates a sequence for a text that begins with these tokens. It already holds as many of them as the engine
 * still has in full pages, whichever sequence made those, but never the last token. The caller appends the
 * tokens from dsmoe_sequence_length on. */
DSMOE_API dsmoe_status dsmoe_sequence_begin(dsmoe_engine *engine, const int32_t *tokens,
                                            int64_t n_tokens, dsmoe_sequence **sequence,
                                            dsmoe_error *error);
/* The same with adapters chosen for this sequence. `scales` has a factor for each adapter of the engine, 0
 * for one that is not used; NULL: those that the engine was created with. Pages of texts with other adapters
 * or scales are not reused. */
DSMOE_API dsmoe_status dsmoe_sequence_begin_adapted(dsmoe_engine *engine, const int32_t *tokens,
                                                    int64_t n_tokens, const double *scales,
                                                    dsmoe_sequence **sequence, dsmoe_error *error);
/* Creates another sequence with the first `length` tokens of this one, and its adapters. The two share pages
 * until one of them writes to a page. */
DSMOE_API dsmoe_status dsmoe_sequence_fork(const dsmoe_sequence *sequence, int64_t length,
                                           dsmoe_sequence **other, dsmoe_error *error);
/* Gives its pages back to the engine. `sequence` may be NULL. */
DSMOE_API void dsmoe_sequence_free(dsmoe_sequence *sequence);

DSMOE_API dsmoe_engine *dsmoe_sequence_engine(const dsmoe_sequence *sequence);
DSMOE_API int64_t dsmoe_sequence_length(const dsmoe_sequence *sequence); /* tokens so far */
/* Shortens the sequence to `length` tokens, at most its present length. */
DSMOE_API dsmoe_status dsmoe_sequence_rewind(dsmoe_sequence *sequence, int64_t length,
                                             dsmoe_error *error);
/* Appends tokens. `logits` [vocab_size] (may be NULL) receives the scores of the token after the last one. On
 * failure the sequence is unchanged. */
DSMOE_API dsmoe_status dsmoe_sequence_append(dsmoe_sequence *sequence, const int32_t *tokens,
                                             int64_t n_tokens, float *logits, dsmoe_error *error);

/* Tokens to append to a sequence. `visit` is called from the calling thread with the logits of each of the
 * last n_logits tokens; `row` is 0 for the first of those. The logits are valid only during that call.
 * `targets`, if given, holds the true next token for each of those rows, and `loss` receives their -log
 * probabilities. */
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
    /* `visit` gets the last hidden states of those rows, after the final norm [hidden_size], instead of
     * logits, which are then not computed. */
    bool hidden;
    /* How the turn ended. DSMOE_ERROR_NONFINITE: a score is not a finite number. DSMOE_ERROR_MEMORY: no page
     * is free. DSMOE_ERROR_ARGUMENT: the context is full, or the turn makes no sense. DSMOE_ERROR_STOPPED. A
     * turn that fails leaves its sequence unchanged, and other turns keep their results. Logits that `visit`
     * got before the failure must be ignored. */
    dsmoe_error error;
} dsmoe_turn;
/* Runs turns through the model together: of any sequences of the engine, each at most once. Returns the
 * status of the first turn that failed. */
DSMOE_API dsmoe_status dsmoe_engine_forward(dsmoe_engine *engine, dsmoe_turn *turns,
                                            int64_t n_turns, dsmoe_error *error);

/* Watches the routing of a sequence. `watch` is called for each MoE layer with the routing of the next
 * n_tokens tokens; `position` is the place of the first of them in the sequence. All three arrays of the
 * routing are filled. NULL stops watching. */
typedef void dsmoe_routing_fn(void *context, int64_t layer, int64_t position, int64_t n_tokens,
                              const dsmoe_routing *routing);
DSMOE_API void dsmoe_sequence_watch(dsmoe_sequence *sequence, dsmoe_routing_fn *watch,
                                    void *context);

#ifdef __cplusplus
}
#endif
#endif
