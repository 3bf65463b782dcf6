/* rng.c - counter-based random numbers.
 *
 * It uses only additions, multiplications, divisions and square roots of doubles. IEEE 754 rounds those the
 * same way everywhere, but it does not require that of log or cos in a math library. */
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* A bijection of 64 bits that spreads every input bit over all output bits (the finaliser of
 * SplitMix64). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t rng_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    uint64_t key = mix(seed + golden) ^ mix(~stream * golden);
    return mix(mix(key) + (index + 1) * golden);
}

/* Logarithm and cosine are computed for BLOCK numbers at a time, each step of the series for all of them and
 * without branches. Compilers vectorise such loops. A function of one number would wait for its divisions and
 * for branches that cannot be predicted. */
enum { BLOCK = 128 };

/* ln x for normal x > 0: x = m·2^e with m near 1, and ln m = 2·artanh((m-1)/(m+1)). */
static void log_portable(double x[BLOCK])
{
    const uint64_t mantissa = 0x000fffffffffffffu, one = 0x3ff0000000000000u;
    const uint64_t sqrt_2 = 0x3ff6a09e667f3bcdu; /* the bits of √2; m is between √2/2 and √2 */
    double exponent[BLOCK], s2[BLOCK], series[BLOCK] = {0};
    for (int i = 0; i < BLOCK; i++) {
        uint64_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        uint64_t m = (bits & mantissa) | one, large = m > sqrt_2;
        exponent[i] = (int)(bits >> 52) - 1023 + (int)large;
        m -= large << 52;
        memcpy(&x[i], &m, sizeof m);
    }
    for (int i = 0; i < BLOCK; i++) {
        x[i] = (x[i] - 1) / (x[i] + 1);
        s2[i] = x[i] * x[i];
    }
    for (int n = 21; n >= 1; n -= 2) {
        double term = 1.0 / n;
        for (int i = 0; i < BLOCK; i++) series[i] = series[i] * s2[i] + term;
    }
    for (int i = 0; i < BLOCK; i++) x[i] = 2 * x[i] * series[i] + exponent[i] * 0.6931471805599453;
}

/* cos(2πu) for multiples of 2^-32 in [0, 1): folds u to [0, 1/4], which is exact, and uses the Taylor
 * series. */
static void cos_turns(double u[BLOCK])
{
    double sign[BLOCK], a2[BLOCK], series[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        double half = 0.5 - fabs(u[i] - 0.5);
        double a = (0.25 - fabs(half - 0.25)) * 6.283185307179586;
        sign[i] = copysign(1.0, 0.25 - half);
        a2[i] = a * a;
        series[i] = 1;
    }
    for (int n = 20; n >= 2; n -= 2) {
        double factor = n * (n - 1.0);
        for (int i = 0; i < BLOCK; i++) series[i] = 1 - series[i] * a2[i] / factor;
    }
    for (int i = 0; i < BLOCK; i++) u[i] = sign[i] * series[i];
}

void rng_uniform(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first, float low,
                 float high)
{
    for (int64_t i = 0; i < n; i++) {
        double u = (double)(rng_bits(seed, stream, first + (uint64_t)i) >> 11) * 0x1p-53;
        out[i] = (float)(low + ((double)high - low) * u);
    }
}

/* The Box-Muller transform; uses one of its two numbers. */
void rng_normal(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first,
                float deviation)
{
    for (int64_t done = 0; done < n; done += BLOCK) {
        double radius[BLOCK], angle[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            uint64_t bits = rng_bits(seed, stream, first + (uint64_t)(done + i));
            radius[i] = (double)((int64_t)(bits >> 32) + 1) * 0x1p-32;
            angle[i] = (double)(uint32_t)bits * 0x1p-32;
        }
        log_portable(radius);
        cos_turns(angle);
        int64_t count = n - done < BLOCK ? n - done : BLOCK;
        for (int64_t i = 0; i < count; i++)
            out[done + i] = (float)(deviation * sqrt(-2 * radius[i]) * angle[i]);
    }
}
