/* test_writer.c - writing safetensors: what is written can be read, and a failing disk leaves nothing
 * behind. The linker wraps write, fsync and rename, so that a test can make them fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/json_write.h"
#include "formats/partial_file.h"
#include "formats/partial_file.h"
#include "formats/safetensors_writer.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- a disk that fails ---------------------------------------------------------------------- */

static struct {
    int write_error, fsync_error, rename_error; /* errno to fail with, or 0 */
    int after;                                  /* successful writes before a failure */
    size_t short_writes;                        /* the most bytes one write takes; 0: all */
    bool interrupt;                             /* every second write is interrupted */
    int n_writes;
} disk;

ssize_t __real_write(int descriptor, const void *bytes, size_t size);
int __real_fsync(int descriptor);
int __real_rename(const char *from, const char *to);
ssize_t __wrap_write(int descriptor, const void *bytes, size_t size);
int __wrap_fsync(int descriptor);
int __wrap_rename(const char *from, const char *to);

ssize_t __wrap_write(int descriptor, const void *bytes, size_t size)
{
    int n = disk.n_writes++;
    if (disk.write_error && n >= disk.after) {
        errno = disk.write_error;
        return -1;
    }
    if (disk.interrupt && n % 2) {
        errno = EINTR;
        return -1;
    }
    if (disk.short_writes && size > disk.short_writes) size = disk.short_writes;
    return __real_write(descriptor, bytes, size);
}

int __wrap_fsync(int descriptor)
{
    if (!disk.fsync_error) return __real_fsync(descriptor);
    errno = disk.fsync_error;
    return -1;
}

int __wrap_rename(const char *from, const char *to)
{
    if (!disk.rename_error) return __real_rename(from, to);
    errno = disk.rename_error;
    return -1;
}

static void heal_disk(void) { memset(&disk, 0, sizeof disk); }

/* ---- help ----------------------------------------------------------------------------------- */

static bool exists(const char *name)
{
    struct stat info;
    return lstat(name, &info) == 0;
}

static void assert_nothing_left(void)
{
    char partial[320];
    snprintf(partial, sizeof partial, "%s.partial", path);
    assert_false(exists(path));
    assert_false(exists(partial));
}

static safetensors_writer *create(void)
{
    safetensors_writer *writer;
    dsmoe_error error = {0};
    if (safetensors_writer_create(path, &writer, &error)) fail_msg("%s", error.message);
    return writer;
}

static void declare(safetensors_writer *writer, const char *name, safetensors_dtype dtype,
                    int n_dims, const int64_t *shape)
{
    dsmoe_error error = {0};
    if (safetensors_writer_declare(writer, name, dtype, n_dims, shape, &error))
        fail_msg("%s", error.message);
}

static void assert_says(const dsmoe_error *error, dsmoe_status status, const char *words)
{
    assert_int_equal(error->status, status);
    if (strncmp(error->message, path, strlen(path)) || !strstr(error->message, words))
        fail_msg("'%s' does not name '%s' and say '%s'", error->message, path, words);
}

/* Writes two tensors, 40 bytes; returns the status of the first call that fails. */
static dsmoe_status write_example(dsmoe_error *error)
{
    static const float weights[6] = {1, -2, 3, -4, 5, -6};
    static const int16_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    safetensors_writer *writer;
    STATUS_TRY(safetensors_writer_create(path, &writer, error));
    declare(writer, "b", SAFETENSORS_F32, 2, (int64_t[]){2, 3});
    declare(writer, "a", SAFETENSORS_I16, 1, (int64_t[]){8});
    dsmoe_status status = safetensors_writer_write(writer, weights, sizeof weights, error);
    if (status == DSMOE_OK) status = safetensors_writer_write(writer, ids, sizeof ids, error);
    if (status == DSMOE_OK) return safetensors_writer_finish(writer, error);
    safetensors_writer_abandon(writer);
    return status;
}

static safetensors *open_file(void)
{
    safetensors *file;
    dsmoe_error error = {0};
    if (safetensors_open(path, &file, &error)) fail_msg("%s", error.message);
    return file;
}

static void assert_example(void)
{
    safetensors *file = open_file();
    const safetensors_tensor *b = safetensors_find(file, "b"), *a = safetensors_find(file, "a");
    assert_int_equal(safetensors_count(file), 2);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    float weights[6];
    int64_t ids[8];
    assert_true(safetensors_tensor_read_f32(b, 0, 6, weights));
    assert_true(safetensors_tensor_read_i64(a, 0, 8, ids));
    assert_true(weights[0] == 1 && weights[5] == -6);
    assert_true(ids[0] == 1 && ids[7] == 8);
    assert_ptr_equal(b->data + b->size, a->data); /* in the order of declaration */
    assert_int_equal((uintptr_t)b->data % 64, 0); /* mappings begin on a page */
    safetensors_close(file);
}

/* ---- good files ----------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    assert_int_equal(write_example(&error), DSMOE_OK);
    assert_example();
    /* Replaces the existing file. */
    assert_int_equal(write_example(&error), DSMOE_OK);
    assert_example();
}

static void test_pieces(void **state)
{
    (void)state;
    unsigned char bytes[100];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    safetensors_writer *writer = create();
    declare(writer, "first", SAFETENSORS_U8, 1, (int64_t[]){33});
    declare(writer, "empty", SAFETENSORS_F64, 2, (int64_t[]){0, 7});
    declare(writer, "scalar", SAFETENSORS_U8, 0, NULL);
    declare(writer, "last", SAFETENSORS_I8, 2, (int64_t[]){2, 33});
    for (size_t i = 0, n; i < sizeof bytes; i += n) {
        n = i + 1 < sizeof bytes - i ? i + 1 : sizeof bytes - i; /* across tensors */
        assert_int_equal(safetensors_writer_write(writer, bytes + i, n, NULL), DSMOE_OK);
    }
    assert_int_equal(safetensors_writer_finish(writer, NULL), DSMOE_OK);
    safetensors *file = open_file();
    assert_int_equal(safetensors_count(file), 4);
    assert_memory_equal(safetensors_find(file, "first")->data, bytes, 33);
    assert_memory_equal(safetensors_find(file, "scalar")->data, bytes + 33, 1);
    assert_memory_equal(safetensors_find(file, "last")->data, bytes + 34, 66);
    assert_int_equal(safetensors_find(file, "empty")->size, 0);
    safetensors_close(file);
}

static void test_header(void **state)
{
    (void)state;
    safetensors_writer *writer = create();
    assert_int_equal(safetensors_writer_finish(writer, NULL), DSMOE_OK);
    safetensors *file = open_file();
    assert_int_equal(safetensors_count(file), 0);
    safetensors_close(file);

    writer = create();
    assert_int_equal(safetensors_writer_metadata(writer, "format", "pt", NULL), DSMOE_OK);
    assert_int_equal(safetensors_writer_metadata(writer, "a \"quoted\" key", "\\ \n ü", NULL),
                     DSMOE_OK);
    assert_int_equal(safetensors_writer_finish(writer, NULL), DSMOE_OK);
    file = open_file();
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    assert_string_equal(safetensors_metadata(file, "a \"quoted\" key"), "\\ \n ü");
    safetensors_close(file);

    /* The data are aligned for any length of the header. */
    for (int length = 1; length < 70; length++) {
        char name[80] = "";
        memset(name, 'x', (size_t)length);
        writer = create();
        declare(writer, name, SAFETENSORS_U8, 1, (int64_t[]){1});
        assert_int_equal(safetensors_writer_write(writer, "7", 1, NULL), DSMOE_OK);
        assert_int_equal(safetensors_writer_finish(writer, NULL), DSMOE_OK);
        file = open_file();
        assert_int_equal((uintptr_t)safetensors_at(file, 0)->data % 64, 0);
        assert_int_equal(*safetensors_at(file, 0)->data, '7');
        safetensors_close(file);
    }
}

/* ---- mistakes of the caller ----------------------------------------------------------------- */

static void test_declarations(void **state)
{
    (void)state;
    remove(path);
    dsmoe_error error = {0};
    const int64_t one = 1, negative = -1, huge[] = {1ll << 40, 1ll << 40};
    safetensors_writer *writer = create();
    assert_int_equal(safetensors_writer_declare(writer, "n", SAFETENSORS_F32, 1, &negative, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_says(&error, DSMOE_ERROR_ARGUMENT, "'n'");
    assert_int_equal(safetensors_writer_declare(writer, "h", SAFETENSORS_F32, 2, huge, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_says(&error, DSMOE_ERROR_ARGUMENT, "does not fit");
    assert_int_equal(safetensors_writer_declare(writer, "d", SAFETENSORS_F32, 9, &one, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_says(&error, DSMOE_ERROR_ARGUMENT, "9 dimensions");
    assert_int_equal(
        safetensors_writer_declare(writer, "__metadata__", SAFETENSORS_F32, 1, &one, &error),
        DSMOE_ERROR_ARGUMENT);
    declare(writer, "a", SAFETENSORS_U8, 1, &one);
    assert_int_equal(safetensors_writer_write(writer, "", 0, &error), DSMOE_OK);
    assert_int_equal(safetensors_writer_declare(writer, "b", SAFETENSORS_U8, 1, &one, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_says(&error, DSMOE_ERROR_ARGUMENT, "too late");
    assert_int_equal(safetensors_writer_metadata(writer, "k", "v", &error), DSMOE_ERROR_ARGUMENT);
    safetensors_writer_abandon(writer);
    safetensors_writer_abandon(NULL);
    assert_nothing_left();

    static const char *const bad[][2] = {{"twice", "twice"}, {"fine", "\xff"}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        writer = create();
        for (int j = 0; j < 2; j++) declare(writer, bad[i][j], SAFETENSORS_U8, 1, &one);
        assert_int_equal(safetensors_writer_write(writer, "12", 2, &error), DSMOE_ERROR_FORMAT);
        assert_says(&error, DSMOE_ERROR_FORMAT, "");
        assert_int_not_equal(safetensors_writer_finish(writer, &error), DSMOE_OK);
        assert_nothing_left();
    }
}

static void test_amounts(void **state)
{
    (void)state;
    remove(path);
    dsmoe_error error = {0};
    safetensors_writer *writer = create();
    declare(writer, "a", SAFETENSORS_U8, 1, (int64_t[]){4});
    assert_int_equal(safetensors_writer_write(writer, "123", 3, &error), DSMOE_OK);
    assert_int_equal(safetensors_writer_finish(writer, &error), DSMOE_ERROR_ARGUMENT);
    assert_says(&error, DSMOE_ERROR_ARGUMENT, "3 of 4");
    assert_nothing_left();

    writer = create();
    declare(writer, "a", SAFETENSORS_U8, 1, (int64_t[]){4});
    assert_int_equal(safetensors_writer_write(writer, "12345", 5, &error), DSMOE_ERROR_ARGUMENT);
    assert_says(&error, DSMOE_ERROR_ARGUMENT, "1 bytes after");
    /* After a failure every later call fails. */
    assert_int_equal(safetensors_writer_write(writer, "1234", 4, &error), DSMOE_ERROR_IO);
    assert_int_equal(safetensors_writer_finish(writer, &error), DSMOE_ERROR_IO);
    assert_nothing_left();
}

/* ---- disks that fail ------------------------------------------------------------------------ */

static void test_slow_disk(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    for (size_t most = 1; most < 20; most++) {
        disk.short_writes = most;
        disk.interrupt = most % 2;
        dsmoe_status status = write_example(&error);
        heal_disk();
        if (status) fail_msg("%s", error.message);
        assert_example();
    }
}

static void test_full_disk(void **state)
{
    (void)state;
    static const int reasons[] = {ENOSPC, EIO, EDQUOT};
    for (size_t i = 0; i < COUNT(reasons); i++) {
        for (int after = 0; after < 3; after++) {
            remove(path);
            dsmoe_error error = {0};
            disk.write_error = reasons[i];
            disk.after = after;
            dsmoe_status status = write_example(&error);
            heal_disk();
            assert_int_equal(status, DSMOE_ERROR_IO);
            assert_says(&error, DSMOE_ERROR_IO, strerror(reasons[i]));
            assert_nothing_left();
        }
    }
    /* A failure does not change an older file. */
    assert_int_equal(write_example(NULL), DSMOE_OK);
    disk.write_error = ENOSPC;
    disk.short_writes = 7;
    disk.after = 5;
    assert_int_equal(write_example(NULL), DSMOE_ERROR_IO);
    heal_disk();
    assert_example();
}

static void test_last_steps(void **state)
{
    (void)state;
    remove(path);
    dsmoe_error error = {0};
    disk.fsync_error = EIO;
    assert_int_equal(write_example(&error), DSMOE_ERROR_IO);
    heal_disk();
    assert_says(&error, DSMOE_ERROR_IO, strerror(EIO));
    assert_nothing_left();

    disk.rename_error = EACCES;
    assert_int_equal(write_example(&error), DSMOE_ERROR_IO);
    heal_disk();
    assert_says(&error, DSMOE_ERROR_IO, strerror(EACCES));
    assert_nothing_left();

    safetensors_writer *writer;
    assert_int_equal(safetensors_writer_create("/nowhere/at/all", &writer, &error), DSMOE_ERROR_IO);
    assert_null(writer);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
}

static void test_file_size_limit(void **state)
{
    (void)state;
    remove(path);
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    tight = before;
    tight.rlim_cur = 150; /* in the middle of the header */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    dsmoe_error error = {0};
    dsmoe_status status = write_example(&error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, DSMOE_ERROR_IO);
    assert_says(&error, DSMOE_ERROR_IO, strerror(EFBIG));
    assert_nothing_left();
}

/* A link in place of the partial file is not followed. An old partial file is overwritten. */
static void test_in_the_way(void **state)
{
    (void)state;
    remove(path);
    char partial[320], victim[320];
    snprintf(partial, sizeof partial, "%s.partial", path);
    snprintf(victim, sizeof victim, "%s/victim", directory);
    assert_int_equal(symlink(victim, partial), 0);
    assert_int_equal(write_example(NULL), DSMOE_ERROR_IO);
    assert_false(exists(victim));
    assert_int_equal(remove(partial), 0);

    FILE *old = fopen(partial, "w");
    assert_non_null(old);
    for (int i = 0; i < 1000; i++) fputs("left behind", old);
    assert_int_equal(fclose(old), 0);
    assert_int_equal(write_example(NULL), DSMOE_OK);
    assert_false(exists(partial));
    assert_example();
}

/* Two writers at the same time would mix in the same file, so the second is refused. */
static void test_two_writers(void **state)
{
    (void)state;
    remove(path);
    partial_file first, second;
    dsmoe_error error = {0};
    assert_int_equal(partial_file_create(&first, path, &error), DSMOE_OK);
    assert_int_equal(partial_file_write(&first, "first", 5, &error), DSMOE_OK);
    assert_int_equal(partial_file_create(&second, path, &error), DSMOE_ERROR_IO);
    assert_says(&error, DSMOE_ERROR_IO, "another process is writing");
    assert_int_equal(partial_file_finish(&first, &error), DSMOE_OK);
    FILE *file = fopen(path, "r");
    char text[16] = "";
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "first");
    assert_int_equal(partial_file_create(&second, path, &error), DSMOE_OK); /* it is done */
    partial_file_abandon(&second);
    remove(path);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void test_json_numbers(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } cases[] = {
        {0, "0"},          {-0.0, "-0.0"},   {10000, "10000"}, {-3, "-3"},
        {0.02, "0.02"},    {0.006, "0.006"}, {1e-6, "1e-06"},  {0.1 + 0.2, "0.30000000000000004"},
        {1e300, "1e+300"}, {2.5, "2.5"},     {1e6, "1000000"}};
    static const char *const locales[] = {"C", "de_DE.UTF-8"}; /* if installed */
    for (size_t l = 0; l < COUNT(locales); l++) {
        setlocale(LC_NUMERIC, locales[l]);
        for (size_t i = 0; i < COUNT(cases); i++) {
            char *text;
            size_t length;
            FILE *file = open_memstream(&text, &length);
            assert_non_null(file);
            json_write_number(file, cases[i].number);
            assert_int_equal(fclose(file), 0);
            assert_string_equal(text, cases[i].text);
            free(text);
        }
    }
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_header),          cmocka_unit_test(test_declarations),
        cmocka_unit_test(test_amounts),         cmocka_unit_test(test_slow_disk),
        cmocka_unit_test(test_full_disk),       cmocka_unit_test(test_last_steps),
        cmocka_unit_test(test_in_the_way),      cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_file_size_limit), cmocka_unit_test(test_json_numbers),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
