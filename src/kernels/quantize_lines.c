/* quantize_lines.c - the search for types with a minimum: scale and minimum together. */
#include "kernels/quantize_search.h"

/* The best q for numbers to which the minimum has been added. */
static lanes codes(lanes x, lanes inverse, float top)
{
    return lanes_clamp(lanes_nearest(x * inverse), 0.0f, top);
}

void lines_write(const parts *p, float top, const lines *at, uint8_t *q)
{
    lanes inverse = lanes_inverse(at->scale);
    for (int i = 0; i < p->n; i++) {
        lanes code = codes(p->x[i] + at->min, inverse, top);
        for (int j = 0; j < PARTS; j++) q[j * p->n + i] = (uint8_t)code[j];
    }
}

void lines_sum(const parts *p, float top, const lines *at, line_sums *sums)
{
    line_sums s = {0};
    lanes inverse = lanes_inverse(at->scale);
    for (int i = 0; i < p->n; i++) {
        lanes x = p->x[i] + at->min, q = codes(x, inverse, top), r = x - at->scale * q;
        lanes w = p->w[i], wq = w * q, wr = w * r;
        s.w += w;
        s.q += wq;
        s.qq += wq * q;
        s.r += wr;
        s.qr += wr * q;
        s.rr += wr * r;
    }
    *sums = s;
}

void lines_errors(const parts *p, float top, const lines *at, lanes *errors)
{
    lanes sum = {0}, inverse = lanes_inverse(at->scale);
    for (int i = 0; i < p->n; i++) {
        lanes x = p->x[i] + at->min, r = x - at->scale * codes(x, inverse, top);
        sum += p->w[i] * r * r;
    }
    *errors = sum;
}

void lines_keep_better(const lanes *errors, const lines *trial, lanes *least, lines *best)
{
    lanes_mask better = *errors < *least;
    best->scale = lanes_select(better, trial->scale, best->scale);
    best->min = lanes_select(better, trial->min, best->min);
    *least = lanes_select(better, *errors, *least);
}

/* Replaces *at by the best lines for the codes that *at leads to, by least squares, with no minimum below
 * least_min. *errors are the errors with these. */
static void improve(const parts *p, float top, float least_min, lines *at, lanes *errors)
{
    line_sums s;
    lines_sum(p, top, at, &s);
    lanes determinant = s.w * s.qq - s.q * s.q;
    lanes_mask regular = determinant > 1e-5f * (s.w * s.qq); /* otherwise all codes are the same */
    lanes inverse = (lanes)((lanes_mask)lanes_inverse(determinant) & regular);
    lanes a = (s.w * s.qr - s.q * s.r) * inverse, b = (s.q * s.qr - s.qq * s.r) * inverse;
    b = lanes_select(regular, b, -s.r * lanes_inverse(s.w));

    lanes_mask below = at->min + b < least_min;
    lanes to_least = least_min - at->min;
    a = lanes_select(below, (s.qr + s.q * to_least) * lanes_inverse(s.qq), a);
    b = lanes_select(below, to_least, b);
    lanes_mask sound = at->scale + a >= 0.0f;
    a = (lanes)((lanes_mask)a & sound);
    b = (lanes)((lanes_mask)b & sound);
    at->scale += a;
    at->min += b;
    *errors = s.rr - 2.0f * (a * s.qr - b * s.r) + a * a * s.qq - 2.0f * a * b * s.q + b * b * s.w;
}

/* Tries scales with which the numbers need slightly fewer or slightly more codes than there are. */
void lines_search(const parts *p, float top, float least_min, lines *best)
{
    enum { TRIES = 11, ROUNDS = 2 };
    lanes low = lanes_all(-least_min), high = p->x[0], least = lanes_all(INFINITY), errors;
    for (int i = 0; i < p->n; i++) {
        low = lanes_select(p->x[i] < low, p->x[i], low);
        high = lanes_select(p->x[i] > high, p->x[i], high);
    }
    *best = (lines){0};
    for (int i = 0; i < TRIES; i++) {
        lines trial = {(high - low) / (top - 2.0f + 0.3f * (float)i), -low};
        improve(p, top, least_min, &trial, &errors);
        lines_keep_better(&errors, &trial, &least, best);
    }
    for (int i = 0; i < ROUNDS; i++) improve(p, top, least_min, best, &errors);
}
