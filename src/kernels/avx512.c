/* avx512.c - the AVX-512 set (F, BW, DQ, VL, VNNI): the functions that replace those of AVX2, and those
 * that measure the machine. */
#include "kernels/avx512.h"

#include <string.h>

static double probe_fma(int64_t rounds, float *sink)
{
    enum { CHAINS = 12 };
    __m512 c[CHAINS];
    UNROLL
    for (int i = 0; i < CHAINS; i++) c[i] = _mm512_set1_ps(1.0f + (float)i);
    const __m512 a = _mm512_set1_ps(0.9999f), b = _mm512_set1_ps(0.0001f);
    for (int64_t r = 0; r < rounds; r++) UNROLL
    for (int i = 0; i < CHAINS; i++) c[i] = _mm512_fmadd_ps(c[i], a, b);
    __m512 sum = c[0];
    UNROLL
    for (int i = 1; i < CHAINS; i++) sum = _mm512_add_ps(sum, c[i]);
    *sink = _mm512_cvtss_f32(sum);
    return (double)rounds * CHAINS * 16 * 2;
}

/* Reads four streams, as few_rows does: one stream alone does not keep memory busy. */
static float probe_read(int64_t n, const float *x)
{
    enum { AHEAD = 128 };
    const int64_t quarter = n / 4;
    __m512 s[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                   _mm512_setzero_ps()};
    for (int64_t i = 0; i + 16 <= quarter; i += 16) {
        UNROLL
        for (int q = 0; q < 4; q++) {
            const float *at = x + q * quarter + i;
            _mm_prefetch((const char *)(at + AHEAD), _MM_HINT_T0);
            s[q] = _mm512_add_ps(s[q], _mm512_loadu_ps(at));
        }
    }
    __m512 sum = _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3]));
    return fold(_mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1)));
}

static latent_kernels latents[N_DTYPES];

static void add_type(dtype_kernels *type, pack_weights_fn *pack, few_rows_fn *few_rows)
{
    type->pack = pack;
    type->few_rows = few_rows;
}

void kernels_add_avx512(kernels *set)
{
    set->name = "avx512";
    set->tile_m = AVX512_TILE_M;
    set->tile_n = AVX512_TILE_N;
    set->few = AVX512_FEW;
    set->pack = pack_avx512;
    set->pack_transposed = pack_transposed_avx512;
    set->tile = tile_avx512;
    add_type(&set->dtypes[DSMOE_F32], pack_f32_avx512, few_rows_f32_avx512);
    add_type(&set->dtypes[DSMOE_F16], pack_f16_avx512, few_rows_f16_avx512);
    add_type(&set->dtypes[DSMOE_BF16], pack_bf16_avx512, few_rows_bf16_avx512);
    for (int t = 0; t < N_DTYPES; t++)
        if (set->dtypes[t].blocks) set->dtypes[t].blocks = &blocks_avx512[t];
    memcpy(latents, set->latents, sizeof latents);
    latents_add_avx512(latents);
    set->latents = latents;
    set->dtypes[DSMOE_Q4_0].widen = widen_q4_0_avx512;
    set->dtypes[DSMOE_Q5_0].widen = widen_q5_0_avx512;
    set->dtypes[DSMOE_Q5_1].widen = widen_q5_1_avx512;
    set->dtypes[DSMOE_Q8_0].widen = widen_q8_0_avx512;
    set->dtypes[DSMOE_Q4_K].widen = widen_q4_k_avx512;
    set->dtypes[DSMOE_Q5_K].widen = widen_q5_k_avx512;
    set->dtypes[DSMOE_Q6_K].widen = widen_q6_k_avx512;
    set->words = &words_avx512;
    set->quantize = quantize_avx512;
    set->probe_fma = probe_fma;
    set->probe_read = probe_read;
}
