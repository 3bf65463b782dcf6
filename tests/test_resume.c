/* test_resume.c - runs that are stopped and resumed to the same bits, from an intact checkpoint if the
 * last one is damaged, and after numbers that are not finite. The linker wraps dsmoe_trainer_backward, so
 * that a test can spoil a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "run_witness.h"
#include "scratch.h"
#include "train/checkpoint.h"

/* ---- steps that fail on demand --------------------------------------------------------------- */

typedef enum spoil_kind { SPOIL_NOTHING, SPOIL_LOSS, SPOIL_GRADIENT, SPOIL_WEIGHT } spoil_kind;
static struct {
    spoil_kind kind;
    int64_t first, last; /* batches, counted from 1 */
    int64_t n;           /* batches so far */
} spoil;

static void spoil_batches(spoil_kind kind, int64_t first, int64_t last)
{
    spoil.kind = kind;
    spoil.first = first;
    spoil.last = last;
    spoil.n = 0;
}

static void spoil_nothing(void) { spoil_batches(SPOIL_NOTHING, 0, 0); }

dsmoe_status __real_dsmoe_trainer_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch,
                                           dsmoe_batch_losses *losses, dsmoe_error *error);
dsmoe_status __wrap_dsmoe_trainer_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch,
                                           dsmoe_batch_losses *losses, dsmoe_error *error);

dsmoe_status __wrap_dsmoe_trainer_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch,
                                           dsmoe_batch_losses *losses, dsmoe_error *error)
{
    spoil.n++;
    spoil_kind kind = spoil.n >= spoil.first && spoil.n <= spoil.last ? spoil.kind : SPOIL_NOTHING;
    float *last = &trainer->weights[trainer->parameters[trainer->n_parameters - 1].begin];
    float before = *last;
    if (kind == SPOIL_LOSS) *last = NAN;
    if (kind == SPOIL_WEIGHT) trainer->weights[trainer->parameters[1].begin] = INFINITY;
    dsmoe_status status = __real_dsmoe_trainer_backward(trainer, batch, losses, error);
    if (kind == SPOIL_LOSS) *last = before; /* as if only the computation had failed */
    if (kind == SPOIL_GRADIENT) trainer->gradients[trainer->parameters[3].begin] = NAN;
    return status;
}

/* ---- other calls that a test controls -------------------------------------------------------- */

static bool fail_evaluations;
dsmoe_status __real_dsmoe_held_out_loss(const dsmoe_model *model, const dsmoe_dataset *dataset,
                                        const dsmoe_held_out_options *options, double *loss,
                                        dsmoe_error *error);
dsmoe_status __wrap_dsmoe_held_out_loss(const dsmoe_model *model, const dsmoe_dataset *dataset,
                                        const dsmoe_held_out_options *options, double *loss,
                                        dsmoe_error *error);
dsmoe_status __wrap_dsmoe_held_out_loss(const dsmoe_model *model, const dsmoe_dataset *dataset,
                                        const dsmoe_held_out_options *options, double *loss,
                                        dsmoe_error *error)
{
    if (fail_evaluations) return status_fail(error, DSMOE_ERROR_MEMORY, "no memory");
    return __real_dsmoe_held_out_loss(model, dataset, options, loss, error);
}

static const char *denied; /* the end of a path that cannot be opened, or NULL */
int __real_open(const char *file, int flags, mode_t mode);
int __wrap_open(const char *file, int flags, mode_t mode);
int __wrap_open(const char *file, int flags, mode_t mode)
{
    if (!denied || !strstr(file, denied)) return __real_open(file, flags, mode);
    errno = EACCES;
    return -1;
}

static const char *kernels_name; /* NULL: the real name */
const char *__real_dsmoe_kernels_name(void);
const char *__wrap_dsmoe_kernels_name(void);
const char *__wrap_dsmoe_kernels_name(void)
{
    return kernels_name ? kernels_name : __real_dsmoe_kernels_name();
}

/* ---- stopping and resuming ------------------------------------------------------------------- */

static void compare_resumed(bool recompute, const int threads[3])
{
    dsmoe_run_settings s = tiny_settings(directory, "all");
    s.accumulate = 2;
    s.recompute = recompute;
    s.device_groups = 2;
    s.save_every = 3;
    must_run(&s, (dsmoe_run_options){.n_threads = threads[0]}, NULL);
    for (int64_t n = 1; n < 6; n++) {
        s = tiny_settings(directory, "parts");
        s.accumulate = 2;
        s.recompute = recompute;
        s.device_groups = 2;
        s.save_every = 3;
        dsmoe_run_result r =
            must_run(&s, (dsmoe_run_options){.stop_after = n, .n_threads = threads[n % 3]}, NULL);
        assert_int_equal(r.step, n);
        assert_false(r.finished);
        witness w = {0};
        if (n < 4) { /* then stopped twice */
            r = must_resume(run_folder("parts"), n + 2, threads[(n + 1) % 3], &w);
            assert_int_equal(w.first_step, n);
            assert_int_equal(r.step, n + 2);
        }
        r = must_resume(run_folder("parts"), 0, threads[(n + 2) % 3], NULL);
        assert_true(r.finished);
        assert_same_end("all", "parts");
        tiny_remove(run_folder("parts"));
    }
    tiny_remove(run_folder("all"));
}

static void test_exact(void **state)
{
    (void)state;
    compare_resumed(false, (const int[]){1, 2, 3});
    compare_resumed(true, (const int[]){2, 3, 1});
}

/* The first line of a run's log with this beginning, to be freed. */
static char *line_of(const char *run, const char *begins)
{
    size_t size;
    char *text = tiny_read(tiny_path(run_folder(run), "metrics.jsonl"), &size);
    const char *line = strstr(text, begins);
    assert_non_null(line);
    char *copy = strndup(line, strcspn(line, "\n"));
    free(text);
    return copy;
}

/* A line of the log is the mean of the same steps even if the run was stopped between them. Resuming a
 * finished run reports the last loss again. */
static void test_log(void **state)
{
    (void)state;
    static const char *const lines[] = {"{\"type\":\"step\",\"step\":4,",
                                        "{\"type\":\"step\",\"step\":6,",
                                        "{\"type\":\"end\",\"step\":6,\"finished\":true,"};
    dsmoe_run_settings s = tiny_settings(directory, "all");
    s.log_every = 4;
    s.device_groups = 2;
    dsmoe_run_result whole = must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    s = tiny_settings(directory, "parts");
    s.log_every = 4;
    s.device_groups = 2;
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 3}, NULL);
    must_resume(run_folder("parts"), 5, 1, NULL);
    for (int i = 0; i < 2; i++) {
        dsmoe_run_result r = must_resume(run_folder("parts"), 0, 1, NULL);
        assert_true(r.loss == whole.loss);
    }
    for (int i = 0; i < 3; i++) {
        char *a = line_of("all", lines[i]), *b = line_of("parts", lines[i]);
        const char *ends = strstr(a, ",\"lr\""); /* what follows contains times */
        size_t n = ends ? (size_t)(ends - a) : strlen(a);
        assert_true(n > 60 || i == 2);
        if (strncmp(a, b, n)) fail_msg("%s is not %s", b, a);
        free(a);
        free(b);
    }
    tiny_remove(run_folder("all"));
    tiny_remove(run_folder("parts"));
}

/* Recomputing activations gives the same bits. */
static void test_recompute(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "again");
    s.recompute = true;
    must_run(&s, (dsmoe_run_options){.n_threads = 2}, NULL);
    assert_same_end("straight", "again");
    tiny_remove(run_folder("again"));
}

static void test_stop(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "stopped");
    witness w = {.stop_at = 3};
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    assert_int_equal(r.step, 3);
    assert_false(r.finished);
    assert_int_equal(w.n_steps, 3);
    assert_string_equal(r.checkpoint,
                        tiny_path(run_folder("stopped"), "checkpoints/step-00000003"));
    r = must_resume(run_folder("stopped"), 0, 1, NULL);
    assert_true(r.finished);
    assert_same_end("straight", "stopped");

    /* A finished run reports that nothing is left to do. */
    w = (witness){0};
    r = must_resume(run_folder("stopped"), 0, 1, &w);
    assert_true(r.finished && r.step == 6 && w.n_steps == 0 && w.n_messages == 1);
    assert_non_null(strstr(w.message, "6 of 6 steps"));
    assert_true(r.loss > 0 && r.held_out_loss > 0);
    assert_string_equal(r.checkpoint,
                        tiny_path(run_folder("stopped"), "checkpoints/step-00000006"));
    tiny_remove(run_folder("stopped"));
}

/* A run stopped before its first step leaves no run behind, so the same call starts it again. */
static void test_stop_early(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "early");
    for (int i = 0; i < 2; i++) {
        witness w = {.stop_at_once = i == 0, .stop_at_start = i == 1};
        dsmoe_run_result r = must_run(&s, (dsmoe_run_options){0}, &w);
        assert_true(r.step == 0 && !r.finished && w.n_steps == 0 && !*r.checkpoint);
        assert_false(tiny_exists(tiny_path(run_folder("early"), "settings.json")));
    }
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    assert_same_end("straight", "early");
    tiny_remove(run_folder("early"));
}

/* Starts a run that dies before its first checkpoint. */
static void begin_run(const char *name)
{
    dsmoe_run_settings s = tiny_settings(directory, name);
    dsmoe_error error;
    dsmoe_run_result result;
    denied = "step-00000002";
    assert_int_equal(watch_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL, &result, &error),
                     DSMOE_ERROR_IO);
    denied = NULL;
}

/* A run without any checkpoint starts from the beginning. */
static void test_no_checkpoint(void **state)
{
    (void)state;
    begin_run("bare");
    witness w = {0};
    must_resume(run_folder("bare"), 0, 2, &w);
    assert_int_equal(w.first_step, 0);
    assert_same_end("straight", "bare");
    tiny_remove(run_folder("bare"));
}

/* A run that has lost its checkpoints does not start again, and its log is not changed. */
static void test_lost_checkpoints(void **state)
{
    (void)state;
    char run[TINY_PATH], log[TINY_PATH], list[TINY_PATH], aside[TINY_PATH];
    dsmoe_run_settings s = tiny_settings(directory, "lost");
    must_run(&s, (dsmoe_run_options){.stop_after = 4, .n_threads = 1}, NULL);
    copy_path(run, directory, "lost");
    copy_path(log, run, "metrics.jsonl");
    copy_path(list, run, "checkpoints");
    copy_path(aside, directory, "aside");
    size_t size, size_after;
    char *before = tiny_read(log, &size);
    dsmoe_run_options options = {.resume = run};
    assert_int_equal(rename(list, aside), 0);
    must_fail(NULL, options, DSMOE_ERROR_IO, "its folder checkpoints is missing");
    assert_int_equal(mkdir(list, 0777), 0);
    must_fail(NULL, options, DSMOE_ERROR_IO, "latest points to one");
    assert_int_equal(unlink(tiny_path(run, "latest")), 0);
    must_fail(NULL, options, DSMOE_ERROR_IO, "best points to one");
    assert_int_equal(unlink(tiny_path(run, "best")), 0);
    must_fail(NULL, options, DSMOE_ERROR_IO, "metrics.jsonl mentions one");
    assert_int_equal(rmdir(list), 0);
    FILE *file = fopen(list, "w"); /* so that it cannot be listed */
    assert_non_null(file);
    fclose(file);
    must_fail(NULL, options, DSMOE_ERROR_IO, "checkpoints: cannot read the folder");
    char *after = tiny_read(log, &size_after);
    assert_true(size == size_after && !memcmp(before, after, size));
    free(before);
    free(after);
    assert_int_equal(unlink(list), 0);
    assert_int_equal(rename(aside, list), 0);
    witness w = {0};
    must_resume(run, 0, 1, &w);
    assert_int_equal(w.first_step, 4);
    assert_same_end("straight", "lost");
    tiny_remove(run);
}

static void flip_last_byte(const char *file)
{
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(c ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

/* The checkpoint before the damaged one is used, and the damaged one is set aside. */
static void test_damaged_checkpoint(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "hurt");
    must_run(&s, (dsmoe_run_options){.stop_after = 4, .n_threads = 1}, NULL);
    char run[TINY_PATH];
    copy_path(run, directory, "hurt");
    flip_last_byte(tiny_path(run, "checkpoints/step-00000004/model.safetensors"));
    witness w = {.stop_at_start = true};
    must_resume(run, 0, 1, &w);
    char link[TINY_PATH] = "";
    assert_true(readlink(tiny_path(run, "latest"), link, sizeof link - 1) > 0);
    assert_string_equal(link, "checkpoints/step-00000002"); /* before the first new step */
    assert_int_equal(w.first_step, 2);
    assert_int_equal(w.n_messages, 1);
    assert_non_null(strstr(w.message, "step-00000004/model.safetensors"));
    assert_true(tiny_exists(tiny_path(run, "checkpoints/damaged-step-00000004")));
    must_resume(run, 0, 1, NULL);
    assert_same_end("straight", "hurt");
    tiny_remove(run);

    /* If there is no other checkpoint that is an error, and the damaged one is not moved. */
    s = tiny_settings(directory, "hurt");
    must_run(&s, (dsmoe_run_options){.stop_after = 1, .n_threads = 1}, NULL);
    flip_last_byte(tiny_path(run, "checkpoints/step-00000001/training.safetensors"));
    must_fail(NULL, (dsmoe_run_options){.resume = run}, DSMOE_ERROR_FORMAT,
              "step-00000001/training.safetensors");
    assert_true(tiny_exists(tiny_path(run, "checkpoints/step-00000001")));
    tiny_remove(run);
}

/* ---- a checkpoint that is not measured yet --------------------------------------------------- */

static void assert_same_best(const char *a, const char *b)
{
    char x[TINY_PATH], y[TINY_PATH];
    copy_path(x, run_folder(a), "best");
    copy_path(y, run_folder(b), "best");
    tiny_assert_same(tiny_path(x, "model.safetensors"), tiny_path(y, "model.safetensors"));
    tiny_assert_same(tiny_path(x, "evaluation.json"), tiny_path(y, "evaluation.json"));
}

/* A run that is stopped while it measures a checkpoint keeps the checkpoint and measures it first when
 * resumed. That holds for the last checkpoint too, after which there is no step. */
static void test_stop_while_measuring(void **state)
{
    (void)state;
    char run[TINY_PATH];
    copy_path(run, directory, "measured");
    for (int64_t step = 2; step <= 6; step += 2) {
        dsmoe_run_settings s = tiny_settings(directory, "measured");
        witness w = {.stop_measuring_at = step}, again = {0};
        dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
        char evaluation[64];
        snprintf(evaluation, sizeof evaluation, "checkpoints/step-%08d/evaluation.json", (int)step);
        assert_int_equal(r.step, step);
        assert_true(tiny_exists(r.checkpoint) && !tiny_exists(tiny_path(run, evaluation)));
        r = must_resume(run, 0, 1, &again);
        assert_true(r.finished && r.held_out_loss > 0);
        assert_true(again.n_evals == (6 - step) / 2 + 1 && again.first_step == step);
        assert_same_end("straight", "measured");
        assert_same_best("straight", "measured");
        tiny_remove(run);
    }
}

/* A failing evaluation is reported and does not stop the run. */
static void test_failing_evaluation(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "blind");
    fail_evaluations = true;
    witness w = {0};
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    fail_evaluations = false;
    assert_true(r.finished && isnan(r.held_out_loss) && w.n_messages == 3 && w.n_samples == 2);
    assert_non_null(strstr(w.message, "could not be measured: no memory"));
    char x[TINY_PATH], y[TINY_PATH];
    copy_path(x, run_folder("blind"), "latest/model.safetensors");
    copy_path(y, run_folder("straight"), "latest/model.safetensors");
    tiny_assert_same(x, y);
    r = must_resume(run_folder("blind"), 0, 1, NULL); /* now the last checkpoint is measured */
    assert_true(r.held_out_loss > 0);
    tiny_remove(run_folder("blind"));
}

/* If the process died after the last checkpoint, the resumed run writes the line "end". */
static void test_missing_end(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "endless");
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    char file[TINY_PATH];
    copy_path(file, run_folder("endless"), "metrics.jsonl");
    for (int i = 0; i < 2; i++) {
        size_t size;
        char *text = tiny_read(file, &size), *end = strstr(text, "{\"type\":\"end\"");
        assert_non_null(end);
        assert_null(strstr(end + 1, "{\"type\":\"end\"")); /* only once */
        if (i == 0) assert_int_equal(truncate(file, end - text), 0);
        free(text);
        must_resume(run_folder("endless"), 0, 1, NULL);
    }
    tiny_remove(run_folder("endless"));
}

/* ---- problems that are not damage ------------------------------------------------------------ */

static void test_denied_checkpoint(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "denied");
    must_run(&s, (dsmoe_run_options){.stop_after = 4, .n_threads = 1}, NULL);
    char run[TINY_PATH];
    copy_path(run, directory, "denied");
    denied = "step-00000004/model.safetensors";
    must_fail(NULL, (dsmoe_run_options){.resume = run}, DSMOE_ERROR_IO, denied);
    denied = NULL;
    assert_true(tiny_exists(tiny_path(run, "checkpoints/step-00000004")));
    witness w = {0};
    must_resume(run, 0, 1, &w);
    assert_int_equal(w.first_step, 4);
    tiny_remove(run);
}

/* Other kernels add in another order: the run continues and says so. */
static void test_other_kernels(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "elsewhere");
    kernels_name = "others";
    must_run(&s, (dsmoe_run_options){.stop_after = 4, .n_threads = 1}, NULL);
    kernels_name = NULL;
    witness w = {0};
    must_resume(run_folder("elsewhere"), 0, 1, &w);
    assert_int_equal(w.n_messages, 1);
    assert_non_null(strstr(w.message, "kernels 'others'"));
    tiny_remove(run_folder("elsewhere"));
}

static void test_changed_data(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "moved");
    must_run(&s, (dsmoe_run_options){.stop_after = 2, .n_threads = 1}, NULL);
    char file[TINY_PATH], run[TINY_PATH];
    copy_path(run, directory, "moved");
    copy_path(file, directory, "text/sums.txt");
    size_t size;
    char *text = tiny_read(file, &size);
    FILE *f = fopen(file, "a");
    fputs("one more line\n", f);
    fclose(f);
    must_fail(NULL, (dsmoe_run_options){.resume = run}, DSMOE_ERROR_FORMAT,
              "the text has changed since it was put into");
    f = fopen(file, "w");
    assert_int_equal(fwrite(text, 1, size, f), size);
    fclose(f);
    free(text);
    must_resume(run, 0, 1, NULL); /* the text is as before */
    assert_same_end("straight", "moved");
    tiny_remove(run);
}

/* ---- numbers that are not finite ------------------------------------------------------------- */

static void test_skip(void **state)
{
    (void)state;
    /* If the last step is skipped, the model is that of the step before. */
    static const spoil_kind kinds[] = {SPOIL_LOSS, SPOIL_GRADIENT};
    for (int i = 0; i < 2; i++) {
        dsmoe_run_settings s = tiny_settings(directory, "skipped");
        s.save_every = 1;
        s.keep = 2;
        s.accumulate = 2;
        spoil_batches(kinds[i], 11, 11); /* out of 12 */
        witness w = {0};
        dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
        spoil_nothing();
        assert_true(r.finished && isnan(r.loss));
        assert_int_equal(w.n_skips, 1);
        assert_int_equal(w.n_skipped, 1);
        assert_non_null(strstr(w.skip, kinds[i] == SPOIL_LOSS ? "loss" : "gradient"));
        char run[TINY_PATH];
        copy_path(run, directory, "skipped");
        tiny_assert_same(tiny_path(run, "checkpoints/step-00000005/model.safetensors"),
                         tiny_path(run, "checkpoints/step-00000006/model.safetensors"));
        checkpoint_state state_then;
        assert_int_equal(checkpoint_check(tiny_path(run, "latest"), &state_then, NULL), DSMOE_OK);
        assert_true(state_then.n_skipped == 1 && state_then.n_updates == 5 &&
                    state_then.sequences == 24);
        tiny_remove(run);
    }
}

/* A skipped step before a stop is remembered. */
static void test_skip_and_resume(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "one");
    spoil_batches(SPOIL_GRADIENT, 2, 2);
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    s = tiny_settings(directory, "two");
    spoil_batches(SPOIL_GRADIENT, 2, 2);
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 3}, NULL);
    spoil_nothing();
    witness w = {0};
    must_resume(run_folder("two"), 0, 2, &w);
    assert_int_equal(w.n_skipped, 1);
    assert_same_end("one", "two");
    tiny_remove(run_folder("one"));
    tiny_remove(run_folder("two"));
}

/* The last good checkpoint is named, and only the steps after it are lost. */
static void test_ten_in_a_row(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "found");
    s.steps = 16;
    s.save_every = 4;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    char run[TINY_PATH];
    copy_path(run, directory, "lost");
    static const spoil_kind kinds[] = {SPOIL_LOSS, SPOIL_GRADIENT, SPOIL_WEIGHT};
    for (int i = 0; i < 3; i++) {
        memcpy(s.out, run, sizeof run);
        spoil_batches(kinds[i], 5, 100);
        witness w = {0};
        dsmoe_run_result r;
        dsmoe_error error;
        assert_int_equal(watch_run(&s, (dsmoe_run_options){.n_threads = 1}, &w, &r, &error),
                         DSMOE_ERROR_NONFINITE);
        spoil_nothing();
        assert_int_equal(w.n_skips, 10);
        assert_int_equal(r.step, 14);
        assert_false(r.finished);
        if (!strstr(error.message, "10 steps in a row") ||
            !strstr(error.message, "lost/checkpoints/step-00000004"))
            fail_msg("'%s'", error.message);
        must_resume(run, 0, 1, NULL);
        assert_same_end("found", "lost");
        tiny_remove(run);
    }
    tiny_remove(run_folder("found"));

    /* From the first step: there is no checkpoint to name. */
    s = tiny_settings(directory, "lost");
    s.steps = 16;
    spoil_batches(SPOIL_LOSS, 1, 100);
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_NONFINITE,
              "last good checkpoint: none yet");
    spoil_nothing();
    tiny_remove(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_early),
        cmocka_unit_test(test_no_checkpoint),
        cmocka_unit_test(test_lost_checkpoints),
        cmocka_unit_test(test_damaged_checkpoint),
        cmocka_unit_test(test_stop_while_measuring),
        cmocka_unit_test(test_failing_evaluation),
        cmocka_unit_test(test_missing_end),
        cmocka_unit_test(test_denied_checkpoint),
        cmocka_unit_test(test_other_kernels),
        cmocka_unit_test(test_changed_data),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_skip_and_resume),
        cmocka_unit_test(test_ten_in_a_row),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}
