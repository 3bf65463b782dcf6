/* test_faults.c - training on a disk that fails: `dsmoe train` with faults.c loaded before it, once for
 * every call that changes a file. Whatever happens, existing checkpoints are intact, the command says what
 * went wrong, and resuming gives the same model as an undisturbed run.
 *
 * Each call fails in one of several ways. Set FAULTS_ALL to try all of them, which takes minutes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"
#include "tiny_run.h"
#include "train/checkpoint.h"

static char text[TINY_PATH], config[TINY_PATH], whole[TINY_PATH], half[TINY_PATH], run[TINY_PATH],
    messages[TINY_PATH], calls[TINY_PATH];

/* ---- running the command --------------------------------------------------------------------- */

/* Passed to the command in the environment; NULL: no faults. */
typedef struct fault {
    const char *kind;
    long call;
} fault;

static void set_environment(const fault *f)
{
    char number[32];
    snprintf(number, sizeof number, "%ld", f ? f->call : 0);
    setenv("LD_PRELOAD", FAULTS_LIBRARY, 1);
    setenv("FAULT_FOLDER", run, 1);
    setenv("FAULT_CALL", number, 1);
    setenv("FAULT_KIND", f ? f->kind : "none", 1);
    setenv("FAULT_LOG", calls, 1);
    /* If the program is built with ASan: our library may be loaded before ASan's. */
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
}

/* Returns the status of wait. */
static int run_command(char *const *arguments, const fault *f)
{
    unlink(calls);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        set_environment(f);
        int file = open(messages, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        int nothing = open("/dev/null", O_WRONLY);
        if (file < 0 || dup2(file, STDERR_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0)
            _exit(99);
        execv(DSMOE_COMMAND, arguments);
        _exit(98);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int begin(const char *out, const char *stop_after, const fault *f)
{
    char *arguments[] = {
        "dsmoe",
        "train",
        "--data",
        text,
        "--config",
        config,
        "--out",
        (char *)out,
        "--vocab-size",
        "300",
        "--steps",
        "3",
        "--batch",
        "2",
        "--seq",
        "16",
        "--lr",
        "0.01",
        "--eval-every",
        "1",
        "--eval-sequences",
        "2",
        "--sample-every",
        "2",
        "--sample-tokens",
        "2",
        "--save-every",
        "1",
        "--keep",
        "1",
        "--log-every",
        "1",
        "--report-every",
        "2",
        "-t",
        "1",
        "--quiet",
        "--stop-after",
        (char *)stop_after,
        NULL,
    };
    return run_command(arguments, f);
}

static int go_on(const char *stop_after, const fault *f)
{
    char *arguments[] = {"dsmoe", "train",        "--resume",         run,       "-t",
                         "1",     "--stop-after", (char *)stop_after, "--quiet", NULL};
    return run_command(arguments, f);
}

static void assert_success(int status, const char *what)
{
    size_t size;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    fail_msg("%s: status %x: %s", what, (unsigned)status, tiny_read(messages, &size));
}

static void copy_folder(const char *from, const char *to)
{
    char command[3 * TINY_PATH];
    snprintf(command, sizeof command, "cp -a '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* Checks every folder that is named like a checkpoint. */
static void assert_whole_checkpoints(const char *what)
{
    char path_found[CHECKPOINT_PATH];
    for (int64_t step = INT64_MAX;;) {
        checkpoint_state state;
        dsmoe_error error;
        if (checkpoint_newest(run, step, &step, path_found, &error))
            fail_msg("%s: %s", what, error.message);
        if (step < 0) break;
        if (checkpoint_check(path_found, &state, &error)) fail_msg("%s: %s", what, error.message);
    }
}

/* Every line that the command printed begins with its name, and the reason and the folder are named. */
static void assert_message(const char *what, const char *kind)
{
    const char *reason = strerror(!strcmp(kind, "ENOSPC")   ? ENOSPC
                                  : !strcmp(kind, "EDQUOT") ? EDQUOT
                                                            : EIO);
    size_t size;
    char *said = tiny_read(messages, &size);
    int n_lines = 0;
    for (const char *line = said; *line; n_lines++) {
        if (strncmp(line, "dsmoe train: ", 13)) fail_msg("%s: it said: %s", what, said);
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : line + strlen(line);
        if (*line == '\0' && (!strstr(said, reason) || !strstr(said, directory)))
            fail_msg("%s: it said: %s", what, said);
    }
    /* There is more than one line only if the others are warnings: an old checkpoint could not be removed,
     * a report not written. */
    if (n_lines < 1 || n_lines > 3) fail_msg("%s: it said: %s", what, said);
    free(said);
}

static void assert_outcome(int status, const fault *f, const char *what)
{
    bool deadly = !strcmp(f->kind, "kill") || !strcmp(f->kind, "power");
    bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool exited = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
    if (deadly ? !died : !exited) {
        size_t size;
        fail_msg("%s: status %x: %s", what, (unsigned)status, tiny_read(messages, &size));
    }
    bool failed = exited && WEXITSTATUS(status) == 1;
    if (!strcmp(f->kind, "short") && failed) assert_success(status, what);
    if (failed) assert_message(what, f->kind);
}

static void assert_same_end(void)
{
    static const char *const files[] = {"model.safetensors", "training.safetensors", "config.json",
                                        "tokenizer.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        snprintf(name, sizeof name, "checkpoints/step-00000003/%s", files[i]);
        tiny_assert_same(tiny_path(whole, name), tiny_path(run, name));
    }
}

/* ---- all faults ------------------------------------------------------------------------------ */

/* A run from its start up to a stop, or a run that is resumed. */
typedef int scene_fn(const fault *f);

static int first_steps(const fault *f) { return begin(run, "2", f); }

static int next_step(const fault *f)
{
    copy_folder(half, run);
    return go_on("2", f);
}

/* The number of calls that can fail; calls of every name in `names` must be among them. */
static long count_calls(scene_fn *scene, const char *const *names)
{
    assert_success(scene(NULL), "undisturbed");
    tiny_remove(run);
    size_t size;
    char *log = tiny_read(calls, &size);
    long n = 0;
    for (const char *c = log; *c; c++) n += *c == '\n';
    for (; *names; names++) {
        char word[32];
        snprintf(word, sizeof word, " %s\n", *names);
        if (!strstr(log, word)) fail_msg("no call of %s", *names);
    }
    free(log);
    return n;
}

static void disturb(scene_fn *scene, const fault *f)
{
    char what[64];
    snprintf(what, sizeof what, "%s at call %ld", f->kind, f->call);
    int status = scene(f);
    assert_outcome(status, f, what);
    assert_whole_checkpoints(what);
    bool is_run = tiny_exists(tiny_path(run, "settings.json"));
    assert_success(is_run ? go_on("3", NULL) : begin(run, "3", NULL), what);
    assert_same_end();
    tiny_remove(run);
}

static void disturb_all(scene_fn *scene, const char *const *names)
{
    static const char *const deaths[] = {"kill", "power"};
    static const char *const failures[] = {"ENOSPC", "EIO", "short", "EDQUOT"};
    bool all = getenv("FAULTS_ALL") != NULL;
    long n = count_calls(scene, names);
    for (long call = 1; call <= n; call += FAULTS_STRIDE) {
        for (int i = 0; i < 2; i++)
            if (all || call % 2 == i) disturb(scene, &(fault){deaths[i], call});
        for (int i = 0; i < 4; i++)
            if (all || call % 4 == i) disturb(scene, &(fault){failures[i], call});
    }
}

static void test_first_steps(void **state)
{
    (void)state;
    static const char *const names[] = {"open",  "write",   "fsync",  "close", "rename",
                                        "mkdir", "symlink", "unlink", "rmdir", NULL};
    disturb_all(first_steps, names);
}

static void test_next_step(void **state)
{
    (void)state;
    static const char *const names[] = {"open",   "write",  "fsync", "close",
                                        "rename", "unlink", NULL};
    disturb_all(next_step, names);
}

static int make_runs(void **state)
{
    if (make_directory(state)) return -1;
    /* faults.c sees paths without links. */
    char *real = realpath(directory, NULL);
    assert_non_null(real);
    snprintf(directory, sizeof directory, "%.255s", real);
    free(real);
    snprintf(path, sizeof path, "%s/test.safetensors", directory);
    tiny_write_text(directory);
    tiny_write_config(directory);
    char *const places[] = {text, config, whole, half, run, messages, calls};
    static const char *const names[] = {"text", "config.json", "whole", "half",
                                        "run",  "messages",    "calls"};
    for (int i = 0; i < 7; i++)
        snprintf(places[i], TINY_PATH, "%s", tiny_path(directory, names[i]));
    assert_success(begin(whole, "3", NULL), "undisturbed");
    assert_success(begin(half, "1", NULL), "stopped");
    return 0;
}

static int remove_runs(void **state)
{
    const char *const places[] = {text, config, whole, half, run, messages, calls};
    for (int i = 0; i < 7; i++) tiny_remove(places[i]);
    return remove_directory(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_steps),
        cmocka_unit_test(test_next_step),
    };
    return cmocka_run_group_tests(tests, make_runs, remove_runs);
}
