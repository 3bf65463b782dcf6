/* layer_create.c - creates layers with weights of any type, on one machine or shared by several ranks. */
#include <stdlib.h>
#include <string.h>

#include "moe/ints.h"
#include "moe/wave.h"
#include "peers/peers.h"

static bool expert_is_complete(const dsmoe_expert_weights *e)
{
    return e->gate_proj && e->up_proj && e->down_proj;
}

static dsmoe_status check_weights(const dsmoe_layer_config *c, const dsmoe_layer_weights *w,
                                  dsmoe_error *error)
{
    if (!w || !w->gate || !w->experts)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "weights, router or experts are missing");
    if (moe_topk_method(c) == DSMOE_TOPK_NOAUX_TC && !w->e_score_correction_bias)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "e_score_correction_bias is missing; \"noaux_tc\" needs it");
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        if (!expert_is_complete(&w->experts[i]))
            return status_fail(error, DSMOE_ERROR_ARGUMENT, "expert %lld lacks a matrix",
                               (long long)i);
    if (c->n_shared_experts > 0 && !expert_is_complete(&w->shared_experts))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "the shared experts lack a matrix");
    return DSMOE_OK;
}

static unsigned weights_forms(const dsmoe_layer_config *c, const moe_weights *w)
{
    const kernels *kn = kernels_get();
    unsigned forms = c->n_shared_experts > 0 ? ints_forms_of_expert(kn, &w->shared_experts) : 0;
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        forms |= ints_forms_of_expert(kn, &w->experts[i]);
    return forms;
}

dsmoe_status layer_create(const dsmoe_layer_config *config, const moe_weights *weights,
                          const kernels *kn, dsmoe_layer **layer, dsmoe_error *error)
{
    size_t size = (size_t)config->n_routed_experts * sizeof *weights->experts;
    dsmoe_layer *made = malloc(sizeof *made);
    moe_expert *table = malloc(size);
    if (!made || !table) {
        free(made);
        free(table);
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a layer");
    }
    memcpy(table, weights->experts, size);
    *made = (dsmoe_layer){.config = moe_config_own(config),
                          .kernels = kn,
                          .weights = *weights,
                          .x_forms = weights_forms(config, weights),
                          .held = {0, config->n_routed_experts}};
    made->weights.experts = table;
    *layer = made;
    return DSMOE_OK;
}

static moe_expert expert_f32(const dsmoe_expert_weights *e, int64_t hidden, int64_t width)
{
    return (moe_expert){matrix_f32(e->gate_proj, hidden), matrix_f32(e->up_proj, hidden),
                        matrix_f32(e->down_proj, width)};
}

dsmoe_status dsmoe_layer_create(const dsmoe_layer_config *config,
                                const dsmoe_layer_weights *weights, dsmoe_layer **layer,
                                dsmoe_error *error)
{
    if (!layer) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no place for the layer given");
    *layer = NULL;
    STATUS_TRY(dsmoe_layer_config_check(config, error));
    STATUS_TRY(check_weights(config, weights, error));
    int64_t n = config->n_routed_experts;
    moe_expert *table = malloc((size_t)n * sizeof *table);
    if (!table) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a layer");
    for (int64_t i = 0; i < n; i++)
        table[i] =
            expert_f32(&weights->experts[i], config->hidden_size, config->moe_intermediate_size);
    moe_weights typed = {.gate = matrix_f32(weights->gate, config->hidden_size),
                         .e_score_correction_bias = weights->e_score_correction_bias,
                         .experts = table,
                         .shared_experts = expert_f32(&weights->shared_experts, config->hidden_size,
                                                      moe_shared_width(config))};
    dsmoe_status status = layer_create(config, &typed, kernels_get(), layer, error);
    free(table);
    return status;
}

void layer_join(dsmoe_layer *layer, const dsmoe_peers *peers, int64_t most_tokens)
{
    layer->peers = peers;
    layer->most_tokens = most_tokens;
    layer->held = wave_held(layer->config.n_routed_experts, peers_rank(peers), peers_size(peers));
}

void dsmoe_layer_free(dsmoe_layer *layer)
{
    if (!layer) return;
    free(layer->weights.experts);
    free(layer);
}
