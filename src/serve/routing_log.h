/* routing_log.h - the experts that tokens were routed to: token by token for a text whose client asked for
 * it, and as sums over all texts for watchers (crowd.h). */
#ifndef DSMOE_SERVE_ROUTING_LOG_H
#define DSMOE_SERVE_ROUTING_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

enum { ROUTING_LOG_ROWS = 256 }; /* tokens waiting to be sent; of a prompt, its last ones */

/* The layers of a model that have experts. */
typedef struct routing_shape {
    int64_t n_layers, n_experts, k; /* MoE layers, routed experts, experts per token */
    int64_t first_layer;            /* the index of the first MoE layer */
    int64_t layer_freq;             /* after it, every layer_freq-th layer is one */
} routing_shape;
routing_shape routing_shape_of(const dsmoe_config *config);

typedef struct routing_log {
    routing_shape shape;
    int64_t first, n_rows; /* positions that are logged */
    int16_t *experts;      /* [ROUTING_LOG_ROWS, n_layers, k] */
    float *weights;
} routing_log;

/* False if there is no memory. */
bool routing_log_create(routing_log *log, const routing_shape *shape);
void routing_log_free(routing_log *log);
/* Empties the log. After that it takes ROUTING_LOG_ROWS positions, starting with this one. */
void routing_log_begin(routing_log *log, int64_t position);
void routing_log_add(routing_log *log, int64_t layer, int64_t position, int64_t n_tokens,
                     const dsmoe_routing *routing);

/* Sums over all texts since routing_crowd_clear. */
typedef struct routing_crowd {
    routing_shape shape;
    int64_t n_passes, n_rows;
    float *load;      /* [n_layers, n_experts] gate values */
    double *distinct; /* [n_layers] number of experts in use, summed over passes */
    bool *met;        /* [n_layers, n_experts] in use in the current pass */
} routing_crowd;

bool routing_crowd_create(routing_crowd *crowd, const routing_shape *shape);
void routing_crowd_free(routing_crowd *crowd);
void routing_crowd_add(routing_crowd *crowd, int64_t layer, int64_t n_tokens,
                       const dsmoe_routing *routing);
void routing_crowd_end_pass(routing_crowd *crowd, int64_t n_rows);
void routing_crowd_clear(routing_crowd *crowd);

#endif
