/* pass.h - a pass through the layers, with rows of several sequences together.
 *
 * Prompt pieces and single tokens of different sequences are spans of rows in one pass, so that the
 * weights are read once for all of them. */
#ifndef DSMOE_MODEL_PASS_H
#define DSMOE_MODEL_PASS_H

#include "model/kv_cache.h"
#include "model/latent_keys.h"
#include "model/model.h"
#include "moe/low_rank.h"

/* Consecutive tokens of one sequence. */
typedef struct span {
    kv_cache cache;
    const int32_t *tokens;
    int64_t row, n_rows;     /* rows of the pass */
    int64_t position;        /* of its first row in the sequence */
    int64_t n_wanted;        /* last rows whose logits are wanted */
    const float *scales;     /* of the pass's adapters */
    dsmoe_routing_fn *watch; /* gets the routing of its rows, by their position; may be NULL */
    void *watch_context;
} span;

typedef struct pass {
    const dsmoe_model *model;
    const span *spans; /* as given; after pass_narrow() those in `narrow` */
    span *narrow;
    int64_t n_spans, n_rows;
    int n_threads;
    float *x;         /* [n_rows, hidden_size] the residual stream */
    float *normed;    /* [n_rows, hidden_size] */
    float *y;         /* [n_rows, hidden_size] what attention or the FFN adds to x */
    float *cos, *sin; /* [n_rows, config_rope_dim / 2] */
    int32_t *spoilt;  /* [n_rows] 1 + the layer whose router could not score the row; 0: none */
    int32_t *number;  /* [n_rows] the index of a row when the pass began */
    const latent_keys *latent_keys; /* of latent attention */
    void *phase;                    /* memory of one step, reused by the next */
    size_t phase_size;
    bool same_bits;                 /* for float weights too: see gemm.same_order */
    double attention_seconds;       /* spent so far on queries with keys and values, or latents */
    const input_watch *inputs;      /* gets the input of every matrix; or NULL */
    const adapter *const *adapters; /* [n_adapters] used with the scales of a row's span */
    int64_t n_adapters;
    adapter_range *ranges;  /* [n_rows, n_adapters] */
    adapter_ranges adapted; /* of the current rows */
} pass;

/* The adapters for products; NULL if no row uses one. */
static inline const adapter_ranges *pass_adapters(const pass *p)
{
    return p->adapted.n > 0 ? &p->adapted : NULL;
}

/* Measures or places (see arena.h) the arrays of a pass of at most n_rows rows. */
pass pass_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads);
/* The same for the arrays that adapters need; none if n_adapters is 0. */
void pass_place_adapters(arena *a, pass *p, int64_t n_rows, const adapter *const *adapters,
                         int64_t n_adapters);

/* The span that a row belongs to. */
static inline const span *pass_span(const pass *p, int64_t row)
{
    const span *s = p->spans;
    while (row >= s->row + s->n_rows) s++;
    return s;
}

/* Computes the embeddings and rotary angles of the spans' tokens. */
void pass_begin(pass *p);
/* Whether `layer` is the last one and has rows that are not needed: those whose logits are not wanted and
 * whose routing is not watched. For them it computes only keys and values, which later tokens need. */
bool pass_may_narrow(const pass *p, int64_t layer);
/* Drops the rows that are not needed: moves the others together in p->x and p->normed, and reduces spans to
 * the last of their rows. */
void pass_narrow(pass *p);
/* x = layer(x) for layer number `layer`. A row whose scores are not finite does not affect other rows: it is
 * marked as spoilt, and continues with meaningless experts. */
dsmoe_status pass_layer(pass *p, int64_t layer, dsmoe_error *error);
/* Computes the last hidden states of n rows, after the final norm, in p->normed [n, hidden_size]. */
void pass_hidden(pass *p, const int32_t *rows_wanted, int64_t n);
/* Computes the scores of the tokens after n ≤ PASS_HEAD_ROWS rows: logits [n, vocab_size]. */
void pass_head(pass *p, const int32_t *rows_wanted, int64_t n, float *logits);

enum { PASS_HEAD_ROWS = 64 };

#endif
