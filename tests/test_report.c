/* test_report.c - the page of a run: it shows what it must, text from strangers stays text, and for any file
 * the page is well-formed HTML or there is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data_files.h"
#include "html_page.h"
#include "made_run.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Hundreds of pages are written, and none of them must survive a power loss. */
int __wrap_fsync(int descriptor);

int __wrap_fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* The report of the run in the test's folder, to be freed. */
static char *make_page(void)
{
    dsmoe_error error = {0};
    if (dsmoe_report_run(directory, &error)) fail_msg("%s", error.message);
    assert_false(exists("report.html.partial"));
    char *page = read_page("report.html");
    assert_well_formed(page);
    return page;
}

/* The page of a file with these lines, to be freed. NULL if the file is refused with a message that names
 * it. */
static char *page_of_bytes(const char *bytes, size_t size)
{
    write_data("metrics.jsonl", bytes, size);
    dsmoe_error error = {0};
    remove(in_directory("report.html"));
    dsmoe_status status = dsmoe_report_run(directory, &error);
    assert_int_equal(exists("report.html"), status == DSMOE_OK);
    if (status != DSMOE_OK) {
        assert_int_equal(error.status, status);
        assert_non_null(strstr(error.message, "metrics.jsonl"));
        return NULL;
    }
    char *page = read_page("report.html");
    assert_well_formed(page);
    return page;
}

static char *page_of(const char *lines) { return page_of_bytes(lines, strlen(lines)); }

static const made_run usual = {.n_steps = 400,
                               .done = 400,
                               .log_every = 1,
                               .eval_every = 50,
                               .load_every = 10,
                               .sample_every = 50,
                               .n_layers = 3,
                               .n_experts = 16,
                               .n_kinds = 4,
                               .skips = true};

/* ---- a run ---------------------------------------------------------------------------------- */

static void test_finished(void **state)
{
    (void)state;
    made_run_write(directory, &usual);
    char *page = make_page();
    assert_alone(page);
    static const char *const shown[] = {"Finished.",
                                        "400",
                                        "4 layers",
                                        "of width 172",
                                        "skipped",
                                        "<h2>Loss</h2>",
                                        "Gradient norm",
                                        "Balance loss by layer",
                                        "Learning rate",
                                        "Worst imbalance",
                                        "Load of the experts",
                                        "Routing by kind of text",
                                        "arithmetic",
                                        "Once upon a time",
                                        "&quot;&lt;come &amp; see&gt;&quot;",
                                        "<summary>Settings</summary>",
                                        "sample_prompt",
                                        "prefers-color-scheme:dark",
                                        "role=\"img\"",
                                        "step 57 was skipped: the loss is not finite"};
    for (size_t i = 0; i < COUNT(shown); i++) assert_shows(page, shown[i]);
    assert_shows(page, "<h3>Layer 3</h3>");
    assert_hides(page, "<h3>Layer 0</h3>"); /* it is dense */
    assert_hides(page, "http-equiv");
    assert_hides(page, "<come");
    free(page);
}

static void test_bias(void **state)
{
    (void)state;
    made_run run = usual;
    made_run_write(directory, &run);
    char *page = make_page();
    assert_hides(page, "Bias of the gates");
    free(page);
    run.biases = true;
    made_run_write(directory, &run);
    page = make_page();
    assert_alone(page);
    assert_shows(page, "<h2>Bias of the gates</h2>");
    assert_shows(page, "<h2>Spread of the bias by layer</h2>");
    free(page);
}

static void test_unfinished(void **state)
{
    (void)state;
    made_run run = usual;
    run.done = 130;
    made_run_write(directory, &run);
    char *page = make_page();
    assert_shows(page, "<meta http-equiv=\"refresh\" content=\"15\">");
    assert_shows(page, "reloads itself every 15 seconds");
    assert_hides(page, "Routing by kind");
    assert_shows(page, "of 400");
    free(page);
    /* A stopped run does not reload its page; a resumed one does again. */
    FILE *file = fopen(in_directory("metrics.jsonl"), "a");
    assert_non_null(file);
    fputs("{\"type\":\"end\",\"step\":130,\"finished\":false}\n", file);
    fflush(file);
    page = make_page();
    assert_hides(page, "http-equiv");
    assert_shows(page, "<b>Stopped</b> after 130 steps.");
    free(page);
    fputs("{\"type\":\"start\",\"step\":130}\n{\"type\":\"st", file);
    fclose(file);
    page = make_page();
    assert_shows(page, "http-equiv");
    assert_shows(page, "Resumed once.");
    assert_hides(page, "could not be read"); /* the incomplete line may still be growing */
    free(page);
}

/* Every line is named in the legend, and only smoothed lines are called smoothed. */
static void test_legends(void **state)
{
    (void)state;
    made_run run = usual;
    made_run_write(directory, &run);
    char *page = make_page();
    assert_shows(page, "<i class=\"t0 faint\"></i>training, as logged</li>");
    assert_shows(page, "<i class=\"t0\"></i>training, smoothed</li>");
    assert_shows(page, "\ntraining, as logged ");
    free(page);
    run.n_steps = run.done = 40;
    run.eval_every = 10;
    made_run_write(directory, &run);
    page = make_page();
    assert_shows(page, "<i class=\"t0\"></i>training</li>");
    assert_hides(page, "smoothed");
    assert_hides(page, "as logged");
    free(page);
    /* several log lines for each point of the chart */
    run.n_steps = run.done = 3000;
    run.eval_every = run.load_every = run.sample_every = 1000;
    made_run_write(directory, &run);
    page = make_page();
    assert_shows(page, "training, means of 4 logged steps, shaded from lowest to highest</li>");
    free(page);
}

/* The points of the last line in the chart with this name, to be freed. */
static char *points_of(const char *page, const char *name)
{
    char *label;
    assert_true(asprintf(&label, "aria-label=\"%s\"", name) > 0);
    const char *chart = strstr(page, label);
    assert_non_null(chart);
    free(label);
    const char *points = strstr(chart, "<polyline");
    assert_non_null(points);
    points = strstr(points, "points=\"") + strlen("points=\"");
    return strndup(points, strcspn(points, "\""));
}

/* A learning rate that changes at a few steps is drawn as stairs, a gradual one as a curve. */
static void test_learning_rate(void **state)
{
    (void)state;
    static const char *const schedules[] = {"step", "cosine"};
    for (size_t i = 0; i < COUNT(schedules); i++) {
        char *lines;
        assert_true(
            asprintf(&lines,
                     "{\"type\":\"start\",\"settings\":{\"schedule\":\"%s\",\"steps\":20}}\n"
                     "{\"type\":\"step\",\"step\":0,\"loss\":1,\"lr\":0.5}\n"
                     "{\"type\":\"step\",\"step\":10,\"loss\":1,\"lr\":1}\n"
                     "{\"type\":\"step\",\"step\":20,\"loss\":1,\"lr\":0}\n",
                     schedules[i]) > 0);
        char *page = page_of(lines), *points = points_of(page, "Learning rate");
        assert_string_equal(points,
                            i ? "0,1000 2000,0 4000,2000 " : "0,1000 2000,0 4000,0 4000,2000 ");
        free(points);
        free(page);
        free(lines);
    }
}

static void test_log_scale(void **state)
{
    (void)state;
    char *page = page_of("{\"type\":\"step\",\"step\":1,\"grad_norm\":100}\n"
                         "{\"type\":\"step\",\"step\":2,\"grad_norm\":1}\n");
    assert_shows(page, ">norm, log scale</text>");
    free(page);
    page = page_of("{\"type\":\"step\",\"step\":1,\"grad_norm\":2}\n"
                   "{\"type\":\"step\",\"step\":2,\"grad_norm\":1}\n");
    assert_shows(page, ">norm</text>");
    assert_hides(page, "log scale");
    free(page);
}

static char *page_of_losses(double (*loss)(int step))
{
    char *lines = NULL;
    size_t size;
    FILE *file = open_memstream(&lines, &size);
    assert_non_null(file);
    for (int step = 1; step <= 100; step++)
        fprintf(file, "{\"type\":\"step\",\"step\":%d,\"loss\":%.4f}\n", step, loss(step));
    assert_int_equal(fclose(file), 0);
    char *page = page_of(lines);
    free(lines);
    return page;
}

static double loss_gentle(int step) { return 3 - 0.01 * step; }
static double loss_steep(int step) { return 2 + 20.0 / step; }
static double loss_spike(int step) { return step == 70 ? 9 : loss_gentle(step); }

/* The page says that points are above the chart if they are, and which. */
static void test_above_the_chart(void **state)
{
    (void)state;
    char *page = page_of_losses(loss_gentle);
    assert_hides(page, "above the chart");
    free(page);
    page = page_of_losses(loss_steep);
    assert_shows(page, "The very first steps are above the chart.");
    free(page);
    page = page_of_losses(loss_spike);
    assert_shows(page, "Some single steps are above the chart.");
    assert_hides(page, "very first steps");
    free(page);
}

/* The experts that a kind of text chooses most are side by side, under their own numbers. */
static void test_routing_order(void **state)
{
    (void)state;
    char *page = page_of("{\"type\":\"step\",\"step\":1,\"loss\":1}\n"
                         "{\"type\":\"routing\",\"step\":1,\"kinds\":[\"sums\",\"dates\"],\"load\":"
                         "[[[0.1,0.3,0.1,0.5],[0.4,0.1,0.5,0]]]}\n");
    const char *at = page;
    static const char *const order[] = {"sums, expert 3: 50.0",
                                        "sums, expert 1: 30.0",
                                        "sums, expert 2: 10.0",
                                        "sums, expert 0: 10.0",
                                        "dates, expert 3: 0.0",
                                        ">3</text>",
                                        ">1</text>",
                                        ">2</text>",
                                        ">0</text>"};
    for (size_t i = 0; i < COUNT(order); i++) {
        at = strstr(at, order[i]);
        if (!at) fail_msg("%s is not where it should be", order[i]);
    }
    free(page);
}

/* The last value of a kind is in the legend, not beside the value of the step that is pointed at. */
static void test_loss_by_kind(void **state)
{
    (void)state;
    char *page = page_of("{\"type\":\"step\",\"step\":9,\"loss\":1}\n"
                         "{\"type\":\"eval\",\"step\":1,\"loss\":2,\"kinds\":{\"sums\":2.5}}\n"
                         "{\"type\":\"eval\",\"step\":9,\"loss\":1,\"kinds\":{\"sums\":1.25}}\n");
    assert_shows(page, "<i class=\"t0\"></i>sums 1.250</li>");
    assert_shows(page, "<title>step 1\nsums 2.5</title>");
    free(page);
}

/* The time left is computed from the pace since the last start. A run that has ended has none. */
static void test_time_left(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"type\":\"start\",\"step\":0,\"time\":1000,\"settings\":{\"steps\":100}}\n"
        "{\"type\":\"step\",\"step\":10,\"loss\":2,\"time\":1010}\n"
        "{\"type\":\"start\",\"step\":10,\"time\":5000,\"settings\":{\"steps\":100}}\n"
        "{\"type\":\"step\",\"step\":20,\"loss\":2,\"time\":5030}\n";
    char *page = page_of(lines), *ended;
    assert_shows(page, "<dt>time left</dt><dd>4 min 00 s<small>");
    free(page);
    assert_true(asprintf(&ended, "%s{\"type\":\"end\",\"step\":20}\n", lines) > 0);
    page = page_of(ended);
    assert_hides(page, "time left");
    free(page);
    free(ended);
    page = page_of("{\"type\":\"step\",\"step\":20,\"loss\":2}\n");
    assert_shows(page, "<dt>time left</dt><dd>–<small>");
    free(page);
}

/* 100,000 steps and the experts of a large model: the page stays small enough for a browser, and thinning
 * keeps the extremes. */
static void test_long(void **state)
{
    (void)state;
    enum { STEPS = 100000, LAYERS = 27, EXPERTS = 64, SPIKE = 61234 };
    FILE *file = fopen(in_directory("metrics.jsonl"), "w");
    assert_non_null(file);
    for (int step = 1; step <= STEPS; step++) {
        double noise = 0.1 * (double)(rng_bits(1, 2, (uint64_t)step) >> 11) * 0x1p-53;
        fprintf(file,
                "{\"type\":\"step\",\"step\":%d,\"loss\":%.4f,\"aux_loss\":0.3,\"grad_norm\":%.3f,"
                "\"lr\":0.001,\"tokens_per_s\":9000,\"imbalance\":2,\"aux_loss_layers\":[",
                step, 2 + 5000.0 / (step + 1000) + noise, step == SPIKE ? 88.5 : 0.5 + noise);
        for (int l = 0; step % 50 == 0 && l < LAYERS; l++)
            fprintf(file, "%s%.4f", l ? "," : "", 0.01 + noise / 100);
        fputs("]}\n", file);
        if (step % 500) continue;
        fprintf(file, "{\"type\":\"load\",\"step\":%d,\"load\":[", step);
        for (int l = 0; l < LAYERS; l++)
            for (int e = 0; e < EXPERTS; e++)
                fprintf(file, "%s%.2f%s",
                        e   ? ","
                        : l ? ",["
                            : "[",
                        (double)(rng_bits(3, (uint64_t)(l * EXPERTS + e), (uint64_t)step) % 300) /
                            100,
                        e == EXPERTS - 1 ? "]" : "");
        fputs("]}\n", file);
    }
    assert_int_equal(fclose(file), 0);
    char *page = make_page();
    assert_in_range(strlen(page), 100000, 2000000);
    assert_shows(page, "100,000");
    assert_shows(page, "<h3>Layer 26</h3>");
    free(page);
}

/* ---- text from strangers -------------------------------------------------------------------- */

static void test_escaped(void **state)
{
    (void)state;
    static const char evil[] = "</title></style><script>alert(1)</script><b a='";
    char *lines;
    assert_true(asprintf(&lines,
                         "{\"type\":\"start\",\"settings\":{\"%s\":\"%s\",\"data\":[\"%s\"]},"
                         "\"config\":{\"%s\":[[[[[1]]]],{}]}}\n"
                         "{\"type\":\"step\",\"step\":1,\"loss\":1}\n"
                         "{\"type\":\"step\",\"step\":2,\"loss\":2,\"skipped\":1}\n"
                         "{\"type\":\"skip\",\"step\":2,\"reason\":\"%s\"}\n"
                         "{\"type\":\"eval\",\"step\":2,\"loss\":2,\"kinds\":{\"%s\":1}}\n"
                         "{\"type\":\"eval\",\"step\":3,\"loss\":2,\"kinds\":{\"%s\":2}}\n"
                         "{\"type\":\"sample\",\"step\":1,\"prompt\":\"%s\",\"text\":\"%s\"}\n"
                         "{\"type\":\"sample\",\"step\":2,\"text\":\"\\u0007 bell\"}\n"
                         "{\"type\":\"routing\",\"step\":2,\"kinds\":[\"%s\",7],"
                         "\"load\":[[[0.5,0.5],[1,0]]]}\n",
                         evil, evil, evil, evil, evil, evil, evil, evil, evil, evil) > 0);
    char *page = page_of(lines);
    assert_non_null(page);
    assert_alone(page);
    assert_hides(page, "<b a");
    assert_shows(page, "&lt;script&gt;alert(1)");
    assert_shows(page, "\xef\xbf\xbd bell");
    free(page);
    free(lines);

    /* The folder's name is in the page's title. */
    const char *folder = in_directory("<b>&");
    make_folder("<b>&");
    write_text("<b>&/metrics.jsonl", "{\"type\":\"step\",\"step\":1,\"loss\":1}\n");
    assert_int_equal(dsmoe_report_run(folder, NULL), DSMOE_OK);
    page = read_page("<b>&/report.html");
    assert_shows(page, "<h1>&lt;b&gt;&amp;</h1>");
    free(page);
}

/* Lines that no run writes. */
static const char *const odd_lines[] = {
    "{\"type\":\"step\"}",
    "{\"type\":\"step\",\"step\":\"one\",\"loss\":[]}",
    "{\"type\":\"step\",\"step\":-5,\"loss\":1}",
    "{\"type\":\"step\",\"step\":1e300,\"loss\":1e308}",
    "{\"type\":\"step\",\"step\":1e29,\"loss\":1e29,\"lr\":-1e29,\"time\":1e29,\"tokens\":1e29}",
    "{\"type\":\"step\",\"step\":1e-29,\"loss\":1e-29,\"grad_norm\":1e-29,\"skipped\":1e29}",
    "{\"type\":\"step\",\"step\":9223372036854775807,\"loss\":-9223372036854775808}",
    "{\"type\":\"step\",\"step\":3,\"loss\":0,\"grad_norm\":-1,\"imbalance\":0,\"lr\":0}",
    "{\"type\":\"step\",\"step\":4,\"loss\":null,\"aux_loss_layers\":{\"a\":1}}",
    "{\"type\":\"step\",\"step\":5,\"aux_loss_layers\":[null,\"x\",[1],1e30,0.5]}",
    "{\"type\":\"step\",\"step\":6,\"loss\":-1.7e308,\"lr\":1.7e308,\"imbalance\":1.7e308}",
    "{\"type\":\"step\",\"step\":7,\"loss\":1.7e308,\"lr\":-1.7e308,\"imbalance\":-1.7e308}",
    "{\"type\":\"load\",\"step\":1,\"load\":[[]]}",
    "{\"type\":\"load\",\"step\":1,\"load\":[[1,2],[3]]}",
    "{\"type\":\"load\",\"step\":2,\"load\":[[1,2],[3,4]]}",
    "{\"type\":\"load\",\"step\":3,\"load\":[[null,-5],[1e30,\"x\"]]}",
    "{\"type\":\"load\",\"step\":2,\"load\":[[1,2],[3,4]]}",
    "{\"type\":\"load\",\"step\":9,\"load\":7}",
    "{\"type\":\"bias\",\"step\":1}",
    "{\"type\":\"bias\",\"step\":2,\"low\":[1,null,\"x\"],\"high\":[0]}",
    "{\"type\":\"bias\",\"step\":3,\"low\":[-1e308],\"high\":[1e308,2]}",
    "{\"type\":\"bias\",\"step\":-3,\"low\":[0],\"high\":[1]}",
    "{\"type\":\"bias\",\"step\":4,\"low\":{\"a\":1},\"high\":7}",
    "{\"type\":\"eval\",\"step\":1,\"loss\":\"low\",\"kinds\":[1,2]}",
    "{\"type\":\"eval\",\"step\":2,\"loss\":1e31,\"kinds\":{\"\":null,\"a\":1e30}}",
    "{\"type\":\"sample\",\"step\":1}",
    "{\"type\":\"sample\",\"step\":null,\"text\":\"x\"}",
    "{\"type\":\"sample\",\"step\":1,\"text\":\"\",\"prompt\":9}",
    "{\"type\":\"skip\",\"step\":2,\"reason\":{}}",
    "{\"type\":\"skip\",\"step\":1e30}",
    "{\"type\":\"routing\",\"kinds\":[],\"load\":[]}",
    "{\"type\":\"routing\",\"kinds\":[null,\"b\"],\"load\":[[[0.5,null],[]],[],5,[[1]]]}",
    "{\"type\":\"start\",\"config\":7,\"settings\":[],\"data\":null,\"parameters\":\"many\"}",
    ("{\"type\":\"start\",\"parameters\":-1,\"active_parameters\":1e30,\"config\":{"
     "\"num_hidden_layers\":1e30,\"first_k_dense_replace\":1e30,\"moe_layer_freq\":0}}"),
    "{\"type\":\"end\",\"finished\":\"yes\"}",
    "{\"type\":7}",
    "{\"type\":\"future\",\"step\":1}",
    "[1,2,3]",
    "7",
    "{\"type\":\"step\",\"step\":1,\"step\":2}",
    "{{{{",
    "\"\\u0000\"",
    "\xff\xfe"};

/* Each odd line is left out, without harm to the others. */
static void test_hostile_lines(void **state)
{
    (void)state;
    const char *good = "{\"type\":\"step\",\"step\":1,\"loss\":2.5}\n"
                       "{\"type\":\"step\",\"step\":2,\"loss\":2.25}\n";
    char *all = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&all, &size);
    assert_non_null(file);
    fputs(good, file);
    for (size_t i = 0; i < COUNT(odd_lines); i++) {
        char *one, *alone = page_of(odd_lines[i]);
        free(alone); /* accepted or not, it must not crash */
        assert_true(asprintf(&one, "%s\n%s", odd_lines[i], good) > 0);
        char *page = page_of(one);
        assert_non_null(page);
        assert_shows(page, "<h2>Loss</h2>");
        free(page);
        free(one);
        fprintf(file, "%s\n", odd_lines[i]);
    }
    assert_int_equal(fclose(file), 0);
    char *page = page_of("{\"type\":\"step\",\"step\":1,\"loss\":-1.7e308}\n"
                         "{\"type\":\"step\",\"step\":2,\"loss\":1.7e308}\n");
    assert_non_null(page);
    free(page);
    page = page_of(all);
    assert_non_null(page);
    assert_shows(page, "7 lines of metrics.jsonl could not be read; the first is line 38.");
    free(page);
    free(all);
}

static void test_hostile_files(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_report_run(directory, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "metrics.jsonl"));
    assert_int_equal(dsmoe_report_run("/nowhere/at/all", &error), DSMOE_ERROR_IO);
    assert_null(page_of(""));
    assert_null(page_of("\n\n\n"));
    assert_null(page_of("once upon a time"));
    assert_null(page_of("{\"type\":\"sample\",\"step\":1,\"text\":\"x\"}\n"));
    assert_null(page_of_bytes("\0\0\0\0", 4));
    make_folder("dir");
    make_folder("dir/metrics.jsonl");
    assert_int_equal(dsmoe_report_run(in_directory("dir"), &error), DSMOE_ERROR_IO);

    /* A line longer than any that a run writes is not parsed at all. */
    size_t size = (size_t)20 << 20;
    char *large = malloc(size);
    assert_non_null(large);
    memset(large, '[', size);
    memcpy(large + size - 40, "\n{\"type\":\"step\",\"step\":1,\"loss\":1}\n    ", 40);
    char *page = page_of_bytes(large, size);
    assert_non_null(page);
    assert_shows(page, "1 line of metrics.jsonl could not be read");
    free(page);
    free(large);
}

/* More experts than a page can show. */
static void test_too_many_experts(void **state)
{
    (void)state;
    char *lines = NULL;
    size_t size;
    FILE *file = open_memstream(&lines, &size);
    assert_non_null(file);
    fputs("{\"type\":\"step\",\"step\":1,\"loss\":1}\n{\"type\":\"load\",\"step\":1,\"load\":[[",
          file);
    for (int i = 0; i < 40000; i++) fputs(i ? ",1" : "1", file);
    fputs("]]}\n", file);
    assert_int_equal(fclose(file), 0);
    char *page = page_of(lines);
    assert_non_null(page);
    assert_shows(page, "too many experts");
    free(page);
    free(lines);
}

/* A file cut anywhere, and a file with random bytes changed. */
static void test_damaged(void **state)
{
    (void)state;
    made_run run = usual;
    run.n_steps = run.done = 12;
    run.eval_every = run.load_every = run.sample_every = 4;
    run.n_experts = 4;
    made_run_write(directory, &run);
    size_t size;
    char *whole = (char *)read_data("metrics.jsonl", &size), *copy = malloc(size);
    assert_non_null(copy);
    for (size_t cut = size; cut > 0; cut -= cut > 97 ? 97 : cut) free(page_of_bytes(whole, cut));
    for (uint64_t i = 0; i < 120; i++) {
        memcpy(copy, whole, size);
        for (uint64_t j = 0; j < 4; j++) {
            static const char bytes[] = "0-9e.,:[]{}\"\n\\anx";
            uint64_t bits = rng_bits(5, i, j);
            copy[bits % size] = bytes[(bits >> 40) % (sizeof bytes - 1)];
        }
        free(page_of_bytes(copy, size));
    }
    free(whole);
    free(copy);
}

static void test_locale(void **state)
{
    (void)state;
    made_run_write(directory, &usual);
    char *page = make_page();
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) { /* if this locale is installed */
        char *other = make_page();
        setlocale(LC_NUMERIC, "C");
        assert_string_equal(page, other);
        free(other);
    }
    free(page);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_finished),
        IN_FOLDER(test_bias),
        IN_FOLDER(test_unfinished),
        IN_FOLDER(test_legends),
        IN_FOLDER(test_learning_rate),
        IN_FOLDER(test_log_scale),
        IN_FOLDER(test_above_the_chart),
        IN_FOLDER(test_routing_order),
        IN_FOLDER(test_loss_by_kind),
        IN_FOLDER(test_time_left),
        IN_FOLDER(test_long),
        IN_FOLDER(test_escaped),
        IN_FOLDER(test_hostile_lines),
        IN_FOLDER(test_hostile_files),
        IN_FOLDER(test_too_many_experts),
        IN_FOLDER(test_damaged),
        IN_FOLDER(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
