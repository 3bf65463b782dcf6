/* head.c - logits = x·Wᵀ, loss = Σ log Σ e^logit - logit of the target, and backward. */
#include "train/head.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "model/linear.h"
#include "moe/ints.h"
#include "train/linear_backward.h"

enum {
    MOST_LOGITS = 16 << 20, /* numbers of a stretch */
    MOST_ROWS = 2 * GEMM_ROWS,
};

typedef struct head_space {
    thread_scratch *threads;
    int32_t *tokens; /* [stretch] tokens of this stretch that have a target */
    float *x;        /* [stretch, hidden_size] their rows of x */
    float *logits;   /* [stretch, vocab_size] their logits, replaced by the gradient */
    double *losses;  /* [n_tokens] */
} head_space;

/* Tokens of a stretch. Stretches are about equal, with few logits but enough rows for a product. */
static int64_t stretch_of(const head_job *job)
{
    int64_t most = MOST_LOGITS / job->vocab_size;
    if (most < GEMM_ROWS / 2) most = GEMM_ROWS / 2;
    if (most > MOST_ROWS) most = MOST_ROWS;
    return moe_parts(job->n_tokens, moe_parts(job->n_tokens, most));
}

static head_space space_place(arena *a, const head_job *job)
{
    return (head_space){
        .threads = scratch_place(
            a, job->kernels, job->hidden_size,
            ints_size(ints_forms(job->kernels, job->weight), stretch_of(job), job->hidden_size),
            job->n_threads),
        .tokens = arena_take(a, stretch_of(job), sizeof(int32_t)),
        .x = arena_take(a, stretch_of(job) * job->hidden_size, sizeof(float)),
        .logits = arena_take(a, stretch_of(job) * job->vocab_size, sizeof(float)),
        .losses = arena_take(a, job->n_tokens, sizeof(double)),
    };
}

size_t head_size(const head_job *job)
{
    arena measure = arena_over(NULL);
    space_place(&measure, job);
    return arena_size(&measure);
}

typedef struct row_job {
    const head_job *head;
    head_space space;
    const int32_t *targets;
    int64_t first, n_rows; /* the stretch's first token, and its tokens with a target */
    float share;           /* factor of one target in the mean */
    bool is_back;          /* whether the gradient is wanted */
} row_job;

/* Replaces the logits of one token by their gradient: (softmax - one at the target) · share. */
static void row_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const row_job *j = context;
    const kernels *kn = j->head->kernels;
    int64_t n = j->head->vocab_size, token = j->first + j->space.tokens[row];
    float *logits = j->space.logits + row * n;
    int32_t target = j->targets[token];
    float share = j->head->shares ? j->head->shares[token] : j->share;
    float wanted = logits[target], max = -INFINITY, sum = 0.0f;
    kn->softmax_part(n, logits, &max, &sum);
    j->space.losses[token] = (double)max - wanted + log((double)sum);
    if (!j->is_back) return;
    kn->scale(n, share / sum, logits);
    logits[target] -= share;
}

/* Gathers the rows of tokens with a target. Other tokens, such as prompts or padding, have no loss and no
 * gradient, so nothing is computed for them. */
static void gather_rows(row_job *j, const float *x, int64_t first, int64_t n)
{
    int64_t hidden = j->head->hidden_size;
    j->first = first;
    j->n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        j->space.losses[first + i] = 0.0;
        if (j->targets[first + i] < 0) continue;
        memcpy(j->space.x + j->n_rows * hidden, x + (first + i) * hidden,
               (size_t)hidden * sizeof *x);
        j->space.tokens[j->n_rows++] = (int32_t)i;
    }
}

/* Computes the logits of a stretch, then losses and gradients from them. */
static void run_rows(row_job *j, const float *x, int64_t first, int64_t n)
{
    const head_job *job = j->head;
    gather_rows(j, x, first, n);
    if (j->n_rows == 0) return;
    const product forward = {{j->space.x, job->hidden_size, NULL},
                             j->n_rows,
                             job->hidden_size,
                             job->weight,
                             NULL,
                             job->vocab_size,
                             j->space.logits};
    linear_run(&forward, 1, j->space.threads, job->n_threads);
    threads_for(job->n_threads, j->n_rows, row_task, j);
}

static row_job begin(const head_job *job, const int32_t *targets, void *workspace)
{
    arena a = arena_over(workspace);
    return (row_job){.head = job, .space = space_place(&a, job), .targets = targets};
}

const double *head_losses(const head_job *job, const float *x, const int32_t *targets,
                          void *workspace)
{
    int64_t stretch = stretch_of(job);
    row_job rows_of = begin(job, targets, workspace);
    for (int64_t first = 0; first < job->n_tokens; first += stretch)
        run_rows(&rows_of, x, first, moe_min(stretch, job->n_tokens - first));
    return rows_of.space.losses;
}

/* Moves the rows of dx to the places of their tokens, the last one first. */
static void spread_rows(const row_job *j, int64_t n, float *dx)
{
    int64_t hidden = j->head->hidden_size, row = j->n_rows;
    size_t size = (size_t)hidden * sizeof *dx;
    for (int64_t i = n - 1; i >= 0; i--)
        if (row > 0 && j->space.tokens[row - 1] == i)
            memmove(dx + i * hidden, dx + --row * hidden, size);
        else
            memset(dx + i * hidden, 0, size);
}

/* Backward for a stretch whose logits were replaced by their gradient. `is_first`: no earlier stretch had
 * a target. */
static void run_back(const row_job *j, int64_t n, bool is_first, float *dx, float *d_weight)
{
    const head_job *job = j->head;
    const linear_gradient back = {job->weight, job->vocab_size, j->space.logits, d_weight, NULL};
    linear_backward(&(linear_backward_job){.n_rows = j->n_rows,
                                           .n_in = job->hidden_size,
                                           .x = j->space.x,
                                           .layers = &back,
                                           .n_layers = 1,
                                           .dx = dx + j->first * job->hidden_size,
                                           .accumulate = !is_first,
                                           .threads = j->space.threads,
                                           .n_threads = job->n_threads});
    spread_rows(j, n, dx + j->first * job->hidden_size);
}

double head_loss(const head_job *job, const float *x, const int32_t *targets, float *dx,
                 float *d_weight, void *workspace)
{
    int64_t n_targets = 0, hidden = job->hidden_size, stretch = stretch_of(job);
    for (int64_t i = 0; i < job->n_tokens; i++) n_targets += targets[i] >= 0;
    double divisor = job->n_targets > 0 ? job->n_targets : (double)n_targets;
    row_job rows_of = begin(job, targets, workspace);
    rows_of.share = n_targets ? 1.0f / (float)divisor : 0.0f;
    rows_of.is_back = true;
    bool is_first = true;
    for (int64_t first = 0; first < job->n_tokens; first += stretch) {
        int64_t n = moe_min(stretch, job->n_tokens - first);
        run_rows(&rows_of, x, first, n);
        if (rows_of.n_rows == 0) {
            memset(dx + first * hidden, 0, (size_t)(n * hidden) * sizeof *dx);
            continue;
        }
        run_back(&rows_of, n, is_first, dx, d_weight);
        is_first = false;
    }
    if (is_first && d_weight)
        memset(d_weight, 0, (size_t)(job->vocab_size * hidden) * sizeof *d_weight);
    double sum = 0.0;
    for (int64_t i = 0; i < job->n_tokens; i++) sum += rows_of.space.losses[i];
    return n_targets ? sum / divisor : 0.0;
}
