/* quantize.c - rows of float32 to any type. Plain types are here, block types in the other quantize_*.c
 * files. */
#include "kernels/quantize.h"

#include <string.h>

#include "base/half.h"
#include "kernels/quantize_search.h"

/* Replaces an infinity by the largest finite number. */
static uint16_t keep_finite(uint16_t half, uint16_t infinity)
{
    return (half & 0x7fff) == infinity ? half - 1 : half;
}

static void quantize_row_f16(int64_t n, const float *x, unsigned char *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = keep_finite(half_to_f16(x[i]), 0x7c00);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

static void quantize_row_bf16(int64_t n, const float *x, unsigned char *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = keep_finite(half_to_bf16(x[i]), 0x7f80);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

void quantize_row(dsmoe_dtype type, int64_t n, const float *x, const float *importance, void *out)
{
    switch (type) {
    case DSMOE_F32: memcpy(out, x, (size_t)n * sizeof *x); break;
    case DSMOE_F16: quantize_row_f16(n, x, out); break;
    case DSMOE_BF16: quantize_row_bf16(n, x, out); break;
    case DSMOE_Q8_0: quantize_row_q8_0(n, x, importance, out); break;
    case DSMOE_Q4_0: quantize_row_q4_0(n, x, importance, out); break;
    case DSMOE_Q5_0: quantize_row_q5_0(n, x, importance, out); break;
    case DSMOE_Q5_1: quantize_row_q5_1(n, x, importance, out); break;
    case DSMOE_Q4_K: quantize_row_q4_k(n, x, importance, out); break;
    case DSMOE_Q5_K: quantize_row_q5_k(n, x, importance, out); break;
    case DSMOE_Q6_K: quantize_row_q6_k(n, x, importance, out); break;
    }
}
