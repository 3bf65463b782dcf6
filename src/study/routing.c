/* routing.c - runs a text through a model and counts what its gates choose. */
#include "study/routing.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "study/gate_bias.h"

/* Only the most frequent tokens of the text can be favourites: counting every token for every expert of every
 * layer would take more memory than rare tokens are worth. */
enum { BATCH = 512, MAX_CANDIDATES = 4096, MAX_COUNTERS = 64 * 1024 * 1024 };

typedef struct collector {
    routing_report *report;
    int32_t *layer_place;  /* [num_hidden_layers] of a layer among the MoE layers */
    int32_t n_candidates;  /* for favourites */
    int32_t *candidates;   /* [n_candidates] tokens */
    int32_t *place;        /* [vocab_size] of a token among the candidates, -1 if it is none */
    uint32_t *occurrences; /* [vocab_size] */
    uint32_t *by_token;    /* [n_layers, n_candidates, n_experts] */
    const int32_t *window; /* the tokens of the sequence */
    int64_t n_bos;         /* BOS tokens before the text */
} collector;

/* ---- counting -------------------------------------------------------------------------------- */

static void count_token(const routing_report *report, routing_layer *layer, const int32_t *chosen,
                        const float *weights, uint32_t *by_token)
{
    for (int64_t i = 0; i < report->k; i++) {
        routing_expert *expert = &layer->experts[chosen[i]];
        expert->count++;
        expert->weight += (double)weights[i];
        if (by_token) by_token[chosen[i]]++;
        for (int64_t j = 0; j < i; j++) {
            int32_t low = chosen[i] < chosen[j] ? chosen[i] : chosen[j];
            int32_t high = chosen[i] < chosen[j] ? chosen[j] : chosen[i];
            layer->together[low * report->n_experts + high]++;
        }
    }
}

static void watch_layer(void *context, int64_t layer, int64_t position, int64_t n_tokens,
                        const dsmoe_routing *routing)
{
    collector *c = context;
    const routing_report *report = c->report;
    int64_t layer_place = c->layer_place[layer], k = report->k;
    for (int64_t i = 0; i < n_tokens; i++) {
        if (position + i < c->n_bos) continue;
        int64_t place = c->place[c->window[position + i]];
        uint32_t *by_token = NULL;
        if (place >= 0)
            by_token = c->by_token + (layer_place * c->n_candidates + place) * report->n_experts;
        count_token(report, &report->layers[layer_place], routing->topk_idx + i * k,
                    routing->topk_weight + i * k, by_token);
    }
}

/* Runs the whole text in windows, one after the other. A window runs in pieces, and an interruption can come
 * between two pieces. */
static dsmoe_status run_text(collector *c, dsmoe_sequence *sequence, const token_text *text,
                             const routing_options *o, int32_t *window, dsmoe_error *error)
{
    routing_report *report = c->report;
    int64_t n_bos = text->bos >= 0;
    while (report->n_tokens < text->n_tokens && !report->interrupted) {
        int64_t n_window = token_text_window(text, report->n_tokens, window, report->n_ctx);
        c->window = window;
        c->n_bos = n_bos;
        STATUS_TRY(dsmoe_sequence_rewind(sequence, 0, error));
        for (int64_t done = 0, n; done < n_window; done += n) {
            report->interrupted = o->progress && !o->progress(o->context, (double)report->n_tokens,
                                                              (double)text->n_tokens);
            if (report->interrupted) break;
            n = n_window - done < BATCH ? n_window - done : BATCH;
            STATUS_TRY(dsmoe_sequence_append(sequence, window + done, n, NULL, error));
            report->n_tokens += n - (done == 0 ? n_bos : 0);
        }
    }
    return DSMOE_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool create_layers(routing_report *report, const dsmoe_config *config)
{
    size_t n_experts = (size_t)report->n_experts;
    report->layers = calloc((size_t)config->num_hidden_layers, sizeof *report->layers);
    if (!report->layers) return false;
    for (int64_t i = 0; i < config->num_hidden_layers; i++) {
        if (!dsmoe_config_layer_is_moe(config, i)) continue;
        routing_layer *layer = &report->layers[report->n_layers++];
        layer->layer = i;
        layer->experts = calloc(n_experts, sizeof *layer->experts);
        layer->together = calloc(n_experts, n_experts * sizeof *layer->together);
        layer->by_load = calloc(n_experts, sizeof *layer->by_load);
        if (!layer->experts || !layer->together || !layer->by_load) return false;
    }
    return true;
}

void routing_free(routing_report *report)
{
    for (int64_t i = 0; i < report->n_layers; i++) {
        free(report->layers[i].experts);
        free(report->layers[i].together);
        free(report->layers[i].by_load);
    }
    free(report->layers);
    report->layers = NULL;
    report->n_layers = 0;
}

typedef struct token_count {
    int32_t token;
    uint32_t count;
} token_count;

/* The most frequent first, then the lower id. */
static int compare_counts(const void *left, const void *right)
{
    const token_count *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return (a->token > b->token) - (a->token < b->token);
}

static bool choose_candidates(collector *c, const token_text *text, int64_t vocab_size)
{
    int64_t n_distinct = 0, rows = c->report->n_layers * c->report->n_experts;
    int64_t most = MAX_COUNTERS / rows < MAX_CANDIDATES ? MAX_COUNTERS / rows : MAX_CANDIDATES;
    for (int64_t i = 0; i < text->n_tokens; i++) c->occurrences[text->tokens[i]]++;
    token_count *counts = malloc((size_t)vocab_size * sizeof *counts);
    if (!counts) return false;
    for (int64_t token = 0; token < vocab_size; token++) {
        c->place[token] = -1;
        if (c->occurrences[token])
            counts[n_distinct++] = (token_count){(int32_t)token, c->occurrences[token]};
    }
    qsort(counts, (size_t)n_distinct, sizeof *counts, compare_counts);
    c->n_candidates = (int32_t)(n_distinct < most ? n_distinct : most);
    c->candidates = malloc(((size_t)c->n_candidates + 1) * sizeof *c->candidates);
    c->by_token = calloc((size_t)(rows * c->n_candidates) + 1, sizeof *c->by_token);
    bool ok = c->candidates && c->by_token;
    for (int32_t i = 0; ok && i < c->n_candidates; i++) {
        c->candidates[i] = counts[i].token;
        c->place[counts[i].token] = i;
    }
    free(counts);
    return ok;
}

static bool collector_create(collector *c, const dsmoe_config *config, const token_text *text)
{
    if (!create_layers(c->report, config)) return false;
    c->layer_place = calloc((size_t)config->num_hidden_layers, sizeof *c->layer_place);
    c->place = malloc((size_t)config->vocab_size * sizeof *c->place);
    c->occurrences = calloc((size_t)config->vocab_size, sizeof *c->occurrences);
    if (!c->layer_place || !c->place || !c->occurrences) return false;
    for (int32_t i = 0; i < c->report->n_layers; i++)
        c->layer_place[c->report->layers[i].layer] = i;
    return choose_candidates(c, text, config->vocab_size);
}

static void collector_free(collector *c)
{
    free(c->layer_place);
    free(c->candidates);
    free(c->place);
    free(c->occurrences);
    free(c->by_token);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static double information(uint32_t count, double lift) { return count * log(lift); }

/* Keeps the best pairs by falling information. Equal pairs stay in the order they came. */
static void keep_pair(routing_layer *layer, routing_pair pair)
{
    double value = information(pair.count, pair.lift);
    int at = layer->n_pairs < ROUTING_PAIRS ? layer->n_pairs++ : ROUTING_PAIRS;
    for (; at > 0; at--) {
        const routing_pair *above = &layer->pairs[at - 1];
        if (information(above->count, above->lift) >= value) break;
        if (at < ROUTING_PAIRS) layer->pairs[at] = *above;
    }
    if (at < ROUTING_PAIRS) layer->pairs[at] = pair;
}

static void keep_favourite(routing_expert *expert, routing_favourite favourite)
{
    double value = information(favourite.count, favourite.lift);
    int at =
        expert->n_favourites < ROUTING_FAVOURITES ? expert->n_favourites++ : ROUTING_FAVOURITES;
    for (; at > 0; at--) {
        const routing_favourite *above = &expert->favourites[at - 1];
        if (information(above->count, above->lift) >= value) break;
        if (at < ROUTING_FAVOURITES) expert->favourites[at] = *above;
    }
    if (at < ROUTING_FAVOURITES) expert->favourites[at] = favourite;
}

static void find_pairs(const routing_report *report, routing_layer *layer)
{
    for (int32_t a = 0; a < report->n_experts; a++)
        for (int32_t b = a + 1; b < report->n_experts; b++) {
            uint32_t count = layer->together[a * report->n_experts + b];
            double lift = count ? routing_lift(report, layer, a, b) : 0;
            if (lift > 1) keep_pair(layer, (routing_pair){a, b, count, lift});
        }
}

static void find_favourites(const collector *c, int64_t layer_place)
{
    const routing_report *report = c->report;
    routing_layer *layer = &report->layers[layer_place];
    for (int32_t i = 0; i < c->n_candidates; i++) {
        int32_t token = c->candidates[i];
        const uint32_t *counts =
            c->by_token + (layer_place * c->n_candidates + i) * report->n_experts;
        for (int64_t e = 0; e < report->n_experts; e++) {
            if (counts[e] == 0) continue;
            routing_expert *expert = &layer->experts[e];
            double share = (double)counts[e] / c->occurrences[token];
            double lift = share / ((double)expert->count / (double)report->n_tokens);
            if (lift > 1)
                keep_favourite(expert,
                               (routing_favourite){token, counts[e], c->occurrences[token], lift});
        }
    }
}

/* Sorts the experts by falling load, equal ones by number. */
static void sort_by_load(const routing_report *report, routing_layer *layer)
{
    for (int32_t e = 0; e < report->n_experts; e++) {
        int64_t at = e;
        for (; at > 0; at--) {
            int32_t above = layer->by_load[at - 1];
            if (layer->experts[above].count >= layer->experts[e].count) break;
            layer->by_load[at] = above;
        }
        layer->by_load[at] = e;
    }
}

static void finish_layer(const collector *c, int64_t layer_place)
{
    const routing_report *report = c->report;
    routing_layer *layer = &report->layers[layer_place];
    double entropy = 0;
    sort_by_load(report, layer);
    for (int64_t e = 0; e < report->n_experts; e++) {
        double load = routing_load(report, &layer->experts[e]);
        if (load > 0) entropy -= load * log(load);
        layer->n_unused += load == 0;
    }
    layer->imbalance = routing_relative_load(report, &layer->experts[layer->by_load[0]]);
    layer->entropy = report->n_experts > 1 ? entropy / log((double)report->n_experts) : 1;
    find_pairs(report, layer);
    find_favourites(c, layer_place);
}

/* After an interruption only the tokens that were read count. */
static void finish(collector *c, const token_text *text, int64_t vocab_size)
{
    memset(c->occurrences, 0, (size_t)vocab_size * sizeof *c->occurrences);
    for (int64_t i = 0; i < c->report->n_tokens; i++) c->occurrences[text->tokens[i]]++;
    for (int64_t i = 0; i < c->report->n_layers; i++) finish_layer(c, i);
}

/* ---- collecting ------------------------------------------------------------------------------ */

static dsmoe_status run_model(collector *c, const dsmoe_model *model, const token_text *text,
                              const routing_options *o, int32_t *window, dsmoe_error *error)
{
    dsmoe_engine_options options = {.n_ctx = o->n_ctx, .n_batch = BATCH, .n_threads = o->n_threads};
    dsmoe_engine *engine = NULL;
    dsmoe_sequence *sequence = NULL;
    dsmoe_status status = dsmoe_engine_create(model, &options, &engine, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_create(engine, &sequence, error);
    if (status == DSMOE_OK) {
        dsmoe_sequence_watch(sequence, watch_layer, c);
        double start = clock_seconds();
        status = run_text(c, sequence, text, o, window, error);
        c->report->seconds = clock_seconds() - start;
    }
    dsmoe_engine_free(engine);
    return status;
}

static dsmoe_status collect(collector *c, const dsmoe_model *model, const token_text *text,
                            const routing_options *o, dsmoe_error *error)
{
    const routing_report *report = c->report;
    if (!collector_create(c, dsmoe_model_config(model), text))
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "not enough memory to count the routing of %" PRId64
                           " layers with %" PRId64 " experts",
                           report->n_layers, report->n_experts);
    int32_t *window = malloc((size_t)o->n_ctx * sizeof *window);
    if (!window)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for %" PRId64 " tokens",
                           o->n_ctx);
    dsmoe_status status = run_model(c, model, text, o, window, error);
    free(window);
    return status;
}

dsmoe_status routing_collect(const dsmoe_model *model, const token_text *text,
                             const routing_options *options, routing_report *report,
                             dsmoe_error *error)
{
    const dsmoe_config *config = dsmoe_model_config(model);
    collector c = {.report = report};
    report->config = config;
    report->n_text = text->n_tokens;
    report->n_experts = config->n_routed_experts;
    report->k = config->num_experts_per_tok;
    report->n_ctx = options->n_ctx;
    if (options->n_ctx < 1 + (text->bos >= 0))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a context of %" PRId64 " has no room for text after BOS",
                           options->n_ctx);
    dsmoe_status status = collect(&c, model, text, options, error);
    for (int64_t i = 0; i < report->n_layers; i++) {
        gate_bias bias = gate_bias_of(model, report->layers[i].layer);
        report->layers[i].bias = bias;
        report->layers[i].bias_spread = bias.high - bias.low;
    }
    if (status == DSMOE_OK && report->n_tokens > 0) finish(&c, text, config->vocab_size);
    collector_free(&c);
    return status;
}

void routing_scores(const routing_report *report, dsmoe_expert_score kind, double *scores)
{
    for (int64_t i = 0; i < report->n_layers; i++)
        for (int64_t e = 0; e < report->n_experts; e++) {
            const routing_expert *expert = &report->layers[i].experts[e];
            scores[report->layers[i].layer * report->n_experts + e] =
                kind == DSMOE_EXPERT_SCORE_TOKEN ? routing_load(report, expert)
                                                 : expert->weight / (double)report->n_tokens;
        }
}
