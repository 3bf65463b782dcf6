/* test_gguf_hostile.c - every violation of the format is a one-line error that names the file and the key,
 * tensor or offset, found without reading past the end and without much memory.
 *
 * The linker sends the library's allocations through this file (--wrap), which notes the largest one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"
#include "gguf_image.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define DIMS(...) ((uint64_t[]){__VA_ARGS__})

/* ---- memory -------------------------------------------------------------------------------- */

static size_t largest;
static int left = -1; /* allocations before one fails; negative: none fails */

static bool refused(void) { return left >= 0 && left-- == 0; }

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    if (size > largest) largest = size;
    return refused() ? NULL : __real_malloc(size);
}

char *__wrap_strdup(const char *text) { return refused() ? NULL : __real_strdup(text); }

void *__wrap_calloc(size_t count, size_t size)
{
    if (count > 0 && size > SIZE_MAX / count) fail_msg("%zu times %zu bytes", count, size);
    if (count * size > largest) largest = count * size;
    return refused() ? NULL : __real_calloc(count, size);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static const char name[] = "hostile.gguf";

/* How much memory a file may need beyond its own size, for any number of keys and tensors. */
enum { CAP = 1 << 24 };

/* Frees the image. */
static void assert_refused(gguf_image image, const char *says)
{
    gguf *file = (gguf *)&image; /* any pointer but NULL */
    dsmoe_error error = {0};
    largest = 0;
    if (gguf_parse(image.bytes, image.size, name, &file, &error) != DSMOE_ERROR_FORMAT)
        fail_msg("accepted, or another error: %s (%s)", says, error.message);
    assert_null(file);
    assert_int_equal(error.status, DSMOE_ERROR_FORMAT);
    if (strncmp(error.message, name, strlen(name)) != 0 || !strstr(error.message, says))
        fail_msg("'%s' does not name the file and say '%s'", error.message, says);
    for (const char *c = error.message; *c; c++) assert_true((unsigned char)*c >= 0x20);
    if (largest > image.size + CAP) fail_msg("%s: %zu bytes of memory", says, largest);
    assert_int_equal(gguf_parse(image.bytes, image.size, name, &file, NULL), DSMOE_ERROR_FORMAT);
    free(image.bytes);
}

static void assert_accepted(gguf_image image)
{
    gguf *file;
    dsmoe_error error = {0};
    if (gguf_parse(image.bytes, image.size, name, &file, &error)) fail_msg("%s", error.message);
    gguf_close(file);
    free(image.bytes);
}

static gguf_image copy_of(gguf_image image, size_t size)
{
    gguf_image copy = {0};
    put_bytes(&copy, image.bytes, size);
    return copy;
}

/* ---- header -------------------------------------------------------------------------------- */

/* A good file, cut at every byte. */
static void test_truncations(void **state)
{
    (void)state;
    gguf_image image = example_gguf(NULL);
    assert_accepted(copy_of(image, image.size));
    for (size_t size = 0; size < image.size; size++) {
        gguf_image copy = copy_of(image, size);
        if (size == 0) copy.bytes = malloc(1); /* no byte of it may be read */
        assert_refused(copy, size < 4    ? "bytes are too few"
                             : size < 24 ? "the file ends at offset"
                                         : "");
    }
    /* Also as a file; an empty file cannot be mapped. */
    for (size_t size = 0; size <= 64; size++) {
        gguf *file;
        dsmoe_error error = {0};
        write_bytes(image.bytes, size);
        assert_int_equal(gguf_open(path, &file, &error), DSMOE_ERROR_FORMAT);
        assert_null(file);
        assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
    }
    free(image.bytes);
}

static void test_magic_and_version(void **state)
{
    (void)state;
    static const char *const magics[] = {"GGUf", "FUGG", "ggml", "\0\0\0\0", "PK\3\4"};
    for (size_t i = 0; i < COUNT(magics); i++) {
        gguf_image image = example_gguf(NULL);
        memcpy(image.bytes, magics[i], 4);
        assert_refused(image, "offset 0 are not 'GGUF'");
    }
    static const struct {
        uint32_t version;
        const char *says;
    } versions[] = {{0, "version 0 at offset 4"},
                    {1, "version 1 at offset 4"},
                    {2, "version 2 at offset 4"},
                    {4, "version 4 at offset 4"},
                    {0xffffffff, "version 4294967295 at offset 4"},
                    {0x03000000, "offset 4 is that of a big-endian file"}};
    for (size_t i = 0; i < COUNT(versions); i++) {
        gguf_image image = example_gguf(NULL);
        memcpy(image.bytes + 4, &versions[i].version, 4);
        assert_refused(image, versions[i].says);
    }
}

static void test_counts(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1ull << 63, UINT64_MAX, 1ull << 60, 1ull << 32, 1000, 65537};
    for (size_t i = 0; i < COUNT(counts); i++) {
        gguf_image image = example_gguf(NULL);
        memcpy(image.bytes + 8, &counts[i], 8);
        assert_refused(image, "tensors at offset 8 are too many");
        image = example_gguf(NULL);
        memcpy(image.bytes + 16, &counts[i], 8);
        assert_refused(image, "keys at offset 16 are too many");
    }
    /* As many keys as the bytes allow, but none is valid. */
    gguf_image image = begin_gguf(0, 65536);
    image.bytes = realloc(image.bytes, 24 + 65536 * 14);
    memset(image.bytes + 24, 0, 65536 * 14);
    image.size = 24 + 65536 * 14;
    assert_refused(image, "key 0 at offset 24 has no name");
}

/* ---- metadata ------------------------------------------------------------------------------ */

static void test_lengths(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        uint64_t length = ((uint64_t[]){UINT64_MAX, 1ull << 32, 65536, 20})[i];
        gguf_image image = begin_gguf(0, 1);
        put_u64(&image, length);
        put_data(&image, 19, 'a');
        assert_refused(image, "metadata key 0 at offset 24 has a name of");

        image = begin_gguf(0, 1);
        put_key(&image, "k", 8);
        put_u64(&image, length);
        put_data(&image, 19, 'a');
        assert_refused(image, "key 'k' has a string of");

        image = begin_gguf(0, 1);
        put_key_array(&image, "k", 8, 2);
        put_string(&image, "first");
        put_u64(&image, length);
        put_data(&image, 19, 'a');
        assert_refused(image, "key 'k' has a string of");

        image = begin_gguf(1, 0);
        put_u64(&image, length);
        put_data(&image, 33, 'a');
        assert_refused(image, length == 20 ? "tensor 'abcdefghijklmnopqrst' has"
                                           : "tensor 0 at offset 24 has a name of");
    }
}

static void test_arrays(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t count;
        const char *says;
    } cases[] = {
        {99, 1, "key 'k' is an array of the unknown type 99 at offset 37"},
        {13, 0, "unknown type 13"},
        {0xffffffff, 1ull << 60, "unknown type 4294967295"},
        {9, 1, "key 'k' is an array of arrays at offset 37"},
        {9, 0, "array of arrays"},
        {0, 1ull << 60, "key 'k' has an array of 1152921504606846976 U8 at offset 37"},
        {0, 101, "array of 101 U8"},
        {2, 51, "array of 51 U16"},
        {4, 26, "array of 26 U32"},
        {4, 1ull << 62, "U32"},
        {10, 13, "array of 13 U64"},
        {10, 1ull << 61, "U64"},
        {12, UINT64_MAX, "F64"},
        {8, 1ull << 60, "STRING"},
        {8, 13, "STRING"},
        {7, 100, "key 'k' holds 2 at offset 50, where a BOOL must be 0 or 1"},
        {7, 1ull << 63, "BOOL"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        gguf_image image = begin_gguf(0, 1);
        put_key_array(&image, "k", cases[i].type, cases[i].count);
        put_data(&image, 100, 1);
        assert_refused(image, cases[i].says);
    }
}

/* Nested arrays are refused at the first level, so their depth does not matter. */
static void test_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    gguf_image image = begin_gguf(0, 1);
    put_key(&image, "deep", 9);
    size_t begin = image.size;
    image.bytes = realloc(image.bytes, begin + DEPTH * 12);
    assert_non_null(image.bytes);
    image.size += DEPTH * 12;
    for (size_t i = 0; i < DEPTH; i++)
        memcpy(image.bytes + begin + i * 12, (uint32_t[]){9, 1, 0}, 12);
    assert_refused(image, "key 'deep' is an array of arrays");
}

static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        size_t length;
        const char *says;
    } cases[] = {
        {"", 0, "metadata key 1 at offset 42 has no name"},
        {"twice", 5, "key 'twice' occurs twice"},
        {"a\0b", 3, "metadata key 1 at offset 42 is not plain UTF-8"},
        {"a\nb", 3, "metadata key 1 at offset 42 is not plain UTF-8"},
        {"\x7f", 1, "metadata key 1 at offset 42 is not plain UTF-8"},
        {"\xff", 1, "metadata key 1 at offset 42 is not plain UTF-8"},
        {"\xed\xa0\x80", 3, "not plain UTF-8"},
        {"\xc0\x80", 2, "not plain UTF-8"},
        {"cut \xe2\x82", 6, "not plain UTF-8"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        gguf_image image = begin_gguf(0, 2);
        put_key(&image, "twice", 0);
        put_bytes(&image, "\1", 1);
        put_u64(&image, cases[i].length);
        put_bytes(&image, cases[i].key, cases[i].length);
        put_u32(&image, 0);
        put_bytes(&image, "\2", 1);
        assert_refused(image, cases[i].says);
    }
    static const uint32_t types[] = {13, 99, 0xffffffff};
    for (size_t i = 0; i < COUNT(types); i++) {
        gguf_image image = begin_gguf(0, 1);
        put_key(&image, "k", types[i]);
        put_data(&image, 100, 0);
        assert_refused(image, "key 'k' has the unknown type");
    }
    gguf_image image = begin_gguf(0, 1);
    put_key(&image, "k", 7);
    put_bytes(&image, "\2", 1);
    assert_refused(image, "key 'k' holds 2 at offset 37");
}

static void test_alignment(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 1, 3, 4, 31, 33, 48, 1u << 21, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        gguf_image image = begin_gguf(0, 1);
        put_key_u32(&image, "general.alignment", wrong[i]);
        assert_refused(image, "key 'general.alignment' is");
    }
    for (uint32_t type = 0; type <= 12; type++) {
        if (type == 4) continue;
        gguf_image image = begin_gguf(0, 1);
        if (type == 9) {
            put_key_array(&image, "general.alignment", 4, 1);
            put_u32(&image, 32);
        } else if (type == 8) {
            put_key_string(&image, "general.alignment", "32");
        } else {
            put_key(&image, "general.alignment", type);
            put_bytes(&image, type == 7 ? "\1" : " \0\0\0\0\0\0", /* 32 in every integer type */
                      (size_t[]){1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}[type]);
        }
        assert_refused(image, "key 'general.alignment' must be U32");
    }
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* One tensor with 4096 bytes of data after it. */
static gguf_image one_tensor(const char *tensor, uint32_t n_dims, const uint64_t *lengths,
                             uint32_t type, uint64_t offset)
{
    gguf_image image = begin_gguf(1, 0);
    put_tensor(&image, tensor, n_dims, lengths, type, offset);
    put_padding(&image, 32);
    put_data(&image, 4096, 0);
    return image;
}

static void test_names(void **state)
{
    (void)state;
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    assert_int_equal(strlen(long_name), 64);
    assert_accepted(one_tensor(long_name + 1, 1, DIMS(4), 0, 0)); /* 63 bytes */
    assert_accepted(one_tensor("\xc3\xa4.b", 1, DIMS(4), 0, 0));
    assert_refused(one_tensor(long_name, 1, DIMS(4), 0, 0),
                   "tensor 0 at offset 24 has a name of 64 bytes");
    assert_refused(one_tensor("", 1, DIMS(4), 0, 0), "tensor 0 at offset 24 has no name");
    assert_refused(one_tensor("a/b", 1, DIMS(4), 0, 0), "tensor 'a/b' at offset 24");
    assert_refused(one_tensor("..", 1, DIMS(4), 0, 0), "tensor '..' at offset 24");
    assert_refused(one_tensor("a..b", 1, DIMS(4), 0, 0), "tensor 'a..b' at offset 24");
    assert_refused(one_tensor("\x80", 1, DIMS(4), 0, 0),
                   "tensor 0 at offset 24 is not plain UTF-8");
    gguf_image image = one_tensor("aXb", 1, DIMS(4), 0, 0);
    image.bytes[24 + 8 + 1] = 0;
    assert_refused(image, "tensor 0 at offset 24 is not plain UTF-8");

    image = begin_gguf(3, 0);
    put_tensor(&image, "same", 1, DIMS(8), 0, 0);
    put_tensor(&image, "other", 1, DIMS(8), 0, 32);
    put_tensor(&image, "same", 1, DIMS(8), 0, 64);
    put_padding(&image, 32);
    put_data(&image, 96, 0);
    assert_refused(image, "tensor 'same' occurs twice");
}

static void test_shapes(void **state)
{
    (void)state;
    static const uint32_t dims[] = {0, 5, 9, UINT32_MAX};
    for (size_t i = 0; i < COUNT(dims); i++) {
        gguf_image image = one_tensor("t", 4, DIMS(1, 1, 1, 1), 0, 0);
        memcpy(image.bytes + 24 + 8 + 1, &dims[i], 4);
        assert_refused(image, "tensor 't' has ");
    }
    static const struct {
        uint64_t lengths[4];
        uint32_t type;
        const char *says;
    } cases[] = {
        {{UINT64_MAX, 1, 1, 1}, 0, "tensor 't' has a dimension of length -1 at offset 37"},
        {{1ull << 63, 1, 1, 1}, 0, "tensor 't' has a dimension of length"},
        {{4, 1, 1, 0}, 0, "tensor 't' has a dimension of length 0 at offset 61"},
        {{0, 4, 4, 4}, 0, "tensor 't' has a dimension of length 0 at offset 37"},
        {{1ull << 32, 1ull << 32, 1, 1}, 0, "tensor 't' has a shape (1 x 1 x 4294967296 x"},
        {{4, (1ull << 30) - 1, (1ull << 30) + 1, 1}, 0, "tensor 't' has a shape"},
        {{1ull << 62, 4, 1, 1}, 1, "tensor 't' has a shape"},
        {{INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}, 0, "tensor 't' has a shape"},
        {{INT64_MAX, 1, 1, 1}, 0, "tensor 't' has a shape"},
        /* The numbers can be counted in 64 bits, but not their bytes. */
        {{1ull << 62, 1, 1, 1}, 0, "tensor 't' has a shape"},
        {{1ull << 61, 2, 1, 1}, 30, "tensor 't' has a shape"},
        {{32, 1ull << 57, 1, 1}, 8, "tensor 't' has a shape"},
        {{256, 1ull << 54, 1, 1}, 14, "tensor 't' has a shape"},
        {{1ull << 40, 1, 1, 1}, 12, "does not fit into a file of"},
        {{4097, 1, 1, 1}, 0, "tensor 't' has a shape"},
        /* Quantised blocks. */
        {{33, 1, 1, 1}, 8, "rows of 33 numbers, which must be a multiple of 32 (q8_0)"},
        {{1, 32, 1, 1}, 2, "tensor 't' has rows of 1 numbers"},
        {{16, 2, 1, 1}, 6, "rows of 16 numbers"},
        {{128, 2, 1, 1}, 12, "rows of 128 numbers, which must be a multiple of 256 (q4_k)"},
        {{1408, 1, 1, 1}, 13, "rows of 1408 numbers"},
        {{32, 8, 1, 1}, 14, "rows of 32 numbers"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_refused(one_tensor("t", 4, cases[i].lengths, cases[i].type, 0), cases[i].says);
}

static void test_types(void **state)
{
    (void)state;
    static const uint32_t ours[] = {0, 1, 2, 6, 8, 12, 13, 14, 30};
    for (size_t i = 0; i < COUNT(ours); i++)
        assert_accepted(one_tensor("t", 1, DIMS(256), ours[i], 0));
    static const struct {
        uint32_t type;
        const char *says;
    } cases[] = {
        {3, "tensor 't' has type 3 (Q4_1)"},
        {4, "type 4 (Q4_2)"},
        {5, "type 5 (Q4_3)"},
        {10, "type 10 (Q2_K)"},
        {16, "type 16 (IQ2_XXS)"},
        {23, "type 23 (IQ4_XS)"},
        {28, "type 28 (F64)"},
        {31, "type 31"},
        {35, "type 35 (TQ2_0)"},
        {36, "type 36 (unknown)"},
        {39, "type 39 (MXFP4)"},
        {40, "type 40 (NVFP4)"},
        {41, "type 41 (unknown)"},
        {1000000, "type 1000000"},
        {UINT32_MAX, "type 4294967295"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_refused(one_tensor("t", 1, DIMS(256), cases[i].type, 0), cases[i].says);
}

/* Three tensors of 32, 4 and 32 bytes; the second one begins at `offset`. */
static gguf_image three_tensors(uint64_t offset, uint64_t third, size_t data)
{
    gguf_image image = begin_gguf(3, 0);
    put_tensor(&image, "first", 1, DIMS(8), 0, 0);
    put_tensor(&image, "second", 1, DIMS(1), 0, offset);
    put_tensor(&image, "third", 1, DIMS(8), 0, third);
    put_padding(&image, 32);
    put_data(&image, data, 0);
    return image;
}

static void test_offsets(void **state)
{
    (void)state;
    assert_accepted(three_tensors(32, 64, 96));
    assert_accepted(three_tensors(32, 64, 1000));
    assert_refused(one_tensor("t", 1, DIMS(8), 0, 32), "tensor 't' begins at 32");
    assert_refused(three_tensors(33, 64, 200),
                   "tensor 'second' begins at 33, which is not a multiple");
    assert_refused(three_tensors(36, 64, 200),
                   "tensor 'second' begins at 36, which is not a multiple");
    assert_refused(three_tensors(0, 64, 200), "tensor 'second' begins at 0, but");
    assert_refused(three_tensors(32, 32, 200), "tensor 'third' begins at 32, but");
    assert_refused(three_tensors(64, 96, 200), "tensor 'second' begins at 64, but");
    assert_refused(three_tensors(64, 32, 200), "tensor 'second' begins at 64");
    assert_refused(three_tensors(32, 96, 200), "there must be no gap");
    assert_refused(three_tensors(1ull << 62, 64, 200), "tensor 'second' begins at");
    assert_refused(three_tensors(UINT64_MAX - 31, 64, 200), "tensor 'second' begins at");
    assert_refused(three_tensors(UINT64_MAX, 64, 200), "tensor 'second' begins at");
    assert_refused(three_tensors(32, 64, 95), "tensor 'third' needs 32 bytes at offset");
    assert_refused(three_tensors(32, 64, 64), "tensor 'third' needs 32 bytes");
    assert_refused(three_tensors(32, 64, 35), "tensor 'second' needs 4 bytes");
    assert_refused(three_tensors(32, 64, 0), "tensor 'first' needs 32 bytes");
}

/* Many tensors that each fit into the data, but not together. */
static void test_totals(void **state)
{
    (void)state;
    enum { N = 100 };
    gguf_image image = begin_gguf(N, 0);
    for (uint64_t i = 0; i < N; i++) {
        char tensor[16];
        snprintf(tensor, sizeof tensor, "t%llu", (unsigned long long)i);
        put_tensor(&image, tensor, 1, DIMS(1024), 0, i * 4096);
    }
    put_padding(&image, 32);
    put_data(&image, 4096, 0);
    assert_refused(image, "tensor 't1' needs 4096 bytes");
}

/* Whatever single byte is changed: the file is refused, or everything in it can be read. */
static void test_every_byte(void **state)
{
    (void)state;
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    gguf_image image = example_gguf(NULL);
    for (size_t i = 0; i < image.size * COUNT(values); i++) {
        unsigned char *at = &image.bytes[i / COUNT(values)], kept = *at;
        *at = values[i % COUNT(values)];
        gguf *file;
        dsmoe_error error = {0};
        dsmoe_status status = gguf_parse(image.bytes, image.size, name, &file, &error);
        if (status != DSMOE_OK) {
            assert_int_equal(status, DSMOE_ERROR_FORMAT);
            assert_null(file);
        }
        for (size_t j = 0; status == DSMOE_OK && j < gguf_count(file); j++) {
            const gguf_tensor *tensor = gguf_at(file, j);
            assert_true(tensor->data >= image.bytes &&
                        tensor->data + tensor->size <= image.bytes + image.size);
        }
        gguf_close(file);
        *at = kept;
    }
    free(image.bytes);
}

/* Each allocation fails once; a sanitizer finds leaks. */
static void test_no_memory(void **state)
{
    (void)state;
    gguf_image image = example_gguf(NULL);
    int failures = 0;
    for (dsmoe_status status = DSMOE_ERROR_MEMORY; status != DSMOE_OK; failures++) {
        gguf *file = (gguf *)&image; /* any pointer but NULL */
        dsmoe_error error = {0};
        left = failures;
        status = gguf_parse(image.bytes, image.size, name, &file, &error);
        left = -1;
        assert_int_equal(status == DSMOE_OK, file != NULL);
        if (status != DSMOE_OK) assert_int_equal(status, DSMOE_ERROR_MEMORY);
        gguf_close(file);
    }
    assert_in_range(failures, 7, 10); /* path, keys, tensors, names, file, parts, all tensors */
    free(image.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_truncations, make_directory, remove_directory),
        cmocka_unit_test(test_magic_and_version),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
