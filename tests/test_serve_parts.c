/* test_serve_parts.c - parts of the server that need no network: the token budget of a pass, the log of
 * experts, counters, the page's files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/budget.h"
#include "serve/metrics.h"
#include "serve/page.h"
#include "serve/routing_log.h"

/* ---- the budget -------------------------------------------------------------------------------- */

static void budget_starts_small(void **state)
{
    (void)state;
    const budget b = {0};
    assert_int_equal(budget_of(&b, 4, 512), 2 * BUDGET_STEP);
    assert_int_equal(budget_of(&b, 4, 20), BUDGET_STEP);
    assert_int_equal(budget_of(&b, 4, 5), 5);
}

/* A pass with prompts takes twice as long as one without, whatever the cost of a token. */
static void budget_doubles_a_pass(void **state)
{
    (void)state;
    const double token_seconds[] = {0.0001, 0.001, 0.004};
    for (size_t i = 0; i < 3; i++) {
        budget b = {0};
        const double alone = 0.2;
        for (int step = 0; step < 50; step++) {
            int64_t n = budget_of(&b, 16, 4096);
            budget_learn(&b, 16, 0, alone);
            budget_learn(&b, 16, n, alone + (double)n * token_seconds[i]);
        }
        double seconds = alone + (double)budget_of(&b, 16, 4096) * token_seconds[i];
        assert_true(seconds <= 2.01 * alone);
        assert_true(seconds >= 1.6 * alone);
    }
}

static void budget_never_stops_prompts(void **state)
{
    (void)state;
    budget b = {0};
    for (int i = 0; i < 20; i++) {
        budget_learn(&b, 1, 0, 0.001);
        budget_learn(&b, 1, 16, 10.0); /* a machine that has become very slow */
    }
    assert_int_equal(budget_of(&b, 1, 512), BUDGET_STEP);
    assert_int_equal(budget_of(&b, 1, 512) % BUDGET_STEP, 0);
}

/* The time for a few texts is known, that for many is not known yet. */
static void budget_of_a_crowd_is_guessed_from_fewer(void **state)
{
    (void)state;
    budget b = {0};
    budget_learn(&b, 1, 0, 0.1);
    budget_learn(&b, 1, 32, 0.2);
    assert_int_equal(budget_of(&b, 60, 512), 32);
}

/* ---- the experts ------------------------------------------------------------------------------- */

static const dsmoe_config config = {.num_hidden_layers = 4,
                                    .n_routed_experts = 8,
                                    .num_experts_per_tok = 2,
                                    .first_k_dense_replace = 1,
                                    .moe_layer_freq = 1};

static void shape_counts_layers_with_experts(void **state)
{
    (void)state;
    routing_shape s = routing_shape_of(&config);
    assert_int_equal(s.n_layers, 3);
    assert_int_equal(s.first_layer, 1);
    dsmoe_config every_other = config;
    every_other.moe_layer_freq = 2;
    s = routing_shape_of(&every_other); /* only layer 2 */
    assert_int_equal(s.n_layers, 1);
    assert_int_equal(s.first_layer, 2);
    for (int64_t freq = 1; freq < 4; freq++)
        for (int64_t first = 0; first < 5; first++) {
            dsmoe_config c = config;
            c.moe_layer_freq = freq;
            c.first_k_dense_replace = first;
            int64_t n = 0;
            for (int64_t l = 0; l < c.num_hidden_layers; l++) n += dsmoe_config_layer_is_moe(&c, l);
            assert_int_equal(routing_shape_of(&c).n_layers, n);
        }
    dsmoe_config dense = config;
    dense.n_routed_experts = dense.num_experts_per_tok = 0;
    assert_int_equal(routing_shape_of(&dense).n_layers, 0);
}

static void log_keeps_positions_apart(void **state)
{
    (void)state;
    routing_shape s = routing_shape_of(&config);
    routing_log log;
    int32_t idx[] = {1, 2, 3, 4, 5, 6};
    float weight[] = {0.9f, 0.1f, 0.8f, 0.2f, 0.7f, 0.3f};
    const dsmoe_routing routing = {NULL, idx, weight};
    assert_true(routing_log_create(&log, &s));
    routing_log_begin(&log, 10);
    for (int64_t layer = 1; layer < 4; layer++) routing_log_add(&log, layer, 9, 3, &routing);
    assert_int_equal(log.n_rows, 2); /* position 9 is before the log's start */
    for (int64_t row = 0; row < 2; row++)
        for (int64_t l = 0; l < 3; l++) {
            assert_int_equal(log.experts[(row * 3 + l) * 2], idx[2 + 2 * row]);
            assert_true(log.weights[(row * 3 + l) * 2 + 1] == weight[3 + 2 * row]);
        }
    routing_log_add(&log, 1, 10 + ROUTING_LOG_ROWS - 1, 3, &routing); /* only one of them fits */
    assert_int_equal(log.n_rows, ROUTING_LOG_ROWS);
    routing_log_free(&log);
}

static void crowd_counts_distinct_experts(void **state)
{
    (void)state;
    routing_shape s = routing_shape_of(&config);
    routing_crowd crowd;
    int32_t idx[] = {1, 2, 1, 4};
    float weight[] = {0.5f, 0.25f, 0.5f, 0.25f};
    const dsmoe_routing routing = {NULL, idx, weight};
    assert_true(routing_crowd_create(&crowd, &s));
    for (int pass = 0; pass < 2; pass++) {
        routing_crowd_add(&crowd, 2, 1, &routing);
        routing_crowd_add(&crowd, 2, 2, &routing);
        routing_crowd_end_pass(&crowd, 3);
    }
    assert_int_equal(crowd.n_passes, 2);
    assert_int_equal(crowd.n_rows, 6);
    assert_true(crowd.distinct[1] == 2 * 3);
    assert_true(crowd.distinct[0] == 0);
    assert_true(crowd.load[1 * 8 + 1] == 3.0f);
    assert_true(crowd.load[1 * 8 + 4] == 0.5f);
    routing_crowd_clear(&crowd);
    assert_true(crowd.n_passes == 0 && crowd.load[9] == 0);
    routing_crowd_free(&crowd);
}

/* ---- counters ---------------------------------------------------------------------------------- */

static void metrics_are_cumulative(void **state)
{
    (void)state;
    metrics m;
    char *text = NULL;
    size_t length = 0;
    metrics_init(&m, 0);
    metrics_observe(&m.queue, 0.004);
    metrics_observe(&m.queue, 0.3);
    metrics_observe(&m.queue, 1e6);
    metrics_count_request(&m, 1, 200);
    metrics_count_request(&m, 1, 418);
    FILE *out = open_memstream(&text, &length);
    const char *paths[] = {"/a", "/b"};
    metrics_write(&m, &(metrics_gauges){.n_running = 3}, paths, 2, 1.5, out);
    fclose(out);
    assert_non_null(strstr(text, "dsmoe_queue_seconds_bucket{le=\"0.005\"} 1\n"));
    assert_non_null(strstr(text, "dsmoe_queue_seconds_bucket{le=\"0.5\"} 2\n"));
    assert_non_null(strstr(text, "dsmoe_queue_seconds_bucket{le=\"300\"} 2\n"));
    assert_non_null(strstr(text, "dsmoe_queue_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(text, "dsmoe_queue_seconds_count 3\n"));
    assert_non_null(strstr(text, "dsmoe_requests_total{endpoint=\"/b\",status=\"200\"} 1\n"));
    assert_non_null(strstr(text, "dsmoe_requests_total{endpoint=\"/b\",status=\"other\"} 1\n"));
    assert_non_null(strstr(text, "dsmoe_requests_running 3\n"));
    /* whatever only grows is a counter, whatever its unit */
    for (const char *at = text; (at = strstr(at, "# TYPE ")); at++) {
        char name[80], type[16];
        assert_int_equal(sscanf(at, "# TYPE %79s %15s", name, type), 2);
        size_t size = strlen(name);
        bool counts = size > 6 && !strcmp(name + size - 6, "_total");
        if (counts != !strcmp(type, "counter")) fail_msg("%s is a %s", name, type);
    }
    assert_non_null(strstr(text, "dsmoe_uptime_seconds 1.5\n"));
    free(text);
}

/* ---- the page ---------------------------------------------------------------------------------- */

static void page_has_only_its_own_files(void **state)
{
    (void)state;
    const page_file *index = page_find("/");
    assert_non_null(index);
    assert_ptr_equal(index, page_find("/index.html"));
    assert_string_equal(page_type(index), "text/html; charset=utf-8");
    assert_non_null(strstr((const char *)index->bytes, "<!DOCTYPE html>"));
    const char *const none[] = {"/../index.html",
                                "//index.html",
                                "/index.html/",
                                "/%69ndex.html",
                                "/etc/passwd",
                                "/INDEX.HTML",
                                "",
                                "/.",
                                "/index.html?",
                                "/index.html\\",
                                "/page/"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (*none[i]) assert_null(page_find(none[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget_starts_small),
        cmocka_unit_test(budget_doubles_a_pass),
        cmocka_unit_test(budget_never_stops_prompts),
        cmocka_unit_test(budget_of_a_crowd_is_guessed_from_fewer),
        cmocka_unit_test(shape_counts_layers_with_experts),
        cmocka_unit_test(log_keeps_positions_apart),
        cmocka_unit_test(crowd_counts_distinct_experts),
        cmocka_unit_test(metrics_are_cumulative),
        cmocka_unit_test(page_has_only_its_own_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
