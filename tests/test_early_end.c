/* test_early_end.c - runs that end before their last step, when time is up or the held-out loss no longer
 * improves; the same wherever they were stopped and resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_witness.h"
#include "scratch.h"

/* A model that does not learn: the first evaluation, at step 2, stays the best, and the third one ends the
 * run. */
static dsmoe_run_settings patient_settings(const char *name, int64_t save_every)
{
    dsmoe_run_settings s = tiny_settings(directory, name);
    s.steps = 40;
    s.lr = 0;
    s.patience = 2;
    s.save_every = save_every;
    s.sample_every = 0;
    return s;
}

static void test_patience(void **state)
{
    (void)state;
    dsmoe_run_settings s = patient_settings("patient", 4);
    witness w = {0};
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    assert_true(r.step == 6 && !r.finished && r.end == DSMOE_RUN_OUT_OF_PATIENCE);
    assert_int_equal(w.n_evals, 3);
    assert_string_equal(r.checkpoint,
                        tiny_path(run_folder("patient"), "checkpoints/step-00000006"));

    /* Resuming trains nothing unless the patience is larger. */
    w = (witness){0};
    r = must_resume(run_folder("patient"), 0, 1, &w);
    assert_true(r.step == 6 && w.n_steps == 0 && r.end == DSMOE_RUN_OUT_OF_PATIENCE);
    assert_non_null(strstr(w.message, "did not improve in 2 evaluations"));
    char run[TINY_PATH];
    copy_path(run, directory, "patient");
    const char *keys[] = {"patience", "lr"};
    s.lr = 0.001;
    must_fail(&s, (dsmoe_run_options){.resume = run, .given = keys + 1, .n_given = 1},
              DSMOE_ERROR_CONFIG, "give a larger patience");
    s.lr = 0;
    s.patience = 4;
    dsmoe_run_options more = {.resume = run, .given = keys, .n_given = 1, .n_threads = 1};
    r = must_run(&s, more, NULL);
    assert_int_equal(r.step, 10);
    s.patience = 0; /* no limit */
    s.steps = 12;
    const char *both[] = {"patience", "steps"};
    more.given = both;
    more.n_given = 2;
    r = must_run(&s, more, NULL);
    assert_true(r.finished && r.step == 12 && r.end == DSMOE_RUN_FINISHED);
    tiny_remove(run);
}

/* If no other checkpoint was due, the last one is the best. Resuming again reports its loss. */
static void test_patience_has_a_best(void **state)
{
    (void)state;
    dsmoe_run_settings s = patient_settings("best", 0);
    char run[TINY_PATH], other[TINY_PATH];
    copy_path(run, directory, "best");
    copy_path(other, directory, "best2");
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    assert_true(r.step == 6 && r.best_loss == r.held_out_loss && r.held_out_loss > 0);
    assert_true(tiny_exists(tiny_path(run, "best/evaluation.json")));
    double loss = r.held_out_loss;
    r = must_resume(run, 0, 1, NULL);
    assert_true(r.step == 6 && r.held_out_loss == loss && r.best_loss == loss);
    s = patient_settings("best2", 0);
    witness w = {.stop_measuring_at = 6};
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    assert_false(tiny_exists(tiny_path(other, "best")));
    r = must_resume(other, 0, 1, NULL);
    assert_true(r.step == 6 && r.best_loss == loss);
    assert_same_end("best", "best2");
    tiny_assert_same(tiny_path(run, "best/evaluation.json"),
                     tiny_path(other, "best/evaluation.json"));
    tiny_remove(run);
    tiny_remove(other);
}

/* Resuming makes up for an evaluation that was interrupted, with patience or without. */
static void test_interrupted_evaluation(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "looked");
    s.save_every = 5;
    witness w = {.stop_measuring_at = 4}, again = {0};
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    assert_int_equal(w.n_evals, 1);
    must_resume(run_folder("looked"), 0, 1, &again);
    assert_int_equal(again.n_evals, 3); /* at steps 4, 5 and 6 */
    size_t size;
    char *text = tiny_read(tiny_path(run_folder("looked"), "metrics.jsonl"), &size);
    assert_non_null(strstr(text, "{\"type\":\"eval\",\"step\":4,"));
    free(text);
    tiny_remove(run_folder("looked"));
}

/* Stopped after each step and during each evaluation, with a checkpoint due or not. */
static void test_patience_is_exact(void **state)
{
    (void)state;
    for (int64_t save_every = 2; save_every <= 4; save_every++) {
        dsmoe_run_settings s = patient_settings("whole", save_every);
        must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
        for (int64_t stop = 1; stop <= 6; stop++) {
            for (int measuring = 0; measuring < 2; measuring++) {
                if (measuring && stop % 2) continue;
                s = patient_settings("parts", save_every);
                witness w = {.stop_at = measuring ? 0 : stop,
                             .stop_measuring_at = measuring ? stop : 0};
                dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
                assert_int_equal(r.step, stop);
                r = must_resume(run_folder("parts"), 0, 2, NULL);
                assert_true(r.step == 6 && r.end == DSMOE_RUN_OUT_OF_PATIENCE);
                assert_same_end("whole", "parts");
                tiny_remove(run_folder("parts"));
            }
        }
        tiny_remove(run_folder("whole"));
    }
}

/* A run whose model learns goes on to its last step. */
static void test_learning(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "learning");
    s.patience = 1;
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    assert_true(r.finished && r.end == DSMOE_RUN_FINISHED);
    char x[TINY_PATH], y[TINY_PATH];
    copy_path(x, run_folder("straight"), "latest/model.safetensors");
    copy_path(y, run_folder("learning"), "latest/model.safetensors");
    tiny_assert_same(x, y);
    tiny_remove(run_folder("learning"));
    s.eval_every = 0;
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_CONFIG, "patience");
    s.eval_every = 1;
    s.held_out = 0;
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_CONFIG, "patience");
}

static void test_time_limit(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "timed");
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 2}, NULL);
    char run[TINY_PATH];
    copy_path(run, directory, "timed");
    dsmoe_run_options options = {.resume = run, .n_threads = 1, .time_limit = 1e-9};
    dsmoe_run_result r = must_run(NULL, options, NULL); /* over before the first step */
    assert_true(r.step == 2 && !r.finished && r.end == DSMOE_RUN_OUT_OF_TIME);
    options.time_limit = 3600;
    r = must_run(NULL, options, NULL);
    assert_true(r.finished && r.end == DSMOE_RUN_FINISHED);
    assert_same_end("straight", "timed");
    tiny_remove(run);

    s.steps = 1000000;
    s.save_every = s.eval_every = s.sample_every = 0;
    s.report_every = 1000000;
    r = must_run(&s, (dsmoe_run_options){.n_threads = 1, .time_limit = 0.4}, NULL);
    assert_true(r.step < 1000000 && r.end == DSMOE_RUN_OUT_OF_TIME);
    if (r.step > 0) assert_true(tiny_exists(r.checkpoint));
    tiny_remove(run);
    must_fail(&s, (dsmoe_run_options){.time_limit = -1}, DSMOE_ERROR_ARGUMENT, "time limit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_patience_has_a_best),
        cmocka_unit_test(test_interrupted_evaluation),
        cmocka_unit_test(test_patience_is_exact),
        cmocka_unit_test(test_learning),
        cmocka_unit_test(test_time_limit),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}
