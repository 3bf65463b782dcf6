/* rng.c - counter-based random numbers.
 *
 * Only additions, multiplications, divisions and square roots of doubles are used: IEEE 754 rounds
 * those the same everywhere, which it does not ask of a libm's log or cos. */
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

/* ln x for a normal x > 0: x = m·2^e with m near 1, and ln m = 2·artanh((m-1)/(m+1)). */
static double log_portable(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, series = 0;
    for (int n = 21; n >= 1; n -= 2) series = series * s2 + 1.0 / n;
    return 2 * s * series + exponent * 0.6931471805599453;
}

/* cos(2πu) for u in [0, 1): fold to [0, 1/4], then Taylor's series. */
static double cos_turns(double u)
{
    double sign = 1;
    if (u > 0.5) u = 1 - u;
    if (u > 0.25) {
        u = 0.5 - u;
        sign = -1;
    }
    double a = u * 6.283185307179586, a2 = a * a, series = 1;
    for (int n = 20; n >= 2; n -= 2) series = 1 - series * a2 / (n * (n - 1.0));
    return sign * series;
}

void rng_uniform(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first, float low,
                 float high)
{
    for (int64_t i = 0; i < n; i++) {
        double u = (double)(rng_bits(seed, stream, first + (uint64_t)i) >> 11) * 0x1p-53;
        out[i] = (float)(low + ((double)high - low) * u);
    }
}

void rng_normal(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first,
                float deviation)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = rng_bits(seed, stream, first + (uint64_t)i);
        /* Box and Muller's transform, one of its two numbers. */
        double radius_u = (double)((bits >> 32) + 1) * 0x1p-32,
               angle_u = (double)(uint32_t)bits * 0x1p-32;
        double radius = sqrt(-2 * log_portable(radius_u));
        out[i] = (float)(deviation * radius * cos_turns(angle_u));
    }
}
