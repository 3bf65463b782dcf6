/* test_routing.c - which experts a text uses, counted a second time from the gates' reports. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "made_model.h"
#include "scratch.h"
#include "study/routing.h"

enum { N_TOKENS = 700, N_CTX = 600, BOS = 3, MAX_LAYERS = 4, MAX_EXPERTS = 16, VOCAB = 61 };

static made_model made;
static dsmoe_model *model;
static int32_t tokens[N_TOKENS];
static dsmoe_error error;

/* The numbers of the second count. */
static struct {
    int64_t counts[MAX_LAYERS][MAX_EXPERTS], together[MAX_LAYERS][MAX_EXPERTS][MAX_EXPERTS];
    int64_t by_token[MAX_LAYERS][MAX_EXPERTS][VOCAB], occurrences[VOCAB];
    double weights[MAX_LAYERS][MAX_EXPERTS];
    const int32_t *running;
    int64_t n_bos;
} seen;

static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    dsmoe_config config = made_v3_config();
    made = made_model_create(&config, "F32", 7);
    made_model_write(&made, directory, false);
    model = open_model(directory);
    made_tokens(&made, tokens, N_TOKENS, 5);
    return 0;
}

static int tear_down(void **state)
{
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
    return remove_directory(state);
}

/* ---- the second count ---------------------------------------------------------------------------- */

static void watch(void *context, int64_t layer, int64_t first, int64_t n, const dsmoe_routing *r)
{
    int64_t k = made.config.num_experts_per_tok;
    (void)context;
    for (int64_t i = 0; i < n; i++) {
        if (first + i < seen.n_bos) continue;
        int32_t token = seen.running[first + i];
        for (int64_t a = 0; a < k; a++) {
            int32_t expert = r->topk_idx[i * k + a];
            seen.counts[layer][expert]++;
            seen.weights[layer][expert] += (double)r->topk_weight[i * k + a];
            seen.by_token[layer][expert][token]++;
            for (int64_t b = 0; b < k; b++)
                if (b != a) seen.together[layer][expert][r->topk_idx[i * k + b]]++;
        }
    }
}

/* One window after another, each in one pass. */
static void count_again(void)
{
    memset(&seen, 0, sizeof seen);
    dsmoe_sequence *sequence = make_sequence(model, N_CTX, N_CTX, 1);
    dsmoe_sequence_watch(sequence, watch, NULL);
    for (int64_t start = 0, n; start < N_TOKENS; start += n) {
        int32_t window[N_CTX] = {BOS};
        n = N_TOKENS - start < N_CTX - 1 ? N_TOKENS - start : N_CTX - 1;
        memcpy(window + 1, tokens + start, (size_t)n * sizeof *tokens);
        seen.running = window;
        seen.n_bos = 1;
        rewind_to(sequence, 0);
        assert_int_equal(dsmoe_sequence_append(sequence, window, n + 1, NULL, &error), DSMOE_OK);
    }
    for (int64_t i = 0; i < N_TOKENS; i++) seen.occurrences[tokens[i]]++;
    free_sequence(sequence);
}

/* ---- tests --------------------------------------------------------------------------------------- */

static routing_report collect(int n_threads, dsmoe_progress_fn *progress, void *context)
{
    const token_text text = {tokens, N_TOKENS, BOS};
    const routing_options options = {
        .n_ctx = N_CTX, .n_threads = n_threads, .progress = progress, .context = context};
    routing_report report = {.model_path = "model", .text_path = "text"};
    must(routing_collect(model, &text, &options, &report, &error), &error, "counting");
    return report;
}

static void assert_expert(const routing_report *r, const routing_layer *layer, int64_t e)
{
    const routing_expert *expert = &layer->experts[e];
    int64_t count = seen.counts[layer->layer][e];
    assert_int_equal(expert->count, count);
    assert_true(fabs(expert->weight - seen.weights[layer->layer][e]) < 1e-4);
    assert_true(fabs(routing_load(r, expert) - (double)count / (N_TOKENS * (double)r->k)) < 1e-12);
    for (int i = 0; i < expert->n_favourites; i++) {
        const routing_favourite *f = &expert->favourites[i];
        double share = (double)f->count / f->total, of_all = (double)count / N_TOKENS;
        assert_int_equal(f->count, seen.by_token[layer->layer][e][f->token]);
        assert_int_equal(f->total, seen.occurrences[f->token]);
        assert_true(f->lift > 1 && fabs(f->lift - share / of_all) < 1e-9);
    }
    for (int64_t other = e + 1; other < r->n_experts; other++)
        assert_int_equal(layer->together[e * r->n_experts + other],
                         seen.together[layer->layer][e][other]);
}

static void assert_layer(const routing_report *r, const routing_layer *layer)
{
    double entropy = 0;
    int64_t most = 0;
    for (int64_t e = 0; e < r->n_experts; e++) {
        double load = (double)seen.counts[layer->layer][e] / (N_TOKENS * (double)r->k);
        assert_expert(r, layer, e);
        if (load > 0) entropy -= load * log(load) / log((double)r->n_experts);
        if (seen.counts[layer->layer][e] > most) most = seen.counts[layer->layer][e];
        if (e > 0)
            assert_true(layer->experts[layer->by_load[e - 1]].count >=
                        layer->experts[layer->by_load[e]].count);
    }
    assert_true(fabs(layer->entropy - entropy) < 1e-9);
    double mean = (double)(N_TOKENS * r->k) / (double)r->n_experts;
    assert_true(fabs(layer->imbalance - (double)most / mean) < 1e-9);
    for (int i = 0; i < layer->n_pairs; i++) {
        const routing_pair *pair = &layer->pairs[i];
        assert_true(pair->first < pair->second && pair->lift > 1);
        assert_true(fabs(pair->lift - routing_lift(r, layer, pair->second, pair->first)) < 1e-9);
        assert_int_equal(pair->count, seen.together[layer->layer][pair->first][pair->second]);
    }
}

static void test_counts(void **state)
{
    (void)state;
    count_again();
    routing_report r = collect(2, NULL, NULL);
    assert_true(r.n_tokens == N_TOKENS && r.n_text == N_TOKENS && !r.interrupted);
    assert_true(r.n_layers == 2 && r.n_experts == made.config.n_routed_experts);
    int n_favourites = 0, n_pairs = 0;
    for (int64_t i = 0; i < r.n_layers; i++) {
        assert_layer(&r, &r.layers[i]);
        n_favourites += r.layers[i].experts[0].n_favourites;
        n_pairs += r.layers[i].n_pairs;
    }
    assert_true(n_favourites > 0 && n_pairs > 0);
    routing_free(&r);
}

static void test_bias_and_scores(void **state)
{
    (void)state;
    double scores[MAX_LAYERS * MAX_EXPERTS] = {0};
    routing_report r = collect(1, NULL, NULL);
    int64_t layer = r.layers[0].layer, n = r.n_experts;
    const made_tensor *t =
        made_model_find(&made, "model.layers.1.mlp.gate.e_score_correction_bias");
    gate_bias bias = r.layers[0].bias;
    double sum = 0;
    assert_int_equal(layer, 1);
    for (int64_t e = 0; e < n; e++) {
        assert_true(bias.values[e] == t->data[e]);
        assert_true(bias.low <= (double)t->data[e] && bias.high >= (double)t->data[e]);
        sum += (double)t->data[e];
    }
    assert_true(fabs(bias.mean - sum / (double)n) < 1e-9 && bias.high > bias.low);
    assert_true(r.layers[0].bias_spread == bias.high - bias.low);
    routing_scores(&r, DSMOE_EXPERT_SCORE_TOKEN, scores);
    sum = 0;
    for (int64_t e = 0; e < n; e++) sum += scores[layer * n + e];
    assert_true(fabs(sum - 1) < 1e-9 && scores[0] == 0); /* the first layer has no experts */
    routing_scores(&r, DSMOE_EXPERT_SCORE_GATE, scores);
    assert_true(scores[layer * n] == r.layers[0].experts[0].weight / N_TOKENS);
    routing_free(&r);
}

/* Stops after *context calls. */
static bool end_soon(void *context, double done, double total)
{
    assert_true(done <= total);
    return --*(int *)context > 0;
}

/* Only the tokens that were read count. */
static void test_interrupted(void **state)
{
    (void)state;
    int calls = 2;
    routing_report r = collect(1, end_soon, &calls);
    assert_true(r.interrupted && r.n_tokens > 0 && r.n_tokens < N_TOKENS);
    int64_t sum = 0;
    for (int64_t e = 0; e < r.n_experts; e++) sum += r.layers[0].experts[e].count;
    assert_int_equal(sum, r.n_tokens * r.k);
    routing_free(&r);
    calls = 1;
    r = collect(1, end_soon, &calls);
    assert_true(r.interrupted && r.n_tokens == 0);
    routing_free(&r);

    const token_text text = {tokens, N_TOKENS, BOS};
    const routing_options options = {.n_ctx = 1, .n_threads = 1}; /* each window has only BOS */
    routing_report none = {0};
    assert_int_equal(routing_collect(model, &text, &options, &none, &error), DSMOE_ERROR_ARGUMENT);
    routing_free(&none);
}

static void test_json(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    json_node *root;
    routing_report r = collect(1, NULL, NULL);
    FILE *file = open_memstream(&text, &size);
    routing_put_json(&r, file);
    assert_int_equal(fclose(file), 0);
    must(json_node_parse(text, size, "routing", &root, &error), &error, "JSON");
    assert_int_equal(json_node_integer(json_node_member(root, "counted")), N_TOKENS);
    const json_node *layers = json_node_member(root, "layers");
    assert_int_equal(json_node_count(layers), r.n_layers);
    const json_node *experts = json_node_member(json_node_item(layers, 1), "experts");
    const json_node *last = json_node_item(experts, (size_t)r.n_experts - 1);
    assert_int_equal(json_node_integer(json_node_member(last, "count")),
                     r.layers[1].experts[r.n_experts - 1].count);
    json_node_free(root);
    free(text);
    routing_free(&r);
}

/* Windows are next to each other, and each begins with BOS. */
static void test_windows(void **state)
{
    (void)state;
    int32_t window[4] = {0};
    token_text text = {tokens, 5, BOS};
    assert_int_equal(token_text_window(&text, 0, window, 4), 4);
    assert_true(window[0] == BOS && window[1] == tokens[0] && window[3] == tokens[2]);
    assert_int_equal(token_text_window(&text, 3, window, 4), 3);
    assert_true(window[0] == BOS && window[1] == tokens[3] && window[2] == tokens[4]);
    text.bos = -1;
    assert_int_equal(token_text_window(&text, 1, window, 4), 4);
    assert_true(window[0] == tokens[1] && window[3] == tokens[4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),      cmocka_unit_test(test_bias_and_scores),
        cmocka_unit_test(test_interrupted), cmocka_unit_test(test_json),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
