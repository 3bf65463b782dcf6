/* trainer_load.c - loads the weights of another model, of any type, into a trainer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/gguf_names.h"
#include "model/kv_b.h"
#include "train/team.h"

/* The other model's tensors in the order of the walk. */
typedef struct load_walk {
    dsmoe_trainer *trainer;
    const dsmoe_model *model;
    size_t next;
    weight_spec *specs; /* [n_tensors of the model]; their names are temporary */
    float *room;        /* space for the largest parameter in float32 */
} load_walk;

static dsmoe_status load_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    load_walk *walk = context;
    const dsmoe_model *own = walk->trainer->model;
    dsmoe_tensor_info wanted = dsmoe_model_tensor(own, walk->next);
    if (!wanted.name || strcmp(wanted.name, spec->name) || wanted.shape[0] != spec->shape[0] ||
        (spec->n_dims == 2 && wanted.shape[1] != spec->shape[1]))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "the model differs from the one to train at %s", spec->name);
    walk->specs[walk->next++] = *spec;
    return DSMOE_OK;
}

/* Whether the rows of a matrix are in another order, as those of q and k in a GGUF file. */
static bool is_permuted(const dsmoe_model *model, const char *name)
{
    gguf_place place;
    return model->weights->rope_pairs && gguf_place_of(&model->config, name, &place) &&
           place.permuted;
}

/* A GGUF file has kv_b_proj in two halves, so its own slot is empty. */
static const void *give_kv_b(const load_walk *walk, const weight_spec *spec, const char *name)
{
    const dsmoe_config *c = &walk->trainer->config;
    long long layer = 0;
    sscanf(name, "model.layers.%lld.", &layer);
    for (int64_t i = 0; i < spec->shape[0]; i++)
        kv_b_whole(walk->trainer->kernels, c, &walk->model->weights->layers[layer], i,
                   walk->room + i * c->kv_lora_rank);
    return walk->room;
}

static const void *give_tensor(void *context, size_t index)
{
    const load_walk *walk = context;
    const dsmoe_trainer *t = walk->trainer;
    const weight_spec *spec = &walk->specs[t->parameters[index].tensor];
    const matrix *m = spec->slot.matrix;
    if (spec->n_dims == 2 && !m->data) return give_kv_b(walk, spec, t->parameters[index].name);
    bool permuted = is_permuted(walk->model, t->parameters[index].name);
    for (int64_t i = 0; i < spec->shape[0]; i++) {
        int64_t row = permuted ? gguf_source_row(config_head_dim(&t->config), i) : i;
        if (spec->n_dims == 1)
            walk->room[row] = (*spec->slot.vector)[i];
        else
            t->kernels->dtypes[m->type].widen(spec->shape[1], matrix_at(*m, i, 0),
                                              walk->room + row * spec->shape[1]);
    }
    return walk->room;
}

static dsmoe_status load(load_walk *walk, dsmoe_error *error)
{
    dsmoe_trainer *t = walk->trainer;
    if (!walk->specs || !walk->room)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to load a model");
    model_weights weights = *walk->model->weights;
    weights.kv_b_split = false; /* it is trained as a whole */
    STATUS_TRY(weights_each(&walk->model->config, &weights, load_visit, walk, error));
    if (walk->next < dsmoe_model_tensor_count(t->model))
        return status_fail(error, DSMOE_ERROR_CONFIG, "the model lacks %s, which is to be trained",
                           dsmoe_model_tensor(t->model, walk->next).name);
    STATUS_TRY(team_fill(t, ROW_WEIGHTS, give_tensor, walk, error));
    return model_intact(walk->model, error);
}

dsmoe_status dsmoe_trainer_load(dsmoe_trainer *trainer, const dsmoe_model *model,
                                dsmoe_error *error)
{
    if (!trainer || !model)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no trainer or no model given");
    if (trainer_low_rank(trainer))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a trainer of low-rank additions cannot load a model");
    int64_t most = 0;
    for (size_t i = 0; i < trainer->n_parameters; i++)
        if (trainer->parameters[i].n > most) most = trainer->parameters[i].n;
    load_walk walk = {.trainer = trainer,
                      .model = model,
                      .specs = calloc(dsmoe_model_tensor_count(trainer->model), sizeof *walk.specs),
                      .room = malloc((size_t)most * sizeof *walk.room)};
    dsmoe_status status = load(&walk, error);
    free(walk.specs);
    free(walk.room);
    return status;
}
