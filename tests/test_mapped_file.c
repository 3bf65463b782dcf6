/* test_mapped_file.c - files that change while they are in use: there is no signal, every later check
 * reports it, and data that was already read is not affected. A fault in any other file goes to the
 * program's own handler.
 *
 * The tests of those handlers run first, each in a process of its own, as our handler is installed only
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data_files.h"
#include "formats/mapped_file.h"
#include "formats/shards.h"
#include "formats/whole_file.h"
#include "report/lines.h"
#include "text/tokenizer_files.h"

enum { SIZE = 100000 };

static void write_sevens(const char *name)
{
    char *bytes = malloc(SIZE);
    assert_non_null(bytes);
    memset(bytes, 7, SIZE);
    write_data(name, bytes, SIZE);
    free(bytes);
}

static mapped_file open_guarded(const char *name)
{
    mapped_file file;
    dsmoe_error error = {0};
    if (mapped_file_open(&file, in_directory(name), &error)) fail_msg("%s", error.message);
    return file;
}

static size_t sum(const unsigned char *bytes, size_t size)
{
    size_t total = 0;
    for (size_t i = 0; i < size; i++) total += ((const volatile unsigned char *)bytes)[i];
    return total;
}

/* ---- other handlers ------------------------------------------------------------------------- */

enum { FINE = 0, WRONG = 1, CALLED = 42 };

static const unsigned char *volatile expected_address;

static void exit_if_expected(int number, siginfo_t *info, void *context)
{
    (void)context;
    _exit(number == SIGBUS && info->si_addr == expected_address ? CALLED : WRONG);
}

static void exit_called(int number) { _exit(number == SIGBUS ? CALLED : WRONG); }

/* Touches the missing part of a file that is not guarded. */
static void touch_foreign(void)
{
    mapped_file guarded = open_guarded("guarded");
    int descriptor = open(in_directory("foreign"), O_RDONLY);
    unsigned char *foreign = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (foreign == MAP_FAILED) _exit(WRONG);
    expected_address = foreign + SIZE - 1;
    if (truncate(in_directory("foreign"), 0) != 0) _exit(WRONG);
    sum(guarded.bytes, SIZE);
    sum(expected_address, 1);
    _exit(WRONG);
}

static void heal_guarded(void)
{
    mapped_file file = open_guarded("guarded");
    if (truncate(in_directory("guarded"), 0) != 0) _exit(WRONG);
    bool healed = sum(file.bytes, SIZE) == 0 && !mapped_file_intact(&file);
    _exit(healed ? FINE : WRONG);
}

static void with_default_foreign(void)
{
    signal(SIGBUS, SIG_DFL);
    touch_foreign();
}

static void with_ignored_foreign(void)
{
    signal(SIGBUS, SIG_IGN); /* has no effect on a fault */
    touch_foreign();
}

static void with_details_foreign(void)
{
    struct sigaction action = {.sa_sigaction = exit_if_expected, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    touch_foreign();
}

static void with_plain_foreign(void)
{
    signal(SIGBUS, exit_called);
    touch_foreign();
}

static void return_only(int number) { (void)number; }

static void with_once_foreign(void)
{
    struct sigaction action = {.sa_handler = return_only, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGBUS, &action, NULL);
    touch_foreign();
}

static void with_plain_guarded(void)
{
    signal(SIGBUS, exit_called);
    heal_guarded();
}

static void sent_to_default(void)
{
    signal(SIGBUS, SIG_DFL);
    open_guarded("guarded");
    raise(SIGBUS);
    _exit(WRONG);
}

static void sent_to_ignored(void)
{
    signal(SIGBUS, SIG_IGN);
    open_guarded("guarded");
    raise(SIGBUS);
    _exit(FINE);
}

/* Flags describe how a function is called, but here there is no function. */
static void with_flags(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
}

static void with_default_and_details(void)
{
    with_flags(SIG_DFL);
    touch_foreign();
}

static void with_ignored_and_details(void)
{
    with_flags(SIG_IGN);
    touch_foreign();
}

static void sent_to_ignored_and_details(void)
{
    with_flags(SIG_IGN);
    open_guarded("guarded");
    raise(SIGBUS);
    _exit(FINE);
}

/* The linker sends the library's calls here, so that a thread can be held inside one. */
int __real_sigaction(int number, const struct sigaction *action, struct sigaction *before);
int __wrap_sigaction(int number, const struct sigaction *action, struct sigaction *before);
static _Thread_local bool is_held;
static atomic_bool is_inside;

int __wrap_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    if (is_held) is_inside = true;
    while (is_held) pause();
    return __real_sigaction(number, action, before);
}

static void *open_and_stay(void *context)
{
    (void)context;
    is_held = true;
    open_guarded("foreign");
    return NULL;
}

/* In a child of fork, the parent's other threads cannot finish what they began. */
static void child_of_many(void)
{
    pthread_t thread;
    int status;
    if (pthread_create(&thread, NULL, open_and_stay, NULL) != 0) _exit(WRONG);
    while (!is_inside) usleep(1000);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        heal_guarded();
    }
    _exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : WRONG);
}

static void put_back(void)
{
    signal(SIGBUS, exit_called);
    open_guarded("foreign");
    signal(SIGBUS, SIG_DFL);
    heal_guarded();
}

static void test_other_handlers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*run)(void);
        int code, signal; /* how the process must end */
    } cases[] = {
        {"a fault without a handler", with_default_foreign, 0, SIGBUS},
        {"a fault though ignored", with_ignored_foreign, 0, SIGBUS},
        {"a fault with a handler that knows details", with_details_foreign, CALLED, 0},
        {"a fault with a plain handler", with_plain_foreign, CALLED, 0},
        {"a fault with a handler that runs once", with_once_foreign, 0, SIGBUS},
        {"a guarded fault with a plain handler", with_plain_guarded, FINE, 0},
        {"sent without a handler", sent_to_default, 0, SIGBUS},
        {"sent though ignored", sent_to_ignored, FINE, 0},
        {"a fault without a handler, with flags", with_default_and_details, 0, SIGBUS},
        {"a fault though ignored, with flags", with_ignored_and_details, 0, SIGBUS},
        {"sent though ignored, with flags", sent_to_ignored_and_details, FINE, 0},
        {"the handler before was put back", put_back, FINE, 0},
        {"a child whose parent was installing it", child_of_many, FINE, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_sevens("guarded");
        write_sevens("foreign");
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
            alarm(60); /* ends a handler that loops */
            cases[i].run();
            _exit(WRONG);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        bool as_expected = cases[i].signal
                               ? WIFSIGNALED(status) && WTERMSIG(status) == cases[i].signal
                               : WIFEXITED(status) && WEXITSTATUS(status) == cases[i].code;
        if (!as_expected) fail_msg("%s: status 0x%x", cases[i].name, status);
    }
}

/* ---- guarded files -------------------------------------------------------------------------- */

static void test_truncated(void **state)
{
    (void)state;
    static const off_t sizes[] = {0, 1, 4096, 5000, SIZE - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_sevens("file");
        mapped_file file = open_guarded("file");
        assert_int_equal(sum(file.bytes, SIZE), 7 * SIZE);
        assert_true(mapped_file_intact(&file));
        assert_int_equal(truncate(in_directory("file"), sizes[i]), 0);
        assert_int_equal(sum(file.bytes, SIZE), 7 * sizes[i]);
        assert_false(mapped_file_intact(&file));
        /* A file that lost a part once stays damaged. */
        write_sevens("file");
        assert_false(mapped_file_intact(&file));
        mapped_file_close(&file);
    }
}

static void test_still_whole(void **state)
{
    (void)state;
    write_sevens("file");
    mapped_file file = open_guarded("file");
    /* Changed permissions do not affect an open file. */
    assert_int_equal(chmod(in_directory("file"), 0400), 0);
    assert_int_equal(link(in_directory("file"), in_directory("link")), 0);
    assert_true(mapped_file_intact(&file));
    /* A file that is renamed over the name is another file. */
    write_text("other", "short");
    assert_int_equal(rename(in_directory("other"), in_directory("file")), 0);
    assert_int_equal(sum(file.bytes, SIZE), 7 * SIZE);
    assert_true(mapped_file_intact(&file));
    mapped_file_close(&file);
    mapped_file_close(&file); /* it is zeroed now */
    assert_true(mapped_file_intact(&file));
}

/* A file that was written long ago, as file timestamps may be coarse. */
static mapped_file open_old(const char *name)
{
    static const struct timespec old[2] = {{1000000000, 5}, {1000000000, 5}};
    write_sevens(name);
    assert_int_equal(utimensat(AT_FDCWD, in_directory(name), old, 0), 0);
    return open_guarded(name);
}

static void assert_changed(mapped_file *file)
{
    assert_false(mapped_file_intact(file));
    mapped_file_close(file);
}

static void test_rewritten(void **state)
{
    (void)state;
    mapped_file file = open_old("file");
    assert_true(mapped_file_intact(&file));
    int out = open(in_directory("file"), O_WRONLY);
    assert_int_equal(pwrite(out, "other", 5, 100), 5); /* the length stays */
    close(out);
    assert_changed(&file);
    file = open_old("file");
    write_sevens("file"); /* the same bytes, but that is not checked */
    assert_changed(&file);
    file = open_old("file");
    assert_int_equal(truncate(in_directory("file"), 2 * SIZE), 0);
    assert_changed(&file);
    /* A change that keeps the timestamp. */
    file = open_old("file");
    assert_int_equal(truncate(in_directory("file"), 2 * SIZE), 0);
    assert_int_equal(futimens(file.source.descriptor,
                              (struct timespec[2]){file.source.modified, file.source.modified}),
                     0);
    assert_changed(&file);
}

/* ---- files that are read -------------------------------------------------------------------- */

/* What was read stays available, whatever happens to the file. */
static void test_tokenizer_text(void **state)
{
    (void)state;
    tokenizer_files files;
    write_sevens("tokenizer.json");
    write_sevens("tokenizer_config.json");
    assert_int_equal(tokenizer_files_open(&files, in_directory("."), NULL), DSMOE_OK);
    assert_int_equal(truncate(in_directory("tokenizer.json"), 0), 0);
    assert_int_equal(truncate(in_directory("tokenizer_config.json"), 0), 0);
    assert_int_equal(sum((const unsigned char *)files.text.bytes, SIZE), 7 * SIZE);
    assert_int_equal(sum((const unsigned char *)files.config.bytes, SIZE), 7 * SIZE);
    tokenizer_files_close(&files);
}

/* A log that is cut while it is read is an error; one that grows is not. */
static void test_lines(void **state)
{
    (void)state;
    enum { LINES = 5000 };
    static const char line[] = "{\"step\": 1, \"type\": \"step\"}\n";
    char *text = malloc(LINES * sizeof line);
    assert_non_null(text);
    for (int i = 0; i < LINES; i++) memcpy(text + (size_t)i * (sizeof line - 1), line, sizeof line);
    for (int round = 0; round < 2; round++) {
        write_text("metrics.jsonl", text);
        line_reader reader;
        dsmoe_error error = {0};
        int n = 0;
        assert_int_equal(line_reader_open(&reader, in_directory("metrics.jsonl"), NULL), DSMOE_OK);
        off_t size = round ? 10 : 2 * LINES * (off_t)sizeof line;
        assert_int_equal(truncate(in_directory("metrics.jsonl"), size), 0);
        for (; line_reader_next(&reader); n++)
            assert_int_equal(line_number(reader.object, "step"), 1);
        dsmoe_status status = line_reader_check(&reader, "log", &error);
        assert_int_equal(status, round ? DSMOE_ERROR_IO : DSMOE_OK);
        if (round)
            assert_string_equal(error.message, "log: the file became shorter or could not be read");
        else
            assert_int_equal(n, LINES);
        line_reader_close(&reader);
    }
    free(text);
}

/* The linker sends the library's calls here, so that a file can be cut between two reads. */
ssize_t __real_read(int descriptor, void *bytes, size_t size);
ssize_t __wrap_read(int descriptor, void *bytes, size_t size);
static const char *cut_at_read;

ssize_t __wrap_read(int descriptor, void *bytes, size_t size)
{
    if (cut_at_read && truncate(cut_at_read, 1000) != 0) return -1;
    return __real_read(descriptor, bytes, size < 600 ? size : 600);
}

static void test_whole_file(void **state)
{
    (void)state;
    whole_file file;
    dsmoe_error error = {0};
    write_sevens("file");
    const char *name = in_directory("file");
    assert_int_equal(whole_file_read(&file, name, SIZE, &error), DSMOE_OK);
    assert_int_equal(file.size, SIZE);
    assert_int_equal(sum((const unsigned char *)file.bytes, SIZE), 7 * SIZE);
    whole_file_free(&file);
    assert_null(file.bytes);
    assert_int_equal(whole_file_read(&file, name, SIZE - 1, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "100000 bytes, at most 99999 are expected"));
    cut_at_read = name;
    assert_int_equal(whole_file_read(&file, name, SIZE, &error), DSMOE_ERROR_IO);
    cut_at_read = NULL;
    assert_null(file.bytes);
    assert_non_null(strstr(error.message, "became shorter"));
    whole_file_free(&file);
}

/* More files than one chunk of guards holds. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 200 };
    static mapped_file files[MANY];
    char name[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, "%d", i);
            write_sevens(name);
            files[i] = open_guarded(name);
        }
        for (int i = 0; i < MANY; i += 3) {
            snprintf(name, sizeof name, "%d", i);
            assert_int_equal(truncate(in_directory(name), 0), 0);
        }
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(sum(files[i].bytes, SIZE), i % 3 ? 7 * SIZE : 0);
            assert_int_equal(mapped_file_intact(&files[i]), i % 3 != 0);
        }
        for (int i = 0; i < MANY; i++) mapped_file_close(&files[i]);
    }
}

typedef struct worker {
    char file[1024];
    bool truncates, failed;
} worker;

static void *work(void *context)
{
    worker *w = context;
    unsigned char bytes[9000];
    memset(bytes, 1, sizeof bytes);
    for (int i = 0; i < 300 && !w->failed; i++) {
        int out = open(w->file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        w->failed = out < 0 || write(out, bytes, sizeof bytes) != (ssize_t)sizeof bytes;
        close(out);
        mapped_file file;
        if (w->failed || mapped_file_open(&file, w->file, NULL)) {
            w->failed = true;
            break;
        }
        bool cut = w->truncates && i % 2;
        w->failed = (cut && truncate(w->file, 4096) != 0) ||
                    sum(file.bytes, file.size) != (cut ? 4096 : sizeof bytes) ||
                    mapped_file_intact(&file) == cut;
        mapped_file_close(&file);
    }
    return NULL;
}

/* Threads that open, lose and close files at the same time see only their own files. */
static void test_threads(void **state)
{
    (void)state;
    enum { N = 6 };
    static worker workers[N];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        workers[i] = (worker){.truncates = i % 3 != 0};
        snprintf(workers[i].file, sizeof workers[i].file, "%s%d", in_directory("t"), i);
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < N; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < N; i++) assert_false(workers[i].failed);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static void test_safetensors(void **state)
{
    (void)state;
    enum { BYTES = 65536 };
    static const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[65536],\"data_offsets\":[0,65536]}}";
    unsigned char *bytes = malloc(sizeof header - 1 + 8 + BYTES);
    assert_non_null(bytes);
    uint64_t length = sizeof header - 1;
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    memset(bytes + 8 + length, 1, BYTES);
    write_data("model.safetensors", bytes, 8 + length + BYTES);
    free(bytes);

    shards *set;
    dsmoe_error error = {0};
    if (shards_open(in_directory("."), &set, &error)) fail_msg("%s", error.message);
    safetensors *file;
    if (safetensors_open(in_directory("model.safetensors"), &file, &error))
        fail_msg("%s", error.message);
    assert_int_equal(shards_check_intact(set, NULL), DSMOE_OK);
    assert_int_equal(safetensors_check_intact(file, NULL), DSMOE_OK);
    assert_int_equal(truncate(in_directory("model.safetensors"), 8192), 0);
    assert_in_range(sum(shards_at(set, 0)->data, BYTES), 1, 8192);
    assert_int_equal(shards_check_intact(set, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "model.safetensors: the file changed"));
    assert_int_equal(safetensors_check_intact(file, NULL), DSMOE_ERROR_IO);
    safetensors_close(file);
    shards_close(set);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_other_handlers), TEST(test_truncated),      TEST(test_still_whole),
        TEST(test_many),           TEST(test_threads),        TEST(test_safetensors),
        TEST(test_rewritten),      TEST(test_tokenizer_text), TEST(test_lines),
        TEST(test_whole_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
