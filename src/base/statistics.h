/* statistics.h - what a few numbers say about many: mean and deviation, Student's t, differences in pairs, and
 * the correction for asking several questions of the same data. */
#ifndef DSMOE_BASE_STATISTICS_H
#define DSMOE_BASE_STATISTICS_H

#include <stddef.h>

/* Of the finite values among n. The deviation is that of a sample: 0 for one value, NAN mean for none. */
typedef struct spread {
    size_t n;
    double mean, deviation;
} spread;
spread spread_of(const double *values, size_t n);

/* P(T <= t) of Student's t with so many degrees of freedom, which need not be whole; df > 0. */
double student_cdf(double t, double df);
/* The t with P(T <= t) = p, for p between 0 and 1. */
double student_quantile(double p, double df);

/* The mean of paired differences with its 95 % interval, and p, the chance of a mean as far from 0 if
 * there were no difference (two-sided). With fewer than two pairs the last three are NAN. */
typedef struct paired_difference {
    size_t n;
    double mean, deviation, low, high, p;
} paired_difference;
/* a[i] - b[i] where both are finite. */
paired_difference paired_compare(const double *a, const double *b, size_t n);

/* The 95 % interval of a mean reaches so far to each side; NAN for fewer than two values. */
double interval_reach(spread s);

/* Holm's correction of n values of p: the chance that any of the n is that small by accident is no larger
 * than a corrected value says. NANs stay and are not counted. */
void holm_correct(const double *p, size_t n, double *corrected);

#endif
