/* head.h - the head of the model and the cross entropy of what it predicts, forward and backward at
 * once: of the logits only those of a stretch of tokens exist at a time. */
#ifndef DSMOE_TRAIN_HEAD_H
#define DSMOE_TRAIN_HEAD_H

#include "moe/moe.h"

typedef struct head_job {
    const kernels *kernels;
    int64_t n_tokens, hidden_size, vocab_size;
    matrix weight;    /* [vocab_size, hidden_size] */
    double n_targets; /* what the sum over the targets is divided by; 0: their number */
    /* [n_tokens] what the gradient of each target is multiplied with in the place of 1 / n_targets; may be NULL. */
    const float *shares;
    int n_threads;
} head_job;

size_t head_size(const head_job *job); /* bytes of workspace */

/* The -log probability of the targets (-1: none), their sum over n_targets, after x [n_tokens, hidden_size]; its gradient by
 * x is written to dx, that by the weight too. NaN if something is not finite; 0 if there
 * is not a target. */
double head_loss(const head_job *job, const float *x, const int32_t *targets, float *dx,
                 float *d_weight, void *workspace);

/* Forward alone: the -log probability of each target, 0 where there is none; [n_tokens] in the workspace. */
const double *head_losses(const head_job *job, const float *x, const int32_t *targets,
                          void *workspace);

#endif
