/* serve_experts.h - runs a model whose experts are divided over ranks. Rank 0 goes through the layers and
 * announces each MoE layer; the other ranks run the experts that they hold of it. */
#ifndef DSMOE_MODEL_SERVE_EXPERTS_H
#define DSMOE_MODEL_SERVE_EXPERTS_H

#include "model/model.h"
#include "peers/peers.h"

/* On rank 0: announces the MoE layer that it runs next. Does nothing if all its experts are on this rank. */
dsmoe_status serve_experts_announce(const dsmoe_model *model, int64_t layer, bool same_bits,
                                    dsmoe_error *error);
/* On rank 0: tells the other ranks that no more layers follow. */
dsmoe_status serve_experts_end(const dsmoe_peers *peers, dsmoe_error *error);

/* For all other ranks. */
typedef struct expert_server {
    const dsmoe_model *model;
    const dsmoe_peers *peers;
    dsmoe_workspace workspace; /* of serve_experts_size */
    /* Asked before each layer; may be NULL. True ends what rank 0 is doing with DSMOE_ERROR_STOPPED. */
    bool (*stop)(void *context);
    void *context;
} expert_server;

/* Bytes of workspace; 0 if the model has no experts. */
size_t serve_experts_size(const dsmoe_model *model, int n_threads);
/* Runs layers until rank 0 says that no more follow. Tokens that are not finite are left to rank 0. */
dsmoe_status serve_experts(const expert_server *server, dsmoe_error *error);

#endif
