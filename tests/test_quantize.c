/* test_quantize.c - float32 to every type: how much is lost for ordinary numbers, what importance does,
 * and that finite numbers, however odd, stay finite. */
#include "support.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"

enum { ROW = 8192 };

static void widen(dsmoe_dtype type, int64_t n, const unsigned char *src, float *dst)
{
    switch (type) {
    case DSMOE_F32: memcpy(dst, src, (size_t)n * sizeof *dst); break;
    case DSMOE_F16:
        for (int64_t i = 0; i < n; i++) dst[i] = half_load_f16(src + 2 * i);
        break;
    case DSMOE_BF16:
        for (int64_t i = 0; i < n; i++)
            dst[i] = half_from_bf16((uint16_t)(src[2 * i] | src[2 * i + 1] << 8));
        break;
    case DSMOE_Q8_0: widen_q8_0(n, src, dst); break;
    case DSMOE_Q4_0: widen_q4_0(n, src, dst); break;
    case DSMOE_Q5_0: widen_q5_0(n, src, dst); break;
    case DSMOE_Q5_1: widen_q5_1(n, src, dst); break;
    case DSMOE_Q4_K: widen_q4_k(n, src, dst); break;
    case DSMOE_Q5_K: widen_q5_k(n, src, dst); break;
    case DSMOE_Q6_K: widen_q6_k(n, src, dst); break;
    }
}

/* A row stored in a type, and its dequantised values. */
typedef struct stored_row {
    unsigned char bytes[ROW * sizeof(float)];
    float values[ROW];
} stored_row;

static void store(stored_row *row, dsmoe_dtype type, int64_t n, const float *x,
                  const float *importance)
{
    memset(row->bytes, 0xa5, sizeof row->bytes);
    quantize_row(type, n, x, importance, row->bytes);
    for (size_t i = (size_t)dtype_bytes(type, n); i < sizeof row->bytes; i++)
        assert_int_equal(row->bytes[i], 0xa5); /* nothing is written after the row */
    widen(type, n, row->bytes, row->values);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(row->values[i]))
            fail_msg("%s: number %d, %g, became %g", dtype_table[type].name, (int)i, (double)x[i],
                     (double)row->values[i]);
}

/* The root of Σ w·(x - x̂)² / Σ w·x²; without weights all w are 1. */
static double loss(int64_t n, const float *x, const float *weights, const float *values)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double w = weights ? weights[i] : 1, r = (double)x[i] - values[i];
        error += w * r * r;
        size += w * x[i] * x[i];
    }
    return sqrt(error / size);
}

static stored_row row, other; /* too large for the stack */
static float numbers[ROW], weights[ROW];

/* Normal numbers; one in 256 is multiplied by `outliers`. */
static void make_numbers(float deviation, float outliers, uint64_t seed)
{
    rng_normal(numbers, ROW, seed, 1, 0, deviation);
    for (int i = 0; i < ROW; i++)
        if (rng_bits(seed, 2, (uint64_t)i) % 256 == 0) numbers[i] *= outliers;
}

static const dsmoe_dtype blocks[] = {DSMOE_Q8_0, DSMOE_Q4_0, DSMOE_Q5_0, DSMOE_Q5_1,
                                     DSMOE_Q4_K, DSMOE_Q5_K, DSMOE_Q6_K};

/* ---- plain types ----------------------------------------------------------------------------- */

static void check_bits(dsmoe_dtype type, float x, uint16_t expected)
{
    float both[2] = {x, -x};
    unsigned char out[4];
    quantize_row(type, 2, both, NULL, out);
    assert_int_equal(out[0] | out[1] << 8, expected);
    assert_int_equal(out[2] | out[3] << 8, expected | 0x8000);
}

/* Rounds to nearest, ties to even. Numbers that would become infinite become the largest number. */
static void test_plain(void **state)
{
    (void)state;
    check_bits(DSMOE_F16, 0.0f, 0x0000);
    check_bits(DSMOE_F16, 1.0f, 0x3c00);
    check_bits(DSMOE_F16, 0x801p-11f, 0x3c00);
    check_bits(DSMOE_F16, 0x803p-11f, 0x3c02);
    check_bits(DSMOE_F16, 0x1p-25f, 0x0000);
    check_bits(DSMOE_F16, 0x3p-25f, 0x0002);
    check_bits(DSMOE_F16, 65504.0f, 0x7bff);
    check_bits(DSMOE_F16, 65520.0f, 0x7bff);
    check_bits(DSMOE_F16, FLT_MAX, 0x7bff);
    check_bits(DSMOE_BF16, 1.0f, 0x3f80);
    check_bits(DSMOE_BF16, 0x101p-8f, 0x3f80);
    check_bits(DSMOE_BF16, 0x103p-8f, 0x3f82);
    check_bits(DSMOE_BF16, 0x1p-133f, 0x0001);
    check_bits(DSMOE_BF16, 0x1p-134f, 0x0000);
    check_bits(DSMOE_BF16, FLT_MAX, 0x7f7f);
    make_numbers(1.0f, 8.0f, 1);
    store(&row, DSMOE_F32, ROW, numbers, weights);
    assert_memory_equal(row.bytes, numbers, sizeof numbers);
}

/* ---- ordinary numbers ------------------------------------------------------------------------ */

/* The loss for normal numbers, without and with outliers; the bounds are about 1 % above the measured
 * loss. A scale that only fits the largest number, without a search, loses more. */
static void test_loss(void **state)
{
    (void)state;
    static const struct {
        dsmoe_dtype type;
        double normal, outliers;
    } bounds[] = {
        {DSMOE_F32, 0, 0},
        {DSMOE_F16, 2.12e-4, 2.08e-4},
        {DSMOE_BF16, 1.68e-3, 1.64e-3},
        {DSMOE_Q8_0, 0.00491, 0.00700},
        {DSMOE_Q6_K, 0.0168, 0.0223},
        {DSMOE_Q5_K, 0.0345, 0.0394},
        {DSMOE_Q5_1, 0.0335, 0.0381},
        {DSMOE_Q5_0, 0.0395, 0.0571},
        {DSMOE_Q4_K, 0.0702, 0.0801},
        {DSMOE_Q4_0, 0.0809, 0.1183},
    };
    for (size_t t = 0; t < COUNT(bounds); t++)
        for (int with = 0; with < 2; with++) {
            make_numbers(0.02f, with ? 8.0f : 1.0f, 1);
            store(&row, bounds[t].type, ROW, numbers, NULL);
            double lost = loss(ROW, numbers, NULL, row.values);
            double bound = with ? bounds[t].outliers : bounds[t].normal;
            if (!(lost <= bound))
                fail_msg("%s, %s: %.6f is lost, more than %.6f", dtype_table[bounds[t].type].name,
                         with ? "with outliers" : "normal", lost, bound);
        }
}

/* Numbers that a type can represent exactly are preserved, at any place in a block. */
static void test_grid(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(blocks); t++) {
        dsmoe_dtype type = blocks[t];
        int levels = type == DSMOE_Q4_0 || type == DSMOE_Q4_K ? 16
                     : type == DSMOE_Q6_K                     ? 64
                     : type == DSMOE_Q8_0                     ? 256
                                                              : 32;
        for (int i = 0; i < ROW; i++) {
            int code = (int)(rng_bits(4, 1, (uint64_t)i) % (uint64_t)levels) - levels / 2;
            if (i % 16 == 0) code = -levels / 2; /* each part has both extremes */
            if (i % 16 == 1) code = levels / 2 - 1;
            if (type == DSMOE_Q8_0 && code == -128) code = -127;
            numbers[i] = (float)code * 0x1p-7f;
        }
        store(&row, type, ROW, numbers, NULL);
        for (int i = 0; i < ROW; i++)
            if (fabsf(row.values[i] - numbers[i]) > 2e-3f * 0x1p-7f * (float)levels)
                fail_msg("%s: number %d, %g, became %g", dtype_table[type].name, i,
                         (double)numbers[i], (double)row.values[i]);
    }
}

/* Q5_1 without a search: the minimum is the lowest number, and the highest number gets the last code. */
static void store_plain_q5_1(const float *x, float *values)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < BLOCK; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float d = half_from_f16(half_to_f16((high - low) / 31.0f));
    float m = half_from_f16(half_to_f16(low));
    for (int i = 0; i < BLOCK; i++) {
        float q = d > 0.0f ? nearbyintf((x[i] - m) / d) : 0.0f;
        values[i] = d * fminf(fmaxf(q, 0.0f), 31.0f) + m;
    }
}

/* A minimum may have either sign and be far larger than the differences, so that rounding it to float16
 * loses most. The search reduces the loss by at least this factor. */
static void test_q5_1_minimum(void **state)
{
    (void)state;
    static const struct {
        float mean, deviation;
        double gain;
    } cases[] = {{0.0f, 0.02f, 1.12},  {0.07f, 0.02f, 1.12}, {-0.07f, 0.02f, 1.12},
                 {1.0f, 1e-3f, 1.26},  {-1.0f, 1e-4f, 6.8},  {5.001f, 1e-6f, 99},
                 {-3000.0f, 1.0f, 2.3}};
    static float values[ROW];
    for (size_t c = 0; c < COUNT(cases); c++) {
        make_numbers(cases[c].deviation, 1.0f, 15);
        for (int i = 0; i < ROW; i++) numbers[i] += cases[c].mean;
        store(&row, DSMOE_Q5_1, ROW, numbers, NULL);
        for (int i = 0; i < ROW; i += BLOCK) store_plain_q5_1(numbers + i, values + i);
        double simple = loss(ROW, numbers, NULL, values);
        double gain = simple / loss(ROW, numbers, NULL, row.values);
        if (!(gain >= cases[c].gain))
            fail_msg("numbers of about %g: %.3f times less is lost", (double)cases[c].mean, gain);
    }
}

/* The largest number of a block is exactly ±127 steps, so quantising the dequantised row gives the same
 * bytes. */
static void test_q8_0_again(void **state)
{
    (void)state;
    make_numbers(1.0f, 8.0f, 3);
    store(&row, DSMOE_Q8_0, ROW, numbers, NULL);
    store(&other, DSMOE_Q8_0, ROW, row.values, NULL);
    assert_memory_equal(row.bytes, other.bytes, (size_t)dtype_bytes(DSMOE_Q8_0, ROW));
}

/* The result for a block does not depend on its neighbours. */
static void test_alone(void **state)
{
    (void)state;
    make_numbers(0.02f, 8.0f, 4);
    rng_uniform(weights, ROW, 4, 3, 0, 0.0f, 1.0f);
    for (size_t t = 0; t < COUNT(blocks); t++) {
        const dtype_info *info = &dtype_table[blocks[t]];
        int n = 11 * info->block; /* not a multiple of what is searched together */
        if (n > ROW) n = ROW;
        store(&row, blocks[t], n, numbers, weights);
        for (int b = 0; b < n / info->block; b++) {
            store(&other, blocks[t], info->block, numbers + b * info->block,
                  weights + b * info->block);
            assert_memory_equal(other.bytes, row.bytes + b * info->bytes, (size_t)info->bytes);
        }
    }
}

/* Scaling numbers or importances by a power of two changes nothing else. */
static void test_units(void **state)
{
    (void)state;
    static float large[ROW], heavy[ROW];
    make_numbers(8.0f, 8.0f, 5);
    rng_uniform(weights, ROW, 5, 3, 0, 0.0f, 1.0f);
    for (int i = 0; i < ROW; i++) {
        large[i] = numbers[i] * 16.0f;
        heavy[i] = weights[i] * 0x1p120f;
    }
    for (size_t t = 0; t < COUNT(blocks); t++) {
        store(&row, blocks[t], ROW, numbers, weights);
        store(&other, blocks[t], ROW, large, heavy);
        for (int i = 0; i < ROW; i++) assert_true(other.values[i] == 16.0f * row.values[i]);
    }
}

/* The same bits on every machine. A better search changes the values here. */
static void test_bits(void **state)
{
    (void)state;
    static const struct {
        dsmoe_dtype type;
        uint64_t without, with; /* without and with importance */
    } known[] = {
        {DSMOE_Q8_0, 0x619cd1a0dd550f50, 0x157927832f21b7ba},
        {DSMOE_Q4_0, 0x64e9736338bf2e57, 0x7e00e7de4754bb7d},
        {DSMOE_Q5_0, 0xd8c288b8ff02cc19, 0x1211f96205192dcd},
        {DSMOE_Q5_1, 0xd37f7c3a04b2ef45, 0x12176567d16d1013},
        {DSMOE_Q4_K, 0xb301e700cdf94eb1, 0x2d99d26718d8897e},
        {DSMOE_Q5_K, 0x9a1a23edb9a68819, 0x14e0282a6c743fae},
        {DSMOE_Q6_K, 0xe4e612ee5b612c56, 0xfa1dda757994827f},
    };
    make_numbers(0.02f, 8.0f, 14);
    rng_uniform(weights, ROW, 14, 3, 0, 0.0f, 1.0f);
    for (size_t t = 0; t < COUNT(known); t++) {
        size_t size = (size_t)dtype_bytes(known[t].type, ROW);
        store(&row, known[t].type, ROW, numbers, NULL);
        store(&other, known[t].type, ROW, numbers, weights);
        uint64_t without = hash_bytes(row.bytes, size, 0), with = hash_bytes(other.bytes, size, 0);
        if (without != known[t].without || with != known[t].with)
            fail_msg("%s: 0x%016" PRIx64 ", 0x%016" PRIx64, dtype_table[known[t].type].name,
                     without, with);
    }
}

/* ---- importance ------------------------------------------------------------------------------ */

/* One column in eight is a hundred times as important as the others. With this importance less is lost
 * there by at least this factor, and in total too. */
static void test_importance(void **state)
{
    (void)state;
    static const struct {
        dsmoe_dtype type;
        double columns, whole;
    } gains[] = {
        {DSMOE_Q4_0, 1.34, 1.28}, {DSMOE_Q5_0, 1.42, 1.34}, {DSMOE_Q5_1, 1.91, 1.66},
        {DSMOE_Q4_K, 1.79, 1.58}, {DSMOE_Q5_K, 1.68, 1.52}, {DSMOE_Q6_K, 1.96, 1.68},
    };
    static float only[ROW];
    make_numbers(0.02f, 1.0f, 6);
    for (int i = 0; i < ROW; i++) {
        only[i] = i % 8 == 3 ? 1.0f : 0.0f;
        weights[i] = i % 8 == 3 ? 100.0f : 1.0f;
    }
    for (size_t t = 0; t < COUNT(gains); t++) {
        store(&row, gains[t].type, ROW, numbers, NULL);
        store(&other, gains[t].type, ROW, numbers, weights);
        double columns =
            loss(ROW, numbers, only, row.values) / loss(ROW, numbers, only, other.values);
        double whole =
            loss(ROW, numbers, weights, row.values) / loss(ROW, numbers, weights, other.values);
        if (columns < gains[t].columns || whole < gains[t].whole)
            fail_msg("%s: the columns gain %.3f, the whole gains %.3f",
                     dtype_table[gains[t].type].name, columns, whole);
    }
}

/* Blocks without any importance are quantised as if none was given, even next to blocks with importance. */
static void test_no_importance(void **state)
{
    (void)state;
    make_numbers(0.02f, 8.0f, 7);
    for (size_t t = 0; t < COUNT(blocks); t++) {
        store(&row, blocks[t], ROW, numbers, NULL);
        memset(weights, 0, sizeof weights);
        store(&other, blocks[t], ROW, numbers, weights);
        assert_memory_equal(row.bytes, other.bytes, (size_t)dtype_bytes(blocks[t], ROW));
        for (int i = 0; i < SUPER_BLOCK; i++) weights[i] = (float)(i % 3);
        store(&other, blocks[t], ROW, numbers, weights);
        int64_t rest = dtype_bytes(blocks[t], SUPER_BLOCK);
        assert_memory_equal(row.bytes + rest, other.bytes + rest,
                            (size_t)(dtype_bytes(blocks[t], ROW) - rest));
        assert_memory_not_equal(row.bytes, other.bytes, (size_t)rest);
    }
}

/* A part of a large block without importance is still quantised well. */
static void test_part_without_importance(void **state)
{
    (void)state;
    static const dsmoe_dtype large[] = {DSMOE_Q4_K, DSMOE_Q5_K, DSMOE_Q6_K};
    make_numbers(0.02f, 1.0f, 8);
    for (int i = 0; i < ROW; i++) weights[i] = i / BLOCK % 2 ? 1.0f : 0.0f;
    for (size_t t = 0; t < COUNT(large); t++) {
        store(&row, large[t], ROW, numbers, NULL);
        store(&other, large[t], ROW, numbers, weights);
        assert_true(loss(ROW, numbers, NULL, other.values) <
                    1.05 * loss(ROW, numbers, NULL, row.values));
    }
}

/* Importances of any magnitude. */
static void test_odd_importance(void **state)
{
    (void)state;
    static const float sizes[] = {1e-45f, 1e-30f, 1e30f, FLT_MAX};
    make_numbers(0.02f, 8.0f, 9);
    for (size_t t = 0; t < COUNT(blocks); t++) {
        store(&row, blocks[t], ROW, numbers, NULL);
        double usual = loss(ROW, numbers, NULL, row.values);
        for (size_t s = 0; s < COUNT(sizes); s++) {
            for (int i = 0; i < ROW; i++) weights[i] = sizes[s];
            store(&other, blocks[t], ROW, numbers, weights);
            assert_true(loss(ROW, numbers, NULL, other.values) < 1.01 * usual);
            weights[ROW / 2] = 1.0f; /* far from all others */
            store(&other, blocks[t], ROW, numbers, weights);
        }
    }
}

/* ---- odd numbers ----------------------------------------------------------------------------- */

static void test_zeros(void **state)
{
    (void)state;
    static const float nothing[] = {0.0f, -0.0f, 1e-45f, -1e-40f, 1e-9f};
    for (int i = 0; i < ROW; i++) weights[i] = (float)(i % 5);
    for (size_t t = 0; t < COUNT(blocks); t++)
        for (size_t k = 0; k < COUNT(nothing); k++) {
            for (int i = 0; i < ROW; i++) numbers[i] = nothing[k];
            for (int with = 0; with < 2; with++) {
                store(&row, blocks[t], ROW, numbers, with ? weights : NULL);
                for (int i = 0; i < ROW; i++) assert_true(row.values[i] == 0.0f);
            }
        }
}

/* Equal numbers: little is lost except by rounding the scale, to float16 or in large blocks to a multiple
 * of d. */
static void test_constants(void **state)
{
    (void)state;
    static const float constants[] = {1.0f, -1.0f, 0.37f, -0.37f, 0.0123f, -123.4f, 3000.0f};
    for (int i = 0; i < ROW; i++) weights[i] = (float)(i % 5);
    for (size_t t = 0; t < COUNT(blocks); t++)
        for (size_t k = 0; k < COUNT(constants); k++) {
            for (int i = 0; i < ROW; i++) numbers[i] = constants[k];
            for (int with = 0; with < 2; with++) {
                store(&row, blocks[t], ROW, numbers, with ? weights : NULL);
                bool large = dtype_table[blocks[t]].block == SUPER_BLOCK;
                float most = (large ? 0x1p-7f : 0x1p-10f) * fabsf(constants[k]);
                for (int i = 0; i < ROW; i++)
                    if (fabsf(row.values[i] - numbers[i]) > most)
                        fail_msg("%s: %g became %g", dtype_table[blocks[t]].name,
                                 (double)numbers[i], (double)row.values[i]);
            }
        }
}

/* A number a thousand times as large as the others is kept; as a minimum less exactly, in favour of the
 * others. The loss of the others in its block depends on the type; the bounds are for the parts without
 * it. */
static void test_outlier(void **state)
{
    (void)state;
    static const struct {
        dsmoe_dtype type;
        float itself;
        double others;
    } bounds[] = {{DSMOE_Q8_0, 0.4f, 0},   {DSMOE_Q4_0, 0.4f, 0},   {DSMOE_Q5_0, 0.4f, 0},
                  {DSMOE_Q5_1, 0.6f, 0},   {DSMOE_Q4_K, 0.4f, 2.1}, {DSMOE_Q5_K, 0.4f, 1.4},
                  {DSMOE_Q6_K, 0.4f, 0.13}};
    for (size_t t = 0; t < COUNT(bounds); t++) {
        const dtype_info *info = &dtype_table[bounds[t].type];
        for (int at = 0; at < info->block; at += 5)
            for (int sign = -1; sign <= 1; sign += 2) {
                make_numbers(1.0f, 1.0f, 10);
                numbers[at] = (float)sign * 1000.0f;
                store(&row, bounds[t].type, info->block, numbers, NULL);
                assert_true(fabsf(row.values[at] - numbers[at]) <= bounds[t].itself);
                for (int i = 0; i < info->block; i++)
                    if (i / BLOCK != at / BLOCK)
                        assert_true(fabsf(row.values[i] - numbers[i]) <= bounds[t].others);
            }
    }
}

/* Scales beyond float16: numbers are clamped to the type's range. */
static void test_huge(void **state)
{
    (void)state;
    static const float sizes[] = {1e7f, 1e20f, 1e38f, FLT_MAX};
    rng_uniform(weights, ROW, 11, 3, 0, 0.0f, 1.0f);
    for (size_t t = 0; t < COUNT(blocks); t++)
        for (size_t s = 0; s < COUNT(sizes); s++)
            for (int with = 0; with < 2; with++) {
                rng_uniform(numbers, ROW, 11, 1, 0, -1.0f, 1.0f);
                for (int i = 0; i < ROW; i++) numbers[i] *= sizes[s];
                store(&row, blocks[t], ROW, numbers, with ? weights : NULL);
                for (int i = 0; i < ROW; i++) {
                    if (numbers[i] > 0.5f * sizes[s]) assert_true(row.values[i] > 4e5f);
                    if (numbers[i] < -0.5f * sizes[s]) assert_true(row.values[i] <= 0.0f);
                }
            }
}

/* Q8_0 without a search, and without rounding scales. */
static double plain_q8_0_loss(void)
{
    static float values[ROW];
    for (int i = 0; i < ROW; i += BLOCK) {
        float largest = 0.0f;
        for (int k = i; k < i + BLOCK; k++) largest = fmaxf(largest, fabsf(numbers[k]));
        for (int k = i; k < i + BLOCK; k++)
            values[k] = nearbyintf(numbers[k] / largest * 127.0f) * largest / 127.0f;
    }
    return loss(ROW, numbers, NULL, values);
}

/* Where float16 becomes coarse, the largest numbers are not clamped, and little more is lost than usual.
 * Q8_0 then has no choice of scales, so it is compared with Q8_0 without a search. */
static void test_tiny(void **state)
{
    (void)state;
    static const struct {
        float deviation;
        double more;
    } sizes[] = {{1e-3f, 1.02}, {1e-4f, 1.05}, {1e-5f, 1.20}, {2e-6f, 1.65}};
    for (size_t t = 0; t < COUNT(blocks); t++) {
        make_numbers(1.0f, 1.0f, 12);
        store(&row, blocks[t], ROW, numbers, NULL);
        double usual =
            blocks[t] == DSMOE_Q8_0 ? plain_q8_0_loss() : loss(ROW, numbers, NULL, row.values);
        for (size_t s = 0; s < COUNT(sizes); s++) {
            make_numbers(sizes[s].deviation, 1.0f, 12);
            store(&row, blocks[t], ROW, numbers, NULL);
            double lost = loss(ROW, numbers, NULL, row.values);
            if (!(lost <= sizes[s].more * usual))
                fail_msg("%s: %.5f is lost of numbers of about %g, %.5f usually",
                         dtype_table[blocks[t]].name, lost, (double)sizes[s].deviation, usual);
        }
    }
}

/* Numbers of all magnitudes in one block. */
static void test_wide_range(void **state)
{
    (void)state;
    for (int i = 0; i < ROW; i++) {
        int exponent = (int)(rng_bits(13, 1, (uint64_t)i) % 270) - 143;
        numbers[i] = ldexpf(rng_bits(13, 2, (uint64_t)i) & 1 ? 1.5f : -1.5f, exponent);
        weights[i] = ldexpf(1.0f, (int)(rng_bits(13, 3, (uint64_t)i) % 270) - 143);
    }
    for (size_t t = 0; t < COUNT(blocks); t++) {
        store(&row, blocks[t], ROW, numbers, NULL);
        store(&row, blocks[t], ROW, numbers, weights);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_q5_1_minimum),
        cmocka_unit_test(test_q8_0_again),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_importance),
        cmocka_unit_test(test_no_importance),
        cmocka_unit_test(test_part_without_importance),
        cmocka_unit_test(test_odd_importance),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_wide_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
