/* statistics.c - mean and deviation, Student's t, differences in pairs, Holm's correction.
 *
 * The distribution of t is a regularised incomplete beta function:
 *
 *   P(|T| >= t) = I_x(df/2, 1/2)  with  x = df / (df + t^2)
 *
 * I_x is computed with its continued fraction (Abramowitz and Stegun 26.5.8) and Lentz's method, in the half
 * of [0, 1] where that converges fast. The other half follows from I_x(a, b) = 1 - I_{1-x}(b, a). */
#include "base/statistics.h"

#include <math.h>
#include <stdbool.h>

/* The spread of the finite differences a[i] - b[i]. If b is NULL, of the finite a[i]. */
static spread spread_of_differences(const double *a, const double *b, size_t n)
{
    spread s = {0, NAN, 0};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        double value = b ? a[i] - b[i] : a[i];
        if (!isfinite(value)) continue;
        sum += value;
        s.n++;
    }
    if (s.n == 0) return s;
    s.mean = sum / (double)s.n;
    for (size_t i = 0; i < n; i++) {
        double off = (b ? a[i] - b[i] : a[i]) - s.mean;
        if (isfinite(off)) squares += off * off;
    }
    if (s.n > 1) s.deviation = sqrt(squares / (double)(s.n - 1));
    return s;
}

spread spread_of(const double *values, size_t n) { return spread_of_differences(values, NULL, n); }

/* ---- Student's t --------------------------------------------------------------------------- */

static double away_from_zero(double x)
{
    const double tiny = 1e-300;
    return fabs(x) < tiny ? tiny : x;
}

/* The continued fraction of the incomplete beta function, for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double x, double a, double b)
{
    double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), value = d;
    for (int m = 1; m < 10000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / away_from_zero(1 + even * d);
        c = away_from_zero(1 + even / c);
        value *= c * d;
        d = 1 / away_from_zero(1 + odd * d);
        c = away_from_zero(1 + odd / c);
        value *= c * d;
        if (fabs(c * d - 1) < 1e-16) break;
    }
    return value;
}

/* I_x(a, b). `rest` is 1 - x; the caller can compute it more exactly than by subtraction. */
static double beta_share(double x, double rest, double a, double b)
{
    if (x <= 0) return 0;
    if (rest <= 0) return 1;
    double front = exp(a * log(x) + b * log(rest) + lgamma(a + b) - lgamma(a) - lgamma(b));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(rest, b, a) / b;
}

double student_tails(double t, double df)
{
    if (isinf(t)) return 0;
    double whole = df + t * t;
    return beta_share(df / whole, t * t / whole, df / 2, 0.5);
}

/* By bisection: a report needs only a few quantiles, and bisection cannot fail. */
double student_quantile(double p, double df)
{
    if (!(p > 0 && p < 1) || !(df > 0)) return NAN;
    double wanted = 2 * (p < 0.5 ? p : 1 - p); /* the probability of both tails */
    double low = 0, high = 1;
    while (student_tails(high, df) > wanted && high < 1e300) high *= 2;
    for (int i = 0; i < 200 && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (middle == low || middle == high) break;
        *(student_tails(middle, df) > wanted ? &low : &high) = middle;
    }
    return p < 0.5 ? -high : high;
}

/* ---- differences --------------------------------------------------------------------------- */

double interval_reach(spread s)
{
    if (s.n < 2) return NAN;
    return student_quantile(0.975, (double)(s.n - 1)) * s.deviation / sqrt((double)s.n);
}

paired_difference paired_compare(const double *a, const double *b, size_t n)
{
    spread s = spread_of_differences(a, b, n);
    paired_difference d = {s.n, s.mean, s.deviation, NAN, NAN, NAN};
    if (s.n < 2) return d;
    double error = s.deviation / sqrt((double)s.n), reach = interval_reach(s);
    d.low = s.mean - reach;
    d.high = s.mean + reach;
    d.p = error > 0 ? student_tails(s.mean / error, (double)(s.n - 1)) : s.mean == 0;
    return d;
}

/* Whether value i comes before value j in rising order. */
static bool comes_before(const double *p, size_t i, size_t j)
{
    return p[i] < p[j] || (p[i] == p[j] && i < j);
}

/* Of m values, the smallest is multiplied by m, the next by m - 1 and so on; none becomes smaller than one
 * before it. */
void holm_correct(const double *p, size_t n, double *corrected)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) m += !isnan(p[i]);
    for (size_t i = 0; i < n; i++) {
        corrected[i] = isnan(p[i]) ? NAN : 0;
        if (isnan(p[i])) continue;
        for (size_t j = 0; j < n; j++) {
            if (j != i && !comes_before(p, j, i)) continue;
            size_t n_before = 0;
            for (size_t k = 0; k < n; k++) n_before += comes_before(p, k, j);
            corrected[i] = fmax(corrected[i], fmin(1, p[j] * (double)(m - n_before)));
        }
    }
}
