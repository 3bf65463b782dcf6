/* test_ablation.c - a comparison of architectures as a library: what it trains and reports, that it
 * resumes where it stopped, and that it touches only its folder and refuses other settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "scratch.h"
#include "study/ablation.h"
#include "tiny_run.h"

/* What a comparison reported, and when it should stop. */
typedef struct witness {
    int n_runs, n_steps, n_ends, n_measured, n_work, n_gone, n_elsewhere;
    double last_loss, done, total;
    int stop_after;      /* steps; 0: never */
    ablation *meanwhile; /* NULL, or another process that works after the first step */
} witness;

static dsmoe_error error;

static void must_train(ablation *comparison)
{
    if (ablation_train(comparison, &error) != DSMOE_OK) fail_msg("%s", error.message);
}

static void see(void *context, const ablation_event *event)
{
    witness *w = context;
    switch (event->kind) {
    case ABLATION_TEXT_GONE: w->n_gone++; break;
    case ABLATION_WAIT: fail_msg("nobody is to be waited for"); break;
    case ABLATION_WORK: w->n_work++; break;
    case ABLATION_WORK_END: break;
    case ABLATION_START: w->n_runs = event->run; break;
    case ABLATION_STEP:
        w->n_steps++;
        w->done = event->done;
        w->total = event->total;
        if (w->meanwhile) {
            ablation *other = w->meanwhile;
            w->meanwhile = NULL;
            must_train(other);
        }
        break;
    case ABLATION_SKIP: fail_msg("skipped: %s", event->text); break;
    case ABLATION_RUN_END: w->n_ends++; break;
    case ABLATION_MEASURED:
        w->n_measured++;
        w->last_loss = event->loss;
        break;
    case ABLATION_ELSEWHERE: w->n_elsewhere = event->run; break;
    }
}

static bool wants_stop(void *context)
{
    const witness *w = context;
    return w->stop_after > 0 && w->n_steps >= w->stop_after;
}

static char text[TINY_PATH], out[TINY_PATH];
static const char *const data[] = {text};

/* Smaller than any scale that a user can name. */
static const study_scale scale = {.name = "test",
                                  .hidden_size = 16,
                                  .num_hidden_layers = 1,
                                  .num_attention_heads = 2,
                                  .ffn = 16,
                                  .lr = 1e-3};

/* The smallest comparison that has probes. */
static ablation_options small_options(witness *w)
{
    ablation_options o = {.data = data,
                          .n_data = 1,
                          .out = out,
                          .bad_bytes = "replace",
                          .scale = &scale,
                          .steps = 2,
                          .batch = 1,
                          .seq = 16,
                          .vocab_size = 260,
                          .n_seeds = 1,
                          .n_threads = 2,
                          .event = see,
                          .stop = wants_stop,
                          .context = w};
    o.choices = choices_paper(o.scale->lr);
    o.is_selected[architecture_find("gshard")] = true;
    return o;
}

static ablation *a;

static int make_text(void **state)
{
    if (make_directory(state)) return -1;
    tiny_write_text(directory);
    snprintf(text, sizeof text, "%s/text", directory);
    snprintf(out, sizeof out, "%s/made/ablation", directory);
    a = malloc(sizeof *a);
    return a ? 0 : -1;
}

static int remove_text(void **state)
{
    free(a);
    tiny_remove(tiny_path(directory, "text"));
    tiny_remove(tiny_path(directory, "made"));
    return remove_directory(state);
}

static void must_open(const ablation_options *o)
{
    if (ablation_open(a, o, &error) != DSMOE_OK) fail_msg("%s", error.message);
}

/* ---- failures that leave nothing behind --------------------------------------------------------- */

static void test_failures(void **state)
{
    (void)state;
    witness w = {0};
    ablation_options o = small_options(&w);
    o.seq = 1 << 20; /* longer than the text */
    assert_int_not_equal(ablation_open(a, &o, &error), DSMOE_OK);
    assert_non_null(strstr(error.message, "too short"));
    assert_false(a->is_other);
    ablation_close(a);
    assert_false(tiny_exists(tiny_path(directory, "made")));

    o = small_options(&w);
    char inside[TINY_PATH];
    snprintf(inside, sizeof inside, "%s/text/ablation", directory);
    o.out = inside;
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "lies in the data"));
    ablation_close(a);
    assert_false(tiny_exists(inside));

    static const char *const nowhere[] = {"/nowhere/at/all"};
    o = small_options(&w);
    o.data = nowhere;
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_IO);
    ablation_close(a);
}

/* ---- a comparison ------------------------------------------------------------------------------ */

static void test_stopped_and_resumed(void **state)
{
    (void)state;
    int place = architecture_find("gshard");
    witness w = {.stop_after = 1};
    ablation_options o = small_options(&w);
    must_open(&o);
    assert_true(ablation_is_shown(a, place) && !ablation_is_known(a, place, LOSS_PLAIN));
    assert_int_equal(ablation_train(a, &error), DSMOE_ERROR_STOPPED);
    ablation_close(a);
    assert_true(w.n_runs == 1 && w.n_steps == 1 && w.n_ends == 1 && w.n_measured == 0);
    assert_true(w.n_work > 0);

    w = (witness){0};
    o = small_options(&w);
    must_open(&o);
    assert_true(a->has_begun);
    must_train(a);
    assert_true(w.n_runs == 1 && w.n_steps == 1 && w.n_ends == 1 && w.n_measured == 1);
    assert_true(w.done > 0 && fabs(w.done - w.total) < 1e-9 * w.total);
    assert_true(ablation_is_measured(&a->entries[place], 0) && isfinite(w.last_loss));
    assert_true(a->entries[place].runs[0].losses[LOSS_PLAIN] == w.last_loss);
    assert_int_equal(a->entries[place].runs[0].n_curve, 2);
    assert_false(ablation_is_shown(a, architecture_find("dense")));
    study_comparison comparisons[N_CLAIMS];
    assert_int_equal(ablation_compare(a, comparisons), 0); /* there is nothing to compare */
    ablation_close(a);
    assert_true(tiny_exists(tiny_path(out, "ablation.html")));
}

/* Nothing is left to train or measure: every loss comes from the folder. */
static void test_again(void **state)
{
    (void)state;
    int place = architecture_find("gshard");
    witness w = {0};
    ablation_options o = small_options(&w);
    char away[TINY_PATH];
    snprintf(away, sizeof away, "%s/away", directory);
    assert_int_equal(rename(text, away), 0); /* the text is not needed */
    must_open(&o);
    must_train(a);
    assert_true(w.n_gone == 1 && w.n_runs == 0 && w.n_steps == 0 && w.n_measured == 0);
    assert_true(ablation_is_measured(&a->entries[place], 0));
    ablation_close(a);
    assert_int_equal(rename(away, text), 0);
}

/* A loss that was lost is measured again from the saved weights, and is the same to the bit. */
static void test_lost_loss(void **state)
{
    (void)state;
    const char *losses = tiny_path(out, "losses.tsv");
    size_t size;
    char *before = tiny_read(losses, &size);
    char *line = strstr(before, "gshard\t1\tmask 2/16");
    assert_non_null(line);
    write_to(losses, before, (size_t)(line - before));
    witness w = {0};
    ablation_options o = small_options(&w);
    must_open(&o);
    must_train(a);
    ablation_close(a);
    assert_true(w.n_steps == 0 && w.n_measured == 1);
    size_t size_after;
    char *after = tiny_read(losses, &size_after);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

/* ---- damage ------------------------------------------------------------------------------------- */

/* Replaces a file of the comparison, opens the comparison, which must fail with a message that has these words,
 * and puts the file back. */
static void must_refuse(const char *name, const char *bytes, size_t size, const char *words)
{
    const char *file = tiny_path(out, name);
    size_t size_before;
    char *before = tiny_read(file, &size_before);
    write_to(file, bytes, size);
    witness w = {0};
    ablation_options o = small_options(&w);
    assert_int_not_equal(ablation_open(a, &o, &error), DSMOE_OK);
    if (!strstr(error.message, words)) fail_msg("%s: %s", name, error.message);
    assert_false(a->is_other);
    ablation_close(a);
    write_to(file, before, size_before);
    free(before);
}

static void test_damaged_files(void **state)
{
    (void)state;
    static const char cut[] = "gshard\t1\tplain\t4\n", other_hash[] = "data\tb4d75b8ee73b9c4\nx";
    must_refuse("losses.tsv", "", 0, "losses.tsv: the file is damaged");
    must_refuse("losses.tsv", cut, sizeof cut - 1, "remove it to have its losses measured again");
    must_refuse("losses.tsv", other_hash, 10, "losses.tsv: the file is damaged");
    must_refuse("settings.txt", "--scale test\n--st", 17, "settings.txt: the file is damaged");
    must_refuse("settings.txt", "", 0, "its settings.txt is missing or damaged");
}

/* The comparison trains nothing and measures one loss again, after which losses.tsv is as before. Frees `before`. */
static void must_measure_again(char *before)
{
    size_t size;
    witness w = {0};
    ablation_options o = small_options(&w);
    must_open(&o);
    must_train(a);
    ablation_close(a);
    assert_true(w.n_steps == 0 && w.n_measured == 1);
    char *after = tiny_read(tiny_path(out, "losses.tsv"), &size);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

/* The last digits of the last loss are gone: it is still a number, but not the one that was measured. */
static void test_cut_loss(void **state)
{
    (void)state;
    size_t size;
    char *before = tiny_read(tiny_path(out, "losses.tsv"), &size);
    write_to(tiny_path(out, "losses.tsv"), before, size - 4);
    must_measure_again(before);
}

/* Without losses.tsv, the logs of the runs tell whether the text is still the same. */
static void test_no_losses(void **state)
{
    (void)state;
    size_t size;
    char *before = tiny_read(tiny_path(out, "losses.tsv"), &size);
    assert_int_equal(remove(tiny_path(out, "losses.tsv")), 0);
    write_to(tiny_path(text, "more.txt"), "Other text.\n", 12);
    witness w = {0};
    ablation_options o = small_options(&w);
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_FORMAT);
    assert_true(a->is_other);
    ablation_close(a);
    assert_int_equal(remove(tiny_path(text, "more.txt")), 0);
    must_measure_again(before);
}

/* A run begins with an empty log. A process that dies then leaves it, and other processes may see it. */
static void test_empty_log(void **state)
{
    (void)state;
    char killed[TINY_PATH];
    snprintf(killed, sizeof killed, "%s/made/killed", directory);
    witness w = {.stop_after = 1};
    ablation_options o = small_options(&w);
    o.out = killed;
    must_open(&o);
    assert_int_equal(ablation_train(a, &error), DSMOE_ERROR_STOPPED);
    ablation_close(a);
    write_to(tiny_path(killed, "runs/gshard-seed1/metrics.jsonl"), "", 0);
    w = (witness){0};
    must_open(&o);
    must_train(a);
    ablation_close(a);
    assert_true(w.n_measured == 1);
    tiny_assert_same(tiny_path(killed, "losses.tsv"), tiny_path(out, "losses.tsv"));
}

static void test_model_gone(void **state)
{
    (void)state;
    const char *losses = tiny_path(out, "losses.tsv");
    size_t size;
    char *before = tiny_read(losses, &size);
    char *line = strstr(before, "gshard");
    assert_non_null(line);
    write_to(losses, before, (size_t)(line - before));
    char latest[TINY_PATH + 32], away[TINY_PATH + 32];
    snprintf(latest, sizeof latest, "%s/runs/gshard-seed1/latest", out);
    snprintf(away, sizeof away, "%s/runs/gshard-seed1/away", out);
    assert_int_equal(rename(latest, away), 0);
    witness w = {0};
    ablation_options o = small_options(&w);
    must_open(&o);
    assert_int_equal(ablation_train(a, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "the trained model is gone"));
    ablation_close(a);
    assert_int_equal(rename(away, latest), 0);
    write_to(losses, before, size);
    free(before);
}

/* ---- other settings ----------------------------------------------------------------------------- */

/* Choices of one model are settings too, whether they came or went. */
static void test_other_choices(void **state)
{
    (void)state;
    witness w = {0};
    ablation_options o = small_options(&w);
    o.choices.of[architecture_find("switch")].lr = 5e-4;
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_CONFIG);
    assert_true(a->is_other);
    assert_non_null(strstr(error.message, "was made without --lr switch=0.0005"));
    ablation_close(a);

    char choosy[TINY_PATH];
    snprintf(choosy, sizeof choosy, "%s/made/choosy", directory);
    o.out = choosy;
    w.stop_after = 1;
    must_open(&o);
    assert_int_equal(ablation_train(a, &error), DSMOE_ERROR_STOPPED);
    ablation_close(a);
    o.choices.of[architecture_find("switch")].lr = 2e-4;
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "--lr switch=0.0005, not with --lr switch=0.0002"));
    ablation_close(a);
    o.choices.of[architecture_find("switch")].lr = o.scale->lr;
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "was made with --lr switch=0.0005, not without it"));
    ablation_close(a);
}

static void test_other_settings(void **state)
{
    (void)state;
    witness w = {0};
    ablation_options o = small_options(&w);
    o.steps = 3;
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_CONFIG);
    assert_true(a->is_other);
    assert_non_null(strstr(error.message, "--steps 2, not with --steps 3"));
    ablation_close(a);
    assert_true(tiny_exists(tiny_path(out, "losses.tsv")));

    write_to(tiny_path(text, "more.txt"), "Other text.\n", 12);
    o = small_options(&w);
    assert_int_equal(ablation_open(a, &o, &error), DSMOE_ERROR_FORMAT);
    assert_true(a->is_other);
    ablation_close(a);
    assert_int_equal(remove(tiny_path(text, "more.txt")), 0);
}

/* Two processes, played by two comparisons of one folder: while the first trains one model, the second
 * trains the next one and leaves the first model to the first process. */
static void test_shared(void **state)
{
    (void)state;
    int dense = architecture_find("dense"), gshard = architecture_find("gshard");
    char shared[TINY_PATH];
    snprintf(shared, sizeof shared, "%s/made/shared", directory);
    ablation *b = malloc(sizeof *b);
    assert_non_null(b);
    witness w_a = {.meanwhile = b}, w_b = {0};
    ablation_options o_a = small_options(&w_a), o_b = small_options(&w_b);
    o_a.is_selected[dense] = o_b.is_selected[dense] = true;
    o_a.out = o_b.out = shared;
    must_open(&o_a);
    assert_false(a->has_begun);
    if (ablation_open(b, &o_b, &error) != DSMOE_OK) fail_msg("%s", error.message);
    assert_true(b->has_begun); /* it keeps what the first one prepared */
    must_train(a);
    assert_true(w_a.n_runs == 2 && w_a.n_steps == 2 && w_a.n_measured == 1);
    assert_true(w_b.n_runs == 2 && w_b.n_steps == 2 && w_b.n_measured == 1);
    assert_true(w_a.n_elsewhere == 0 && w_b.n_elsewhere == 1);
    for (int i = 0; i < 2; i++) {
        const ablation *one = i ? b : a;
        assert_true(ablation_is_measured(&one->entries[gshard], 0));
        assert_true(ablation_is_measured(&one->entries[dense], 0) == (one == a));
    }
    ablation_close(a);
    ablation_close(b);

    must_open(&o_a); /* all the results are there */
    assert_true(ablation_is_measured(&a->entries[dense], 0));
    assert_true(ablation_is_measured(&a->entries[gshard], 0));
    ablation_close(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_stopped_and_resumed),
        cmocka_unit_test(test_again),          cmocka_unit_test(test_lost_loss),
        cmocka_unit_test(test_damaged_files),  cmocka_unit_test(test_cut_loss),
        cmocka_unit_test(test_no_losses),      cmocka_unit_test(test_empty_log),
        cmocka_unit_test(test_model_gone),     cmocka_unit_test(test_other_choices),
        cmocka_unit_test(test_other_settings), cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, make_text, remove_text);
}
