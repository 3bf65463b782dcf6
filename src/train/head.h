/* head.h - the head of the model and the cross entropy of what it predicts, forward and backward at once:
 * logits exist only for a stretch of the tokens at a time. */
#ifndef DSMOE_TRAIN_HEAD_H
#define DSMOE_TRAIN_HEAD_H

#include "moe/moe.h"

typedef struct head_job {
    const kernels *kernels;
    int64_t n_tokens, hidden_size, vocab_size;
    matrix weight;    /* [vocab_size, hidden_size] */
    double n_targets; /* the sum over the targets is divided by this; 0: by their number */
    /* [n_tokens] factors for the gradient of each target instead of 1 / n_targets; may be NULL. */
    const float *shares;
    int n_threads;
} head_job;

size_t head_size(const head_job *job); /* bytes of workspace */

/* The sum of -log probability over the targets (-1: none), divided by n_targets, after x [n_tokens,
 * hidden_size]. Writes its gradients by x to dx and by the weight to d_weight. NaN if something is not
 * finite; 0 if there are no targets. */
double head_loss(const head_job *job, const float *x, const int32_t *targets, float *dx,
                 float *d_weight, void *workspace);

/* Forward only: the -log probability of each target, 0 for no target; [n_tokens] in the workspace. */
const double *head_losses(const head_job *job, const float *x, const int32_t *targets,
                          void *workspace);

#endif
