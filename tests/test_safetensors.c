/* test_safetensors.c - good files are read, and every violation of the format is an error that names the
 * file and the tensor, key or offset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors.h"
#include "scratch.h"

/* ---- files to try ------------------------------------------------------------------------- */

/* Writes a file with any header and any claimed length of it. */
static void write_file(uint64_t length, const char *header, size_t header_size, const void *data,
                       size_t data_size)
{
    char *bytes = malloc(8 + header_size + data_size);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> (8 * i));
    memcpy(bytes + 8, header, header_size);
    if (data_size) memcpy(bytes + 8 + header_size, data, data_size);
    write_bytes(bytes, 8 + header_size + data_size);
    free(bytes);
}

static void write_header(const char *header, const void *data, size_t data_size)
{
    write_file(strlen(header), header, strlen(header), data, data_size);
}

static safetensors *open_good(void)
{
    safetensors *file;
    dsmoe_error error = {0};
    if (safetensors_open(path, &file, &error) != DSMOE_OK) fail_msg("%s", error.message);
    return file;
}

static void assert_refused(const char *label, const char *says)
{
    safetensors *file = (safetensors *)path; /* any pointer but NULL */
    dsmoe_error error = {0};
    if (safetensors_open(path, &file, &error) != DSMOE_ERROR_FORMAT)
        fail_msg("accepted: %s", label);
    assert_null(file);
    assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
    if (!strstr(error.message, says))
        fail_msg("%s: '%s' does not say '%s'", label, error.message, says);
    assert_null(strchr(error.message, '\n'));
    assert_int_equal(safetensors_open(path, &file, NULL), DSMOE_ERROR_FORMAT);
}

/* ---- good files --------------------------------------------------------------------------- */

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void test_tensors_and_metadata(void **state)
{
    (void)state;
    unsigned char data[24];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)i;
    /* Neither names nor offsets are in order. */
    write_header(
        "{" TENSOR("b", "U8", "[2,4]", 16, 24) ",\"__metadata__\":{\"k\":\"v\",\"e\":\"\"}," TENSOR(
            "a.weight", "F32", "[2,1,2]", 0, 16) "," TENSOR("", "F16", "[0]", 16, 16) "}   ",
        data, sizeof data);
    safetensors *file = open_good();
    assert_string_equal(safetensors_path(file), path);
    assert_int_equal(safetensors_count(file), 3);
    assert_string_equal(safetensors_at(file, 0)->name, "");
    assert_string_equal(safetensors_at(file, 1)->name, "a.weight");
    assert_string_equal(safetensors_at(file, 2)->name, "b");

    const safetensors_tensor *a = safetensors_find(file, "a.weight");
    assert_ptr_equal(a, safetensors_at(file, 1));
    assert_int_equal(a->dtype, SAFETENSORS_F32);
    assert_int_equal(a->n_dims, 3);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->shape[1], 1);
    assert_int_equal(a->shape[2], 2);
    assert_int_equal(a->n_elements, 4);
    assert_int_equal(a->size, 16);
    assert_memory_equal(a->data, data, 16);
    assert_memory_equal(safetensors_find(file, "b")->data, data + 16, 8);
    assert_int_equal(safetensors_find(file, "")->n_elements, 0);
    assert_null(safetensors_find(file, "a"));
    assert_null(safetensors_find(file, "__metadata__"));

    assert_string_equal(safetensors_metadata(file, "k"), "v");
    assert_string_equal(safetensors_metadata(file, "e"), "");
    assert_null(safetensors_metadata(file, "absent"));
    safetensors_close(file);
    safetensors_close(NULL);
}

static void test_small_files(void **state)
{
    (void)state;
    static const float one = 1;
    write_header("{}", NULL, 0);
    safetensors *file = open_good();
    assert_int_equal(safetensors_count(file), 0);
    assert_null(safetensors_find(file, "a"));
    assert_null(safetensors_metadata(file, "k"));
    safetensors_close(file);

    write_header("{\"__metadata__\":{}}      ", NULL, 0);
    safetensors_close(open_good());

    write_header("{" TENSOR("scalar", "F32", "[]", 0, 4) "}", &one, sizeof one);
    file = open_good();
    assert_int_equal(safetensors_find(file, "scalar")->n_dims, 0);
    assert_int_equal(safetensors_find(file, "scalar")->n_elements, 1);
    safetensors_close(file);

    write_header("{" TENSOR("empty", "F32", "[3,0,5]", 0, 0) "}", NULL, 0);
    file = open_good();
    assert_int_equal(safetensors_find(file, "empty")->n_elements, 0);
    safetensors_close(file);

    write_header("{" TENSOR("deep", "F32", "[1,1,1,1,1,1,1,1]", 0, 4) "}", &one, sizeof one);
    safetensors_close(open_good());
}

static void test_every_dtype(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        safetensors_dtype dtype;
        size_t size;
    } cases[] = {
        {"BOOL", SAFETENSORS_BOOL, 1}, {"U8", SAFETENSORS_U8, 1},
        {"I8", SAFETENSORS_I8, 1},     {"F8_E5M2", SAFETENSORS_F8_E5M2, 1},
        {"I16", SAFETENSORS_I16, 2},   {"F8_E4M3", SAFETENSORS_F8_E4M3, 1},
        {"U16", SAFETENSORS_U16, 2},   {"F16", SAFETENSORS_F16, 2},
        {"BF16", SAFETENSORS_BF16, 2}, {"I32", SAFETENSORS_I32, 4},
        {"U32", SAFETENSORS_U32, 4},   {"F32", SAFETENSORS_F32, 4},
        {"F64", SAFETENSORS_F64, 8},   {"I64", SAFETENSORS_I64, 8},
        {"U64", SAFETENSORS_U64, 8},
    };
    static const char data[3 * 8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[200];
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", cases[i].name,
                 3 * cases[i].size);
        write_header(header, data, 3 * cases[i].size);
        safetensors *file = open_good();
        assert_int_equal(safetensors_at(file, 0)->dtype, cases[i].dtype);
        assert_int_equal(safetensors_dtype_size(cases[i].dtype), cases[i].size);
        assert_string_equal(safetensors_dtype_name(cases[i].dtype), cases[i].name);
        safetensors_close(file);
    }
}

static void test_read_floats(void **state)
{
    (void)state;
    /* 1, -2.5, the smallest subnormal, the largest number, infinity and NaN as float16, then as
     * bfloat16. */
    static const uint16_t halves[] = {0x3c00, 0xc100, 0x0001, 0x7bff, 0xfc00, 0x7e00,
                                      0x3f80, 0xc020, 0x0001, 0x7f7f, 0xff80, 0x7fc0};
    static const float expected[] = {1, -2.5f, 0x1p-24f,  65504,       -INFINITY, NAN,
                                     1, -2.5f, 0x1p-133f, 0x1.fep127f, -INFINITY, NAN};
    /* The space before the data makes their addresses odd. */
    const char *header =
        "{" TENSOR("f16", "F16", "[6]", 0, 12) "," TENSOR("bf16", "BF16", "[6]", 12, 24) "}";
    size_t length = strlen(header) | 1;
    char padded[300];
    snprintf(padded, sizeof padded, "%-*s", (int)length, header);
    write_header(padded, halves, sizeof halves);
    safetensors *file = open_good();
    const safetensors_tensor *f16 = safetensors_find(file, "f16");
    const safetensors_tensor *bf16 = safetensors_find(file, "bf16");
    assert_true((uintptr_t)f16->data % 2 == 1);
    float out[12];
    int64_t integers[6];
    assert_true(safetensors_tensor_read_f32(f16, 0, 6, out));
    assert_true(safetensors_tensor_read_f32(bf16, 0, 6, out + 6));
    for (int i = 0; i < 12; i++)
        assert_true(isnan(expected[i]) ? isnan(out[i]) : out[i] == expected[i]);
    assert_true(safetensors_tensor_read_f32(f16, 1, 1, out));
    assert_true(out[0] == -2.5f);
    assert_true(safetensors_tensor_read_f32(f16, 6, 0, out));
    assert_false(safetensors_tensor_read_i64(f16, 0, 6, integers));
    safetensors_close(file);

    double wide[] = {0.1, -3};
    float narrow[] = {7.5f, -0.0f};
    char data[24];
    memcpy(data, wide, 16);
    memcpy(data + 16, narrow, 8);
    write_header("{" TENSOR("d", "F64", "[2]", 0, 16) "," TENSOR("f", "F32", "[2]", 16, 24) "}",
                 data, sizeof data);
    file = open_good();
    assert_true(safetensors_tensor_read_f32(safetensors_find(file, "d"), 0, 2, out));
    assert_true(out[0] == 0.1f && out[1] == -3);
    assert_true(safetensors_tensor_read_f32(safetensors_find(file, "f"), 0, 2, out));
    assert_memory_equal(out, narrow, sizeof narrow);
    safetensors_close(file);
}

static void test_read_integers(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        size_t size;
        unsigned char bytes[16]; /* two elements */
        int64_t expected[2];
    } cases[] = {
        {"I8", 1, {0xff, 0x7f}, {-1, 127}},
        {"U8", 1, {0xff, 0x7f}, {255, 127}},
        {"I16", 2, {0, 0x80, 1, 0}, {-32768, 1}},
        {"U16", 2, {0, 0x80, 1, 0}, {32768, 1}},
        {"I32", 4, {0xfe, 0xff, 0xff, 0xff, 5, 0, 0, 0}, {-2, 5}},
        {"U32", 4, {0xfe, 0xff, 0xff, 0xff, 5, 0, 0, 0}, {4294967294, 5}},
        {"I64", 8, {0, 0, 0, 0, 0, 0, 0, 0x80, 63}, {INT64_MIN, 63}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[200];
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%zu]}}",
                 cases[i].dtype, 2 * cases[i].size);
        write_header(header, cases[i].bytes, 2 * cases[i].size);
        safetensors *file = open_good();
        int64_t out[2];
        float floats[2];
        assert_true(safetensors_tensor_read_i64(safetensors_at(file, 0), 0, 2, out));
        assert_memory_equal(out, cases[i].expected, sizeof out);
        assert_false(safetensors_tensor_read_f32(safetensors_at(file, 0), 0, 2, floats));
        safetensors_close(file);
    }
}

static void test_many_tensors(void **state)
{
    (void)state;
    enum { COUNT = 6000 };
    char *header;
    size_t size;
    FILE *stream = open_memstream(&header, &size);
    assert_non_null(stream);
    for (int i = 0; i < COUNT; i++)
        fprintf(stream,
                "%s\"model.layers.%d.weight\":{\"dtype\":\"U8\",\"shape\":[1],"
                "\"data_offsets\":[%d,%d]}",
                i ? "," : "{", i, i, i + 1);
    fputc('}', stream);
    assert_int_equal(fclose(stream), 0);
    unsigned char data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = (unsigned char)(i * 7);
    write_file(size, header, size, data, COUNT);
    free(header);
    safetensors *file = open_good();
    assert_int_equal(safetensors_count(file), COUNT);
    for (int i = 0; i < COUNT; i++) {
        char name[40];
        snprintf(name, sizeof name, "model.layers.%d.weight", i);
        const safetensors_tensor *tensor = safetensors_find(file, name);
        assert_non_null(tensor);
        assert_int_equal(tensor->data[0], data[i]);
    }
    safetensors_close(file);
}

static void test_reference_files(void **state)
{
    (void)state;
    DIR *layers = opendir(TEST_DATA "/layer");
    assert_non_null(layers);
    int n_files = 0;
    for (struct dirent *entry; (entry = readdir(layers));) {
        if (entry->d_name[0] == '.') continue;
        char name[512];
        snprintf(name, sizeof name, TEST_DATA "/layer/%s", entry->d_name);
        safetensors *file;
        dsmoe_error error = {0};
        if (safetensors_open(name, &file, &error) != DSMOE_OK) fail_msg("%s", error.message);
        assert_non_null(safetensors_metadata(file, "config"));
        assert_non_null(safetensors_find(file, "gate.weight"));
        safetensors_close(file);
        n_files++;
    }
    closedir(layers);
    assert_true(n_files >= 8);
}

/* ---- hostile files ------------------------------------------------------------------------ */

static void test_not_a_file(void **state)
{
    (void)state;
    safetensors *file;
    dsmoe_error error = {0};
    assert_int_equal(safetensors_open("/nonexistent/x.safetensors", &file, &error), DSMOE_ERROR_IO);
    assert_null(file);
    assert_non_null(strstr(error.message, "/nonexistent/x.safetensors: "));
    assert_int_equal(safetensors_open(directory, &file, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "Is a directory"));
}

/* S01: the header length. */
static void test_header_length(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *says;
    } cases[] = {
        {0, "start with '{'"},
        {1, "end with '}'"},
        {7, "end with '}'"},
        {1000, "header length 1000 at offset 0, but only"},
        {100000000, "bytes follow"},
        {100000001, "exceeds 100000000"},
        {(uint64_t)1 << 63, "exceeds"},
        {UINT64_MAX, "exceeds"},
        {UINT64_MAX - 7, "exceeds"},
    };
    const char *header = "{" TENSOR("a", "F32", "[1]", 0, 4) "}";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(cases[i].length, header, strlen(header), "data", 4);
        char label[40];
        snprintf(label, sizeof label, "length %llu", (unsigned long long)cases[i].length);
        assert_refused(label, cases[i].says);
    }
    for (size_t size = 1; size < 8; size++) {
        write_bytes("\2\0\0\0\0\0\0\0", size);
        assert_refused("short file", "too few");
    }
    write_bytes("\2\0\0\0\0\0\0\0", 8);
    assert_refused("no header", "0 bytes follow");
}

/* S02: the header's text. There are always four bytes of data. */
static void test_header_text(void **state)
{
    (void)state;
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"[]", "start with '{'"},
        {"\"{}\"", "start with '{'"},
        {" {" TENSOR("a", "F32", "[1]", 0, 4) "}", "start with '{'"},
        {"\n{" TENSOR("a", "F32", "[1]", 0, 4) "}", "start with '{'"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "}\n", "0x0a"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "} \t ", "0x09"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "}garbage", "0x65"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "}{}", "bad JSON"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "} , }", "bad JSON"},
        {"{ ", "end with '}'"},
        {"{" TENSOR("a\xff", "F32", "[1]", 0, 4) "}", "0xff"},
        {"{" TENSOR("a", "F32\xc3", "[1]", 0, 4) "}", "0xc3"},
        {"{" TENSOR("a", "F32", "[1]", 0, 1e400) "}", "overflow"},
        {"{" TENSOR("a", "F32", "[1]", -0, 4) "}", "negative number in the header at offset"},
        {"{" TENSOR("a-\\\"-", "F32", "[1]", -0, 4) "}", "negative number"},
        {"{" TENSOR("a", "F32", "[1]", 0.0, 4) "}", "'a': 'data_offsets' must hold integers"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4.0) "}", "a real number"},
        {"{" TENSOR("a", "F32", "[1.0]", 0, 4) "}", "'a': 'shape' must hold integers"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4e0) "}", "integers"},
        {"{" TENSOR("a", "F32", "[1]", 0, 9223372036854775808) "}", "too big"},
        {"{" TENSOR("a", "F32", "[1]", 0, 9223372036854775807) "}", "'a' ends at"},
        {"{" TENSOR("a", "F32", "[1]", 0, 18446744073709551615) "}", "too big"},
        {"{" TENSOR("a", "F32", "[9223372036854775808]", 0, 4) "}", "too big"},
        {"{" TENSOR("a", "F32", "[1e400]", 0, 4) "}", "overflow"},
        {"{" TENSOR("a", "F32", "[1,-0]", 0, 0) "}", "negative number"},
        {"{" TENSOR("a", "F32", "[1]", 0, -0.0) "}", "a real number"},
        {"{" TENSOR("a", "F32", "[1]", 0, true) "}", "a boolean"},
        {"{" TENSOR("a", "F32", "[1]", 00, 4) "}", "bad JSON"},
        {"{" TENSOR("a", "F32", "[1]", 0, 0x4) "}", "bad JSON"},
        {"{" TENSOR("a", "F32", "[1]", 0, NaN) "}", "bad JSON"},
        {"{" TENSOR("a", "F32", "[1]", -4, 0) "}", "'a': 'data_offsets' holds -4"},
        {"{" TENSOR("a", "F32", "[-1]", 0, 4) "}", "'a': 'shape' holds -1"},
        {"{" TENSOR("a", "F32", "[-1,-1]", 0, 4) "}", "'shape' holds -1"},
        {"{" TENSOR("a", "F32", "[null]", 0, 4) "}", "not null"},
        {"{" TENSOR("a", "F32", "[\"1\"]", 0, 4) "}", "not a string"},
        {"{" TENSOR("a", "F32", "[[1]]", 0, 4) "}", "not an array"},
        {"{" TENSOR("a", "F32", "4", 0, 4) "}", "'shape' must be an array, not an integer"},
        {"{\"a\":7}", "'a' must be an object, not an integer"},
        {"{\"a\":null}", "'a' must be an object"},
        {"{\"a\":{}}", "'a' has no 'dtype'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "'a' has no 'data_offsets'"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "'a' has no 'shape'"},
        {"{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", "'dtype' must be a string"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", "3 items"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", "1 items"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}", "must be an array"},
        {"{\"a\\u0000\":{}}", "bad JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_header(cases[i].header, "data", 4);
        assert_refused(cases[i].header, cases[i].says);
    }
    const char *padded = "{" TENSOR("a", "F32", "[1]", 0, 4) "}\0\0";
    write_file(strlen(padded) + 2, padded, strlen(padded) + 2, "data", 4);
    assert_refused("NUL padding", "0x00");
}

/* S02: nesting. */
static void test_deep_header(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *header = malloc(DEEP + 6);
    assert_non_null(header);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEEP);
    header[5 + DEEP] = '}';
    write_file(DEEP + 6, header, DEEP + 6, NULL, 0);
    assert_refused("depth 1e5", "nested deeper");
    memset(header, '[', DEEP + 6);
    write_file(DEEP + 6, header, DEEP + 6, NULL, 0);
    assert_refused("depth 1e5 from the start", "start with '{'");
    for (size_t i = 0; i + 5 <= DEEP; i += 5) memcpy(header + i, "{\"a\":", 5);
    header[DEEP + 5] = '}';
    write_file(DEEP + 6, header, DEEP + 6, NULL, 0);
    assert_refused("depth 2e4 of objects", "nested deeper");
    free(header);
}

/* S03: offsets. There are always 16 bytes of data. */
static void test_offsets(void **state)
{
    (void)state;
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"{" TENSOR("a", "F32", "[2]", 0, 8) "," TENSOR("b", "F32", "[3]", 4, 16) "}",
         "'b' begins at 4, inside tensor 'a'"},
        {"{" TENSOR("a", "F32", "[4]", 0, 16) "," TENSOR("b", "F32", "[4]", 0, 16) "}", "inside"},
        {"{" TENSOR("a", "F32", "[4]", 0, 16) "," TENSOR("b", "F32", "[1]", 4, 8) "}",
         "'b' begins at 4, inside tensor 'a'"},
        {"{" TENSOR("a", "F32", "[4]", 0, 16) "," TENSOR("b", "F32", "[0]", 4, 4) "}", "inside"},
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "," TENSOR("b", "F32", "[2]", 8, 16) "}",
         "from 4 to 8, before tensor 'b'"},
        {"{" TENSOR("a", "F32", "[3]", 4, 16) "}", "from 0 to 4, before tensor 'a'"},
        {"{" TENSOR("a", "F32", "[4]", 16, 0) "}", "'a': it begins at 16, after its end at 0"},
        {"{" TENSOR("a", "F32", "[5]", 0, 20) "}", "'a' ends at 20, but the file has only 16"},
        {"{" TENSOR("a", "F32", "[4]", 16, 32) "}", "'a' ends at 32"},
        {"{" TENSOR("a", "U8", "[1]", 9223372036854775806, 9223372036854775807) "}", "'a' ends at"},
        {"{" TENSOR("a", "F32", "[3]", 0, 12) "}", "4 bytes after the last tensor"},
        {"{}", "16 bytes after"},
        {"{\"__metadata__\":{}}", "16 bytes after"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_header(cases[i].header, "sixteen bytes...", 16);
        assert_refused(cases[i].header, cases[i].says);
    }
}

/* S03: a hundred thousand tensors at the same place. */
static void test_many_on_the_same_bytes(void **state)
{
    (void)state;
    char *header;
    size_t size;
    FILE *stream = open_memstream(&header, &size);
    assert_non_null(stream);
    for (int i = 0; i < 100000; i++)
        fprintf(stream, "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}",
                i ? "," : "{", i);
    fputc('}', stream);
    assert_int_equal(fclose(stream), 0);
    write_file(size, header, size, "8 bytes.", 8);
    assert_refused("100,000 tensors on the same bytes", "inside tensor");
    free(header);
}

/* S04: shapes and types. There are always 16 bytes of data. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"{" TENSOR("a", "F32", "[4294967296,4294967296]", 0, 16) "}", "'a': its shape"},
        {"{" TENSOR("a", "U8", "[4294967296,4294967296,16]", 0, 16) "}", "not fit into memory"},
        {"{" TENSOR("a", "F32", "[4611686018427387905]", 0, 16) "}", "not fit into memory"},
        {"{" TENSOR("a", "F64", "[9223372036854775807]", 0, 16) "}", "not fit into memory"},
        {"{" TENSOR("a", "F32", "[0,9223372036854775807,9223372036854775807]", 0, 0) "}",
         "not fit into memory"},
        {"{" TENSOR("a", "F32", "[3]", 0, 16) "}", "'a': its offsets span 16 bytes"},
        {"{" TENSOR("a", "F16", "[4]", 0, 16) "}", "need 8"},
        {"{" TENSOR("a", "F32", "[]", 0, 16) "}", "need 4"},
        {"{" TENSOR("a", "F32", "[0]", 0, 16) "}", "need 0"},
        {"{" TENSOR("a", "F32", "[4,0,4]", 0, 16) "}", "need 0"},
        {"{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,4]", 0, 16) "}", "9 dimensions"},
        {"{" TENSOR("a", "F128", "[1]", 0, 16) "}", "'a': unknown dtype 'F128'"},
        {"{" TENSOR("a", "f32", "[4]", 0, 16) "}", "unknown dtype 'f32'"},
        {"{" TENSOR("a", "", "[4]", 0, 16) "}", "unknown dtype ''"},
        {"{" TENSOR("a", "F4", "[31]", 0, 16) "}", "unknown dtype 'F4'"},
        {"{" TENSOR("a", "F4", "[32]", 0, 16) "}", "unknown dtype 'F4'"},
        {"{" TENSOR("a", "F32", "[4,4294967296,4294967296,0]", 0, 0) "}", "not fit into memory"},
        {"{" TENSOR("a", "U16", "[9223372036854775807]", 0, 16) "}", "'a': its offsets span"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_header(cases[i].header, "sixteen bytes...", 16);
        assert_refused(cases[i].header, cases[i].says);
    }
}

/* S05: names and metadata. There are always four bytes of data. */
static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"{" TENSOR("a", "F32", "[1]", 0, 4) "," TENSOR("a", "F32", "[1]", 0, 4) "}", "duplicate"},
        {"{" TENSOR("a", "U8", "[2]", 0, 2) "," TENSOR("\\u0061", "U8", "[2]", 2, 4) "}",
         "duplicate"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "duplicate"},
        {"{\"__metadata__\":{},\"__metadata__\":{}," TENSOR("a", "F32", "[1]", 0, 4) "}",
         "duplicate"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," TENSOR("a", "F32", "[1]", 0, 4) "}",
         "duplicate"},
        {"{\"__metadata__\":{\"k\":1}," TENSOR("a", "F32", "[1]", 0, 4) "}",
         "'__metadata__' key 'k' must be a string, not an integer"},
        {"{\"__metadata__\":{\"k\":{}}," TENSOR("a", "F32", "[1]", 0, 4) "}", "'k' must be"},
        {"{\"__metadata__\":{\"k\":null}," TENSOR("a", "F32", "[1]", 0, 4) "}", "not null"},
        {"{\"__metadata__\":[]," TENSOR("a", "F32", "[1]", 0, 4) "}",
         "'__metadata__' must be an object"},
        {"{\"__metadata__\":\"s\"," TENSOR("a", "F32", "[1]", 0, 4) "}", "must be an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_header(cases[i].header, "data", 4);
        assert_refused(cases[i].header, cases[i].says);
    }
}

/* Bytes of the caller, at an odd address and with none after them. */
static void test_memory(void **state)
{
    (void)state;
    static const char header[] = "{" TENSOR("a", "U8", "[2]", 0, 2) "}";
    size_t length = sizeof header - 1, size = 8 + length + 2;
    unsigned char *memory = malloc(1 + size), *bytes = memory + 1;
    assert_non_null(memory);
    memset(bytes, 0, 8);
    bytes[0] = (unsigned char)length;
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, "xy", 2);
    safetensors *file;
    dsmoe_error error = {0};
    if (safetensors_parse(bytes, size, "some bytes", &file, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    assert_string_equal(safetensors_path(file), "some bytes");
    assert_ptr_equal(safetensors_find(file, "a")->data, bytes + 8 + length);
    safetensors_close(file);
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *less = malloc(cut + !cut);
        assert_non_null(less);
        memcpy(less, bytes, cut);
        assert_int_equal(safetensors_parse(less, cut, "some bytes", &file, &error),
                         DSMOE_ERROR_FORMAT);
        assert_null(file);
        assert_int_equal(strncmp(error.message, "some bytes: ", 12), 0);
        free(less);
    }
    free(memory);
}

/* A good file cut anywhere is refused. With any byte of its header changed it is read or refused. */
static void test_mutations(void **state)
{
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"}," TENSOR(
        "a", "F32", "[1]", 0, 4) "," TENSOR("b", "I16", "[2,1]", 4, 8) "}  ";
    static const char bytes[] = {'\0', '"', '\\', '}', ',', '0', '9', '-', ' ', (char)0xff};
    char good[8 + sizeof header - 1 + 8] = {sizeof header - 1};
    memcpy(good + 8, header, sizeof header - 1);
    for (size_t size = 1; size < sizeof good; size++) {
        write_bytes(good, size);
        assert_refused("cut", "");
    }
    for (size_t i = 0; i < sizeof good - 8; i++) {
        for (size_t b = 0; b < sizeof bytes; b++) {
            char bad[sizeof good];
            memcpy(bad, good, sizeof good);
            bad[i] = bytes[b];
            write_bytes(bad, sizeof bad);
            safetensors *file;
            dsmoe_status status = safetensors_open(path, &file, NULL);
            assert_true(status == DSMOE_OK || status == DSMOE_ERROR_FORMAT);
            assert_int_equal(status == DSMOE_OK, file != NULL);
            safetensors_close(file);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_and_metadata),
        cmocka_unit_test(test_small_files),
        cmocka_unit_test(test_every_dtype),
        cmocka_unit_test(test_read_floats),
        cmocka_unit_test(test_read_integers),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_reference_files),
        cmocka_unit_test(test_not_a_file),
        cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_header_text),
        cmocka_unit_test(test_deep_header),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_many_on_the_same_bytes),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
