/* avx2_elements.c - the kernels of the AVX2 set that work element by element. */
#include "kernels/avx2.h"

#include <math.h>
#include <string.h>

/* e^x to about one unit in the last place: x = n·ln2 + r with |r| ≤ ln2/2, and a polynomial in r. x is
 * clamped so that 2^n is a normal number; NaN stays NaN. */
INLINE __m256 exp8(__m256 x)
{
    const __m256 log2e = _mm256_set1_ps(1.44269504088896341f);
    const __m256 ln2_high = _mm256_set1_ps(0.693359375f);
    const __m256 ln2_low = _mm256_set1_ps(-2.12194440e-4f);
    x = _mm256_max_ps(_mm256_set1_ps(-87.3f), x); /* if x is NaN, the second operand is returned */
    x = _mm256_min_ps(_mm256_set1_ps(88.3f), x);
    __m256 n =
        _mm256_round_ps(_mm256_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, ln2_high, x);
    r = _mm256_fnmadd_ps(n, ln2_low, r);
    /* Taylor's coefficients to the seventh power: the remainder is below 1e-8 on this interval. */
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

/* 1 / (1 + e^-x) */
INLINE __m256 sigmoid8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, exp8(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

/* Loads eight floats, or n if fewer are left. Masked stores are slow, so they are only used then. */
INLINE __m256 load_first(const float *x, int64_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes(n));
}

INLINE void store_first(float *x, __m256 v, int64_t n)
{
    if (n >= 8)
        _mm256_storeu_ps(x, v);
    else
        _mm256_maskstore_ps(x, first_lanes(n), v);
}

void swiglu_avx2(int64_t n, const float *g, const float *u, float *h)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256 gi = load_first(g + i, n - i), ui = load_first(u + i, n - i);
        store_first(h + i, _mm256_mul_ps(_mm256_mul_ps(gi, sigmoid8(gi)), ui), n - i);
    }
}

float swiglu_backward_avx2(int64_t n, float weight, float *g, float *u, float *dh)
{
    const __m256 one = _mm256_set1_ps(1.0f), w = _mm256_set1_ps(weight);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i;
        __m256 gi = load_first(g + i, left), ui = load_first(u + i, left);
        __m256 d = load_first(dh + i, left);
        __m256 s = sigmoid8(gi), silu = _mm256_mul_ps(gi, s), h = _mm256_mul_ps(silu, ui);
        sum = _mm256_fmadd_ps(h, d, sum);
        d = _mm256_mul_ps(d, w);
        /* silu'(g) = s·(1 + g·(1 - s)) */
        __m256 slope = _mm256_mul_ps(s, _mm256_fmadd_ps(gi, _mm256_sub_ps(one, s), one));
        store_first(g + i, _mm256_mul_ps(_mm256_mul_ps(d, ui), slope), left);
        store_first(u + i, _mm256_mul_ps(d, silu), left);
        store_first(dh + i, _mm256_mul_ps(h, w), left);
    }
    return fold(sum);
}

void axpy_avx2(int64_t n, float weight, const float *x, float *y)
{
    const __m256 w = _mm256_set1_ps(weight);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(w, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++) y[i] = fmaf(weight, x[i], y[i]);
}

void rms_norm_avx2(int64_t n, const float *x, const float *weight, float eps, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        __m256 xi = load_first(x + i, n - i);
        sum = _mm256_fmadd_ps(xi, xi, sum);
    }
    const __m256 scale = _mm256_set1_ps(1.0f / sqrtf(fold(sum) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 8) {
        __m256 xi = _mm256_mul_ps(load_first(x + i, n - i), scale);
        store_first(y + i, _mm256_mul_ps(load_first(weight + i, n - i), xi), n - i);
    }
}

float softmax_part_avx2(int64_t n, float *x, float *max, float *sum)
{
    float largest = *max;
    int64_t i = 0;
    if (n >= 8) {
        __m256 m = _mm256_set1_ps(largest);
        for (; i + 8 <= n; i += 8) m = _mm256_max_ps(_mm256_loadu_ps(x + i), m);
        float lane[8];
        _mm256_storeu_ps(lane, m);
        for (int j = 0; j < 8; j++) largest = lane[j] > largest ? lane[j] : largest;
    }
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    float factor = *max == largest ? 1.0f : expf(*max - largest);
    const __m256 shift = _mm256_set1_ps(largest);
    __m256 part = _mm256_setzero_ps();
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), shift));
        _mm256_storeu_ps(x + i, e);
        part = _mm256_add_ps(part, e);
    }
    float rest = 0.0f;
    for (; i < n; i++) {
        x[i] = expf(x[i] - largest);
        rest += x[i];
    }
    *sum = *sum * factor + (fold(part) + rest);
    *max = largest;
    return factor;
}

bool softmax_avx2(int64_t n, float *x)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
        if (x[i] > max) max = x[i];
    }
    const __m256 shift = _mm256_set1_ps(max);
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i < 8 ? n - i : 8;
        __m256 e = exp8(_mm256_sub_ps(load_first(x + i, left), shift));
        store_first(x + i, e, left);
        for (int64_t j = i; j < i + left; j++) sum += x[j];
    }
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
    return true;
}

/* ---- training ------------------------------------------------------------------------------ */

void rms_norm_backward_avx2(int64_t n, const float *x, const float *weight, float eps,
                            const float *dy, float *dx, float *d_weight)
{
    __m256 squares = _mm256_setzero_ps(), along = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        __m256 xi = load_first(x + i, n - i), di = load_first(dy + i, n - i);
        squares = _mm256_fmadd_ps(xi, xi, squares);
        along = _mm256_fmadd_ps(_mm256_mul_ps(load_first(weight + i, n - i), di), xi, along);
    }
    float r = 1.0f / sqrtf(fold(squares) / (float)n + eps);
    const __m256 scale = _mm256_set1_ps(r);
    const __m256 back = _mm256_set1_ps(fold(along) / (float)n * r * r * r);
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i;
        __m256 xi = load_first(x + i, left), di = _mm256_mul_ps(load_first(dy + i, left), scale);
        __m256 sum = _mm256_fmadd_ps(load_first(weight + i, left), di, load_first(dx + i, left));
        store_first(dx + i, _mm256_fnmadd_ps(xi, back, sum), left);
        store_first(d_weight + i, _mm256_fmadd_ps(di, xi, load_first(d_weight + i, left)), left);
    }
}

void softmax_backward_avx2(int64_t n, const float *p, const float *dp, float mean, float *ds)
{
    const __m256 shift = _mm256_set1_ps(mean);
    for (int64_t i = 0; i < n; i += 8) {
        __m256 d = _mm256_sub_ps(load_first(dp + i, n - i), shift);
        store_first(ds + i, _mm256_mul_ps(load_first(p + i, n - i), d), n - i);
    }
}

void scale_avx2(int64_t n, float factor, float *x)
{
    const __m256 f = _mm256_set1_ps(factor);
    for (int64_t i = 0; i < n; i += 8)
        store_first(x + i, _mm256_mul_ps(load_first(x + i, n - i), f), n - i);
}

double sum_squares_avx2(int64_t n, const float *x)
{
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    for (int64_t i = 0; i < n; i += 8) {
        __m256 xi = load_first(x + i, n - i);
        __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(xi));
        __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(xi, 1));
        low = _mm256_fmadd_pd(a, a, low);
        high = _mm256_fmadd_pd(b, b, high);
    }
    double lane[4];
    _mm256_storeu_pd(lane, _mm256_add_pd(low, high));
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

void adamw_avx2(int64_t n, const adamw_step *step, const float *g, float *w, float *m, float *v)
{
    const __m256 scale = _mm256_set1_ps(step->scale), keep = _mm256_set1_ps(step->keep);
    const __m256 beta1 = _mm256_set1_ps(step->beta1), beta2 = _mm256_set1_ps(step->beta2);
    const __m256 new1 = _mm256_set1_ps(step->new1), new2 = _mm256_set1_ps(step->new2);
    const __m256 rate = _mm256_set1_ps(step->rate), root = _mm256_set1_ps(step->root);
    const __m256 eps = _mm256_set1_ps(step->eps);
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i;
        __m256 gi = _mm256_mul_ps(load_first(g + i, left), scale);
        __m256 mi = _mm256_fmadd_ps(beta1, load_first(m + i, left), _mm256_mul_ps(new1, gi));
        __m256 vi = _mm256_fmadd_ps(beta2, load_first(v + i, left),
                                    _mm256_mul_ps(new2, _mm256_mul_ps(gi, gi)));
        __m256 below = _mm256_fmadd_ps(_mm256_sqrt_ps(vi), root, eps);
        __m256 wi = _mm256_mul_ps(load_first(w + i, left), keep);
        store_first(w + i, _mm256_fnmadd_ps(rate, _mm256_div_ps(mi, below), wi), left);
        store_first(m + i, mi, left);
        store_first(v + i, vi, left);
    }
}
