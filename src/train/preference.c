/* preference.c - the loss of preferences, and each token's share in it. */
#include "train/preference.h"

#include <math.h>

/* The conversation number of each token, counted over all sequences; -1: padding. */
typedef struct walk {
    const preference_places *places;
    int64_t at;           /* the next token */
    int64_t conversation; /* the previous token's */
} walk;

static walk begin(const preference_places *places) { return (walk){places, 0, -1}; }

/* Moves to the next token that is not padding; false at the end. */
static bool next(walk *w, int64_t *token)
{
    const preference_places *p = w->places;
    for (; w->at < p->n_sequences * p->length; w->at++) {
        int32_t position = p->positions[w->at];
        if (position < 0) continue;
        w->conversation += position == 0;
        *token = w->at++;
        return true;
    }
    return false;
}

int64_t preference_count(const preference_places *places)
{
    int64_t n = 0;
    for (int64_t s = 0; s < places->n_sequences; s++) {
        for (int64_t i = 0; i < places->length; i++)
            n += places->positions[s * places->length + i] == 0;
        if (n % 2) return -1;
    }
    return n / 2;
}

void preference_margins(const preference_places *places, const double *losses, double *margins)
{
    int64_t token;
    for (walk w = begin(places); next(&w, &token);) {
        int64_t pair = w.conversation / 2;
        bool is_chosen = w.conversation % 2 == 0;
        if (places->positions[token] == 0 && is_chosen) margins[pair] = 0.0;
        margins[pair] += is_chosen ? -losses[token] : losses[token];
    }
}

double preference_loss(double beta, double margin, double *slope)
{
    double z = beta * margin, e = exp(-fabs(z));
    *slope = beta * (z > 0 ? e / (1.0 + e) : 1.0 / (1.0 + e)); /* β·σ(-z) */
    return log1p(e) + (z > 0 ? 0.0 : -z);
}

preference_sums preference_learn(const preference_places *places, double beta, double divisor,
                                 const double *margins, const double *reference, float *shares)
{
    preference_sums sums = {0};
    double slope = 0.0;
    int64_t token, n = places->n_sequences * places->length;
    for (int64_t i = 0; i < n; i++) shares[i] = 0.0f;
    for (walk w = begin(places); next(&w, &token);) {
        int64_t pair = w.conversation / 2;
        bool is_chosen = w.conversation % 2 == 0;
        if (places->positions[token] == 0 && is_chosen) {
            double margin = margins[pair] - reference[pair];
            sums.loss += preference_loss(beta, margin, &slope) / divisor;
            sums.accuracy += (margin > 0) / divisor;
            sums.margin += beta * margin / divisor;
        }
        shares[token] = (float)((is_chosen ? slope : -slope) / divisor);
    }
    return sums;
}
