/* routing_log.c - the experts that tokens were routed to. */
#include "serve/routing_log.h"

#include <stdlib.h>
#include <string.h>

routing_shape routing_shape_of(const dsmoe_config *config)
{
    routing_shape s = {.n_experts = config->n_routed_experts,
                       .k = config->num_experts_per_tok,
                       .first_layer = config->first_k_dense_replace,
                       .layer_freq = config->moe_layer_freq};
    if (s.n_experts < 1) return (routing_shape){.layer_freq = 1}; /* a dense model */
    while (s.first_layer % s.layer_freq) s.first_layer++;
    int64_t left = config->num_hidden_layers - s.first_layer;
    s.n_layers = left > 0 ? (left + s.layer_freq - 1) / s.layer_freq : 0;
    return s;
}

/* The index of a layer of the model among its MoE layers. */
static int64_t moe_index(const routing_shape *s, int64_t layer)
{
    return (layer - s->first_layer) / s->layer_freq;
}

/* ---- one text ---------------------------------------------------------------------------------- */

bool routing_log_create(routing_log *log, const routing_shape *shape)
{
    size_t n = (size_t)(ROUTING_LOG_ROWS * shape->n_layers * shape->k);
    *log = (routing_log){.shape = *shape,
                         .experts = calloc(n + 1, sizeof *log->experts),
                         .weights = calloc(n + 1, sizeof *log->weights)};
    if (log->experts && log->weights) return true;
    routing_log_free(log);
    return false;
}

void routing_log_free(routing_log *log)
{
    free(log->experts);
    free(log->weights);
    *log = (routing_log){0};
}

void routing_log_begin(routing_log *log, int64_t position)
{
    log->first = position;
    log->n_rows = 0;
}

void routing_log_add(routing_log *log, int64_t layer, int64_t position, int64_t n_tokens,
                     const dsmoe_routing *routing)
{
    const routing_shape *s = &log->shape;
    int64_t at_layer = moe_index(s, layer);
    for (int64_t i = 0; i < n_tokens; i++) {
        int64_t row = position + i - log->first;
        if (row < 0 || row >= ROUTING_LOG_ROWS) continue;
        int64_t to = (row * s->n_layers + at_layer) * s->k, from = i * s->k;
        for (int64_t j = 0; j < s->k; j++)
            log->experts[to + j] = (int16_t)routing->topk_idx[from + j];
        memcpy(log->weights + to, routing->topk_weight + from, (size_t)s->k * sizeof *log->weights);
        if (row >= log->n_rows) log->n_rows = row + 1;
    }
}

/* ---- all texts --------------------------------------------------------------------------------- */

bool routing_crowd_create(routing_crowd *crowd, const routing_shape *shape)
{
    size_t n = (size_t)(shape->n_layers * shape->n_experts);
    *crowd =
        (routing_crowd){.shape = *shape,
                        .load = calloc(n + 1, sizeof *crowd->load),
                        .distinct = calloc((size_t)shape->n_layers + 1, sizeof *crowd->distinct),
                        .met = calloc(n + 1, sizeof *crowd->met)};
    if (crowd->load && crowd->distinct && crowd->met) return true;
    routing_crowd_free(crowd);
    return false;
}

void routing_crowd_free(routing_crowd *crowd)
{
    free(crowd->load);
    free(crowd->distinct);
    free(crowd->met);
    *crowd = (routing_crowd){0};
}

void routing_crowd_add(routing_crowd *crowd, int64_t layer, int64_t n_tokens,
                       const dsmoe_routing *routing)
{
    const routing_shape *s = &crowd->shape;
    int64_t to = moe_index(s, layer) * s->n_experts;
    for (int64_t i = 0; i < n_tokens * s->k; i++) {
        crowd->load[to + routing->topk_idx[i]] += routing->topk_weight[i];
        crowd->met[to + routing->topk_idx[i]] = true;
    }
}

void routing_crowd_end_pass(routing_crowd *crowd, int64_t n_rows)
{
    const routing_shape *s = &crowd->shape;
    for (int64_t l = 0; l < s->n_layers; l++)
        for (int64_t e = 0; e < s->n_experts; e++)
            crowd->distinct[l] += crowd->met[l * s->n_experts + e];
    memset(crowd->met, 0, (size_t)(s->n_layers * s->n_experts) * sizeof *crowd->met);
    crowd->n_passes++;
    crowd->n_rows += n_rows;
}

void routing_crowd_clear(routing_crowd *crowd)
{
    const routing_shape *s = &crowd->shape;
    memset(crowd->load, 0, (size_t)(s->n_layers * s->n_experts) * sizeof *crowd->load);
    memset(crowd->distinct, 0, (size_t)s->n_layers * sizeof *crowd->distinct);
    crowd->n_passes = crowd->n_rows = 0;
}
