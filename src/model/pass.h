/* pass.h - one piece of work on its way through the layers: rows of several sequences together.
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
    int64_t n_wanted;        /* logits of its last rows are wanted */
    const float *scales;     /* of the pass's adapters */
    dsmoe_routing_fn *watch; /* sees the routing of its rows, by their position; NULL: none does */
    void *watch_context;
} span;

typedef struct pass {
    const dsmoe_model *model;
    const span
        *spans; /* as they came, and once the pass is narrow (pass_narrow) as `narrow` has them */
    span *narrow;
    int64_t n_spans, n_rows;
    int n_threads;
    float *x;         /* [n_rows, hidden_size] the residual stream */
    float *normed;    /* [n_rows, hidden_size] */
    float *y;         /* [n_rows, hidden_size] what attention or the FFN adds to x */
    float *cos, *sin; /* [n_rows, config_rope_dim / 2] */
    int32_t *spoilt;  /* [n_rows] 1 + the layer whose router could not score the row; 0: none */
    int32_t *number;  /* [n_rows] what a row's number was when the pass began */
    const latent_keys *latent_keys; /* of latent attention */
    void *phase;                    /* memory of one step, free for the next */
    size_t phase_size;
    bool same_bits;            /* of float weights too: see gemm.same_order */
    double attention_seconds;  /* that queries spent with keys and values, or latents, so far */
    const input_watch *inputs; /* sees what every matrix is multiplied with; or NULL */
    const adapter *const
        *adapters; /* [n_adapters] that rows may meet, by the scales of their span */
    int64_t n_adapters;
    adapter_range *ranges;  /* [n_rows, n_adapters] */
    adapter_ranges adapted; /* of the rows at hand */
} pass;

/* What products are to meet: NULL if no row meets an adapter. */
static inline const adapter_ranges *pass_adapters(const pass *p)
{
    return p->adapted.n > 0 ? &p->adapted : NULL;
}

/* The arrays of a pass of at most n_rows rows. One function measures and places. */
pass pass_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads);
/* Room for adapters of the ranks that add up to `width`; none for 0 of them. */
void pass_place_adapters(arena *a, pass *p, int64_t n_rows, const adapter *const *adapters,
                         int64_t n_adapters);

/* The span that a row belongs to. */
static inline const span *pass_span(const pass *p, int64_t row)
{
    const span *s = p->spans;
    while (row >= s->row + s->n_rows) s++;
    return s;
}

/* Embedding and rotary angles of the spans' tokens. */
void pass_begin(pass *p);
/* Whether the last layer has rows that are not needed: all but those whose logits are wanted or whose
 * routing is watched. Of the others the layer computes keys and values, for later tokens, and no more. */
bool pass_may_narrow(const pass *p, int64_t layer);
/* Leaves only rows that are needed: the rows of p->x and p->normed move together, spans have the last
 * of their rows. */
void pass_narrow(pass *p);
/* x = layer(x) for layer number `layer`. A row whose scores are not finite numbers harms no other row: it is
 * marked as spoilt, and goes on with experts that mean nothing. */
dsmoe_status pass_layer(pass *p, int64_t layer, dsmoe_error *error);
/* The last hidden states of n rows of the pass, after the final norm, in p->normed [n, hidden_size]. */
void pass_hidden(pass *p, const int32_t *rows_wanted, int64_t n);
/* Scores of what follows n ≤ PASS_HEAD_ROWS rows of the pass: logits [n, vocab_size]. */
void pass_head(pass *p, const int32_t *rows_wanted, int64_t n, float *logits);

enum { PASS_HEAD_ROWS = 64 };

#endif
