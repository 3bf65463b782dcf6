/* experts.h - the experts as grouped matrix products over the rows that dispatch sorted.
 *
 * A group is one expert with its rows; the fused shared experts are one more group, whose rows are
 * all tokens. A task is some rows of a group and some columns of its output: forward see cut.h; backward
 * the rows are a slice, at most GEMM_ROWS of a group. */
#ifndef DSMOE_MOE_EXPERTS_H
#define DSMOE_MOE_EXPERTS_H

#include "moe/dispatch.h"
#include "moe/low_rank_backward.h"
#include "moe/moe.h"
#include "moe/scratch.h"

/* An array over rows: n_tokens·k routed ones, sorted by expert, and n_tokens shared ones. */
typedef struct row_array {
    float *routed, *shared;
} row_array;

/* All arrays of a pass; what the pass does not use is NULL. */
typedef struct expert_rows {
    row_array g, u;  /* [rows, width] pre-activations that training keeps */
    row_array h;     /* [rows, width] hidden; in backward its gradient */
    row_array out;   /* [rows, hidden_size] output; in backward the input's gradient */
    float *weight;   /* [n_tokens·k] gate value of each routed row */
    float *d_weight; /* its gradient */
    const dsmoe_layer_weights *gradients;
} expert_rows;

/* Where rows come from. */
typedef struct token_source {
    const float *x, *dy; /* [n_tokens, hidden_size]; dy in backward */
    int64_t n_tokens;
    x_home home; /* x in integers, as far as gate_proj and up_proj want them */
} token_source;

/* One expert's share of all that. */
typedef struct group {
    moe_expert weights;
    dsmoe_expert_weights gradients; /* NULL: not wanted */
    int64_t width, n_rows;
    token_source *from;       /* NULL: the tokens that the pass is called with */
    const int32_t *token;     /* whose row it is; NULL: row r is token r */
    float *weight, *d_weight; /* NULL: the weight is 1 */
    float *g, *u, *h, *out;
    x_home h_home;   /* h in integers, as far as down_proj wants them */
    struct group_t { /* of low-rank additions (see low_rank.h); NULL: there are none */
        const float *gate, *up, *down;
    } t;
    bool only_gradients; /* backward has been over its rows already */
    int64_t n_terms; /* it and those after it that add to the same gradients; 0: it is such a one */
} group;

typedef struct slice {
    int32_t group, first, count;
} slice;

typedef struct experts {
    const kernels *kernels;
    int64_t hidden_size;
    group *groups;
    cut_product *cuts; /* of each group, for one step of forward */
    slice *slices;
    int64_t n_tokens, n_groups, n_slices;
    int64_t widest, widest_group; /* of the groups that have rows; of all */
    group *first_term;            /* of those that the last group adds up with */
    thread_scratch *threads;
    int n_threads;
    const input_watch *watch; /* of forward; NULL: none */
    float *fold; /* [n_threads, experts_fold_size]: see experts_backward_weights; may be NULL */
    const low_rank_training *low_rank; /* of backward; NULL: nothing is adapted */
    low_rank_back *backs;              /* [3·n_groups], with that, */
    float *backs_t;                    /* and experts_back_floats of their numbers */
} experts;

/* For at most n_groups groups that have at most n_rows rows together. */
experts experts_place(arena *a, const kernels *kernels, int64_t hidden_size, int64_t n_groups,
                      int64_t n_rows);

/* Group by group: the largest first, so that it is not the last to finish. experts_begin takes the
 * number of rows of x. */
void experts_begin(experts *e, int64_t n_tokens);
void experts_add(experts *e, group g);
/* The groups of a layer: the shared experts, and the sorted rows of a routed one that is held here. */
void experts_add_shared(experts *e, const dsmoe_layer *layer, const expert_rows *arrays);
group experts_routed(const dsmoe_layer *layer, const dispatch *d, int64_t expert,
                     const expert_rows *arrays);
void experts_add_routed(experts *e, const dsmoe_layer *layer, const dispatch *d,
                        const expert_rows *arrays);

/* How forward cuts its two steps into e->cuts, one for each group; the number of tasks. */
int64_t experts_cut_hidden(const experts *e); /* columns of gate_proj and up_proj */
int64_t experts_cut_output(const experts *e); /* columns of down_proj */

/* out = FFN(x) of every group's rows, not yet weighted. */
void experts_forward(const experts *e, const float *x);
/* Its first half: g, u and h, as it leaves them. */
void experts_hidden(const experts *e, const float *x);

/* Uses up g, u and h; writes out and d_weight; the weights' gradients are added or written. */
void experts_backward(const experts *e, const float *x, const float *dy, bool accumulate);

/* Its two halves. First the rows, which leaves g, u and h for the weights. Then the gradients of the weights:
 * groups that have the same gradients and stand one after the other are added up in that order. With `fold`
 * each sum is made from zero before it is added to what is there, so that it does not matter whether the
 * numbers come one after the other here, or each from a machine of its own. */
void experts_backward_rows(const experts *e, const float *x, const float *dy);
void experts_backward_weights(const experts *e, const float *x, const float *dy, bool accumulate);

/* Floats of backs_t for n_rows rows of all groups together. */
int64_t experts_back_floats(int64_t most_rank, int64_t n_rows);

/* Floats of `fold` for one thread. */
int64_t experts_fold_size(int64_t hidden_size, int64_t width);

#endif
