/* test_demo_study.c - the exam of a demo model as a library: every kind is asked, every token is counted,
 * and it can be stopped. The model is a small one that has learned nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_witness.h"
#include "scratch.h"
#include "study/demo_study.h"

enum { N_PROMPTS = DEMO_N_KINDS * DEMO_EXAM };

static demo_study study;
static dsmoe_error error;

typedef struct watcher {
    int n_calls, stop_at; /* the call that stops; 0: never */
    double done;
} watcher;

static bool see(void *context, double done, double total)
{
    watcher *w = context;
    assert_true(done >= w->done && done <= total && total == N_PROMPTS);
    w->done = done;
    return ++w->n_calls != w->stop_at;
}

static dsmoe_status examine(watcher *w, const char *ids)
{
    const demo_study_options options = {
        .seed = 3, .n_threads = 2, .ids_path = ids, .progress = see, .context = w};
    char model[TINY_PATH];
    copy_path(model, run_folder("straight"), "latest");
    return demo_study_run(model, &options, &study, &error);
}

static int64_t count_choices(const demo_routing *r)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < r->n_layers * DEMO_N_KINDS * r->n_experts; i++) sum += r->counts[i];
    return sum;
}

static void test_all(void **state)
{
    (void)state;
    char ids[TINY_PATH];
    copy_path(ids, directory, "sample.ids");
    watcher w = {0};
    if (examine(&w, ids) != DSMOE_OK) fail_msg("%s", error.message);
    assert_true(w.done == N_PROMPTS);
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        const demo_score *score = &study.scores[kind];
        assert_int_equal(score->n_asked, DEMO_EXAM);
        assert_true(score->n_right >= 0 && score->n_right < DEMO_EXAM / 2);
        assert_true(score->wrong.given && *score->wrong.prompt);
        assert_int_equal(score->right.given, score->n_right > 0);
    }
    /* The counted tokens are those in the file, except the EOS at the end of each text; there is no BOS. */
    size_t size, n_ids = 0, n_lines = 0;
    char *text = tiny_read(ids, &size);
    for (size_t i = 0; i < size; i++) n_ids += text[i] == ' ', n_lines += text[i] == '\n';
    free(text);
    assert_true(n_lines > 0 && n_lines % DEMO_N_KINDS == 0);
    int64_t expected = (int64_t)n_ids * study.routing.n_layers * study.routing.k;
    int64_t found = count_choices(&study.routing);
    assert_true(found > 0 && found <= expected && found > expected * 9 / 10);
    assert_int_equal(count_choices(&study.untrained), found);
    assert_true(memcmp(study.routing.counts, study.untrained.counts,
                       (size_t)(DEMO_N_KINDS * study.routing.n_experts) * sizeof(int64_t)) != 0);
    demo_study_free(&study);
    assert_int_equal(remove(ids), 0);
}

/* Stopped while asking, and while counting. */
static void test_stopped(void **state)
{
    (void)state;
    char ids[TINY_PATH];
    copy_path(ids, directory, "stopped.ids");
    watcher w = {.stop_at = 5};
    assert_int_equal(examine(&w, ids), DSMOE_ERROR_STOPPED);
    assert_true(study.scores[0].n_asked == 4 && !tiny_exists(ids));
    demo_study_free(&study);
    w = (watcher){.stop_at = N_PROMPTS + 10};
    assert_int_equal(examine(&w, ids), DSMOE_ERROR_STOPPED);
    assert_true(count_choices(&study.routing) > 0);
    demo_study_free(&study);
    assert_int_equal(remove(ids), 0);
}

static void test_failures(void **state)
{
    (void)state;
    watcher w = {0};
    assert_int_equal(examine(&w, "/nowhere/at/all.ids"), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/nowhere/at/all.ids"));
    demo_study_free(&study);
    const demo_study_options options = {.n_threads = 1, .ids_path = "x"};
    assert_int_not_equal(demo_study_run("/nowhere", &options, &study, &error), DSMOE_OK);
    demo_study_free(&study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}
