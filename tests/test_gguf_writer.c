/* test_gguf_writer.c - writing GGUF: the bytes that the format requires, readable again; a caller's
 * mistake or a failing disk leaves nothing behind. The linker wraps write, so that a test can make it
 * fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data_files.h"
#include "formats/gguf_writer.h"
#include "gguf_image.h"

#define SHAPE(...) ((int64_t[]){__VA_ARGS__})
static const char name[] = "m.gguf";

/* ---- a disk that fails ---------------------------------------------------------------------- */

static int writes_left = -1; /* writes before one fails; negative: none fails */

ssize_t __real_write(int descriptor, const void *bytes, size_t size);
ssize_t __wrap_write(int descriptor, const void *bytes, size_t size);

ssize_t __wrap_write(int descriptor, const void *bytes, size_t size)
{
    if (writes_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (writes_left > 0) writes_left--;
    return __real_write(descriptor, bytes, size);
}

/* ---- help ---------------------------------------------------------------------------------- */

static gguf_writer *create(void)
{
    gguf_writer *writer;
    dsmoe_error error = {0};
    if (gguf_writer_create(in_directory(name), &writer, &error)) fail_msg("%s", error.message);
    return writer;
}

static void assert_ok(dsmoe_status status, const dsmoe_error *error)
{
    if (status != DSMOE_OK) fail_msg("%s", error->message);
}

static void assert_says(const dsmoe_error *error, dsmoe_status status, const char *says)
{
    const char *named = in_directory(name);
    assert_int_equal(error->status, status);
    if (strncmp(error->message, named, strlen(named)) != 0 || !strstr(error->message, says))
        fail_msg("'%s' does not name the file and say '%s'", error->message, says);
}

static void assert_nothing_left(void)
{
    assert_false(exists(name));
    assert_false(exists("m.gguf.partial"));
}

/* Writes the same file as example_gguf. */
static dsmoe_status write_example(dsmoe_error *error)
{
    static const int32_t integers[] = {1, -2, 3};
    static const gguf_string strings[] = {{"one", 3}, {"", 0}, {"a\0b", 3}};
    gguf_writer *writer;
    unsigned char bytes[136];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    STATUS_TRY(gguf_writer_create(in_directory(name), &writer, error));
    gguf_writer_string(writer, "general.architecture", "deepseek", 8);
    gguf_writer_u32(writer, "z", 7);
    gguf_writer_f32(writer, "f", 1.5f);
    gguf_writer_bool(writer, "a", true);
    gguf_writer_i32_array(writer, "i32s", integers, 3);
    gguf_writer_strings(writer, "strings", strings, 3);
    gguf_writer_strings(writer, "nothing", NULL, 0);
    dsmoe_status status = gguf_writer_declare(writer, "b", DSMOE_F32, 2, SHAPE(2, 3), error);
    if (status == DSMOE_OK)
        status = gguf_writer_declare(writer, "a", DSMOE_Q8_0, 3, SHAPE(2, 1, 64), error);
    if (status == DSMOE_OK) {
        assert_int_equal(gguf_writer_data_size(writer), 24 + 136);
        status = gguf_writer_write(writer, bytes, 24, error);
    }
    for (size_t i = 0; i < 136 && status == DSMOE_OK; i += 17)
        status = gguf_writer_write(writer, bytes + i, 17, error);
    if (status == DSMOE_OK) return gguf_writer_finish(writer, error);
    gguf_writer_abandon(writer);
    return status;
}

static gguf_image expected_example(void)
{
    gguf_image image = begin_gguf(2, 7);
    put_key_string(&image, "general.architecture", "deepseek");
    put_key_u32(&image, "z", 7);
    put_key(&image, "f", 6);
    put_bytes(&image, &(float){1.5f}, 4);
    put_key(&image, "a", 7);
    put_bytes(&image, "\1", 1);
    put_key_array(&image, "i32s", 5, 3);
    put_bytes(&image, (int32_t[]){1, -2, 3}, 12);
    put_key_array(&image, "strings", 8, 3);
    put_string(&image, "one");
    put_string(&image, "");
    put_u64(&image, 3);
    put_bytes(&image, "a\0b", 3);
    put_key_array(&image, "nothing", 8, 0);
    put_tensor(&image, "b", 2, (uint64_t[]){3, 2}, 0, 0);
    put_tensor(&image, "a", 3, (uint64_t[]){64, 1, 2}, 8, 32);
    put_padding(&image, 32);
    put_data(&image, 24, 0);
    put_padding(&image, 32);
    put_data(&image, 136, 0);
    put_padding(&image, 32);
    return image;
}

/* ---- good files ---------------------------------------------------------------------------- */

static void test_bytes(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    assert_ok(write_example(&error), &error);
    size_t size;
    unsigned char *bytes = read_data(name, &size);
    gguf_image expected = expected_example();
    assert_int_equal(size, expected.size);
    assert_memory_equal(bytes, expected.bytes, size);
    free(bytes);
    free(expected.bytes);
    /* Replaces the existing file. */
    assert_ok(write_example(&error), &error);
    assert_false(exists("m.gguf.partial"));
}

/* A tensor of every type, its bytes written in pieces, and read back. */
static void test_every_type(void **state)
{
    (void)state;
    enum { ROWS = 3, ROW = 256 };
    dsmoe_error error = {0};
    gguf_writer *writer = create();
    gguf_writer_u32(writer, "general.alignment", 32); /* allowed, as it is true */
    for (int i = 0; i < N_DTYPES; i++)
        assert_ok(gguf_writer_declare(writer, dtype_table[i].name, (dsmoe_dtype)i, 2,
                                      SHAPE(ROWS, ROW), &error),
                  &error);
    for (int i = 0; i < N_DTYPES; i++) {
        size_t left = (size_t)dtype_bytes((dsmoe_dtype)i, ROWS * ROW);
        unsigned char byte = (unsigned char)(i + 1), piece[100];
        memset(piece, byte, sizeof piece);
        for (size_t n = 1; left > 0; left -= n, n = n % sizeof piece + 1) {
            if (n > left) n = left;
            assert_ok(gguf_writer_write(writer, piece, n, &error), &error);
        }
    }
    assert_ok(gguf_writer_finish(writer, &error), &error);
    gguf *file;
    assert_ok(gguf_open(in_directory(name), &file, &error), &error);
    assert_int_equal(gguf_count(file), N_DTYPES);
    for (int i = 0; i < N_DTYPES; i++) {
        const gguf_tensor *tensor = gguf_find(file, dtype_table[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->type, i);
        assert_int_equal(tensor->n_dims, 2);
        assert_int_equal(tensor->shape[0], ROWS);
        assert_int_equal(tensor->shape[1], ROW);
        assert_int_equal(tensor->size, dtype_bytes((dsmoe_dtype)i, ROWS * ROW));
        for (size_t j = 0; j < tensor->size; j++) assert_int_equal(tensor->data[j], i + 1);
    }
    gguf_close(file);
}

static void test_small_files(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    assert_ok(gguf_writer_finish(create(), &error), &error);
    gguf *file;
    assert_ok(gguf_open(in_directory(name), &file, &error), &error);
    assert_int_equal(gguf_count(file), 0);
    gguf_close(file);
    /* Headers of any length. */
    for (int length = 1; length <= 63; length++) {
        char tensor[64] = "";
        memset(tensor, 'x', (size_t)length);
        gguf_writer *writer = create();
        assert_ok(gguf_writer_declare(writer, tensor, DSMOE_F32, 1, SHAPE(1), &error), &error);
        assert_ok(gguf_writer_write(writer, "1234", 4, &error), &error);
        assert_ok(gguf_writer_finish(writer, &error), &error);
        assert_ok(gguf_open(in_directory(name), &file, &error), &error);
        assert_memory_equal(gguf_find(file, tensor)->data, "1234", 4);
        gguf_close(file);
    }
}

/* As many names as a large model has, more than the table of names holds at first. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 10000 };
    dsmoe_error error = {0};
    gguf_writer *writer = create();
    char text[32];
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(text, sizeof text, "name.%u", i);
        gguf_writer_u32(writer, text, i);
        assert_ok(gguf_writer_declare(writer, text, DSMOE_F32, 1, SHAPE(1), &error), &error);
    }
    for (uint32_t i = 0; i < MANY; i++) assert_ok(gguf_writer_write(writer, &i, 4, &error), &error);
    assert_ok(gguf_writer_finish(writer, &error), &error);
    gguf *file;
    assert_ok(gguf_open(in_directory(name), &file, &error), &error);
    for (uint32_t i = 0; i < MANY; i++) {
        int64_t value = 0;
        snprintf(text, sizeof text, "name.%u", i);
        assert_ok(gguf_get_int(file, text, &value, NULL, &error), &error);
        assert_int_equal(value, i);
        assert_memory_equal(gguf_find(file, text)->data, &i, 4);
    }
    gguf_close(file);
}

/* ---- mistakes of the caller ----------------------------------------------------------------- */

/* A mistake in the metadata is reported by the next call that returns a status, and by all later ones. */
static void test_kept_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *key, *says;
    } cases[] = {{"twice", "key 'twice' comes twice"},
                 {"", "must be 1 to 65535 bytes"},
                 {"\xff", "of UTF-8"},
                 {"line\n", "of UTF-8"},
                 {"general.alignment", "key 'general.alignment' must be 32, not 7"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dsmoe_error error = {0};
        gguf_writer *writer = create();
        gguf_writer_f32(writer, "twice", 1);
        gguf_writer_u32(writer, cases[i].key, 7);
        gguf_writer_bool(writer, "another", true);
        gguf_writer_bool(writer, "another", true); /* not the first mistake */
        assert_int_equal(gguf_writer_declare(writer, "t", DSMOE_F32, 1, SHAPE(1), &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_says(&error, DSMOE_ERROR_ARGUMENT, cases[i].says);
        error = (dsmoe_error){0};
        assert_int_equal(gguf_writer_write(writer, "1234", 4, &error), DSMOE_ERROR_ARGUMENT);
        assert_says(&error, DSMOE_ERROR_ARGUMENT, cases[i].says);
        error = (dsmoe_error){0};
        assert_int_equal(gguf_writer_finish(writer, &error), DSMOE_ERROR_ARGUMENT);
        assert_says(&error, DSMOE_ERROR_ARGUMENT, cases[i].says);
        assert_nothing_left();
    }
}

static void test_declarations(void **state)
{
    (void)state;
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    static const struct {
        const char *tensor;
        dsmoe_dtype type;
        int n_dims;
        int64_t shape[GGUF_MAX_DIMS];
        const char *says;
    } cases[] = {
        {"twice", DSMOE_F32, 1, {1}, "tensor 'twice' comes twice"},
        {"", DSMOE_F32, 1, {1}, "1 to 63 bytes"},
        {long_name, DSMOE_F32, 1, {1}, "1 to 63 bytes"},
        {"\xc3", DSMOE_F32, 1, {1}, "of UTF-8"},
        {"a/b", DSMOE_F32, 1, {1}, "tensor 'a/b' has a '/'"},
        {"t", DSMOE_F32, 0, {1}, "tensor 't' has 0 dimensions"},
        {"t", DSMOE_F32, 5, {1}, "tensor 't' has 5 dimensions"},
        {"t", DSMOE_F32, 2, {4, 0}, "tensor 't': its shape does not fit"},
        {"t", DSMOE_F32, 2, {-1, 4}, "does not fit"},
        {"t", DSMOE_F32, 2, {1ll << 40, 1ll << 40}, "does not fit"},
        {"t", DSMOE_F32, 1, {1ll << 61}, "does not fit"},
        {"t", DSMOE_F32, 1, {(1ll << 61) - 1}, "does not fit"},
        {"t", DSMOE_Q4_K, 2, {2, 128}, "tensor 't' has rows of 128 numbers"},
        {"t", DSMOE_Q8_0, 2, {32, 33}, "tensor 't' has rows of 33 numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dsmoe_error error = {0};
        gguf_writer *writer = create();
        assert_ok(gguf_writer_declare(writer, "twice", DSMOE_F32, 1, SHAPE(1), &error), &error);
        assert_int_equal(gguf_writer_declare(writer, cases[i].tensor, cases[i].type,
                                             cases[i].n_dims, cases[i].shape, &error),
                         DSMOE_ERROR_ARGUMENT);
        assert_says(&error, DSMOE_ERROR_ARGUMENT, cases[i].says);
        assert_int_equal(gguf_writer_finish(writer, NULL), DSMOE_ERROR_ARGUMENT);
        assert_nothing_left();
    }
}

static void test_amounts(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 6; wrong++) {
        dsmoe_error error = {0};
        gguf_writer *writer = create();
        assert_ok(gguf_writer_declare(writer, "a", DSMOE_F32, 1, SHAPE(2), &error), &error);
        assert_ok(gguf_writer_declare(writer, "b", DSMOE_F32, 1, SHAPE(1), &error), &error);
        assert_ok(gguf_writer_write(writer, "123", 3, &error), &error);
        static const char *const says[] = {
            "data ends in tensor 0 of 2", "tensor 0 of 2", "comes too late", "comes too late",
            "data ends in tensor 1 of 2", "tensor 2 of 2"};
        if (wrong == 1)
            gguf_writer_write(writer, "456789", 6, &error); /* on into the next tensor */
        if (wrong == 2) gguf_writer_u32(writer, "k", 1);
        if (wrong == 3) gguf_writer_declare(writer, "c", DSMOE_F32, 1, SHAPE(1), &error);
        if (wrong >= 4) assert_ok(gguf_writer_write(writer, "45678", 5, &error), &error);
        if (wrong == 5) {
            assert_ok(gguf_writer_write(writer, "1234", 4, &error), &error);
            gguf_writer_write(writer, "5", 1, &error);
        }
        error = (dsmoe_error){0};
        assert_int_equal(gguf_writer_finish(writer, &error), DSMOE_ERROR_ARGUMENT);
        assert_says(&error, DSMOE_ERROR_ARGUMENT, says[wrong]);
        assert_nothing_left();
    }
    gguf_writer_abandon(create());
    gguf_writer_abandon(NULL);
    assert_nothing_left();
}

/* ---- disks that fail ------------------------------------------------------------------------ */

static void test_full_disk(void **state)
{
    (void)state;
    int failures = 0;
    for (;; failures++) {
        dsmoe_error error = {0};
        writes_left = failures;
        dsmoe_status status = write_example(&error);
        writes_left = -1;
        if (status == DSMOE_OK) break;
        assert_int_equal(status, DSMOE_ERROR_IO);
        assert_says(&error, DSMOE_ERROR_IO, strerror(ENOSPC));
        assert_nothing_left();
    }
    assert_in_range(failures, 10, 100); /* each write failed once */
    gguf_writer *writer;
    dsmoe_error error = {0};
    assert_int_equal(gguf_writer_create("/nowhere/at/all.gguf", &writer, &error), DSMOE_ERROR_IO);
    assert_null(writer);
    assert_non_null(strstr(error.message, "/nowhere/at/all.gguf"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bytes),   TEST(test_every_type),    TEST(test_small_files),
        TEST(test_many),    TEST(test_kept_mistakes), TEST(test_declarations),
        TEST(test_amounts), TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
