/* routing.h - what a text does with the experts of a model: how often each is chosen and with which weight, which
 * fire together, which tokens each gets. The text goes through the model once; every token counts once, BOS tokens
 * do not count. */
#ifndef DSMOE_STUDY_ROUTING_H
#define DSMOE_STUDY_ROUTING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dsmoe.h"
#include "study/gate_bias.h"
#include "study/token_text.h"

enum { ROUTING_PAIRS = 12, ROUTING_FAVOURITES = 8 };

/* Two experts that one token chose: how often, and how many times as often as if tokens chose their
 * k experts at random by the experts' loads. */
typedef struct routing_pair {
    int32_t first, second;
    uint32_t count;
    double lift;
} routing_pair;

/* A token that an expert gets more often than its load would give: `count` of its `total`
 * occurrences. Ranked by count · ln(lift), its part in the mutual information of expert and token. */
typedef struct routing_favourite {
    int32_t token;
    uint32_t count, total;
    double lift;
} routing_favourite;

typedef struct routing_expert {
    int64_t count; /* tokens that chose it */
    double weight; /* sum of its gate values */
    int n_favourites;
    routing_favourite favourites[ROUTING_FAVOURITES];
} routing_expert;

typedef struct routing_layer {
    int64_t layer;           /* its place in the model */
    routing_expert *experts; /* [n_experts] */
    uint32_t *together;      /* [n_experts, n_experts]: tokens that chose both; the upper half */
    int32_t *by_load;        /* [n_experts] experts by falling load */
    double imbalance;        /* largest load over the mean */
    double entropy;          /* of the loads; 1: all equal, 0: one expert gets all */
    int64_t n_unused;
    gate_bias bias;
    double bias_spread; /* from its lowest to its highest */
    int n_pairs;
    routing_pair pairs[ROUTING_PAIRS]; /* by falling count · ln(lift) */
} routing_layer;

typedef struct routing_report {
    const char *model_path, *text_path;
    const dsmoe_config *config;
    const dsmoe_tokenizer *tokenizer; /* NULL: tokens are shown as ids */
    int64_t n_tokens;                 /* counted so far */
    int64_t n_text;                   /* of the text */
    int64_t n_ctx;
    double seconds;
    bool interrupted;
    int64_t n_layers, n_experts, k;
    routing_layer *layers; /* [n_layers], MoE layers only */
} routing_report;

typedef struct routing_options {
    int64_t n_ctx; /* positions of a window, BOS included */
    int n_threads;
    dsmoe_progress_fn *progress; /* may be NULL; counts tokens. False interrupts */
    void *context;
} routing_options;

/* Runs the text, tokens below vocab_size, in windows side by side. An interruption is no failure: then the report is of what was read.
 * model_path, text_path and tokenizer of the report are the caller's, and stay. Free it in any case. */
dsmoe_status routing_collect(const dsmoe_model *model, const token_text *text,
                             const routing_options *options, routing_report *report,
                             dsmoe_error *error);
void routing_free(routing_report *report);

/* Share of the chosen slots, and that over the mean of all experts. */
double routing_load(const routing_report *report, const routing_expert *expert);
double routing_relative_load(const routing_report *report, const routing_expert *expert);
/* Of its gate values; 0 if it was never chosen. */
double routing_mean_weight(const routing_expert *expert);
/* The tokens that two experts would share by chance. */
double routing_expected(const routing_report *report, const routing_layer *layer, int64_t a,
                        int64_t b);
/* How many times as often as by chance two experts fire together; 0 if they never do. */
double routing_lift(const routing_report *report, const routing_layer *layer, int64_t a, int64_t b);

/* The scores of the experts on this text, [num_hidden_layers, n_experts], by which those to train are chosen: see
 * dsmoe_expert_score. Layers without experts are left as they are. */
void routing_scores(const routing_report *report, dsmoe_expert_score kind, double *scores);

/* All of it as a JSON object. */
void routing_put_json(const routing_report *report, FILE *file);

#endif
