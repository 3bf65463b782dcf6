/* comparison.c - what the losses of several seeds say about the paper's claims. */
#include "study/comparison.h"

#include <math.h>

static const double level = 0.05;

/* The order is that of the paper's sections: the baselines, the whole, its steps, its bounds, its variants. */
const study_claim study_claims[N_CLAIMS] = {
    {"switch", "dense", STUDY_AHEAD},          {"gshard", "switch", STUDY_AHEAD},
    {"gshard", "dense", STUDY_AHEAD},          {"deepseekmoe", "dense", STUDY_AHEAD},
    {"deepseekmoe", "gshard", STUDY_AHEAD},    {"gshard+shared", "gshard", STUDY_AHEAD},
    {"fine-m2", "gshard+shared", STUDY_AHEAD}, {"deepseekmoe", "fine-m2", STUDY_AHEAD},
    {"deepseekmoe", "fine-m4", STUDY_UNKNOWN}, {"deepseekmoe", "gshard-x1.5", STUDY_EQUAL},
    {"deepseekmoe", "dense-x16", STUDY_EQUAL}, {"shared-2", "deepseekmoe", STUDY_EQUAL},
    {"half-active", "gshard", STUDY_AHEAD},
};

static study_verdict judge(const paired_difference *d, double corrected_p)
{
    if (d->n < 2) return STUDY_TOO_FEW;
    if (d->low <= 0 && d->high >= 0) return STUDY_NOT_TOLD;
    if (!(corrected_p < level)) return STUDY_UNSETTLED;
    return d->mean < 0 ? STUDY_LOWER : STUDY_HIGHER;
}

int study_compare(const double *losses, size_t n_seeds, study_comparison comparisons[N_CLAIMS])
{
    double p[N_CLAIMS], corrected[N_CLAIMS];
    int n = 0;
    for (int i = 0; i < N_CLAIMS; i++) {
        const study_claim *claim = &study_claims[i];
        const double *a = losses + (size_t)architecture_find(claim->name) * n_seeds;
        const double *b = losses + (size_t)architecture_find(claim->other) * n_seeds;
        paired_difference d = paired_compare(a, b, n_seeds);
        if (d.n == 0) continue;
        comparisons[n] = (study_comparison){.claim = claim, .difference = d};
        p[n++] = d.p;
    }
    holm_correct(p, (size_t)n, corrected);
    for (int i = 0; i < n; i++) {
        comparisons[i].corrected_p = corrected[i];
        comparisons[i].verdict = judge(&comparisons[i].difference, corrected[i]);
    }
    return n;
}

/* ---- in words ------------------------------------------------------------------------------ */

static const char *label_of(const char *name)
{
    return architectures[architecture_find(name)].label;
}

/* Only where the interval leaves one side of 0 is there something to hold against the paper. */
static const char *beside_paper(const study_comparison *c)
{
    if (c->claim->paper == STUDY_UNKNOWN) return "; the paper does not compare them";
    if (c->claim->paper == STUDY_EQUAL) return "; in the paper they are equal";
    return c->verdict == STUDY_LOWER ? ", as in the paper" : ": not as in the paper";
}

void study_tell(FILE *text, const study_comparison *c)
{
    const char *one = label_of(c->claim->name), *other = label_of(c->claim->other);
    const paired_difference *d = &c->difference;
    switch (c->verdict) {
    case STUDY_TOO_FEW:
        fprintf(text, "%s and %s: one seed says nothing about others", one, other);
        break;
    case STUDY_NOT_TOLD:
        fprintf(
            text,
            "%s and %s are not told apart: anything from %.3f ahead to %.3f behind fits the data",
            one, other, -d->low, d->high);
        break;
    case STUDY_UNSETTLED:
        fprintf(
            text,
            "%s and %s: a hint that it is %s by %.3f, but among so many comparisons one such may be an accident (p %.2g)",
            one, other, d->mean < 0 ? "ahead" : "behind", fabs(d->mean), c->corrected_p);
        break;
    case STUDY_LOWER:
    case STUDY_HIGHER:
        fprintf(text, "%s is %s %s by %.3f (%.3f to %.3f)%s", one,
                d->mean < 0 ? "ahead of" : "behind", other, fabs(d->mean),
                fmin(fabs(d->low), fabs(d->high)), fmax(fabs(d->low), fabs(d->high)),
                beside_paper(c));
        break;
    }
}
