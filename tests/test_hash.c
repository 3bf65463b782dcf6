/* test_hash.c - the hash of content and that of earlier versions: the same however the bytes are divided,
 * different after every change, and fixed for ever, as files already hold these values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

enum { N = 1000 };
static unsigned char bytes[N];

static void fill(void)
{
    uint32_t x = 1;
    for (int i = 0; i < N; i++) bytes[i] = (unsigned char)((x = x * 1103515245u + 12345u) >> 16);
}

static uint64_t hash_in_pieces(hash_kind kind, size_t size, size_t piece)
{
    hash_state h;
    hash_begin_as(&h, kind, 5);
    for (size_t at = 0; at < size; at += piece)
        hash_add(&h, bytes + at, size - at < piece ? size - at : piece);
    hash_add(&h, NULL, 0);
    return hash_end(&h);
}

static void test_pieces(void **state)
{
    (void)state;
    fill();
    for (size_t size = 0; size <= 300; size++)
        for (size_t piece = 1; piece <= 130; piece += piece < 10 ? 1 : 23) {
            uint64_t old = hash_in_pieces(HASH_OLD, size, piece);
            assert_int_equal(hash_in_pieces(HASH_XXH64, size, piece), hash_bytes(bytes, size, 5));
            assert_int_equal(old, hash_bytes_as(HASH_OLD, bytes, size, 5));
        }
}

static void test_every_bit_counts(void **state)
{
    (void)state;
    fill();
    uint64_t whole = hash_bytes(bytes, N, 0);
    for (int bit = 0; bit < 8 * N; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        uint64_t changed = hash_bytes(bytes, N, 0);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        int n_flipped = __builtin_popcountll(whole ^ changed);
        if (n_flipped < 10 || n_flipped > 54)
            fail_msg("bit %d of the input changes %d of the hash", bit, n_flipped);
    }
    for (uint64_t seed = 1; seed < 100; seed++)
        assert_int_not_equal(hash_bytes(bytes, N, seed), whole);
}

/* Zeros in the data differ from zeros that pad a block, and swapped words change the hash. */
static void test_lengths_and_order(void **state)
{
    (void)state;
    memset(bytes, 0, sizeof bytes);
    uint64_t seen[N];
    for (size_t i = 0; i < N; i++) {
        seen[i] = hash_bytes(bytes, i, 0);
        for (size_t j = 0; j < i; j++) assert_int_not_equal(seen[i], seen[j]);
    }
    fill();
    uint64_t before = hash_bytes(bytes, 512, 0);
    for (size_t a = 0; a < 512; a += 8)
        for (size_t b = a + 8; b < 512; b += 8) {
            unsigned char swapped[512];
            memcpy(swapped, bytes, 512);
            memcpy(swapped + a, bytes + b, 8);
            memcpy(swapped + b, bytes + a, 8);
            assert_int_not_equal(hash_bytes(swapped, 512, 0), before);
        }
}

/* Files hold these numbers: with another function they would all look damaged. */
static void test_known(void **state)
{
    (void)state;
    fill();
    assert_int_equal(hash_bytes("", 0, 0), 0xef46db3751d8e999u); /* as xxhsum -H64 */
    assert_int_equal(hash_bytes("abc", 3, 0), 0x44bc2cf5ad770999u);
    assert_int_equal(hash_bytes_as(HASH_OLD, "", 0, 0), 0x0d59b76d6b6256c4u);
    assert_int_equal(hash_bytes_as(HASH_OLD, "abc", 3, 0), 0x4cb8182de9a96b35u);
    assert_int_equal(hash_bytes_as(HASH_OLD, bytes, N, 1), 0x7bc92c8e8612d40au);
    hash_state h;
    hash_begin(&h, 0);
    hash_add_number(&h, 0x636261);
    assert_int_equal(hash_end(&h), hash_bytes("abc\0\0\0\0\0", 8, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_lengths_and_order),
        cmocka_unit_test(test_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
