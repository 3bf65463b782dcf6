/* test_blocks.c - the meaning of the bytes in quantised blocks of each type: blocks made by hand, and the
 * place of every single bit. Places are byte offsets in the format, not members of the structs. */
#include "support.h"

#include <string.h>

#include "base/rng.h"
#include "base/half.h"
#include "kernels/blocks.h"

typedef void widen_function(int64_t n, const void *src, float *dst);

typedef struct block_type {
    dsmoe_dtype type;
    widen_function *widen;
    int n_bits; /* of one code */
} block_type;

static const block_type types[] = {
    {DSMOE_Q8_0, widen_q8_0, 8}, {DSMOE_Q4_0, widen_q4_0, 4}, {DSMOE_Q5_0, widen_q5_0, 5},
    {DSMOE_Q5_1, widen_q5_1, 5}, {DSMOE_Q4_K, widen_q4_k, 4}, {DSMOE_Q5_K, widen_q5_k, 5},
    {DSMOE_Q6_K, widen_q6_k, 6},
};

enum { MOST_BYTES = 210 };

/* ---- places of bits ------------------------------------------------------------------------- */

typedef struct place {
    int byte, bit;
} place;

static place place_q4_0(int i, int bit) { return (place){2 + i % 16, i / 16 * 4 + bit}; }

static place place_q5_0(int i, int bit)
{
    return bit == 4 ? (place){2 + i / 8, i % 8} : (place){6 + i % 16, i / 16 * 4 + bit};
}

/* As in Q5_0, but with a minimum before it. */
static place place_q5_1(int i, int bit)
{
    place at = place_q5_0(i, bit);
    return (place){at.byte + 2, at.bit};
}

/* 64 numbers in 32 bytes, the first 32 of them in the low halves. */
static place place_low(int i, int bit)
{
    return (place){i / 64 * 32 + i % 32, i / 32 % 2 * 4 + bit};
}

static place place_q5_k(int i, int bit)
{
    if (bit == 4) return (place){16 + i % 32, i / 32};
    place low = place_low(i, bit);
    return (place){48 + low.byte, low.bit};
}

static place place_q6_k(int i, int bit)
{
    int half = i / 128, in_half = i % 128;
    if (bit < 4) return (place){half * 64 + in_half % 64, in_half / 64 * 4 + bit};
    return (place){128 + half * 32 + in_half % 32, in_half / 32 * 2 + bit - 4};
}

static place place_of_code(dsmoe_dtype type, int i, int bit)
{
    switch (type) {
    case DSMOE_Q8_0: return (place){2 + i, bit};
    case DSMOE_Q4_0: return place_q4_0(i, bit);
    case DSMOE_Q5_0: return place_q5_0(i, bit);
    case DSMOE_Q5_1: return place_q5_1(i, bit);
    case DSMOE_Q4_K: return (place){16 + place_low(i, bit).byte, place_low(i, bit).bit};
    case DSMOE_Q5_K: return place_q5_k(i, bit);
    default: return place_q6_k(i, bit);
    }
}

/* The bits of the scale, or of the minimum, of part j in Q4_K and Q5_K. */
static place place_of_scale(int j, int bit, bool min)
{
    int first = 4 + (min ? 4 : 0); /* the first four scales, or minima */
    if (j < 4) return (place){first + j, bit};
    if (bit >= 4) return (place){first + j - 4, bit + 2};
    return (place){12 + j - 4, bit + (min ? 4 : 0)};
}

static void set_bit(unsigned char *bytes, place at)
{
    bytes[at.byte] = (unsigned char)(bytes[at.byte] | 1 << at.bit);
}

/* ---- making blocks --------------------------------------------------------------------------- */

static const unsigned char one[2] = {0x00, 0x3c}, minus_half[2] = {0x00, 0xb8},
                           quarter[2] = {0x00, 0x34};

/* All codes are 0, d = 1, m = -1/2, dmin = 1/4, every scale is 1 and every minimum 0. */
static void make_plain(dsmoe_dtype type, unsigned char block[MOST_BYTES])
{
    memset(block, 0, MOST_BYTES);
    if (type == DSMOE_Q6_K) {
        memset(block + 192, 1, 16);
        memcpy(block + 208, one, 2);
        return;
    }
    memcpy(block, one, 2);
    if (type == DSMOE_Q5_1) memcpy(block + 2, minus_half, 2);
    if (type != DSMOE_Q4_K && type != DSMOE_Q5_K) return;
    memcpy(block + 2, quarter, 2);
    for (int j = 0; j < 8; j++) set_bit(block, place_of_scale(j, 0, false));
}

/* The minimum is a second float16 after d. */
static bool has_minimum(dsmoe_dtype type)
{
    return type == DSMOE_Q5_1 || type == DSMOE_Q4_K || type == DSMOE_Q5_K;
}

/* The value of code 0 in such a block. */
static float lowest(dsmoe_dtype type)
{
    switch (type) {
    case DSMOE_Q4_0: return -8.0f;
    case DSMOE_Q5_0: return -16.0f;
    case DSMOE_Q5_1: return -0.5f;
    case DSMOE_Q6_K: return -32.0f;
    default: return 0.0f;
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Each bit of each code changes only its own number, by the bit's value. */
static void test_codes(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(types); t++) {
        dsmoe_dtype type = types[t].type;
        int n = dtype_table[type].block;
        for (int i = 0; i < n; i++)
            for (int bit = 0; bit < types[t].n_bits; bit++) {
                unsigned char block[MOST_BYTES];
                float values[SUPER_BLOCK];
                make_plain(type, block);
                set_bit(block, place_of_code(type, i, bit));
                types[t].widen(n, block, values);
                float worth = type == DSMOE_Q8_0 && bit == 7 ? -128.0f : (float)(1 << bit);
                for (int k = 0; k < n; k++)
                    if (values[k] != lowest(type) + (k == i ? worth : 0.0f))
                        fail_msg("%s, bit %d of code %d: number %d is %g", dtype_table[type].name,
                                 bit, i, k, (double)values[k]);
            }
    }
}

/* Each bit of a scale or a minimum changes only the numbers of its own part. */
static void check_scale_bit(const block_type *t, int j, int bit, bool min)
{
    unsigned char block[MOST_BYTES];
    float values[SUPER_BLOCK];
    make_plain(t->type, block);
    for (int i = 0; i < SUPER_BLOCK; i++) /* all codes are 1 */
        set_bit(block, place_of_code(t->type, i, 0));
    place at = place_of_scale(j, bit, min);
    block[at.byte] = (unsigned char)(block[at.byte] ^ 1 << at.bit); /* bit 0 of scales was set */
    t->widen(SUPER_BLOCK, block, values);
    float worth = (float)(1 << bit);
    float other = min ? 1.0f - 0.25f * worth : bit == 0 ? 0.0f : 1.0f + worth;
    for (int i = 0; i < SUPER_BLOCK; i++)
        if (values[i] != (i / BLOCK == j ? other : 1.0f))
            fail_msg("%s, bit %d of %s %d: number %d is %g", dtype_table[t->type].name, bit,
                     min ? "minimum" : "scale", j, i, (double)values[i]);
}

static void test_scales_and_minima(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(types); t++)
        if (types[t].type == DSMOE_Q4_K || types[t].type == DSMOE_Q5_K)
            for (int j = 0; j < 8; j++)
                for (int bit = 0; bit < 6; bit++) {
                    check_scale_bit(&types[t], j, bit, false);
                    check_scale_bit(&types[t], j, bit, true);
                }
}

/* Scales of Q6_K are signed bytes, one for each 16 numbers. */
static void test_q6_k_scales(void **state)
{
    (void)state;
    for (int j = 0; j < 16; j++)
        for (int scale = -128; scale < 128; scale++) {
            unsigned char block[MOST_BYTES];
            float values[SUPER_BLOCK];
            make_plain(DSMOE_Q6_K, block);
            block[192 + j] = (unsigned char)(scale & 255);
            widen_q6_k(SUPER_BLOCK, block, values);
            for (int i = 0; i < SUPER_BLOCK; i++)
                assert_true(values[i] == -32.0f * (float)(i / 16 == j ? scale : 1));
        }
}

/* Two blocks of each type, worked out on paper. */
static void test_by_hand(void **state)
{
    (void)state;
    float values[2 * SUPER_BLOCK];

    unsigned char q4_0[2 * 18] = {0x00, 0x38, 0x1f}; /* d = 1/2, codes 15 and 1 in the first byte */
    memcpy(q4_0 + 18, minus_half, 2);
    widen_q4_0(64, q4_0, values);
    assert_true(values[0] == 3.5f && values[16] == -3.5f && values[1] == -4.0f);
    assert_true(values[32] == 4.0f && values[63] == 4.0f);

    unsigned char q5_0[2 * 22] = {0x00, 0x38, 0x01, 0x00, 0x01, 0x80, 0xa7};
    memcpy(q5_0 + 22, minus_half, 2);
    widen_q5_0(64, q5_0, values); /* codes 16 + 7 and 16 + 10, then 0, the last one 16 */
    assert_true(values[0] == 3.5f && values[16] == 5.0f && values[1] == -8.0f);
    assert_true(values[31] == 0.0f && values[15] == -8.0f && values[32] == 8.0f);

    unsigned char q5_1[2 * 24] = {0x00, 0x38, 0x00, 0x34, 0x01, 0x00, 0x01, 0x80, 0xa7};
    memcpy(q5_1 + 24, quarter, 2);
    memcpy(q5_1 + 26, minus_half, 2);
    q5_1[24 + 23] = 0x30;         /* the last code of the second block is 3 */
    widen_q5_1(64, q5_1, values); /* the first block has the codes of Q5_0 above; m = 1/4 */
    assert_true(values[0] == 11.75f && values[16] == 13.25f && values[1] == 0.25f);
    assert_true(values[31] == 8.25f && values[32] == -0.5f && values[63] == 0.25f);

    unsigned char q8_0[2 * 34] = {0x00, 0x34, 0x7f, 0x80, 0xff};
    memcpy(q8_0 + 34, one, 2);
    q8_0[34 + 33] = 0x85;
    widen_q8_0(64, q8_0, values);
    assert_true(values[0] == 31.75f && values[1] == -32.0f && values[2] == -0.25f);
    assert_true(values[3] == 0.0f && values[62] == 0.0f && values[63] == -123.0f);
}

/* Large blocks with all their fields in use. */
static void test_large_by_hand(void **state)
{
    (void)state;
    float values[SUPER_BLOCK];
    /* d = 1, dmin = 1/4. Part 0: scale 3, minimum 8. Part 5: scale 2·16 + 5 = 37, minimum
     * 3·16 + 9 = 57. */
    unsigned char scales[12] = {3, 2 << 6, 0, 0, 8, 3 << 6, 0, 0, 0, 0x95, 0, 0};
    unsigned char q4_k[144] = {0x00, 0x3c, 0x00, 0x34}, q5_k[176] = {0x00, 0x3c, 0x00, 0x34};
    memcpy(q4_k + 4, scales, 12);
    memcpy(q5_k + 4, scales, 12);
    q4_k[16 + 7] = 0x0d;           /* number 7 has code 13 */
    q4_k[16 + 2 * 32 + 31] = 0xb0; /* number 5·32 + 31 has code 11 */
    q5_k[48 + 7] = 0x0d;
    q5_k[48 + 2 * 32 + 31] = 0xb0;
    q5_k[16 + 31] = 1 << 5; /* its fifth bit, which makes 27 */
    widen_q4_k(256, q4_k, values);
    assert_true(values[7] == 37.0f && values[6] == -2.0f);
    assert_true(values[191] == 392.75f && values[190] == -14.25f && values[255] == 0.0f);
    widen_q5_k(256, q5_k, values);
    assert_true(values[7] == 37.0f && values[6] == -2.0f);
    assert_true(values[191] == 984.75f && values[190] == -14.25f && values[255] == 0.0f);

    unsigned char q6_k[210] = {0};
    q6_k[192 + 2] = 0xfb; /* numbers 32 to 47 have the scale -5, */
    q6_k[192 + 15] = 7;   /* and 240 to 255 the scale 7 */
    memcpy(q6_k + 208, quarter, 2);
    q6_k[32 + 3] = 0x09; /* number 35 has code 9 + 2·16 = 41 */
    q6_k[128 + 3] = 2 << 2;
    q6_k[64 + 63] = 0xe0; /* number 255 has code 14 + 3·16 = 62 */
    q6_k[128 + 63] = 3 << 6;
    widen_q6_k(256, q6_k, values);
    assert_true(values[35] == -11.25f && values[36] == 40.0f);
    assert_true(values[255] == 52.5f && values[254] == -56.0f && values[0] == 0.0f);
}

/* Number i of a block by the definition of its type, not rounded. */
static double exact_number(const block_type *t, const unsigned char *block, int i)
{
    int code = 0, scale = 0, min = 0;
    for (int bit = 0; bit < t->n_bits; bit++) {
        place at = place_of_code(t->type, i, bit);
        code |= (block[at.byte] >> at.bit & 1) << bit;
    }
    const unsigned char *d = block + (t->type == DSMOE_Q6_K ? 208 : 0);
    double factor = half_from_f16((uint16_t)(d[0] | d[1] << 8));
    if (t->type == DSMOE_Q8_0) return factor * (code < 128 ? code : code - 256);
    if (t->type == DSMOE_Q6_K) {
        scale = block[192 + i / 16];
        return factor * (scale < 128 ? scale : scale - 256) * (code - 32);
    }
    if (t->type == DSMOE_Q4_0 || t->type == DSMOE_Q5_0)
        return factor * (code + (double)lowest(t->type));
    if (t->type == DSMOE_Q5_1)
        return factor * code + half_from_f16((uint16_t)(block[2] | block[3] << 8));
    for (int bit = 0; bit < 6; bit++) {
        place a = place_of_scale(i / BLOCK, bit, false), b = place_of_scale(i / BLOCK, bit, true);
        scale |= (block[a.byte] >> a.bit & 1) << bit;
        min |= (block[b.byte] >> b.bit & 1) << bit;
    }
    return factor * scale * code -
           half_from_f16((uint16_t)(block[2] | block[3] << 8)) * (double)min;
}

/* Arbitrary bytes. float32 rounds only once, where a minimum is subtracted, so every way to compute a
 * number gives the same bits. */
static void test_exact(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(types); t++) {
        const dtype_info *info = &dtype_table[types[t].type];
        for (int b = 0; b < 200; b++) {
            unsigned char block[MOST_BYTES];
            float values[SUPER_BLOCK];
            for (int i = 0; i < info->bytes; i++)
                block[i] = (unsigned char)rng_bits(6, t, (uint64_t)(b * MOST_BYTES + i));
            int d = types[t].type == DSMOE_Q6_K ? 208 : 0;
            block[d + 1] &= 0xbf; /* no infinity, no NaN */
            if (has_minimum(types[t].type)) block[3] &= 0xbf;
            types[t].widen(info->block, block, values);
            for (int i = 0; i < info->block; i++)
                if (values[i] != (float)exact_number(&types[t], block, i))
                    fail_msg("%s, block %d: number %d is %.9g, not %.9g", info->name, b, i,
                             (double)values[i], exact_number(&types[t], block, i));
        }
    }
}

/* Many blocks of arbitrary bytes at any address give the same as each block alone. Nothing is written
 * after the end. */
static void test_many(void **state)
{
    (void)state;
    enum { BLOCKS = 5 };
    for (size_t t = 0; t < COUNT(types); t++) {
        const dtype_info *info = &dtype_table[types[t].type];
        unsigned char bytes[BLOCKS * MOST_BYTES + 1];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)(rng_bits(5, t, i) & 0x77); /* no NaN */
        floats all = floats_make(BLOCKS * info->block, 1), single = floats_make(info->block, 1);
        types[t].widen(all.n, bytes + 1, all.at);
        for (int b = 0; b < BLOCKS; b++) {
            types[t].widen(info->block, bytes + 1 + b * info->bytes, single.at);
            assert_memory_equal(single.at, all.at + b * info->block,
                                (size_t)info->block * sizeof *all.at);
        }
        floats_free(single);
        floats_free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),         cmocka_unit_test(test_scales_and_minima),
        cmocka_unit_test(test_q6_k_scales),   cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_large_by_hand), cmocka_unit_test(test_exact),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
