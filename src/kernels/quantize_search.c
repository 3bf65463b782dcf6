/* quantize_search.c - functions that all searches share, and the search for types without a minimum. */
#include "kernels/quantize_search.h"

#include "base/half.h"

/* ---- numbers and weights -------------------------------------------------------------------- */

/* Numbers below this are zero in every type: a float16 is a multiple of 2^-24. */
static const float negligible = 0x1p-26f;

static float largest_magnitude(int n, const float *x)
{
    float largest = 0.0f;
    for (int i = 0; i < n; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    return largest;
}

/* The importance of a number is the mean square of the inputs that it is multiplied with, and so the share of
 * its error in that of the product. A sixty-fourth of the mean is added to each, because importance is
 * measured on few samples. Large numbers count a little more than small ones, since columns that matter tend
 * to have large numbers. They count less than that if importances say which columns matter. */
measure measure_block(int n, const float *x, const float *importance)
{
    measure m = {.unit = 1.0f, .whole = 1.0f};
    float largest = largest_magnitude(n, x);
    if (largest >= negligible) {
        int exponent;
        (void)frexpf(largest, &exponent);
        m.unit = ldexpf(1.0f, exponent - 1);
    }
    double squares = 0.0, sum = 0.0;
    for (int i = 0; i < n; i++) squares += (double)(x[i] / m.unit) * (x[i] / m.unit);
    for (int i = 0; importance && i < n; i++) sum += importance[i];
    if (sum > 0.0) {
        /* Dividing by the mean instead might overflow. */
        m.importance = importance;
        m.whole = largest_magnitude(n, importance);
        m.floor = (float)(sum / n / m.whole / 64.0);
    }
    m.spread = (float)((m.importance ? 8.0 : 2.0) * squares / n);
    return m;
}

void parts_load(parts *p, int part, const measure *m, const float *x, int first)
{
    for (int i = 0; i < p->n; i++) {
        float number = x[first + i] / m->unit;
        float weight = m->importance ? m->importance[first + i] / m->whole + m->floor : 1.0f;
        p->x[i][part] = number;
        p->w[i][part] = weight * sqrtf(m->spread + number * number);
    }
}

float scale_round(float scale, float unit)
{
    float magnitude = fabsf(scale) * unit;
    uint16_t half = half_to_f16(magnitude);
    if (half > 0x7bff) half = 0x7bff;
    if (half < 0x0400 && half_from_f16(half) < magnitude) half++;
    return half ? copysignf(half_from_f16(half) / unit, scale) : 0.0f;
}

/* ---- types without a minimum ---------------------------------------------------------------- */

/* The best q, for a scale whose inverse is known. */
static lanes codes(lanes x, lanes inverse, float top)
{
    return lanes_clamp(lanes_nearest(x * inverse), -top, top - 1.0f);
}

void symmetric_write(const parts *p, float top, const lanes *scale, uint8_t *q)
{
    lanes inverse = lanes_inverse(*scale);
    for (int i = 0; i < p->n; i++) {
        lanes code = codes(p->x[i], inverse, top) + top;
        for (int j = 0; j < PARTS; j++) q[j * p->n + i] = (uint8_t)code[j];
    }
}

void symmetric_sum(const parts *p, float top, const lanes *scale, symmetric_sums *sums)
{
    lanes qq = {0}, qr = {0}, rr = {0}, inverse = lanes_inverse(*scale);
    for (int i = 0; i < p->n; i++) {
        lanes q = codes(p->x[i], inverse, top);
        lanes r = p->x[i] - *scale * q;
        lanes wq = p->w[i] * q, wr = p->w[i] * r;
        qq += wq * q;
        qr += wq * r;
        rr += wr * r;
    }
    *sums = (symmetric_sums){qq, qr, rr};
}

/* Replaces *scale by the best one for the integers that *scale leads to. *error is the error with it. */
static void improve(const parts *p, float top, lanes *scale, lanes *error)
{
    symmetric_sums sums;
    symmetric_sum(p, top, scale, &sums);
    lanes step = sums.qr * lanes_inverse(sums.qq);
    *scale += step;
    *error = sums.rr - step * sums.qr;
}

/* Tries scales that bring the largest number to the lower or the upper end of the integers, or up to a
 * twelfth of that below or above it. */
void symmetric_search(const parts *p, float top, lanes *scale)
{
    enum { TRIES = 9, ROUNDS = 2 };
    lanes largest = {0}, least = lanes_all(INFINITY), best = {0}, error;
    for (int i = 0; i < p->n; i++)
        largest =
            lanes_select(lanes_magnitude(p->x[i]) > lanes_magnitude(largest), p->x[i], largest);
    for (int i = 0; i < 2 * TRIES; i++) {
        float end = i % 2 ? top - 1.0f : -top;
        lanes trial = largest / (end + end * (float)(i / 2 - TRIES / 2) / 48.0f);
        improve(p, top, &trial, &error);
        lanes_mask better = error < least;
        best = lanes_select(better, trial, best);
        least = lanes_select(better, error, least);
    }
    for (int i = 0; i < ROUNDS; i++) improve(p, top, &best, &error);
    *scale = best;
}
