/* test_run_bias.c - a run of a model like V3: the biases of its gates follow the loads in metrics.jsonl,
 * at the speed in the settings, and are saved in the checkpoint. */
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

enum { LAYERS = 3, MOE_LAYERS = 2, EXPERTS = 16, STEPS = 12, MAX_LINES = 64 };
static const double speed = 0.001; /* the published value */

static dsmoe_run_settings v3_settings(const char *name)
{
    dsmoe_run_settings s = tiny_settings(directory, name);
    s.config[0] = '\0';
    snprintf(s.preset, sizeof s.preset, "tiny-v3");
    s.model.num_hidden_layers = LAYERS;
    s.model.hidden_size = 32;
    s.model.intermediate_size = 48;
    s.model.moe_intermediate_size = 16;
    s.model.num_attention_heads = 2;
    s.model.n_routed_experts = EXPERTS;
    s.model.kv_lora_rank = 24;
    s.model.q_lora_rank = 12;
    s.steps = STEPS;
    s.sample_every = 0;
    return s;
}

/* The lines of one type in metrics.jsonl. */
typedef struct metric_lines {
    json_node *at[MAX_LINES];
    int n;
} metric_lines;

static metric_lines read_lines(const char *run, const char *type)
{
    size_t size;
    char *text = tiny_read(tiny_path(run_folder(run), "metrics.jsonl"), &size);
    metric_lines lines = {0};
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_node *root;
        assert_int_equal(json_node_parse(line, strlen(line), "line", &root, NULL), DSMOE_OK);
        if (!strcmp(json_node_string(json_node_member(root, "type"), NULL), type)) {
            assert_true(lines.n < MAX_LINES);
            lines.at[lines.n++] = root;
        } else {
            json_node_free(root);
        }
    }
    free(text);
    return lines;
}

static void free_lines(metric_lines *lines)
{
    for (int i = 0; i < lines->n; i++) json_node_free(lines->at[i]);
}

static double number_at(const json_node *line, const char *key, int64_t i)
{
    return json_node_number(json_node_item(json_node_member(line, key), (size_t)i));
}

/* Updates the biases with the loads of a line. Loads are relative to the mean of their layer. */
static void follow(const json_node *line, float bias[MOE_LAYERS][EXPERTS], int *n_fell, int *n_rose)
{
    const json_node *layers = json_node_member(line, "load");
    for (int64_t l = 0; l < MOE_LAYERS; l++)
        for (int64_t e = 0; e < EXPERTS; e++) {
            double load =
                json_node_number(json_node_item(json_node_item(layers, (size_t)l), (size_t)e));
            if (load > 1) bias[l][e] -= (float)speed, ++*n_fell;
            if (load < 1) bias[l][e] += (float)speed, ++*n_rose;
        }
}

static void check_line(const json_node *line, float bias[MOE_LAYERS][EXPERTS])
{
    for (int64_t l = 0; l < MOE_LAYERS; l++) {
        double low = (double)bias[l][0], high = low;
        for (int64_t e = 1; e < EXPERTS; e++) {
            low = fmin(low, (double)bias[l][e]);
            high = fmax(high, (double)bias[l][e]);
        }
        assert_true(fabs(number_at(line, "low", l) - low) < 1e-6);
        assert_true(fabs(number_at(line, "high", l) - high) < 1e-6);
    }
}

static void check_checkpoint(const char *run, float bias[MOE_LAYERS][EXPERTS])
{
    dsmoe_model *model;
    dsmoe_error error;
    if (dsmoe_model_open(tiny_path(run_folder(run), "latest"), &model, &error))
        fail_msg("%s", error.message);
    assert_null(dsmoe_model_gate_bias(model, 0)); /* layer 0 is dense */
    assert_null(dsmoe_model_gate_bias(model, -1));
    assert_null(dsmoe_model_gate_bias(model, LAYERS));
    for (int64_t l = 0; l < MOE_LAYERS; l++)
        assert_memory_equal(dsmoe_model_gate_bias(model, LAYERS - MOE_LAYERS + l), bias[l],
                            sizeof bias[l]);
    dsmoe_model_free(model);
}

static void test_bias_follows_load(void **state)
{
    (void)state;
    dsmoe_run_settings s = v3_settings("v3");
    assert_true(s.bias_speed == speed);
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    metric_lines loads = read_lines("v3", "load"), biases = read_lines("v3", "bias");
    assert_int_equal(loads.n, STEPS);
    assert_int_equal(biases.n, STEPS);
    float bias[MOE_LAYERS][EXPERTS] = {0};
    int n_fell = 0, n_rose = 0;
    for (int i = 0; i < STEPS; i++) {
        follow(loads.at[i], bias, &n_fell, &n_rose);
        check_line(biases.at[i], bias);
    }
    assert_true(n_fell > 0 && n_rose > 0);
    check_checkpoint("v3", bias);
    free_lines(&loads);
    free_lines(&biases);
    tiny_remove(run_folder("v3"));
}

/* With speed 0 the lines are written, but biases stay 0. Other gates have no such lines. */
static void test_no_bias(void **state)
{
    (void)state;
    dsmoe_run_settings s = v3_settings("still");
    s.bias_speed = 0;
    s.steps = 2;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    metric_lines biases = read_lines("still", "bias");
    assert_int_equal(biases.n, 2);
    float bias[MOE_LAYERS][EXPERTS] = {0};
    check_line(biases.at[1], bias);
    check_checkpoint("still", bias);
    free_lines(&biases);
    biases = read_lines("straight", "bias");
    assert_int_equal(biases.n, 0);
    tiny_remove(run_folder("still"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bias_follows_load),
                                       cmocka_unit_test(test_no_bias)};
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}
