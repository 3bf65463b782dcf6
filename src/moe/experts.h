/* experts.h - the experts as grouped matrix products over the rows that dispatch sorted.
 *
 * A group is one expert with its rows. The fused shared experts are one more group, whose rows are all
 * tokens. A task is some rows of a group and some columns of its output. In forward, cut.h decides which; in
 * backward, the rows of a task are a slice: at most GEMM_ROWS rows of a group. */
#ifndef DSMOE_MOE_EXPERTS_H
#define DSMOE_MOE_EXPERTS_H

#include "moe/dispatch.h"
#include "moe/low_rank_backward.h"
#include "moe/moe.h"
#include "moe/scratch.h"

/* An array over rows: n_tokens·k rows of routed experts, sorted by expert, and n_tokens of the shared
 * experts. */
typedef struct row_array {
    float *routed, *shared;
} row_array;

/* All arrays of a pass. Those that the pass does not use are NULL. */
typedef struct expert_rows {
    row_array g, u;  /* [rows, width] pre-activations that training keeps */
    row_array h;     /* [rows, width] hidden; in backward dh, then weight·h */
    row_array out;   /* [rows, hidden_size] output; in backward the gradient of the input */
    float *weight;   /* [n_tokens·k] gate value of each routed row */
    float *d_weight; /* [n_tokens·k] gradients of the gate values */
    const dsmoe_layer_weights *gradients;
} expert_rows;

/* The tokens that the rows of a group belong to. */
typedef struct token_source {
    const float *x, *dy; /* [n_tokens, hidden_size]; dy in backward */
    int64_t n_tokens;
    x_home home; /* x in the integer forms that gate_proj and up_proj need */
} token_source;

/* One expert with its rows. */
typedef struct group {
    moe_expert weights;
    dsmoe_expert_weights gradients; /* NULL: not wanted */
    int64_t width, n_rows;
    token_source *from;       /* NULL: the tokens that the pass is called with */
    const int32_t *token;     /* [n_rows] the token of each row; NULL: row r is token r */
    float *weight, *d_weight; /* NULL: the weight is 1 */
    float *g, *u, *h, *out;
    x_home h_home;   /* h in the integer forms that down_proj needs */
    struct group_t { /* T of low-rank additions (see low_rank.h); NULL: no addition */
        const float *gate, *up, *down;
    } t;
    bool only_gradients; /* its rows are done; only the gradients of the weights are left */
    int64_t n_terms; /* this group and those after it with the same gradients; 0: counted before */
} group;

typedef struct slice {
    int32_t group, first, count;
} slice;

typedef struct experts {
    const kernels *kernels;
    int64_t hidden_size;
    group *groups;
    cut_product *cuts; /* [groups] for the current one of forward's two steps */
    slice *slices;
    int64_t n_tokens, n_groups, n_slices;
    int64_t widest, widest_group; /* widths: the widest group with rows, and the widest of all */
    group *first_term;            /* the first group with the same gradients as the last group */
    thread_scratch *threads;
    int n_threads;
    const input_watch *watch; /* called in forward; NULL: none */
    float *fold; /* [n_threads, experts_fold_size]: see experts_backward_weights; may be NULL */
    const low_rank_training *low_rank; /* for backward; NULL: nothing is adapted */
    low_rank_back *backs;              /* [3·n_groups] if low_rank is set */
    float *backs_t;                    /* [experts_back_floats] if low_rank is set */
} experts;

/* Space for at most n_groups groups that together have at most n_rows rows. */
experts experts_place(arena *a, const kernels *kernels, int64_t hidden_size, int64_t n_groups,
                      int64_t n_rows);

/* Lists the groups of a pass: experts_begin with the number of tokens of x, then experts_add for each. Add
 * the largest group first, so that it is not the last to finish. */
void experts_begin(experts *e, int64_t n_tokens);
void experts_add(experts *e, group g);
/* The groups of a layer: the shared experts, and the routed experts that are held here with their sorted
 * rows. */
void experts_add_shared(experts *e, const dsmoe_layer *layer, const expert_rows *arrays);
group experts_routed(const dsmoe_layer *layer, const dispatch *d, int64_t expert,
                     const expert_rows *arrays);
void experts_add_routed(experts *e, const dsmoe_layer *layer, const dispatch *d,
                        const expert_rows *arrays);

/* Fill e->cuts for each of the two steps of forward, and return the number of tasks. */
int64_t experts_cut_hidden(const experts *e); /* columns of gate_proj and up_proj */
int64_t experts_cut_output(const experts *e); /* columns of down_proj */

/* out = FFN(x) for the rows of all groups, not multiplied by the gate values. */
void experts_forward(const experts *e, const float *x);
/* The first half of experts_forward: fills g, u and h. */
void experts_hidden(const experts *e, const float *x);

/* Overwrites g, u and h, and writes out and d_weight. The gradients of the weights are added if `accumulate`,
 * otherwise written. */
void experts_backward(const experts *e, const float *x, const float *dy, bool accumulate);

/* The two halves of experts_backward. The first computes the gradients of the rows, and leaves in g, u and h
 * what the second needs for the gradients of the weights. Consecutive groups with the same gradients are
 * added up in their order. With `fold`, each group's sum is computed from zero and then added. So the bits
 * are the same whether one machine computes all the sums or each comes from another machine. */
void experts_backward_rows(const experts *e, const float *x, const float *dy);
void experts_backward_weights(const experts *e, const float *x, const float *dy, bool accumulate);

/* Floats of backs_t if all groups together have n_rows rows. */
int64_t experts_back_floats(int64_t most_rank, int64_t n_rows);

/* Floats of `fold` for one thread. */
int64_t experts_fold_size(int64_t hidden_size, int64_t width);

#endif
