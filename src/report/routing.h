/* routing.h - which experts of a model a text uses: how often each is chosen and with which weight, which
 * experts fire together, which tokens each expert gets. study/routing.h counts this. */
#ifndef DSMOE_REPORT_ROUTING_H
#define DSMOE_REPORT_ROUTING_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

enum { ROUTING_PAIRS = 12, ROUTING_FAVOURITES = 8 };

/* Two experts that the same tokens chose: how many tokens, and how many times as many as if tokens chose
 * their k experts at random by the experts' loads. */
typedef struct routing_pair {
    int32_t first, second;
    uint32_t count;
    double lift;
} routing_pair;

/* A token that an expert gets more often than the expert's load would give: `count` of the token's `total`
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

/* The correction bias of a gate (noaux_tc): its values, and three numbers about them. */
typedef struct gate_bias {
    const float *values; /* [n_routed_experts]; NULL: the gate has none */
    double low, mean, high;
} gate_bias;

typedef struct routing_layer {
    int64_t layer;           /* its place in the model */
    routing_expert *experts; /* [n_experts] */
    uint32_t *together;      /* [n_experts, n_experts]: tokens that chose both; upper half only */
    int32_t *by_load;        /* [n_experts] experts by falling load */
    double imbalance;        /* largest load over the mean */
    double entropy;          /* of the loads; 1: all equal, 0: one expert gets all */
    int64_t n_unused;
    gate_bias bias;
    double bias_spread; /* the highest bias minus the lowest */
    int n_pairs;
    routing_pair pairs[ROUTING_PAIRS]; /* by falling count · ln(lift) */
} routing_layer;

typedef struct routing_report {
    const char *model_path, *text_path;
    const dsmoe_config *config;
    const dsmoe_tokenizer *tokenizer; /* NULL: tokens are shown as ids */
    int64_t n_tokens;                 /* counted so far */
    int64_t n_text;                   /* tokens of the text */
    int64_t n_ctx;
    double seconds;
    bool interrupted;
    int64_t n_layers, n_experts, k;
    routing_layer *layers; /* [n_layers], MoE layers only */
} routing_report;

/* An expert's share of all choices, and that share over the mean of all experts. */
double routing_load(const routing_report *report, const routing_expert *expert);
double routing_relative_load(const routing_report *report, const routing_expert *expert);
/* The mean of an expert's gate values; 0 if the expert was never chosen. */
double routing_mean_weight(const routing_expert *expert);
/* The tokens that two experts would share by chance. */
double routing_expected(const routing_report *report, const routing_layer *layer, int64_t a,
                        int64_t b);
/* How many times as often as by chance two experts fire together; 0 if they never do. */
double routing_lift(const routing_report *report, const routing_layer *layer, int64_t a, int64_t b);

#endif
