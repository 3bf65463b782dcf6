/* routing_log.h - which experts tokens met: of one text, token by token, for the client that asked for it; and of all
 * texts together, as sums, for those who watch the crowd. */
#ifndef DSMOE_SERVE_ROUTING_LOG_H
#define DSMOE_SERVE_ROUTING_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

enum { ROUTING_LOG_ROWS = 256 }; /* tokens that wait to be sent; of a prompt the last ones */

/* Where the experts of a model are. */
typedef struct routing_shape {
    int64_t n_layers, n_experts, k; /* MoE layers, routed experts, those for a token */
    int64_t first_layer;            /* the number of the first MoE layer */
    int64_t layer_freq;             /* from then on every so many-th is one */
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
/* Positions from here on are logged, as many as fit. */
void routing_log_begin(routing_log *log, int64_t position);
void routing_log_add(routing_log *log, int64_t layer, int64_t position, int64_t n_tokens,
                     const dsmoe_routing *routing);

/* Sums over all texts since it was last cleared. */
typedef struct routing_crowd {
    routing_shape shape;
    int64_t n_passes, n_rows;
    float *load;      /* [n_layers, n_experts] gate values */
    double *distinct; /* [n_layers] experts that were met, summed over passes */
    bool *met;        /* [n_layers, n_experts] in the pass at hand */
} routing_crowd;

bool routing_crowd_create(routing_crowd *crowd, const routing_shape *shape);
void routing_crowd_free(routing_crowd *crowd);
void routing_crowd_add(routing_crowd *crowd, int64_t layer, int64_t n_tokens,
                       const dsmoe_routing *routing);
void routing_crowd_end_pass(routing_crowd *crowd, int64_t n_rows);
void routing_crowd_clear(routing_crowd *crowd);

#endif
