/* test_gguf.c - good GGUF files are read, whole or split; files that do not belong together are refused;
 * files that shrink while they are in use are noticed. Broken files: test_gguf_hostile.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data_files.h"
#include "formats/gguf.h"
#include "gguf_image.h"
#include "scratch.h"

/* ---- help ---------------------------------------------------------------------------------- */

static void write_image(const char *name, gguf_image image)
{
    write_data(name, image.bytes, image.size);
    free(image.bytes);
}

static gguf *open_good(const char *name)
{
    gguf *file;
    dsmoe_error error = {0};
    if (gguf_open(in_directory(name), &file, &error) != DSMOE_OK) fail_msg("%s", error.message);
    return file;
}

/* The message must begin with the path of the file `names` and contain `says`. */
static void assert_refused(const char *name, dsmoe_status status, const char *names,
                           const char *says)
{
    gguf *file = (gguf *)path; /* any pointer but NULL */
    dsmoe_error error = {0};
    if (gguf_open(in_directory(name), &file, &error) != status) fail_msg("accepted: %s", says);
    assert_null(file);
    const char *named = in_directory(names);
    if (strncmp(error.message, named, strlen(named)) != 0 || !strstr(error.message, says))
        fail_msg("'%s' does not name '%s' and say '%s'", error.message, names, says);
    assert_null(strchr(error.message, '\n'));
    assert_int_equal(gguf_open(in_directory(name), &file, NULL), status);
}

/* ---- whole files --------------------------------------------------------------------------- */

static void test_tensors(void **state)
{
    (void)state;
    size_t data;
    gguf_image image = example_gguf(&data);
    write_data("m.gguf", image.bytes, image.size);
    gguf *file = open_good("m.gguf");
    assert_string_equal(gguf_path(file), in_directory("m.gguf"));
    assert_int_equal(gguf_check_intact(file, NULL), DSMOE_OK);
    assert_int_equal(gguf_count(file), 3);
    for (int i = 0; i < 3; i++) {
        const gguf_tensor *tensor = gguf_at(file, (size_t)i);
        assert_string_equal(tensor->name, ((const char *[]){"a", "b", "c"})[i]);
        assert_ptr_equal(gguf_find(file, tensor->name), tensor);
        assert_string_equal(gguf_tensor_path(file, tensor), gguf_path(file));
        assert_int_equal((uintptr_t)tensor->data % 32, 0); /* mappings begin on a page */
    }
    assert_null(gguf_find(file, "aa"));
    const gguf_tensor *a = gguf_find(file, "a"), *b = gguf_find(file, "b"),
                      *c = gguf_find(file, "c");
    assert_int_equal(a->type, DSMOE_Q8_0);
    assert_int_equal(a->n_dims, 3);
    assert_memory_equal(a->shape, ((int64_t[]){2, 1, 64, 1}), sizeof a->shape);
    assert_int_equal(a->size, 136);
    assert_memory_equal(a->data, image.bytes + data + 32, 136);
    assert_int_equal(b->type, DSMOE_F32);
    assert_int_equal(b->n_dims, 2);
    assert_memory_equal(b->shape, ((int64_t[]){2, 3, 1, 1}), sizeof b->shape);
    assert_int_equal(b->size, 24);
    assert_memory_equal(b->data, image.bytes + data, 24);
    assert_int_equal(c->type, DSMOE_F16);
    assert_int_equal(c->n_dims, 1);
    assert_int_equal(c->shape[0], 5);
    assert_memory_equal(c->data, image.bytes + data + 192, 10);
    gguf_close(file);
    gguf_close(NULL);
    free(image.bytes);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {
        {"u8", 200},        {"i8", -2},         {"u16", 0xff01},    {"i16", -3},
        {"u32", 1ll << 31}, {"i32", INT32_MIN}, {"u64", 1ll << 62}, {"i64", INT64_MIN},
    };
    write_image("m.gguf", example_gguf(NULL));
    gguf *file = open_good("m.gguf");
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int64_t value = 0;
        bool found = false;
        assert_int_equal(gguf_get_int(file, integers[i].key, &value, &found, NULL), DSMOE_OK);
        assert_true(found);
        assert_true(value == integers[i].value);
    }
    double real = 0;
    assert_int_equal(gguf_get_float(file, "f32", &real, NULL, NULL), DSMOE_OK);
    assert_true(real == 1.5);
    assert_int_equal(gguf_get_float(file, "f64", &real, NULL, NULL), DSMOE_OK);
    assert_true(real == -1.5);
    bool truth = false;
    assert_int_equal(gguf_get_bool(file, "bool", &truth, NULL, NULL), DSMOE_OK);
    assert_true(truth);
    gguf_close(file);
}

static void test_strings_and_arrays(void **state)
{
    (void)state;
    write_image("m.gguf", example_gguf(NULL));
    gguf *file = open_good("m.gguf");
    gguf_string string;
    assert_int_equal(gguf_get_string(file, "general.architecture", &string, NULL, NULL), DSMOE_OK);
    assert_int_equal(string.length, 8);
    assert_memory_equal(string.bytes, "deepseek", 8);
    gguf_array array;
    assert_int_equal(gguf_get_array(file, "i32s", GGUF_I32, &array, NULL, NULL), DSMOE_OK);
    assert_int_equal(array.count, 3);
    assert_int_equal(gguf_array_i32(&array, 0), 1);
    assert_int_equal(gguf_array_i32(&array, 1), -2);
    assert_int_equal(gguf_array_i32(&array, 2), 3);
    assert_int_equal(gguf_get_array(file, "strings", GGUF_STRING, &array, NULL, NULL), DSMOE_OK);
    assert_int_equal(array.count, 3);
    const unsigned char *at = array.at;
    for (int i = 0; i < 3; i++) {
        const char *expected = ((const char *[]){"one", "", "drei \xff"})[i];
        string = gguf_next_string(&at);
        assert_int_equal(string.length, strlen(expected));
        assert_memory_equal(string.bytes, expected, string.length);
    }
    assert_int_equal(gguf_get_array(file, "nothing", GGUF_STRING, &array, NULL, NULL), DSMOE_OK);
    assert_int_equal(array.count, 0);
    assert_int_equal(gguf_get_array(file, "bools", GGUF_BOOL, &array, NULL, NULL), DSMOE_OK);
    assert_int_equal(array.at[1], 1);
    gguf_close(file);
}

/* Absent keys, and values of another type: the message names the file, the key and both types. */
static void test_wrong_questions(void **state)
{
    (void)state;
    write_image("m.gguf", example_gguf(NULL));
    gguf *file = open_good("m.gguf");
    dsmoe_error error = {0};
    int64_t integer = 7;
    bool truth = true, found = true;
    double real = 7;
    gguf_string string = {"kept", 4};
    gguf_array array = {.count = 7};
    assert_int_equal(gguf_get_int(file, "absent", &integer, &found, &error), DSMOE_OK);
    assert_false(found);
    assert_int_equal(gguf_get_array(file, "absent", GGUF_I32, &array, &found, &error), DSMOE_OK);
    assert_int_equal(gguf_get_int(file, "absent", &integer, NULL, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "m.gguf: there is no key 'absent'"));

#define ASSERT_SAYS(call, says)                                                                    \
    do {                                                                                           \
        assert_int_equal((call), DSMOE_ERROR_FORMAT);                                              \
        assert_int_equal(strncmp(error.message, gguf_path(file), strlen(gguf_path(file))), 0);     \
        if (!strstr(error.message, says)) fail_msg("'%s', not '%s'", error.message, says);         \
    } while (0)
    ASSERT_SAYS(gguf_get_int(file, "f32", &integer, &found, &error), "'f32' must be an integer");
    ASSERT_SAYS(gguf_get_int(file, "bool", &integer, &found, &error), "not BOOL");
    ASSERT_SAYS(gguf_get_int(file, "strings", &integer, &found, &error), "not ARRAY");
    ASSERT_SAYS(gguf_get_int(file, "too large", &integer, &found, &error), "9223372036854775808");
    ASSERT_SAYS(gguf_get_float(file, "i32", &real, &found, &error), "'i32' must be F32 or F64");
    ASSERT_SAYS(gguf_get_bool(file, "u8", &truth, &found, &error), "'u8' must be a BOOL");
    ASSERT_SAYS(gguf_get_string(file, "i32s", &string, &found, &error), "not ARRAY");
    ASSERT_SAYS(gguf_get_array(file, "u8", GGUF_U8, &array, &found, &error), "must be an ARRAY");
    ASSERT_SAYS(gguf_get_array(file, "i32s", GGUF_U32, &array, &found, &error),
                "'i32s' must be an array of U32, not of I32");
#undef ASSERT_SAYS
    /* None of these calls changed a value. */
    assert_true(integer == 7 && truth && real == 7 && array.count == 7);
    assert_string_equal(string.bytes, "kept");
    gguf_close(file);
}

static void test_small_files(void **state)
{
    (void)state;
    gguf_image image = begin_gguf(0, 0);
    write_data("m.gguf", image.bytes, image.size);
    gguf *file = open_good("m.gguf");
    assert_int_equal(gguf_count(file), 0);
    assert_null(gguf_find(file, "a"));
    gguf_close(file);
    dsmoe_error error = {0};
    assert_int_equal(gguf_parse(image.bytes, image.size, "memory", &file, &error), DSMOE_OK);
    assert_string_equal(gguf_path(file), "memory");
    assert_int_equal(gguf_check_intact(file, NULL), DSMOE_OK);
    gguf_close(file);
    free(image.bytes);

    /* Other alignments, files without padding at the end, and one with more bytes after the data. */
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 2) {
        image = begin_gguf(2, 1);
        put_key_u32(&image, "general.alignment", alignment);
        put_tensor(&image, "x", 1, (uint64_t[]){1}, 0, 0);
        put_tensor(&image, "y", 1, (uint64_t[]){1}, 0, alignment);
        put_padding(&image, alignment);
        put_data(&image, 4, 1);
        put_padding(&image, alignment);
        put_data(&image, alignment == 64 ? 1000 : 4, 5);
        write_image("m.gguf", image);
        file = open_good("m.gguf");
        assert_memory_equal(gguf_find(file, "x")->data, "\1\2\3\4", 4);
        assert_memory_equal(gguf_find(file, "y")->data, "\5\6\7\10", 4);
        gguf_close(file);
    }
    assert_refused("absent.gguf", DSMOE_ERROR_IO, "absent.gguf", "cannot open");
}

/* As many tensors and tokens as a large model has. Comparing each with each would take minutes. */
static void test_large_header(void **state)
{
    (void)state;
    enum { N_TENSORS = 10000, N_TOKENS = 100000, N_KEYS = 10000 };
    gguf_image head = begin_gguf(N_TENSORS, N_KEYS + 1);
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    fwrite(head.bytes, 1, head.size, stream);
    free(head.bytes);
    for (uint64_t i = 0; i < N_KEYS; i++) {
        uint64_t length = 9;
        fwrite(&length, 8, 1, stream);
        fprintf(stream, "key.%05llu", (unsigned long long)(i * 7919 % N_KEYS));
        fwrite((uint32_t[]){4, (uint32_t)i}, 4, 2, stream);
    }
    gguf_image part = {0};
    put_key_array(&part, "tokens", 8, N_TOKENS);
    fwrite(part.bytes, 1, part.size, stream);
    free(part.bytes);
    for (uint64_t i = 0; i < N_TOKENS; i++) {
        uint64_t length = 6;
        fwrite(&length, 8, 1, stream);
        fprintf(stream, "%06llu", (unsigned long long)i);
    }
    for (uint64_t i = 0; i < N_TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t.%05llu", (unsigned long long)(i * 7919 % N_TENSORS));
        part = (gguf_image){0};
        put_tensor(&part, name, 1, (uint64_t[]){8}, 0, i * 32);
        fwrite(part.bytes, 1, part.size, stream);
        free(part.bytes);
    }
    while (fflush(stream) == 0 && size % 32) fputc(0, stream);
    for (uint64_t i = 0; i < N_TENSORS * 8; i++) fwrite(&(uint32_t){(uint32_t)i}, 4, 1, stream);
    assert_int_equal(fclose(stream), 0);
    write_data("m.gguf", text, size);
    free(text);
    gguf *file = open_good("m.gguf");
    assert_int_equal(gguf_count(file), N_TENSORS);
    uint32_t value;
    memcpy(&value, gguf_find(file, "t.07919")->data, 4);
    assert_int_equal(value, 8);
    int64_t number = 0;
    assert_int_equal(gguf_get_int(file, "key.07919", &number, NULL, NULL), DSMOE_OK);
    assert_int_equal(number, 1);
    gguf_close(file);
}

/* ---- split files --------------------------------------------------------------------------- */

typedef struct part {
    const char *file; /* its name */
    uint16_t number, count;
    uint32_t n_tensors;  /* in all files */
    const char *tensor;  /* its tensor, or NULL */
    unsigned char first; /* the first byte of its data */
} part;

static void write_part(part p)
{
    gguf_image image = begin_gguf(p.tensor != NULL, 4);
    put_key_u16(&image, "split.no", p.number);
    put_key_u16(&image, "split.count", p.count);
    put_key(&image, "split.tensors.count", 5);
    put_u32(&image, p.n_tensors);
    put_key_u32(&image, "own", p.number);
    if (p.tensor) put_tensor(&image, p.tensor, 1, (uint64_t[]){2}, 0, 0);
    put_padding(&image, 32);
    if (p.tensor) put_data(&image, 8, p.first);
    write_image(p.file, image);
}

#define ONE "m-00001-of-00003.gguf"
#define TWO "m-00002-of-00003.gguf"
#define THREE "m-00003-of-00003.gguf"

static const part good_parts[] = {
    {ONE, 0, 3, 3, "beta", 1}, {TWO, 1, 3, 3, "alpha", 2}, {THREE, 2, 3, 3, "gamma", 3}};

static void write_good_parts(void)
{
    for (int i = 0; i < 3; i++) write_part(good_parts[i]);
}

static void assert_parts(const char *name)
{
    gguf *file = open_good(name);
    assert_int_equal(gguf_count(file), 3);
    assert_int_equal(gguf_check_intact(file, NULL), DSMOE_OK);
    for (int i = 0; i < 3; i++) {
        const gguf_tensor *tensor = gguf_find(file, good_parts[i].tensor);
        assert_non_null(tensor);
        assert_int_equal(tensor->data[0], good_parts[i].first);
        const char *where = strrchr(gguf_tensor_path(file, tensor), '/') + 1;
        if (strcmp(where, strrchr(in_directory(name), '/') + 1) != 0)
            assert_string_equal(where, good_parts[i].file);
    }
    assert_string_equal(gguf_at(file, 0)->name, "alpha");
    assert_string_equal(strrchr(gguf_path(file), '/') + 1, ONE);
    int64_t own = 7;
    assert_int_equal(gguf_get_int(file, "own", &own, NULL, NULL), DSMOE_OK);
    assert_int_equal(own, 0); /* metadata come from the first part */
    gguf_close(file);
}

static void test_split(void **state)
{
    (void)state;
    write_good_parts();
    for (int i = 0; i < 3; i++) assert_parts(good_parts[i].file);
    /* The first part may have metadata only, and a single file may say that it is part 1 of 1. */
    write_part((part){ONE, 0, 3, 2, NULL, 0});
    write_part((part){TWO, 1, 3, 2, "alpha", 0});
    write_part((part){THREE, 2, 3, 2, "gamma", 0});
    gguf *file = open_good(TWO);
    assert_int_equal(gguf_count(file), 2);
    gguf_close(file);
    write_part((part){"single.gguf", 0, 1, 1, "a", 0});
    gguf_close(open_good("single.gguf"));
}

/* Names may be links to files with other names, as in a download cache. A link with any name may point to
 * a part. */
static void test_split_links(void **state)
{
    (void)state;
    write_good_parts();
    make_folder("links");
    for (int i = 0; i < 3; i++) {
        char link[64], target[64];
        snprintf(link, sizeof link, "links/%s", good_parts[i].file);
        snprintf(target, sizeof target, "%d.blob", i);
        assert_int_equal(rename(in_directory(good_parts[i].file), in_directory(target)), 0);
        snprintf(target, sizeof target, "../%d.blob", i);
        assert_int_equal(symlink(target, in_directory(link)), 0);
    }
    assert_parts("links/" TWO);
    write_good_parts();
    assert_int_equal(symlink(TWO, in_directory("model.gguf")), 0);
    assert_parts("model.gguf");
    assert_refused("0.blob", DSMOE_ERROR_FORMAT, "0.blob", "-00001-of-00003.gguf");
}

static void test_split_mismatch(void **state)
{
    (void)state;
    static const struct {
        part wrong; /* replaces one of the good parts */
        const char *opened, *names, *says;
    } cases[] = {
        {{TWO, 1, 4, 3, "alpha", 0}, ONE, TWO, "'split.count' is 4"},
        {{TWO, 1, 4, 3, "alpha", 0}, TWO, TWO, "-00002-of-00004.gguf"},
        {{TWO, 1, 1, 3, "alpha", 0}, THREE, TWO, "'split.count' is 1"},
        {{TWO, 2, 3, 3, "alpha", 0}, ONE, TWO, "'split.no' is 2"},
        {{TWO, 2, 3, 3, "alpha", 0}, TWO, TWO, "-00003-of-00003.gguf"},
        {{TWO, 3, 3, 3, "alpha", 0}, ONE, TWO, "'split.no' is 3"},
        {{TWO, 3, 3, 3, "alpha", 0}, TWO, TWO, "'split.no' is 3"},
        {{ONE, 0, 3, 4, "beta", 0}, ONE, ONE, "'split.tensors.count' is 4"},
        {{TWO, 1, 3, 2, "alpha", 0}, ONE, TWO, "'split.tensors.count' is 2"},
        {{TWO, 1, 3, 3, NULL, 0}, ONE, ONE, "but the 3 files have 2 tensors"},
        {{THREE, 2, 3, 3, "alpha", 0}, ONE, "", "'alpha' occurs twice, also in"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_good_parts();
        write_part(cases[i].wrong);
        assert_refused(cases[i].opened, DSMOE_ERROR_FORMAT, cases[i].names, cases[i].says);
    }
    write_good_parts();
    assert_int_equal(remove(in_directory(THREE)), 0);
    assert_refused(ONE, DSMOE_ERROR_IO, THREE, "cannot open");
    write_text(THREE, "GGUF of another kind");
    assert_refused(ONE, DSMOE_ERROR_FORMAT, THREE, "version");
}

/* A part without the keys, and keys with impossible values. */
static void test_split_keys(void **state)
{
    (void)state;
    write_good_parts();
    write_image(TWO, begin_gguf(0, 0));
    assert_refused(ONE, DSMOE_ERROR_FORMAT, TWO, "'split.count'");
    gguf_image image = begin_gguf(0, 1);
    put_key_u16(&image, "split.count", 3);
    write_image(TWO, image);
    assert_refused(ONE, DSMOE_ERROR_FORMAT, TWO, "'split.no'");
    assert_refused(TWO, DSMOE_ERROR_FORMAT, TWO, "'split.no'");
    image = begin_gguf(0, 1);
    put_key_string(&image, "split.count", "3");
    write_image(TWO, image);
    assert_refused(TWO, DSMOE_ERROR_FORMAT, TWO, "'split.count' must be an integer");
    static const uint32_t counts[] = {65536, 0xffffffff};
    for (int i = 0; i < 2; i++) {
        image = begin_gguf(0, 1);
        put_key_u32(&image, "split.count", counts[i]);
        write_image(TWO, image);
        assert_refused(TWO, DSMOE_ERROR_FORMAT, TWO, "outside 0 to 65535");
    }
    image = begin_gguf(0, 2);
    put_key_u16(&image, "split.count", 65535);
    put_key_u16(&image, "split.no", 65534);
    write_image("m-65535-of-65535.gguf", image);
    assert_refused("m-65535-of-65535.gguf", DSMOE_ERROR_IO, "m-00001-of-65535.gguf", "cannot open");

    /* Bytes in memory have no other parts next to them. */
    write_good_parts();
    size_t size;
    unsigned char *bytes = read_data(ONE, &size);
    gguf *file;
    dsmoe_error error = {0};
    assert_int_equal(gguf_parse(bytes, size, "memory", &file, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "memory: key 'split.count'"));
    free(bytes);
}

/* ---- files that change while they are in use ------------------------------------------------- */

static void write_long(const char *name, size_t numbers)
{
    gguf_image image = begin_gguf(1, 0);
    put_tensor(&image, "long", 1, (uint64_t[]){numbers}, 0, 0);
    put_padding(&image, 32);
    size_t begin = image.size;
    image.bytes = realloc(image.bytes, begin + 4 * numbers);
    assert_non_null(image.bytes);
    memset(image.bytes + begin, 7, 4 * numbers);
    image.size += 4 * numbers;
    write_image(name, image);
}

static size_t sum(const gguf_tensor *tensor)
{
    size_t total = 0;
    for (size_t i = 0; i < tensor->size; i++) total += tensor->data[i];
    return total;
}

static void assert_lost(const gguf *file, const char *name)
{
    dsmoe_error error = {0};
    assert_int_equal(gguf_check_intact(file, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, name));
}

static void test_truncated(void **state)
{
    (void)state;
    enum { NUMBERS = 1 << 16 };
    write_long("m.gguf", NUMBERS);
    gguf *file = open_good("m.gguf");
    const gguf_tensor *tensor = gguf_find(file, "long");
    assert_int_equal(sum(tensor), 7 * 4 * NUMBERS);
    assert_int_equal(gguf_check_intact(file, NULL), DSMOE_OK);
    assert_int_equal(truncate(in_directory("m.gguf"), 10000), 0);
    assert_in_range(sum(tensor), 1, 7 * 10000); /* without SIGBUS */
    assert_lost(file, "m.gguf");
    gguf_close(file);
    assert_refused("m.gguf", DSMOE_ERROR_FORMAT, "m.gguf", "'long'");

    /* Also if no whole page is missing. */
    write_long("m.gguf", NUMBERS);
    file = open_good("m.gguf");
    assert_int_equal(truncate(in_directory("m.gguf"), 4 * NUMBERS), 0);
    assert_lost(file, "m.gguf");
    gguf_close(file);
}

static void test_truncated_part(void **state)
{
    (void)state;
    write_good_parts();
    gguf *file = open_good(ONE);
    assert_int_equal(truncate(in_directory(THREE), 0), 0);
    assert_int_equal(sum(gguf_find(file, "alpha")), 2 * 8 + 28);
    assert_int_equal(sum(gguf_find(file, "gamma")), 0);
    assert_lost(file, THREE);
    gguf_close(file);
    assert_refused(ONE, DSMOE_ERROR_FORMAT, THREE, "empty");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tensors),         TEST(test_numbers),     TEST(test_strings_and_arrays),
        TEST(test_wrong_questions), TEST(test_small_files), TEST(test_large_header),
        TEST(test_split),           TEST(test_split_links), TEST(test_split_mismatch),
        TEST(test_split_keys),      TEST(test_truncated),   TEST(test_truncated_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
