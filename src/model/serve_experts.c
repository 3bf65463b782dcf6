/* serve_experts.c - ranks that run the experts they hold for rank 0. */
#include "model/serve_experts.h"

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

size_t serve_experts_size(const dsmoe_model *model, int n_threads)
{
    size_t largest = 0;
    for (int64_t i = 0; i < model->config.num_hidden_layers; i++) {
        const dsmoe_layer *layer = model->layers[i];
        size_t size = layer ? dsmoe_layer_workspace_size(layer, 0, n_threads) : 0;
        if (size > largest) largest = size;
    }
    return largest;
}

dsmoe_status serve_experts(const expert_server *s, dsmoe_error *error)
{
    for (;;) {
        announcement a;
        STATUS_TRY(peers_broadcast(s->peers, 0, &a, sizeof a, error));
        if (a.layer == NO_LAYER) return DSMOE_OK;
        layer_manner manner = {.same_bits = a.same_bits,
                               .is_stopped = s->stop && s->stop(s->context)};
        dsmoe_status status =
            layer_forward(s->model->layers[a.layer], NULL, 0, NULL, &s->workspace, &manner, error);
        if (status != DSMOE_OK && status != DSMOE_ERROR_NONFINITE && status != DSMOE_ERROR_STOPPED)
            return status;
    }
}
