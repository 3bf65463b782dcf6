/* comparison.c - what the losses of several seeds say about the paper's claims. */
#include "study/comparison.h"

#include <math.h>

static const double level = 0.05;

/* In the order of the paper's sections: baselines, the whole DeepSeekMoE, its steps, bounds and variants; then the
 * probes. */
const study_claim study_claims[N_CLAIMS] = {
    {"switch", "dense", STUDY_AHEAD, STUDY_LOSS},
    {"gshard", "switch", STUDY_AHEAD, STUDY_LOSS},
    {"gshard", "dense", STUDY_AHEAD, STUDY_LOSS},
    {"deepseekmoe", "dense", STUDY_AHEAD, STUDY_LOSS},
    {"deepseekmoe", "gshard", STUDY_AHEAD, STUDY_LOSS},
    {"gshard+shared", "gshard", STUDY_AHEAD, STUDY_LOSS},
    {"fine-m2", "gshard+shared", STUDY_AHEAD, STUDY_LOSS},
    {"deepseekmoe", "fine-m2", STUDY_AHEAD, STUDY_LOSS},
    {"deepseekmoe", "fine-m4", STUDY_UNKNOWN, STUDY_LOSS},
    {"deepseekmoe", "gshard-x1.5", STUDY_EQUAL, STUDY_LOSS},
    {"deepseekmoe", "dense-x16", STUDY_EQUAL, STUDY_LOSS},
    {"shared-2", "deepseekmoe", STUDY_EQUAL, STUDY_LOSS},
    {"half-active", "gshard", STUDY_AHEAD, STUDY_LOSS},
    {"deepseekmoe", "gshard", STUDY_EQUAL, STUDY_FEWER},
    {"deepseekmoe", "deepseekmoe", STUDY_BEHIND, STUDY_REPLACED},
    {"deepseekmoe", "gshard-x1.5", STUDY_BEHIND, STUDY_MASKED},
    {"deepseekmoe", "gshard", STUDY_UNKNOWN, STUDY_MASKED},
};

/* ---- numbers ------------------------------------------------------------------------------- */

static double masked_rise(const double loss[N_LOSSES])
{
    double sum = 0;
    for (int sixteenths = 1; sixteenths < LOSS_N_MASKS; sixteenths++)
        sum += loss[LOSS_MASK + sixteenths] - loss[LOSS_PLAIN];
    return sum / (LOSS_N_MASKS - 1);
}

/* The number of a seed that a claim compares, for its first side or the other. */
static double measured(const study_losses *seed, const study_claim *claim, bool is_first)
{
    const double *loss = seed->of[architecture_find(is_first ? claim->name : claim->other)];
    if (claim->measure == STUDY_MASKED) return masked_rise(loss);
    if (claim->measure == STUDY_FEWER && is_first) return loss[LOSS_FEWER + STUDY_ACTIVE - 1];
    if (claim->measure == STUDY_REPLACED && is_first) return loss[LOSS_REPLACED];
    return loss[LOSS_PLAIN];
}

static paired_difference difference(const study_losses *seeds, size_t n_seeds,
                                    const study_claim *claim)
{
    double one[STUDY_MAX_SEEDS], other[STUDY_MAX_SEEDS];
    for (size_t i = 0; i < n_seeds; i++) {
        one[i] = measured(&seeds[i], claim, true);
        other[i] = measured(&seeds[i], claim, false);
    }
    return paired_compare(one, other, n_seeds);
}

static study_verdict judge(const paired_difference *d, double corrected_p)
{
    if (d->n < 2) return STUDY_TOO_FEW;
    if (d->low <= 0 && d->high >= 0) return STUDY_NOT_TOLD;
    if (!(corrected_p < level)) return STUDY_UNSETTLED;
    return d->mean < 0 ? STUDY_LOWER : STUDY_HIGHER;
}

int study_compare(const study_losses *seeds, size_t n_seeds, study_comparison comparisons[N_CLAIMS])
{
    double p[N_CLAIMS], corrected[N_CLAIMS];
    int n = 0;
    for (int i = 0; i < N_CLAIMS; i++) {
        paired_difference d = difference(seeds, n_seeds, &study_claims[i]);
        if (d.n == 0) continue;
        comparisons[n] = (study_comparison){.claim = &study_claims[i], .difference = d};
        p[n++] = d.p;
    }
    holm_correct(p, (size_t)n, corrected);
    for (int i = 0; i < n; i++) {
        comparisons[i].corrected_p = corrected[i];
        comparisons[i].verdict = judge(&comparisons[i].difference, corrected[i]);
    }
    return n;
}

/* ---- sentences ----------------------------------------------------------------------------- */

static void tell_side(FILE *text, const study_claim *claim, bool is_first)
{
    const char *name = is_first ? claim->name : claim->other;
    const char *label = architectures[architecture_find(name)].label;
    switch (claim->measure) {
    case STUDY_LOSS: fputs(label, text); break;
    case STUDY_FEWER:
        fputs(label, text);
        if (is_first) fprintf(text, " with %d routed experts for a token", STUDY_ACTIVE);
        break;
    case STUDY_REPLACED:
        fprintf(text, "%s %s", label, is_first ? "without its shared expert" : "as trained");
        break;
    case STUDY_MASKED:
        fprintf(text, is_first ? "The rise in loss of %s with masked experts" : "that of %s",
                label);
        break;
    }
}

static void tell_sides(FILE *text, const study_claim *claim, const char *between)
{
    tell_side(text, claim, true);
    fputs(between, text);
    tell_side(text, claim, false);
}

void study_tell_pair(FILE *text, const study_claim *claim) { tell_sides(text, claim, " minus "); }

/* How a difference that is settled, with an interval on one side of 0, compares with the paper. */
static const char *beside_paper(const study_comparison *c)
{
    if (c->claim->paper == STUDY_UNKNOWN) return "; the paper does not compare them";
    if (c->claim->paper == STUDY_EQUAL) return "; in the paper they are equal";
    study_verdict wanted = c->claim->paper == STUDY_AHEAD ? STUDY_LOWER : STUDY_HIGHER;
    return c->verdict == wanted ? ", as in the paper" : ": not as in the paper";
}

void study_tell(FILE *text, const study_comparison *c)
{
    const paired_difference *d = &c->difference;
    bool is_rise = c->claim->measure == STUDY_MASKED;
    const char *lower = is_rise ? "below" : "ahead", *higher = is_rise ? "above" : "behind";
    const char *is_lower = is_rise ? " is below " : " is ahead of ";
    const char *is_higher = is_rise ? " is above " : " is behind ";
    double near = fmin(fabs(d->low), fabs(d->high)), far = fmax(fabs(d->low), fabs(d->high));
    switch (c->verdict) {
    case STUDY_TOO_FEW:
        tell_sides(text, c->claim, " and ");
        fputs(": one seed is not enough to compare them", text);
        break;
    case STUDY_NOT_TOLD:
        tell_sides(text, c->claim, " and ");
        fprintf(text, " cannot be told apart: anything from %.3f %s to %.3f %s fits the data",
                -d->low, lower, d->high, higher);
        break;
    case STUDY_UNSETTLED:
        tell_sides(text, c->claim, " and ");
        fprintf(text,
                ": a hint that the first is %s by %.3f, but with this many comparisons it may be "
                "chance (p %.2g)",
                d->mean < 0 ? lower : higher, fabs(d->mean), c->corrected_p);
        break;
    case STUDY_LOWER:
    case STUDY_HIGHER:
        tell_sides(text, c->claim, d->mean < 0 ? is_lower : is_higher);
        fprintf(text, " by %.3f (%.3f to %.3f)%s", fabs(d->mean), near, far, beside_paper(c));
        break;
    }
}
