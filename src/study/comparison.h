/* comparison.h - what the losses of several seeds say about the paper's claims: each is a difference of two
 * architectures, seed by seed, with an interval and a p that is corrected for the number of claims. */
#ifndef DSMOE_STUDY_COMPARISON_H
#define DSMOE_STUDY_COMPARISON_H

#include <stdio.h>

#include "base/statistics.h"
#include "study/architectures.h"

/* How the loss of one architecture stands to that of another. */
typedef enum study_order {
    STUDY_UNKNOWN, /* the paper does not compare them */
    STUDY_AHEAD,   /* it is lower */
    STUDY_EQUAL,   /* by less than a hundredth */
} study_order;

typedef struct study_claim {
    const char *name, *other; /* of architectures */
    study_order paper;
} study_claim;

enum { N_CLAIMS = 13 };
extern const study_claim study_claims[N_CLAIMS];

/* What the data support. */
typedef enum study_verdict {
    STUDY_TOO_FEW,   /* fewer than two seeds */
    STUDY_NOT_TOLD,  /* the interval holds 0 */
    STUDY_UNSETTLED, /* it does not, but so many comparisons were made that one may by accident */
    STUDY_LOWER,     /* ahead */
    STUDY_HIGHER,    /* behind */
} study_verdict;

typedef struct study_comparison {
    const study_claim *claim;
    paired_difference difference; /* of the first to the other: below 0 it is ahead */
    double corrected_p;           /* after Holm, for all comparisons of the call */
    study_verdict verdict;
} study_comparison;

/* The losses of every architecture, [N_ARCHITECTURES][n_seeds], NAN where one is not known. Gives the claims of
 * which both sides have a loss; returns how many. */
int study_compare(const double *losses, size_t n_seeds, study_comparison comparisons[N_CLAIMS]);

/* The outcome in a sentence: "… is ahead of …, as in the paper". */
void study_tell(FILE *text, const study_comparison *comparison);

#endif
