/* comparison.h - what the losses of several seeds say about the paper's claims. A claim is about the
 * difference of two losses, seed by seed. It gets an interval and a p, which is corrected for the
 * number of claims. */
#ifndef DSMOE_STUDY_COMPARISON_H
#define DSMOE_STUDY_COMPARISON_H

#include <stdio.h>

#include "base/statistics.h"
#include "study/losses.h"

/* How the first loss compares with the other one. */
typedef enum study_order {
    STUDY_UNKNOWN, /* the paper does not compare them */
    STUDY_AHEAD,   /* the first loss is lower */
    STUDY_BEHIND,  /* the first loss is higher */
    STUDY_EQUAL,   /* the losses differ by less than a hundredth */
} study_order;

/* What a claim compares. */
typedef enum study_measure {
    STUDY_LOSS,  /* the losses of two architectures */
    STUDY_FEWER, /* the loss of the first with STUDY_ACTIVE routed experts, and that of the other */
    STUDY_REPLACED, /* the losses of one architecture without its shared expert and with it */
    STUDY_MASKED, /* by how much masking experts raises two losses: the mean over the masked shares */
} study_measure;

enum { STUDY_ACTIVE = 4 }; /* with so many of its 7, DeepSeekMoE equals GShard in the paper */

typedef struct study_claim {
    const char *name, *other; /* of architectures */
    study_order paper;
    study_measure measure;
} study_claim;

enum { N_CLAIMS = 17 };
extern const study_claim study_claims[N_CLAIMS];

/* What the data support. */
typedef enum study_verdict {
    STUDY_TOO_FEW,   /* fewer than two seeds */
    STUDY_NOT_TOLD,  /* the interval contains 0 */
    STUDY_UNSETTLED, /* the interval does not contain 0, but the corrected p is too high */
    STUDY_LOWER,     /* ahead */
    STUDY_HIGHER,    /* behind */
} study_verdict;

typedef struct study_comparison {
    const study_claim *claim;
    paired_difference difference; /* the first minus the other: below 0 the first is ahead */
    double corrected_p;           /* after Holm, for all comparisons of the call */
    study_verdict verdict;
} study_comparison;

enum { STUDY_MAX_SEEDS = 32 };

/* What is known of one seed; NAN: not measured. */
typedef struct study_losses {
    double of[N_ARCHITECTURES][N_LOSSES];
} study_losses;

/* n_seeds <= STUDY_MAX_SEEDS. Fills `comparisons` with the claims for which at least one seed has both losses, and returns their number. */
int study_compare(const study_losses *seeds, size_t n_seeds,
                  study_comparison comparisons[N_CLAIMS]);

/* Writes what is compared: "DeepSeekMoE minus GShard, top-2". */
void study_tell_pair(FILE *text, const study_claim *claim);
/* Writes the outcome as a sentence: "… is ahead of …, as in the paper". */
void study_tell(FILE *text, const study_comparison *comparison);

#endif
