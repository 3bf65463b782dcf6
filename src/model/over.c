/* over.c - makes a model over weights that a trainer or another model owns. */
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

static dsmoe_status out_of_memory(dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for the layers of a model");
}

dsmoe_status model_create_layers(dsmoe_model *m, dsmoe_error *error)
{
    dsmoe_layer_config config = dsmoe_config_layer(&m->config);
    weights_number(&m->config, m->weights);
    m->layers = calloc((size_t)m->config.num_hidden_layers, sizeof *m->layers);
    if (!m->layers) return out_of_memory(error);
    for (int64_t i = 0; i < m->config.num_hidden_layers; i++) {
        const moe_weights *weights = &m->weights->layers[i].moe;
        if (dsmoe_config_layer_is_moe(&m->config, i) &&
            layer_create(&config, weights, m->kernels, &m->layers[i], NULL) != DSMOE_OK)
            return out_of_memory(error); /* the only possible failure */
    }
    return DSMOE_OK;
}

static dsmoe_status count_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)spec;
    (void)error;
    ++*(size_t *)context;
    return DSMOE_OK;
}

static dsmoe_status list_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    dsmoe_model *m = context;
    dsmoe_tensor_info info = {.name = strdup(spec->name), .n_dims = spec->n_dims};
    if (!info.name) return out_of_memory(error);
    info.dtype = spec->n_dims == 2 ? spec->slot.matrix->type : DSMOE_F32;
    int64_t n = 1;
    for (int i = 0; i < spec->n_dims; i++) n *= info.shape[i] = spec->shape[i];
    info.size = (size_t)dtype_bytes(info.dtype, n);
    m->tensors[m->n_tensors++] = info;
    return DSMOE_OK;
}

static dsmoe_status describe(dsmoe_model *m, dsmoe_error *error)
{
    size_t n = 0;
    STATUS_TRY(weights_each(&m->config, m->weights, count_visit, &n, error));
    m->tensors = calloc(n, sizeof *m->tensors);
    if (!m->tensors) return out_of_memory(error);
    STATUS_TRY(weights_each(&m->config, m->weights, list_visit, m, error));
    return model_create_layers(m, error);
}

dsmoe_status model_over(const dsmoe_config *config, const dsmoe_generation_config *generation,
                        model_weights *weights, const kernels *kn, dsmoe_model **model,
                        dsmoe_error *error)
{
    *model = NULL;
    dsmoe_model *made = calloc(1, sizeof *made);
    if (!made) return out_of_memory(error);
    *made = (dsmoe_model){
        .config = *config, .generation = *generation, .weights = weights, .kernels = kn};
    dsmoe_status status = describe(made, error);
    if (status != DSMOE_OK) {
        dsmoe_model_free(made);
        return status;
    }
    *model = made;
    return DSMOE_OK;
}
