/* test_run_preferences.c - training runs on preferences: the chosen answer wins, also for held-out pairs;
 * the same bits when a run is stopped and resumed, and with several ranks; and data that cannot be used,
 * refused in one line. */
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

#include "formats/json.h"
#include "run_witness.h"
#include "scratch.h"
#include "socket_peers.h"

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(tiny_path(directory, name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Pairs in three formats: the result of a sum is preferred to "no". */
static void write_preferences(const char *name, unsigned n)
{
    static const char *const forms[] = {
        "{\"prompt\":\"%u + %u = \",\"chosen\":\"%u\",\"rejected\":\"no\"}\n",
        ("{\"prompt\":[{\"role\":\"user\",\"content\":\"%u + %u\"}],\"chosen\":[{\"role\":"
         "\"assistant\",\"content\":\"%u\"}],\"rejected\":[{\"role\":\"assistant\",\"content\":"
         "\"no\"}]}\n"),
        ("{\"prompt\":\"a sum\",\"chosen\":[{\"role\":\"user\",\"content\":\"%u and %u\"},{\"role\":"
         "\"assistant\",\"content\":\"%u\"}],\"rejected\":[{\"role\":\"user\",\"content\":\"%u and "
         "%u\"},{\"role\":\"assistant\",\"content\":\"no, no\"}]}\n")};
    static char text[1 << 16];
    size_t at = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned a = i * 7 % 50, b = i * 13 % 41;
        at += (size_t)snprintf(text + at, sizeof text - at, forms[i % 3], a, b, a + b, a, b);
    }
    write_file(name, text);
}

static dsmoe_run_settings prefer_settings(const char *name)
{
    dsmoe_run_settings s = tiny_settings(directory, name);
    *s.config = '\0';
    snprintf(s.init, sizeof s.init, "%s/latest", run_folder("base"));
    snprintf(s.train, sizeof s.train, "lora");
    snprintf(s.targets, sizeof s.targets, "attention,shared,dense,routed");
    snprintf(s.data[0], sizeof s.data[0], "%s/pairs.jsonl", directory);
    s.rank = 3;
    s.seq = 120;
    s.lr = 1e-2;
    s.accumulate = 3;
    s.held_out = 0.1;
    return s;
}

static int make_runs(void **state)
{
    if (make_directory(state)) return -1;
    tiny_write_config(directory);
    tiny_write_text(directory);
    dsmoe_run_settings s = tiny_settings(directory, "base");
    s.vocab_size = 258;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    write_preferences("pairs.jsonl", 120);
    s = prefer_settings("straight");
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    return 0;
}

static int remove_runs(void **state)
{
    (void)state;
    tiny_remove(directory);
    return 0;
}

/* ---- learning ---------------------------------------------------------------------------------- */

/* A number from the first or last line of a type. */
static double logged(const char *run, const char *type, const char *key, bool last)
{
    size_t size;
    char *text = tiny_read(tiny_path(run_folder(run), "metrics.jsonl"), &size), *rest = text;
    double found = NAN;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        json_node *node;
        assert_int_equal(json_node_parse(line, strlen(line), "metrics", &node, NULL), DSMOE_OK);
        const json_node *number = json_node_member(node, key);
        bool is_type = !strcmp(json_node_string(json_node_member(node, "type"), NULL), type);
        if (is_type && (last || isnan(found))) {
            assert_non_null(number);
            found = json_node_number(number);
        }
        json_node_free(node);
    }
    free(text);
    assert_false(isnan(found));
    return found;
}

/* The loss before training, when the model equals the base model: log 2 up to rounding in the sum over
 * batches. */
static bool is_log_2(double loss) { return fabs(loss - log(2)) < 1e-12; }

static void test_learns(void **state)
{
    (void)state;
    dsmoe_run_settings s = prefer_settings("longer");
    s.steps = 60;
    s.dpo_beta = 0.5;
    s.log_every = 1;
    s.eval_every = 30;
    witness w = {0};
    dsmoe_run_result result = must_run(&s, (dsmoe_run_options){.n_threads = 2}, &w);
    assert_true(is_log_2(w.losses[0]));
    assert_true(logged("longer", "step", "margin", false) == 0);
    assert_true(logged("longer", "step", "accuracy", false) == 0);
    assert_true(logged("longer", "step", "accuracy", true) > 0.95);
    assert_true(logged("longer", "step", "margin", true) > 1);
    assert_true(logged("longer", "step", "loss", true) < 0.4);
    assert_true(logged("longer", "eval", "accuracy", true) == 1);
    assert_true(logged("longer", "eval", "margin", true) > 1);
    assert_true(result.held_out_loss < 0.4);
    assert_true(logged("longer", "eval", "loss", true) == result.held_out_loss);
    size_t size;
    char *report = tiny_read(tiny_path(run_folder("longer"), "report.html"), &size);
    assert_non_null(strstr(report, "Preferences met"));
    free(report);
    tiny_remove(run_folder("longer"));
}

/* Pairs without packing give the same as pairs that share sequences, up to order and rounding. */
static void test_unpacked(void **state)
{
    (void)state;
    dsmoe_run_settings s = prefer_settings("alone");
    s.unpacked = true;
    s.batch = 1;
    witness w = {0};
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    assert_true(is_log_2(w.losses[0]) && w.last_loss < w.losses[0]);
    tiny_remove(run_folder("alone"));
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void assert_same(const char *other)
{
    static const char *const names[] = {"adapter_model.safetensors", "training.safetensors"};
    for (int i = 0; i < 2; i++) {
        char a[2 * TINY_PATH], b[2 * TINY_PATH];
        snprintf(a, sizeof a, "%s/latest/%s", run_folder("straight"), names[i]);
        snprintf(b, sizeof b, "%s/latest/%s", run_folder(other), names[i]);
        tiny_assert_same(a, b);
    }
}

static void test_resume(void **state)
{
    (void)state;
    dsmoe_run_settings s = prefer_settings("parts");
    must_run(&s, (dsmoe_run_options){.n_threads = 2, .stop_after = 1}, NULL);
    must_resume(run_folder("parts"), 3, 1, NULL);
    must_resume(run_folder("parts"), 0, 2, NULL);
    assert_same("parts");
    assert_true(logged("parts", "step", "margin", true) ==
                logged("straight", "step", "margin", true));
    tiny_remove(run_folder("parts"));
}

static void test_ranks(void **state)
{
    (void)state;
    run_crew crew = {.settings = prefer_settings("ranks")};
    assert_true(socket_peers_run(2, run_rank, &crew, NULL, NULL));
    assert_same("ranks");
    assert_true(logged("ranks", "step", "accuracy", true) ==
                logged("straight", "step", "accuracy", true));
    tiny_remove(run_folder("ranks"));
}

/* ---- pairs that are too long or teach nothing -------------------------------------------------- */

static void test_too_long(void **state)
{
    (void)state;
    write_file("long.jsonl",
               "{\"prompt\":\"a\",\"chosen\":\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\",\"rejected\":"
               "\"c\"}\n"
               "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n"
               "{\"prompt\":\"a\",\"chosen\":\"c\",\"rejected\":\"c\"}\n"
               "{\"prompt\":\"a\",\"chosen\":\"\",\"rejected\":\"c\"}\n"
               "{\"prompt\":\"aaaaaaaaaaaaaaaaaaaa\",\"chosen\":\"b\",\"rejected\":\"c\"}\n");
    dsmoe_run_settings s = prefer_settings("long");
    snprintf(s.data[0], sizeof s.data[0], "%s/long.jsonl", directory);
    s.seq = 20;
    s.held_out = 0;
    s.eval_every = 0;
    witness w = {0};
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 1}, &w);
    assert_int_equal(w.n_messages, 3); /* same or no answers, cut, no answer after cutting */
    assert_true(is_log_2(w.losses[0]));
    tiny_remove(run_folder("long"));
    snprintf(s.too_long, sizeof s.too_long, "drop");
    w = (witness){0};
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 1}, &w);
    assert_int_equal(w.n_messages, 2);
    tiny_remove(run_folder("long"));
}

/* ---- refused data ------------------------------------------------------------------------------ */

static void refuse_line(const char *line, const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n%s\n",
             line);
    write_file("bad.jsonl", text);
    dsmoe_run_settings s = prefer_settings("refused");
    snprintf(s.data[0], sizeof s.data[0], "%s/bad.jsonl", directory);
    s.held_out = 0;
    s.eval_every = 0;
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_FORMAT, words);
    assert_false(tiny_exists(run_folder("refused")));
}

static void test_refused(void **state)
{
    (void)state;
    refuse_line("{\"text\":\"a\"}", "bad.jsonl: line 2: not a preference");
    refuse_line("{\"prompt\":\"a\",\"completion\":\"b\"}", "bad.jsonl: line 2: not a preference");
    refuse_line("{\"chosen\":\"b\",\"rejected\":\"c\"}",
                "bad.jsonl: line 2: \"chosen\" and \"rejected\" are strings");
    refuse_line("{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":[]}",
                "bad.jsonl: line 2: \"chosen\" and \"rejected\" must both be");
    refuse_line("{\"prompt\":\"a\",\"chosen\":null,\"rejected\":\"c\"}", "bad.jsonl: line 2: ");
    refuse_line("{\"prompt\":[],\"chosen\":[],\"rejected\":[]}",
                "bad.jsonl: line 2: \"chosen\" is empty");
    refuse_line(
        "{\"chosen\":[{\"role\":\"user\",\"content\":\"a\"}],\"rejected\":[{\"role\":\"user\","
        "\"content\":\"b\"}]}",
        "bad.jsonl: line 2: \"chosen\" and \"rejected\" have no beginning in common");
    refuse_line(
        "{\"prompt\":[],\"chosen\":[{\"role\":\"tool\",\"content\":\"a\"}],\"rejected\":[]}",
        "bad.jsonl: line 2: message 1 of \"chosen\": \"role\" is \"tool\"");

    dsmoe_run_settings s = prefer_settings("refused");
    snprintf(s.train, sizeof s.train, "all");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_CONFIG, "train lora only");
    static const char *const given[] = {"dpo_beta"};
    s = prefer_settings("refused");
    snprintf(s.data[0], sizeof s.data[0], "%s/text", directory);
    must_fail(&s, (dsmoe_run_options){.given = given, .n_given = 1}, DSMOE_ERROR_CONFIG,
              "dpo_beta has no effect");
    s.dpo_beta = 0;
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_CONFIG, "dpo_beta is 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),   cmocka_unit_test(test_unpacked),
        cmocka_unit_test(test_resume),   cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_too_long), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_runs, remove_runs);
}
