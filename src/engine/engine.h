/* engine.h - what the files of the engine share. The public interface is in dsmoe.h. */
#ifndef DSMOE_ENGINE_ENGINE_H
#define DSMOE_ENGINE_ENGINE_H

#include "engine/adapted.h"
#include "engine/page_pool.h"
#include "model/pass.h"

struct dsmoe_sequence {
    dsmoe_engine *engine; /* NULL: this place is free */
    int64_t length;
    int64_t n_pages;      /* in the table, including pages that this call will write to */
    int32_t *table;       /* [pages of a context] */
    page_id *ids;         /* [pages of a context] the ids of full pages */
    int32_t *tokens;      /* [n_ctx] */
    adapted_text adapted; /* which adapters apply */
    bool in_call;         /* it has a turn in the current call */
    dsmoe_routing_fn *watch;
    void *watch_context;
};

struct dsmoe_engine {
    const dsmoe_model *model;
    dsmoe_engine_options options; /* with defaults filled in */
    page_pool pool;
    dsmoe_sequence *sequences; /* [n_sequences] */
    int64_t n_reused;          /* tokens that sequences have found in pages */
    double attention_seconds;  /* in all passes */
    adapted_engine adapted;
    latent_keys latent_keys;
    void *workspace;
    size_t workspace_size;
    const input_watch *inputs;
};

/* Pages that hold that many tokens. */
static inline int64_t engine_pages(int64_t n_tokens) { return (n_tokens + KV_PAGE - 1) / KV_PAGE; }

/* The arrays of one call. */
typedef struct engine_space {
    pass pass;
    span *spans;        /* [n_batch] */
    int64_t *turns;     /* [n_batch] the turn of each span */
    int32_t *wanted;    /* [n_batch] rows whose logits or hidden states are wanted */
    int64_t *numbers;   /* [n_batch] the index of each among the wanted rows of its turn */
    int64_t *wanted_by; /* [n_batch] the turn of each */
    bool *finite;       /* [PASS_HEAD_ROWS] */
    float *logits;      /* [PASS_HEAD_ROWS, vocab_size] */
} engine_space;
engine_space engine_space_place(arena *a, const dsmoe_model *model, const dsmoe_engine_options *o,
                                const adapted_engine *adapted);

/* Makes sure that there are pages for n_tokens more tokens, to which no other sequence refers. False if there
 * are not enough pages; the sequence is then as before. */
bool sequence_reserve(dsmoe_sequence *sequence, int64_t n_tokens);
/* Appends tokens whose keys and values have been written to the pages. */
void sequence_extend(dsmoe_sequence *sequence, const int32_t *tokens, int64_t n_tokens);
/* Shortens the sequence to `length` and gives back the pages after that. */
void sequence_cut(dsmoe_sequence *sequence, int64_t length);

/* Sets the function that is called with the inputs of all products: see pass.inputs. *watch must stay
 * valid; NULL: none. */
void engine_watch_inputs(dsmoe_engine *engine, const input_watch *watch);

#endif
