/* test_run_conversations.c - training runs on conversations: the same bits when they are stopped and
 * resumed, and with several ranks; measured on held-out conversations or on separate data; and shown
 * before training. */
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

#include "run_witness.h"
#include "scratch.h"
#include "socket_peers.h"

static void write_file(const char *name, const char *text)
{
    write_to(tiny_path(directory, name), text, strlen(text));
}

/* Sums in three formats, of different lengths. */
static void write_conversations(const char *name, unsigned n)
{
    static char text[1 << 16];
    size_t at = 0;
    for (unsigned i = 0; i < n; i++) {
        static const char *const forms[] = {
            ("{\"messages\":[{\"role\":\"user\",\"content\":\"%u + %u\"},"
             "{\"role\":\"assistant\",\"content\":\"%u\"}]}\n"),
            "{\"instruction\":\"How much is %u and %u?\",\"output\":\"It is %u.\"}\n",
            "{\"prompt\":\"%u + %u = \",\"completion\":\"%u\"}\n"};
        unsigned a = i * 7 % 50, b = i * 13 % 41;
        at += (size_t)snprintf(text + at, sizeof text - at, forms[i % 3], a, b, a + b);
    }
    write_file(name, text);
}

static dsmoe_run_settings talk_settings(const char *name)
{
    dsmoe_run_settings s = tiny_settings(directory, name);
    snprintf(s.data[0], sizeof s.data[0], "%s/talk.jsonl", directory);
    s.vocab_size = 258;
    s.seq = 80;
    s.accumulate = 3;
    s.held_out = 0.1;
    return s;
}

static int make_talk(void **state)
{
    if (make_directory(state)) return -1;
    tiny_write_config(directory);
    write_conversations("talk.jsonl", 150);
    dsmoe_run_settings s = talk_settings("straight");
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    return 0;
}

static int remove_talk(void **state)
{
    (void)state;
    tiny_remove(directory);
    return 0;
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void test_resume(void **state)
{
    (void)state;
    dsmoe_run_settings s = talk_settings("parts");
    witness w = {0};
    must_run(&s, (dsmoe_run_options){.n_threads = 2, .stop_after = 1}, &w);
    assert_int_equal(w.n_messages, 0);
    must_resume(run_folder("parts"), 3, 1, NULL);
    must_resume(run_folder("parts"), 0, 2, NULL);
    assert_same_end("straight", "parts");
    tiny_remove(run_folder("parts"));
}

/* Resuming works without the text, too. */
static void test_resume_cache(void **state)
{
    (void)state;
    char from[TINY_PATH], to[TINY_PATH];
    copy_path(from, directory, "talk.jsonl");
    copy_path(to, directory, "gone");
    dsmoe_run_settings s = talk_settings("parts");
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 2}, NULL);
    assert_int_equal(rename(from, to), 0);
    witness w = {0};
    must_resume(run_folder("parts"), 0, 1, &w);
    assert_non_null(strstr(w.message, "continuing with its tokens"));
    assert_int_equal(rename(to, from), 0);
    assert_same_end("straight", "parts");
    tiny_remove(run_folder("parts"));
}

static void test_ranks(void **state)
{
    (void)state;
    for (int n_ranks = 2; n_ranks <= 3; n_ranks++)
        for (int way = 0; way < 2; way++) {
            run_crew c = {talk_settings("crew"),
                          way ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA};
            assert_true(socket_peers_run(n_ranks, run_rank, &c, NULL, NULL));
            assert_same_end("straight", "crew");
            tiny_remove(run_folder("crew"));
        }
}

/* ---- held-out data --------------------------------------------------------------------------- */

/* The loss of each held-out conversation alone, with an engine of its own. */
static double measure_plainly(const dsmoe_model *model, const dsmoe_dataset *data, int64_t vocab)
{
    enum { LENGTH = 80 };
    int32_t tokens[LENGTH], targets[LENGTH], positions[LENGTH];
    double sum = 0, n = 0;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    dsmoe_engine_options options = {.n_ctx = LENGTH, .n_threads = 1};
    dsmoe_engine *engine;
    assert_non_null(logits);
    assert_int_equal(dsmoe_engine_create(model, &options, &engine, NULL), DSMOE_OK);
    for (int64_t i = 0; i < dsmoe_dataset_get_info(data).n_held_out; i++) {
        dsmoe_sequence *sequence;
        assert_int_equal(dsmoe_sequence_create(engine, &sequence, NULL), DSMOE_OK);
        dsmoe_dataset_held_out(data, i, 1, tokens, targets, positions, NULL);
        for (int64_t t = 0; t < LENGTH && positions[t] >= 0; t++) {
            assert_int_equal(positions[t], t);
            assert_int_equal(dsmoe_sequence_append(sequence, &tokens[t], 1, logits, NULL),
                             DSMOE_OK);
            double all = 0;
            for (int64_t k = 0; k < vocab; k++) all += exp((double)logits[k]);
            if (targets[t] < 0) continue;
            sum += log(all) - (double)logits[targets[t]];
            n++;
        }
        dsmoe_sequence_free(sequence);
    }
    dsmoe_engine_free(engine);
    free(logits);
    return sum / n;
}

static void check_held_out(const dsmoe_run_settings *s, const char *name)
{
    char best[TINY_PATH];
    copy_path(best, run_folder(name), "latest");
    dsmoe_model *model;
    dsmoe_tokenizer *tokenizer;
    dsmoe_dataset *data;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_model_open(best, &model, NULL), DSMOE_OK);
    assert_int_equal(dsmoe_tokenizer_open(best, &tokenizer, NULL), DSMOE_OK);
    char folder[TINY_PATH];
    copy_path(folder, directory, name);
    dsmoe_dataset_options o = {.cache = folder,
                               .tokenizer = tokenizer,
                               .vocab_size = dsmoe_model_config(model)->vocab_size,
                               .sequence_length = s->seq,
                               .held_out = *s->eval_data[0] ? 0 : s->held_out};
    if (dsmoe_dataset_open(&o, NULL, NULL, &data, &error)) fail_msg("%s", error.message);
    int64_t n = dsmoe_dataset_get_info(data).n_held_out;
    double loss, plain = measure_plainly(model, data, o.vocab_size), sum = 0, n_all = 0;
    double *losses = calloc((size_t)n, sizeof *losses);
    int64_t *n_targets = calloc((size_t)n, sizeof *n_targets);
    dsmoe_held_out_options options = {.n_threads = 1, .losses = losses, .n_targets = n_targets};
    assert_int_equal(dsmoe_held_out_loss(model, data, &options, &loss, NULL), DSMOE_OK);
    if (!(fabs(loss - plain) < 1e-5 * plain)) fail_msg("%.9g is not %.9g", loss, plain);
    for (int64_t i = 0; i < n; i++) {
        sum += losses[i] * (double)n_targets[i];
        n_all += (double)n_targets[i];
    }
    assert_true(fabs(sum / n_all - loss) < 1e-9);
    free(losses);
    free(n_targets);
    dsmoe_dataset_free(data);
    dsmoe_tokenizer_free(tokenizer);
    dsmoe_model_free(model);
}

static void test_held_out(void **state)
{
    (void)state;
    dsmoe_run_settings s = talk_settings("straight");
    check_held_out(&s, "straight");
}

static void test_eval_data(void **state)
{
    (void)state;
    write_conversations("eval.jsonl", 5);
    dsmoe_run_settings s = talk_settings("measured");
    snprintf(s.eval_data[0], sizeof s.eval_data[0], "%s/eval.jsonl", directory);
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 4}, NULL);
    assert_true(r.best_loss > 0);
    must_resume(run_folder("measured"), 0, 1, NULL);
    check_held_out(&s, "measured");
    tiny_remove(run_folder("measured"));
}

/* ---- errors and data shown before training ---------------------------------------------------- */

static void test_bad_line(void **state)
{
    (void)state;
    write_file("bad.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n\n"
                            "{\"messages\":[{\"role\":\"robot\",\"content\":\"a\"}]}\n");
    dsmoe_run_settings s = talk_settings("bad");
    snprintf(s.data[0], sizeof s.data[0], "%s/bad.jsonl", directory);
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_FORMAT,
              "bad.jsonl: line 3: message 1 of \"messages\": \"role\" is \"robot\"");
    assert_false(tiny_exists(run_folder("bad")));
}

static void test_counts(void **state)
{
    (void)state;
    dsmoe_run_settings s = talk_settings("counted");
    static const char *const given[] = {"too_long"};
    witness w = {0};
    s.seq = 45;
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 1}, &w);
    assert_non_null(strstr(w.message, "longer than seq 45 and cut there"));
    tiny_remove(run_folder("counted"));
    snprintf(s.too_long, sizeof s.too_long, "drop");
    w = (witness){0};
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 1, .given = given, .n_given = 1},
             &w);
    assert_non_null(strstr(w.message, "left out: longer than seq 45"));
    tiny_remove(run_folder("counted"));
    snprintf(s.too_long, sizeof s.too_long, "fold");
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_CONFIG, "not cut or drop");
    s = talk_settings("counted");
    snprintf(s.train_on, sizeof s.train_on, "none");
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_CONFIG, "not answers or all");
}

/* Settings for conversations are refused for other data. */
static void test_idle(void **state)
{
    (void)state;
    static const char *const given[] = {"train_on"};
    tiny_write_text(directory);
    dsmoe_run_settings s = tiny_settings(directory, "idle");
    must_fail(&s, (dsmoe_run_options){.n_threads = 1, .given = given, .n_given = 1},
              DSMOE_ERROR_CONFIG, "train_on has no effect");
    assert_false(tiny_exists(run_folder("idle")));
}

typedef struct shown {
    int n;
    int64_t n_targets, n_texts;
} shown;

static void see(void *context, const dsmoe_run_event *e)
{
    shown *seen = context;
    assert_true(e->kind != DSMOE_RUN_START && e->kind != DSMOE_RUN_STEP);
    if (e->kind != DSMOE_RUN_SEQUENCE) return;
    const dsmoe_run_sequence *q = e->sequence;
    assert_true(q->number == ++seen->n && q->total == 2 && q->length == 80 && q->tokenizer);
    for (int64_t i = 0; i < q->length; i++) {
        seen->n_targets += q->batch->targets[i] >= 0;
        seen->n_texts += q->batch->positions[i] == 0;
    }
}

static void test_show(void **state)
{
    (void)state;
    dsmoe_run_settings s = talk_settings("shown");
    shown seen = {0};
    dsmoe_run_options options = {.n_threads = 1, .show_data = 2, .event = see, .context = &seen};
    assert_int_equal(dsmoe_run(&s, &options, NULL, NULL), DSMOE_OK);
    assert_true(seen.n == 2 && seen.n_targets > 2 && seen.n_texts > 2);
    assert_false(tiny_exists(run_folder("shown")));
    options.resume = run_folder("straight"); /* its steps are done */
    seen = (shown){0};
    assert_int_equal(dsmoe_run(NULL, &options, NULL, NULL), DSMOE_OK);
    assert_int_equal(seen.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume),    cmocka_unit_test(test_resume_cache),
        cmocka_unit_test(test_ranks),     cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_eval_data), cmocka_unit_test(test_bad_line),
        cmocka_unit_test(test_counts),    cmocka_unit_test(test_idle),
        cmocka_unit_test(test_show),
    };
    return cmocka_run_group_tests(tests, make_talk, remove_talk);
}
