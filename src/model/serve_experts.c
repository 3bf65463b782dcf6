/* serve_experts.c - ranks that run the experts they hold for rank 0. */
#include "model/serve_experts.h"

#include <stdlib.h>

enum { NO_LAYER = -1 };

typedef struct announcement {
    int64_t layer, same_bits;
} announcement;

static dsmoe_status announce(const dsmoe_peers *peers, announcement a, dsmoe_error *error)
{
    return peers_broadcast(peers, 0, &a, sizeof a, error);
}

dsmoe_status serve_experts_announce(const dsmoe_model *model, int64_t layer, bool same_bits,
                                    dsmoe_error *error)
{
    return announce(model->layers[layer]->peers, (announcement){layer, same_bits}, error);
}

dsmoe_status serve_experts_end(const dsmoe_peers *peers, dsmoe_error *error)
{
    return announce(peers, (announcement){NO_LAYER, 0}, error);
}

static const dsmoe_peers *peers_of(const dsmoe_model *model)
{
    for (int64_t i = 0; i < model->config.num_hidden_layers; i++)
        if (model->layers[i]) return model->layers[i]->peers;
    return NULL;
}

static dsmoe_status serve(const dsmoe_model *model, dsmoe_workspace *workspace, dsmoe_error *error)
{
    for (;;) {
        announcement a;
        STATUS_TRY(peers_broadcast(peers_of(model), 0, &a, sizeof a, error));
        if (a.layer == NO_LAYER) return DSMOE_OK;
        layer_manner manner = {.same_bits = a.same_bits};
        dsmoe_status status =
            layer_forward(model->layers[a.layer], NULL, 0, NULL, workspace, &manner, error);
        if (status != DSMOE_OK && status != DSMOE_ERROR_NONFINITE) return status;
    }
}

dsmoe_status serve_experts(const dsmoe_model *model, int n_threads, dsmoe_error *error)
{
    dsmoe_workspace workspace = {.n_threads = n_threads};
    for (int64_t i = 0; i < model->config.num_hidden_layers; i++) {
        const dsmoe_layer *layer = model->layers[i];
        size_t size = layer ? dsmoe_layer_workspace_size(layer, 0, n_threads) : 0;
        if (size > workspace.size) workspace.size = size;
    }
    workspace.memory = malloc(workspace.size);
    dsmoe_status status = workspace.memory ? DSMOE_OK : DSMOE_ERROR_MEMORY;
    if (status != DSMOE_OK) status_fail(error, status, "no memory to run experts for rank 0");
    if (status == DSMOE_OK) status = serve(model, &workspace, error);
    free(workspace.memory);
    return status;
}
