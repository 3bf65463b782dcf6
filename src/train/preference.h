/* preference.h - learning from preferences, DPO (arXiv 2305.18290):
 *
 *   loss = -log σ(β·((log p(chosen) - log p(rejected)) - (log q(chosen) - log q(rejected))))
 *
 * where p is the model being trained and q the model at the start, both summed over the targets. The
 * conversations of a sequence are pairs, one after the other: first the chosen one, then the rejected one. */
#ifndef DSMOE_TRAIN_PREFERENCE_H
#define DSMOE_TRAIN_PREFERENCE_H

#include "base/status.h"

/* Where the conversations are: positions [n_sequences, length] as in dsmoe_batch. */
typedef struct preference_places {
    const int32_t *positions;
    int64_t n_sequences, length;
} preference_places;

/* The number of pairs; -1: a sequence has a conversation without its other half. */
int64_t preference_count(const preference_places *places);

/* log p(chosen) - log p(rejected) of each pair, from the -log p of each token. */
void preference_margins(const preference_places *places, const double *losses, double *margins);

/* The loss of one pair. Its gradient by -log p(chosen) is *slope, by -log p(rejected) it is -*slope. */
double preference_loss(double beta, double margin, double *slope);

/* Sums over the pairs, each divided by `divisor`. */
typedef struct preference_sums {
    double loss;
    double accuracy; /* pairs whose margin has grown */
    double margin;   /* β·(margin - the reference's margin) */
} preference_sums;

/* Takes the margins of the model and of the reference. Fills shares [n_sequences, length], the factors for
 * the gradient of each token's -log p. */
preference_sums preference_learn(const preference_places *places, double beta, double divisor,
                                 const double *margins, const double *reference, float *shares);

#endif
