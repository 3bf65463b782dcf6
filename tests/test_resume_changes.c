/* test_resume_changes.c - runs resumed with other settings than they started with: which settings may
 * change, that a change takes effect and is kept, and how the others are refused. The linker wraps
 * trainer_update, so that a learning rate that is too high spoils a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_witness.h"
#include "scratch.h"
#include "train/trainer.h"

static double highest_lr = INFINITY; /* above this rate a gradient becomes NaN */

dsmoe_status __real_trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                                   dsmoe_error *error);
dsmoe_status __wrap_trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                                   dsmoe_error *error);
dsmoe_status __wrap_trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                                   dsmoe_error *error)
{
    if (lr > highest_lr) trainer->gradients[0] = NAN;
    return __real_trainer_update(trainer, lr, update, error);
}

/* ---- helpers --------------------------------------------------------------------------------- */

enum { MAX_KEYS = 8 };

/* The options of a resumed run with these keys, which are separated by blanks. */
static dsmoe_run_options resume_with(const char *run, const char *words)
{
    static char text[256];
    static const char *keys[MAX_KEYS];
    dsmoe_run_options options = {.resume = run, .given = keys, .n_threads = 1};
    snprintf(text, sizeof text, "%s", words);
    for (char *key = strtok(text, " "); key; key = strtok(NULL, " ")) {
        assert_true(options.n_given < MAX_KEYS);
        keys[options.n_given++] = key;
    }
    return options;
}

static dsmoe_run_settings saved_settings(const char *run)
{
    dsmoe_run_settings s = dsmoe_run_settings_default();
    dsmoe_error error;
    if (dsmoe_run_settings_read(tiny_path(run, "settings.json"), &s, &error))
        fail_msg("%s", error.message);
    return s;
}

static void assert_logged(const char *run, const char *words)
{
    size_t size;
    char *text = tiny_read(tiny_path(run, "metrics.jsonl"), &size);
    if (!strstr(text, words)) fail_msg("metrics.jsonl has no %s", words);
    free(text);
}

/* A run of six steps, stopped after the third. */
static void make_half(char run[TINY_PATH])
{
    copy_path(run, directory, "half");
    tiny_remove(run);
    dsmoe_run_settings s = tiny_settings(directory, "half");
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 3}, NULL);
}

/* ---- settings that may change ---------------------------------------------------------------- */

/* Values that equal the defaults count as given, too. */
static void test_values_hold(void **state)
{
    (void)state;
    char run[TINY_PATH];
    make_half(run);
    dsmoe_run_settings s = dsmoe_run_settings_default(); /* lr 0.001, steps 1000 */
    s.steps = 8;
    strcpy(s.schedule, "constant");
    s.warmup = 0;
    witness w = {0};
    dsmoe_run_options options = resume_with(run, "lr steps schedule warmup");
    options.stop_after = 5;
    must_run(&s, options, &w);
    assert_string_equal(w.changes, "steps 6 -> 8, lr 0.01 -> 0.001, schedule \"step\" -> "
                                   "\"constant\", warmup not set -> 0");
    assert_true(w.last_lr == 0.001 && w.first_step == 3);
    assert_logged(run, "{\"type\":\"change\",\"step\":3,\"settings\":{\"steps\":[6,8],\"lr\":[0.01,"
                       "0.001],\"schedule\":[\"step\",\"constant\"],\"warmup\":[-1,0]}}");
    dsmoe_run_settings saved = saved_settings(run);
    assert_true(saved.lr == 0.001 && saved.steps == 8 && saved.warmup == 0);
    assert_string_equal(saved.schedule, "constant");
    assert_int_equal(saved.batch, 2); /* the run's own value */

    /* The changes are kept when the run is resumed without them. */
    w = (witness){0};
    dsmoe_run_result r = must_resume(run, 0, 2, &w);
    assert_true(r.finished && r.step == 8 && w.last_lr == 0.001);
    assert_string_equal(w.changes, "");
    tiny_remove(run);
}

/* A run with changes can be stopped and resumed as well. */
static void test_changes_are_exact(void **state)
{
    (void)state;
    char run[TINY_PATH], whole[TINY_PATH];
    copy_path(whole, directory, "whole");
    dsmoe_run_settings s = saved_settings(run_folder("straight"));
    s.batch = 1;
    s.accumulate = 3;
    s.recompute = true;
    s.device_groups = 2;
    s.beta1 = 0.8;
    s.clip = 0.5;
    const char *keys = "batch accumulate recompute device_groups beta1 clip";
    make_half(run);
    assert_int_equal(rename(run, whole), 0);
    must_run(&s, resume_with(whole, keys), NULL);
    make_half(run);
    dsmoe_run_options options = resume_with(run, keys);
    options.stop_after = 4;
    must_run(&s, options, NULL);
    must_resume(run, 0, 3, NULL);
    assert_same_end("whole", "half");
    tiny_remove(run);
    tiny_remove(whole);
}

static void test_balance_factor(void **state)
{
    (void)state;
    char run[TINY_PATH];
    make_half(run);
    dsmoe_run_settings s = dsmoe_run_settings_default();
    s.aux_loss_alpha = 0.5;
    witness w = {0};
    must_run(&s, resume_with(run, "aux_loss_alpha"), &w);
    assert_true(w.aux_loss_alpha == 0.5);
    dsmoe_config config;
    assert_int_equal(dsmoe_config_read(tiny_path(run, "latest/config.json"), &config, NULL),
                     DSMOE_OK);
    assert_true(config.aux_loss_alpha == 0.5);
    char x[TINY_PATH], y[TINY_PATH];
    copy_path(x, run, "latest/model.safetensors");
    copy_path(y, run_folder("straight"), "latest/model.safetensors");
    size_t n, m;
    char *one = tiny_read(x, &n), *other = tiny_read(y, &m);
    assert_true(n == m && memcmp(one, other, n));
    free(one);
    free(other);
    tiny_remove(run);
}

static void test_finished_run_goes_on(void **state)
{
    (void)state;
    char run[TINY_PATH];
    copy_path(run, directory, "finished");
    dsmoe_run_settings s = tiny_settings(directory, "finished");
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    s.steps = 9;
    dsmoe_run_result r = must_run(&s, resume_with(run, "steps"), NULL);
    assert_true(r.finished && r.step == 9);
    s.lr = 0.5;
    must_fail(&s, resume_with(run, "lr"), DSMOE_ERROR_CONFIG, "give more steps");
    assert_true(saved_settings(run).lr == 0.01);
    s.steps = 9; /* the same value is no change */
    witness w = {0};
    must_run(&s, resume_with(run, "steps"), &w);
    assert_non_null(strstr(w.message, "9 of 9 steps"));
    tiny_remove(run);
}

/* Ten skipped steps in a row end a run. With a lower rate it continues from its last checkpoint. */
static void test_diverged_run_goes_on(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) { /* with and without a checkpoint */
        char run[TINY_PATH];
        copy_path(run, directory, "diverged");
        dsmoe_run_settings s = tiny_settings(directory, "diverged");
        s.steps = 16;
        strcpy(s.schedule, "constant");
        s.warmup = first ? 0 : 4;
        highest_lr = 0.006;
        must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_NONFINITE, "10 steps");
        must_fail(NULL, resume_with(run, ""), DSMOE_ERROR_NONFINITE, "10 steps");
        s.lr = 0.005;
        witness w = {0};
        dsmoe_run_result r = must_run(&s, resume_with(run, "lr"), &w);
        highest_lr = INFINITY;
        assert_true(r.finished && w.n_skips == 0);
        assert_int_equal(w.first_step, first ? 0 : 2);
        assert_string_equal(w.changes, "lr 0.01 -> 0.005");
        tiny_remove(run);
    }
}

/* The same text at another path. */
static void test_data_moves(void **state)
{
    (void)state;
    char run[TINY_PATH], text[TINY_PATH], moved[TINY_PATH];
    copy_path(text, directory, "text");
    copy_path(moved, directory, "moved");
    make_half(run);
    assert_int_equal(rename(text, moved), 0);
    dsmoe_run_settings s = dsmoe_run_settings_default();
    snprintf(s.data[0], sizeof s.data[0], "%s/../moved", run);
    must_run(&s, resume_with(run, "data"), NULL);
    assert_string_equal(saved_settings(run).data[0], moved);
    assert_int_equal(rename(moved, text), 0);
    assert_same_end("straight", "half");
    make_half(run);
    copy_path(s.data[0], text, "sums.txt"); /* only a part of it */
    must_fail(&s, resume_with(run, "data"), DSMOE_ERROR_FORMAT, "changed");
    assert_string_equal(saved_settings(run).data[0], text);
    tiny_remove(run);
}

/* ---- settings that may not change ------------------------------------------------------------ */

static const char *as_option(const char *key) { return !strcmp(key, "seq") ? "--seq" : key; }

static void test_refused(void **state)
{
    (void)state;
    char run[TINY_PATH];
    make_half(run);
    dsmoe_run_settings s = dsmoe_run_settings_default();
    s.seed = 5;
    s.steps = 2;
    strcpy(s.preset, "2b");
    copy_path(s.out, directory, "other");
    static const struct {
        const char *keys, *words;
    } cases[] = {
        {"seq", "--seq cannot change in a run that has begun: it was 16"},
        {"lr seq", "--seq cannot change in a run that has begun: it was 16"},
        {"seed", "seed cannot change in a run that has begun: it was 0"},
        {"held_out vocab_size", "vocab_size cannot change in a run that has begun: it was 300"},
        {"preset", "preset cannot change in a run that has begun: it was not set"},
        {"out", "out cannot change in a run that has begun: it was \""},
        {"config", "config cannot change in a run that has begun: it was \""},
        {"steps", "steps 2 is too few: 3 steps of this run are done"},
        {"data", "data names no text"},
        {"speed", "there is no setting 'speed'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dsmoe_run_options options = resume_with(run, cases[i].keys);
        options.setting_name = as_option;
        dsmoe_error error = {0};
        assert_int_not_equal(watch_run(&s, options, NULL, NULL, &error), DSMOE_OK);
        if (!strstr(error.message, cases[i].words))
            fail_msg("'%s' does not say '%s'", error.message, cases[i].words);
    }
    s.steps = 3; /* these steps are done already */
    must_fail(&s, resume_with(run, "steps"), DSMOE_ERROR_CONFIG, "3 steps of this run are done");
    s.lr = NAN;
    must_fail(&s, resume_with(run, "lr"), DSMOE_ERROR_CONFIG, "lr");
    must_fail(NULL, resume_with(run, "lr"), DSMOE_ERROR_ARGUMENT, "settings");
    dsmoe_run_settings saved = saved_settings(run);
    assert_true(saved.lr == 0.01 && saved.steps == 6); /* none of the changes was kept */

    /* Equal values are no change, even if a path is written differently. */
    s = tiny_settings(directory, "half");
    snprintf(s.out, sizeof s.out, "%s/../half", run);
    witness w = {0};
    must_run(&s, resume_with(run, "seq seed held_out vocab_size config out data"), &w);
    assert_string_equal(w.changes, "");
    assert_same_end("straight", "half");
    tiny_remove(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_hold),
        cmocka_unit_test(test_changes_are_exact),
        cmocka_unit_test(test_balance_factor),
        cmocka_unit_test(test_finished_run_goes_on),
        cmocka_unit_test(test_diverged_run_goes_on),
        cmocka_unit_test(test_data_moves),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}
