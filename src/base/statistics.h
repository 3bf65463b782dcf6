/* statistics.h - mean and deviation, Student's t, paired differences, and Holm's correction for several
 * comparisons of the same data. */
#ifndef DSMOE_BASE_STATISTICS_H
#define DSMOE_BASE_STATISTICS_H

#include <stddef.h>

/* The finite values among n: their number, mean and sample deviation. The deviation of one value is 0; the
 * mean of none is NAN. */
typedef struct spread {
    size_t n;
    double mean, deviation;
} spread;
spread spread_of(const double *values, size_t n);

/* P(|T| >= |t|) of Student's t with df degrees of freedom, which need not be an integer; df > 0. */
double student_tails(double t, double df);
/* The t with P(T <= t) = p, for p between 0 and 1. */
double student_quantile(double p, double df);

/* The mean of paired differences with its 95 % interval, and p: the chance of a mean at least as far from 0
 * if there were no difference (two-sided). With fewer than two pairs, low, high and p are NAN. */
typedef struct paired_difference {
    size_t n;
    double mean, deviation, low, high, p;
} paired_difference;
/* Compares a[i] - b[i] where both are finite. */
paired_difference paired_compare(const double *a, const double *b, size_t n);

/* Half the width of the 95 % interval of a mean; NAN for fewer than two values. */
double interval_reach(spread s);

/* Holm's correction of n values of p: the chance that any of the n is that small by accident is at most the
 * corrected value. NANs stay NAN and are not counted. */
void holm_correct(const double *p, size_t n, double *corrected);

#endif
