/* avx2.h - macros and functions that the files of the AVX2 set share. */
#ifndef DSMOE_KERNELS_AVX2_H
#define DSMOE_KERNELS_AVX2_H

#include <immintrin.h>

#include "kernels/kernels.h"

enum { STREAM = 8 * CACHE_LINE }; /* how far ahead a stream is prefetched */

#define INLINE static inline __attribute__((always_inline))

/* Sums stay in registers only if every loop over them is unrolled before registers are allocated. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* Keeps the order in which integers are added. In other orders compilers hold more of them than there are
 * registers. */
#define KEEP_ORDER(v) __asm__("" : "+x"(v))

/* A mask of the first n lanes; all if n is 8 or more. */
INLINE __m256i first_lanes(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* The sum of eight lanes, in one fixed order. */
INLINE float fold(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* Part `part` of `parts` about equal parts of `next`. */
INLINE latent_next next_part(latent_next next, int64_t part, int64_t parts)
{
    if (next.bytes == 0) return next;
    int64_t lines = (next.bytes + CACHE_LINE - 1) / CACHE_LINE, first = lines * part / parts;
    int64_t end = lines * (part + 1) / parts;
    return (latent_next){next.at + first * CACHE_LINE, (end - first) * CACHE_LINE};
}

/* Prefetches a line of `next`, if it has that many. */
INLINE void next_ask(latent_next next, int64_t line)
{
    if (line * CACHE_LINE < next.bytes)
        _mm_prefetch((const char *)next.at + line * CACHE_LINE, _MM_HINT_T1);
}

/* Element by element: see kernels.h. */
void swiglu_avx2(int64_t n, const float *g, const float *u, float *h);
float swiglu_backward_avx2(int64_t n, float weight, float *g, float *u, float *dh);
void axpy_avx2(int64_t n, float weight, const float *x, float *y);
void rms_norm_avx2(int64_t n, const float *x, const float *weight, float eps, float *y);
float softmax_part_avx2(int64_t n, float *x, float *max, float *sum);
bool softmax_avx2(int64_t n, float *x);
void rms_norm_backward_avx2(int64_t n, const float *x, const float *weight, float eps,
                            const float *dy, float *dx, float *d_weight);
void softmax_backward_avx2(int64_t n, const float *p, const float *dp, float mean, float *ds);
void scale_avx2(int64_t n, float factor, float *x);
double sum_squares_avx2(int64_t n, const float *x);
void adamw_avx2(int64_t n, const adamw_step *step, const float *g, float *w, float *m, float *v);

/* Keys and values of a KV cache. */
extern const cache_kernels caches_avx2[N_DTYPES];
extern const latent_kernels latents_avx2[N_DTYPES];

#endif
