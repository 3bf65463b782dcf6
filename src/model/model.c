/* model.c - from a folder to a model: every tensor found, checked and pointed at. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "formats/mapped_file.h"
#include "model/generation_config.h"

/* ---- tensors ------------------------------------------------------------------------------- */

typedef struct loader {
    dsmoe_model *model;
    const char *path;
    bool *used;    /* [tensors of all files] */
    arena vectors; /* measures in a first walk, places in a second */
    size_t n_tensors;
} loader;

static bool dtype_of(safetensors_dtype from, dsmoe_dtype *to)
{
    switch (from) {
    case SAFETENSORS_F32: *to = DSMOE_F32; return true;
    case SAFETENSORS_F16: *to = DSMOE_F16; return true;
    case SAFETENSORS_BF16: *to = DSMOE_BF16; return true;
    default: return false;
    }
}

static dsmoe_status check_tensor(const weight_spec *spec, const safetensors_tensor *t,
                                 const char *path, dsmoe_error *error)
{
    dsmoe_dtype type;
    if (!dtype_of(t->dtype, &type))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %s has type %s; weights can be F32, F16 or BF16", path,
                           spec->name, safetensors_dtype_name(t->dtype));
    bool fits = t->n_dims == spec->n_dims;
    for (int i = 0; fits && i < t->n_dims; i++) fits = t->shape[i] == spec->shape[i];
    if (fits) return DSMOE_OK;
    char found[128] = "";
    for (int i = 0, at = 0; i < t->n_dims && at < (int)sizeof found; i++)
        at += snprintf(found + at, sizeof found - (size_t)at, i ? ", %lld" : "%lld",
                       (long long)t->shape[i]);
    char second[32] = "";
    if (spec->n_dims == 2) snprintf(second, sizeof second, ", %lld", (long long)spec->shape[1]);
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: tensor %s has the shape [%s]; by config.json it is [%lld%s]", path,
                       spec->name, found, (long long)spec->shape[0], second);
}

/* First walk: is everything there? How much memory do the vectors take? */
static dsmoe_status check_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    loader *l = context;
    size_t index;
    const safetensors_tensor *t = shards_find(l->model->files, spec->name, &index);
    if (!t)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor %s is missing", l->path,
                           spec->name);
    STATUS_TRY(check_tensor(spec, t, shards_path(l->model->files, index), error));
    l->used[index] = true;
    dsmoe_tensor_info info = {.name = t->name, .n_dims = t->n_dims, .size = t->size};
    dtype_of(t->dtype, &info.dtype);
    for (int i = 0; i < t->n_dims; i++) info.shape[i] = t->shape[i];
    l->model->tensors[l->n_tensors++] = info;
    if (spec->n_dims == 1) arena_take(&l->vectors, spec->shape[0], sizeof(float));
    return DSMOE_OK;
}

/* Second walk: matrices stay where they are; vectors, which are few, become float32. */
static dsmoe_status load_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    loader *l = context;
    size_t index;
    const safetensors_tensor *t = shards_find(l->model->files, spec->name, &index);
    if (spec->n_dims == 1) {
        *spec->slot.vector = arena_take(&l->vectors, spec->shape[0], sizeof(float));
        safetensors_tensor_read_f32(t, 0, t->n_elements, *spec->slot.vector);
        return DSMOE_OK;
    }
    matrix *m = spec->slot.matrix;
    dtype_of(t->dtype, &m->type);
    m->data = t->data;
    m->stride = dtype_bytes(m->type, spec->shape[1]);
    return DSMOE_OK;
}

static void list_extras(dsmoe_model *m, const bool *used)
{
    size_t n = shards_count(m->files);
    for (size_t i = 0; i < n; i++)
        if (!used[i]) m->extras[m->n_extras++] = i;
}

static dsmoe_status out_of_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* Memory for the weights comes after the first walk, when they are known to be in the files:
 * config.json may ask for any number of them. */
static dsmoe_status load_tensors(dsmoe_model *m, const char *path, dsmoe_error *error)
{
    size_t n = shards_count(m->files);
    loader l = {.model = m, .path = path, .used = calloc(n + 1, sizeof *l.used)};
    m->tensors = calloc(n + 1, sizeof *m->tensors);
    m->extras = calloc(n + 1, sizeof *m->extras);
    dsmoe_status status;
    if (!l.used || !m->tensors || !m->extras) {
        status = out_of_memory(path, error);
        goto done;
    }
    l.vectors = arena_over(NULL);
    status = weights_each(&m->config, NULL, check_visit, &l, error);
    if (status != DSMOE_OK) goto done;
    m->n_tensors = l.n_tensors;
    list_extras(m, l.used);
    m->weights = weights_create(&m->config);
    m->vectors = memory_alloc(arena_size(&l.vectors));
    if (!m->weights || !m->vectors) {
        status = out_of_memory(path, error);
        goto done;
    }
    l.vectors = arena_over(m->vectors);
    status = weights_each(&m->config, m->weights, load_visit, &l, error);
    if (m->config.tie_word_embeddings) m->weights->lm_head = m->weights->embed_tokens;
done:
    free(l.used);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------- */

static dsmoe_status open_folder(dsmoe_model *m, const char *path, dsmoe_error *error)
{
    char *config = mapped_file_path(path, "config.json");
    if (!config) return out_of_memory(path, error);
    dsmoe_status status = dsmoe_config_read(config, &m->config, error);
    free(config);
    STATUS_TRY(status);
    STATUS_TRY(generation_config_read(path, &m->config, &m->generation, error));
    STATUS_TRY(shards_open(path, &m->files, error));
    STATUS_TRY(load_tensors(m, path, error));
    return model_create_layers(m, error);
}

/* Who names a run means its model. */
static dsmoe_status hint_at_run(const char *path, dsmoe_status status, const dsmoe_error *reason,
                                dsmoe_error *error)
{
    char *config = mapped_file_path(path, "latest/config.json");
    bool is_run = config && access(config, F_OK) == 0;
    free(config);
    if (!is_run) return status_fail(error, status, "%s", reason->message);
    return status_fail(error, status, "%s; %s is a training run, its model is %s/latest",
                       reason->message, path, path);
}

dsmoe_status dsmoe_model_open(const char *path, dsmoe_model **model, dsmoe_error *error)
{
    if (!path || !model)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no path or no place for the model given");
    *model = NULL;
    dsmoe_model *made = calloc(1, sizeof *made);
    if (!made) return out_of_memory(path, error);
    made->kernels = kernels_get();
    dsmoe_error reason = {0};
    dsmoe_status status = open_folder(made, path, &reason);
    if (status != DSMOE_OK) {
        dsmoe_model_free(made);
        return hint_at_run(path, status, &reason, error);
    }
    *model = made;
    return DSMOE_OK;
}

void dsmoe_model_free(dsmoe_model *model)
{
    if (!model) return;
    for (int64_t i = 0; model->layers && i < model->config.num_hidden_layers; i++)
        dsmoe_layer_free(model->layers[i]);
    free(model->layers);
    if (!model->files) /* names and weights lie elsewhere otherwise */
        for (size_t i = 0; i < model->n_tensors; i++) free((char *)model->tensors[i].name);
    free(model->tensors);
    free(model->extras);
    free(model->vectors);
    if (model->files) weights_free(model->weights);
    shards_close(model->files);
    free(model);
}

/* ---- asking -------------------------------------------------------------------------------- */

const char *dsmoe_dtype_name(dsmoe_dtype dtype)
{
    switch (dtype) {
    case DSMOE_F32: return "f32";
    case DSMOE_F16: return "f16";
    case DSMOE_BF16: return "bf16";
    }
    return "unknown";
}

const dsmoe_config *dsmoe_model_config(const dsmoe_model *model) { return &model->config; }

const dsmoe_generation_config *dsmoe_model_generation_config(const dsmoe_model *model)
{
    return &model->generation;
}

size_t dsmoe_model_tensor_count(const dsmoe_model *model) { return model->n_tensors; }

dsmoe_tensor_info dsmoe_model_tensor(const dsmoe_model *model, size_t index)
{
    return index < model->n_tensors ? model->tensors[index] : (dsmoe_tensor_info){0};
}

size_t dsmoe_model_extra_count(const dsmoe_model *model) { return model->n_extras; }

const char *dsmoe_model_extra(const dsmoe_model *model, size_t index)
{
    return index < model->n_extras ? shards_at(model->files, model->extras[index])->name : NULL;
}

/* Of routed experts a token uses its share; of the embedding one row. */
size_t dsmoe_model_bytes_per_token(const dsmoe_model *model)
{
    const dsmoe_config *c = &model->config;
    double bytes = 0;
    for (size_t i = 0; i < model->n_tensors; i++) {
        const dsmoe_tensor_info *t = &model->tensors[i];
        double size = (double)t->size;
        if (strstr(t->name, ".mlp.experts."))
            size *= (double)c->num_experts_per_tok / (double)c->n_routed_experts;
        if (!strcmp(t->name, "model.embed_tokens.weight") && !c->tie_word_embeddings)
            size /= (double)c->vocab_size;
        bytes += size;
    }
    return (size_t)(bytes + 0.5);
}
