/* test_metrics.c - metrics.jsonl and the TensorBoard file next to it. The TensorBoard file is read by a
 * separate decoder (event_file.c), which knows the wire format but not the writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "data_files.h"
#include "event_file.h"
#include "formats/json.h"
#include "report/events.h"
#include "report/metrics.h"
#include "scratch.h"

/* ---- helpers -------------------------------------------------------------------------------- */

static metrics *open_metrics(int64_t step)
{
    metrics *m;
    dsmoe_error error = {0};
    if (metrics_open(directory, step, &m, &error)) fail_msg("%s", error.message);
    return m;
}

static const dsmoe_layer_losses two_layers[] = {{0.01f, 0}, {0.0125f, 0}};

static void put_step(metrics *m, int64_t step, double loss)
{
    metrics_step s = {.step = step,
                      .tokens = 100 * step,
                      .skipped = 1,
                      .loss = loss,
                      .aux_loss = 0.0225,
                      .lr = 1e-3,
                      .grad_norm = INFINITY,
                      .tokens_per_s = 1234.5678901,
                      .imbalance = 1.5,
                      .layers = two_layers,
                      .n_layers = 2};
    dsmoe_error error = {0};
    if (metrics_put_step(m, &s, &error)) fail_msg("%s", error.message);
}

static char *read_lines(void)
{
    size_t size;
    char *text = (char *)read_data("metrics.jsonl", &size);
    char *ended = realloc(text, size + 1);
    assert_non_null(ended);
    ended[size] = '\0';
    return ended;
}

/* The n-th line as JSON, to be freed. */
static json_node *read_line(int n)
{
    char *text = read_lines(), *line = text;
    for (int i = 0; i < n; i++) {
        line = strchr(line, '\n');
        assert_non_null(line++);
    }
    json_node *node;
    dsmoe_error error = {0};
    if (json_node_parse(line, strcspn(line, "\n"), "line", &node, &error))
        fail_msg("%s", error.message);
    free(text);
    return node;
}

static int count_lines(void)
{
    char *text = read_lines();
    int n = 0;
    for (const char *c = text; *c; c++) n += *c == '\n';
    size_t length = strlen(text);
    assert_true(length == 0 || text[length - 1] == '\n');
    free(text);
    return n;
}

static double number(const json_node *object, const char *key)
{
    const json_node *node = json_node_member(object, key);
    assert_non_null(node);
    return json_node_number(node);
}

static const char *text_of(const json_node *object, const char *key)
{
    const json_node *node = json_node_member(object, key);
    assert_non_null(node);
    return json_node_string(node, NULL);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void test_step(void **state)
{
    (void)state;
    metrics *m = open_metrics(0);
    put_step(m, 1, 1.0 / 3);
    put_step(m, 2, NAN);
    metrics_close(m);
    assert_int_equal(count_lines(), 2);
    json_node *line = read_line(0);
    assert_string_equal(text_of(line, "type"), "step");
    assert_true(number(line, "step") == 1 && number(line, "tokens") == 100);
    assert_true(number(line, "loss") == 1.0 / 3); /* exactly */
    assert_true(number(line, "tokens_per_s") == 1234.57);
    assert_true(number(line, "skipped") == 1 && number(line, "time") > 1.6e9);
    assert_int_equal(json_node_kind(json_node_member(line, "grad_norm")), JSON_KIND_NULL);
    const json_node *layers = json_node_member(line, "aux_loss_layers");
    assert_int_equal(json_node_count(layers), 2);
    assert_true(json_node_number(json_node_item(layers, 0)) == 0.01);
    json_node_free(line);
    line = read_line(1);
    assert_int_equal(json_node_kind(json_node_member(line, "loss")), JSON_KIND_NULL);
    json_node_free(line);
}

static void test_bias(void **state)
{
    (void)state;
    const metrics_range ranges[] = {{-0.25f, 0.5f}, {0, 0}};
    metrics *m = open_metrics(0);
    assert_int_equal(metrics_put_bias(m, 7, ranges, 2, NULL), DSMOE_OK);
    metrics_close(m);
    json_node *line = read_line(0);
    assert_string_equal(text_of(line, "type"), "bias");
    assert_true(number(line, "step") == 7);
    const json_node *low = json_node_member(line, "low"), *high = json_node_member(line, "high");
    assert_true(json_node_count(low) == 2 && json_node_count(high) == 2);
    assert_true(json_node_number(json_node_item(low, 0)) == -0.25);
    assert_true(json_node_number(json_node_item(high, 0)) == 0.5);
    assert_true(json_node_number(json_node_item(high, 1)) == 0);
    json_node_free(line);
}

static void test_load_and_routing(void **state)
{
    (void)state;
    const int64_t load[] = {1, 3, 2, 2, 0, 0, 0, 0},
                  counts[] = {1, 0, 0, 3, 1, 1, 1, 1, 5, 0, 0, 0, 0, 0, 0, 0};
    const char *const kinds[] = {"one", "two"};
    metrics *m = open_metrics(0);
    assert_int_equal(metrics_put_load(m, 7, load, 2, 4, NULL), DSMOE_OK);
    assert_int_equal(metrics_put_routing(m, 8, kinds, 2, counts, 2, 4, NULL), DSMOE_OK);
    assert_int_equal(metrics_put_load(m, 9, load, 0, 4, NULL), DSMOE_OK); /* nothing to write */
    metrics_close(m);
    assert_int_equal(count_lines(), 2);
    json_node *line = read_line(0);
    const json_node *rows = json_node_member(line, "load");
    const json_node *first = json_node_item(rows, 0), *second = json_node_item(rows, 1);
    static const double ratios[] = {0.5, 1.5, 1, 1};
    for (size_t i = 0; i < 4; i++) {
        assert_true(json_node_number(json_node_item(first, i)) == ratios[i]);
        assert_true(json_node_number(json_node_item(second, i)) == 0);
    }
    json_node_free(line);
    line = read_line(1);
    assert_string_equal(json_node_string(json_node_item(json_node_member(line, "kinds"), 1), NULL),
                        "two");
    rows = json_node_item(json_node_item(json_node_member(line, "load"), 0), 0);
    assert_true(json_node_number(json_node_item(rows, 3)) == 0.75);
    json_node_free(line);
}

static void test_text(void **state)
{
    (void)state;
    const char *const kinds[] = {"a \"b\"", "c", "c"};
    const double losses[] = {1.5, NAN, 2};
    metrics *m = open_metrics(0);
    assert_int_equal(
        metrics_put_sample(m, 1, "\"</b>\n", "half \xe2\x82, \xff, whole \xe2\x82\xac", NULL),
        DSMOE_OK);
    assert_int_equal(metrics_put_skip(m, 2, "why\tnot", NULL), DSMOE_OK);
    assert_int_equal(
        metrics_put_eval(
            m,
            &(metrics_eval){.step = 3, .loss = 2.5, .kinds = kinds, .losses = losses, .n_kinds = 3},
            NULL),
        DSMOE_OK);
    assert_int_equal(
        metrics_put_eval(
            m,
            &(metrics_eval){
                .step = 4, .loss = INFINITY, .kinds = NULL, .losses = NULL, .n_kinds = 0},
            NULL),
        DSMOE_OK);
    metrics_close(m);
    json_node *line = read_line(0);
    assert_string_equal(text_of(line, "prompt"), "\"</b>\n");
    assert_string_equal(text_of(line, "text"),
                        "half \xef\xbf\xbd\xef\xbf\xbd, \xef\xbf\xbd, whole \xe2\x82\xac");
    json_node_free(line);
    line = read_line(1);
    assert_string_equal(text_of(line, "reason"), "why\tnot");
    json_node_free(line);
    line = read_line(2); /* JSON readers would refuse a repeated name */
    const json_node *named = json_node_member(line, "kinds");
    assert_int_equal(json_node_count(named), 2);
    assert_true(number(named, "a \"b\"") == 1.5);
    json_node_free(line);
    line = read_line(3);
    assert_null(json_node_member(line, "kinds"));
    assert_int_equal(json_node_kind(json_node_member(line, "loss")), JSON_KIND_NULL);
    json_node_free(line);
}

static void put_extra(FILE *text, const void *context)
{
    fprintf(text, ",\"step\":%d,\"path\":\"\xe4\"", *(const int *)context);
}

/* Resuming drops later steps, in whatever order they were written, and incomplete lines. */
static void test_resume(void **state)
{
    (void)state;
    int zero = 0;
    metrics *m = open_metrics(0);
    assert_int_equal(metrics_put_line(m, "start", put_extra, &zero, NULL), DSMOE_OK);
    for (int64_t step = 1; step <= 5; step++) put_step(m, step, 3);
    assert_int_equal(
        metrics_put_eval(
            m, &(metrics_eval){.step = 3, .loss = 2.5, .kinds = NULL, .losses = NULL, .n_kinds = 0},
            NULL),
        DSMOE_OK);
    metrics_close(m);
    FILE *file = fopen(in_directory("metrics.jsonl"), "a");
    assert_non_null(file);
    fputs("{\"type\":\"note\"}\nnonsense\n{\"type\":\"step\",\"step\":2", file);
    assert_int_equal(fclose(file), 0);

    m = open_metrics(3);
    assert_int_equal(count_lines(), 6); /* start, three steps, eval, note */
    put_step(m, 4, 7);
    metrics_close(m);
    assert_int_equal(count_lines(), 7);
    static const char *const types[] = {"start", "step", "step", "step", "eval", "note", "step"};
    for (int i = 0; i < 7; i++) {
        json_node *line = read_line(i);
        assert_string_equal(text_of(line, "type"), types[i]);
        json_node_free(line);
    }
    json_node *line = read_line(6);
    assert_true(number(line, "step") == 4 && number(line, "loss") == 7);
    json_node_free(line);

    /* A last line without an end is dropped, even if it is valid: the next line would be appended to it. */
    file = fopen(in_directory("metrics.jsonl"), "a");
    assert_non_null(file);
    fputs("{\"type\":\"note\"}", file);
    assert_int_equal(fclose(file), 0);
    metrics_close(open_metrics(4));
    assert_int_equal(count_lines(), 7);

    m = open_metrics(0); /* a new run */
    metrics_close(m);
    assert_int_equal(count_lines(), 0);
    m = open_metrics(9); /* nothing to resume from */
    metrics_close(m);
    assert_int_equal(remove(in_directory("metrics.jsonl")), 0);
    m = open_metrics(9);
    metrics_close(m);
    assert_int_equal(count_lines(), 0);
}

static void test_failures(void **state)
{
    (void)state;
    metrics *m;
    dsmoe_error error = {0};
    assert_int_equal(metrics_open("/nowhere/at/all", 0, &m, &error), DSMOE_ERROR_IO);
    assert_null(m);
    assert_non_null(strstr(error.message, "/nowhere/at/all/metrics.jsonl"));
    metrics_close(NULL);

    m = open_metrics(0);
    put_step(m, 1, 3);
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    tight = before;
    struct stat info;
    assert_int_equal(stat(in_directory("metrics.jsonl"), &info), 0);
    tight.rlim_cur = (rlim_t)info.st_size + 50; /* in the middle of the next line */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    metrics_step s = {.step = 2, .layers = two_layers, .n_layers = 2};
    dsmoe_status status = metrics_put_step(m, &s, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "metrics.jsonl"));
    assert_int_equal(count_lines(), 1); /* no incomplete line */
    put_step(m, 2, 3);
    assert_int_equal(count_lines(), 2);
    metrics_close(m);
}

/* ---- event files ---------------------------------------------------------------------------- */

static void test_checksum(void **state)
{
    (void)state;
    unsigned char bytes[32] = {0};
    assert_int_equal(events_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(events_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(events_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(events_crc32c(bytes, 32), 0x46dd794e);
    assert_int_equal(events_crc32c("", 0), 0);
}

static double scalar(const seen *s, const char *tag)
{
    double value = -1;
    if (!find_tag(s->summary, tag, &value, NULL)) fail_msg("no tag %s", tag);
    return value;
}

/* The names of the event files, oldest first. */
static int event_files(char names[8][300])
{
    struct dirent **list;
    int n = scandir(directory, &list, NULL, alphasort), kept = 0;
    for (int i = 0; i < n; i++) {
        if (!strncmp(list[i]->d_name, "events.out.tfevents.", 20))
            snprintf(names[kept++], 300, "%s", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return kept;
}

static void check_opening(span *file, int64_t step)
{
    span record;
    assert_true(take_record(file, &record));
    seen s = read_event(record);
    assert_string_equal(s.version, "brain.Event:2");
    assert_true(s.wall_time > 1.6e9);
    assert_true(take_record(file, &record));
    s = read_event(record);
    assert_true(s.session_start);
    assert_int_equal(s.step, step);
}

static void test_event_scalars(void **state)
{
    (void)state;
    const char *const kinds[] = {"bad \xff name"};
    const double losses[] = {0.25};
    metrics *m = open_metrics(0);
    put_step(m, 300, 2.5);
    assert_int_equal(
        metrics_put_eval(
            m,
            &(metrics_eval){
                .step = 301, .loss = 1.25, .kinds = kinds, .losses = losses, .n_kinds = 1},
            NULL),
        DSMOE_OK);
    metrics_close(m);
    char names[8][300];
    assert_int_equal(event_files(names), 1);
    assert_non_null(strstr(names[0], ".dsmoe"));
    size_t size;
    unsigned char *bytes = read_data(names[0], &size);
    span file = {bytes, size}, record;
    check_opening(&file, 0);
    assert_true(take_record(&file, &record));
    seen s = read_event(record);
    assert_int_equal(s.step, 300);
    assert_true(scalar(&s, "loss/train") == 2.5);
    assert_true(scalar(&s, "learning_rate") == (double)1e-3f);
    assert_true(isinf(scalar(&s, "grad_norm")));
    assert_true(scalar(&s, "balance/imbalance") == 1.5);
    assert_true(scalar(&s, "balance_by_layer/moe_layer_01") == (double)0.0125f);
    assert_true(take_record(&file, &record));
    s = read_event(record);
    assert_int_equal(s.step, 301);
    assert_true(scalar(&s, "loss/held_out") == 1.25);
    assert_true(scalar(&s, "loss_by_kind/bad \xef\xbf\xbd name") == 0.25);
    assert_false(take_record(&file, &record));
    free(bytes);
}

static void read_histogram(span histogram, double numbers[6], double *count)
{
    double limits[64] = {0};
    int n_limits = 0, n_buckets = 0;
    *count = 0;
    for (field f; take_field(&histogram, &f);) {
        if (f.wire == 1) {
            assert_in_range(f.number, 1, 5);
            numbers[f.number] = as_double(f.bits);
            continue;
        }
        assert_int_equal(f.inner.size % 8, 0);
        while (f.inner.size > 0) {
            double value = as_double(take_little(&f.inner, 8));
            if (f.number == 6) limits[n_limits++] = value;
            if (f.number == 7) {
                *count += value;
                n_buckets++;
            }
        }
    }
    assert_int_equal(n_limits, n_buckets);
    assert_true(n_limits > 0 && limits[n_limits - 1] == numbers[2]);
    for (int i = 1; i < n_limits; i++) assert_true(limits[i] > limits[i - 1]);
}

static void test_event_histograms(void **state)
{
    (void)state;
    const int64_t load[] = {1, 3, 2, 2, 5, 5, 5, 5};
    metrics *m = open_metrics(0);
    assert_int_equal(metrics_put_load(m, 20, load, 2, 4, NULL), DSMOE_OK);
    metrics_close(m);
    char names[8][300];
    assert_int_equal(event_files(names), 1);
    size_t size;
    unsigned char *bytes = read_data(names[0], &size);
    span file = {bytes, size}, record, histogram = {0};
    check_opening(&file, 0);
    assert_true(take_record(&file, &record));
    seen s = read_event(record);
    double numbers[6], count, unused;
    assert_true(find_tag(s.summary, "expert_load/moe_layer_00", &unused, &histogram));
    read_histogram(histogram, numbers, &count);
    assert_true(numbers[1] == 0.5 && numbers[2] == 1.5 && numbers[3] == 4 && numbers[4] == 4);
    assert_true(numbers[5] == 0.25 + 2.25 + 1 + 1 && count == 4);
    assert_true(find_tag(s.summary, "expert_load/moe_layer_01", &unused, &histogram));
    read_histogram(histogram, numbers, &count); /* all equal: one bucket */
    assert_true(numbers[1] == 1 && numbers[2] == 1 && count == 4);
    free(bytes);
}

/* Each resume begins a new file, which tells TensorBoard what part of the older files is void. */
static void test_event_resume(void **state)
{
    (void)state;
    static const int64_t steps[] = {0, 40, 40};
    static const int64_t void_from[] = {0, 41, 41};
    for (int i = 0; i < 3; i++) metrics_close(open_metrics(steps[i]));
    char names[8][300];
    assert_int_equal(event_files(names), 3);
    for (int i = 0; i < 3; i++) {
        size_t size;
        unsigned char *bytes = read_data(names[i], &size);
        span file = {bytes, size};
        check_opening(&file, void_from[i]);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_step, empty_directory, clear_directory),
        cmocka_unit_test_setup_teardown(test_bias, empty_directory, clear_directory),
        cmocka_unit_test_setup_teardown(test_load_and_routing, empty_directory, clear_directory),
        cmocka_unit_test_setup_teardown(test_text, empty_directory, clear_directory),
        cmocka_unit_test_setup_teardown(test_resume, empty_directory, clear_directory),
        cmocka_unit_test_setup_teardown(test_failures, empty_directory, clear_directory),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test_setup_teardown(test_event_scalars, empty_directory, clear_directory),
        cmocka_unit_test_setup_teardown(test_event_histograms, empty_directory, clear_directory),
        cmocka_unit_test_setup_teardown(test_event_resume, empty_directory, clear_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
