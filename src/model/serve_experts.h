/* serve_experts.h - a model whose experts are divided over ranks, run by one of them: rank 0 goes through the
 * layers and says before each which one it is; the others run what they hold of it. */
#ifndef DSMOE_MODEL_SERVE_EXPERTS_H
#define DSMOE_MODEL_SERVE_EXPERTS_H

#include "model/model.h"
#include "peers/peers.h"

/* On rank 0, before it runs the MoE layer of that number in that manner; nothing if its experts are all here. */
dsmoe_status serve_experts_announce(const dsmoe_model *model, int64_t layer, bool same_bits,
                                    dsmoe_error *error);
/* On rank 0: that was all. */
dsmoe_status serve_experts_end(const dsmoe_peers *peers, dsmoe_error *error);

/* All other ranks. */
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
/* Runs layers until that was all. A token of rank 0 that is not finite is rank 0's affair. */
dsmoe_status serve_experts(const expert_server *server, dsmoe_error *error);

#endif
