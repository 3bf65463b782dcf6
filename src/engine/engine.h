/* engine.h - an engine as its own files see it. The public face is dsmoe.h. */
#ifndef DSMOE_ENGINE_ENGINE_H
#define DSMOE_ENGINE_ENGINE_H

#include "engine/adapted.h"
#include "engine/page_pool.h"
#include "model/pass.h"

struct dsmoe_sequence {
    dsmoe_engine *engine; /* NULL: the place is free */
    int64_t length;
    int64_t n_pages;      /* of the table, those that will be written to in this call among them */
    int32_t *table;       /* [pages of a context] */
    page_id *ids;         /* the same: what full pages are known as */
    int32_t *tokens;      /* [n_ctx] */
    adapted_text adapted; /* which adapters it meets */
    bool in_call;         /* some turn of the call at hand is its turn */
    dsmoe_routing_fn *watch;
    void *watch_context;
};

struct dsmoe_engine {
    const dsmoe_model *model;
    dsmoe_engine_options options; /* with what was left open filled in */
    page_pool pool;
    dsmoe_sequence *sequences; /* [n_sequences] */
    int64_t n_reused;          /* tokens that sequences found in pages, so far */
    double attention_seconds;  /* of all passes */
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
    int64_t *turns;     /* [n_batch] whose span it is */
    int32_t *wanted;    /* [n_batch] rows whose logits someone wants */
    int64_t *numbers;   /* [n_batch] which of its turn's they are */
    int64_t *wanted_by; /* [n_batch] and the turn */
    bool *finite;       /* [PASS_HEAD_ROWS] */
    float *logits;      /* [PASS_HEAD_ROWS, vocab_size] */
} engine_space;
engine_space engine_space_place(arena *a, const dsmoe_model *model, const dsmoe_engine_options *o,
                                const adapted_engine *adapted);

/* Pages for n more tokens, of which no other sequence sees anything. False if there are not enough: then the sequence
 * is as before. */
bool sequence_reserve(dsmoe_sequence *sequence, int64_t n_tokens);
/* The tokens are in the pages now. */
void sequence_extend(dsmoe_sequence *sequence, const int32_t *tokens, int64_t n_tokens);
/* Gives back the pages after `length`, at most the present one. */
void sequence_cut(dsmoe_sequence *sequence, int64_t length);

/* Whom the passes of this engine show their inputs: see pass.inputs. `watch` must stay where it is; NULL stops it. */
void engine_watch_inputs(dsmoe_engine *engine, const input_watch *watch);

#endif
