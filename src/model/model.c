/* model.c - opens a model from a folder or a file, and answers questions about it. */
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/gguf_magic.h"
#include "formats/mapped_file.h"
#include "model/generation_config.h"
#include "model/gguf_model.h"
#include "model/load.h"
#include "model/serve_experts.h"

/* ---- a folder ------------------------------------------------------------------------------ */

static dsmoe_status find_in_folder(const dsmoe_model *model, const char *path,
                                   const weight_spec *spec, stored_tensor *tensor,
                                   dsmoe_error *error)
{
    const safetensors_tensor *t = shards_find(model->files, spec->name, &tensor->index);
    if (!t)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor %s is missing", path, spec->name);
    const char *file = shards_path(model->files, tensor->index);
    if (!safetensors_dtype_as(t->dtype, &tensor->type))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %s has type %s; weights can be F32, F16 or BF16", file,
                           spec->name, safetensors_dtype_name(t->dtype));
    tensor->data = t->data;
    return load_check_shape(file, spec->name, (load_shape){t->n_dims, t->shape},
                            (load_shape){spec->n_dims, spec->shape}, "config.json", error);
}

static dsmoe_status out_of_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

static dsmoe_status open_folder(dsmoe_model *m, const char *path, dsmoe_error *error)
{
    char *config = mapped_file_path(path, "config.json");
    if (!config) return out_of_memory(path, error);
    dsmoe_status status =
        access(config, F_OK) == 0
            ? dsmoe_config_read(config, &m->config, error)
            : status_fail(error, DSMOE_ERROR_IO, "%s: not a model: there is no config.json", path);
    free(config);
    STATUS_TRY(status);
    STATUS_TRY(generation_config_read(path, &m->config, &m->generation, error));
    STATUS_TRY(shards_open(path, &m->files, error));
    const load_files files = {
        .path = path, .n_stored = shards_count(m->files), .find = find_in_folder};
    return load_tensors(m, &files, error);
}

/* ---- opening ------------------------------------------------------------------------------- */

/* A path that is a file must be a GGUF file. */
static dsmoe_status open_path(dsmoe_model *m, const char *path, const dsmoe_model_options *o,
                              dsmoe_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    bool is_file = S_ISREG(info.st_mode);
    if (is_file && !gguf_magic_at(path))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: not a GGUF file; a model is a folder with config.json or a .gguf"
                           " file",
                           path);
    STATUS_TRY(is_file ? gguf_model_open(path, m, error) : open_folder(m, path, error));
    if (!o->share_weights) octet_stores_open(&m->octets, &m->config, m->weights);
    return model_create_layers(m, error);
}

/* If the path is a training run, the message names the model in it. */
static dsmoe_status hint_at_run(const char *path, dsmoe_status status, const dsmoe_error *reason,
                                dsmoe_error *error)
{
    char *config = mapped_file_path(path, "latest/config.json");
    bool is_run = config && access(config, F_OK) == 0;
    free(config);
    if (!is_run) return status_fail(error, status, "%s", reason->message);
    return status_fail(error, status, "%s; %s is a training run: open its model, %s/latest",
                       reason->message, path, path);
}

dsmoe_status dsmoe_model_open(const char *path, dsmoe_model **model, dsmoe_error *error)
{
    return dsmoe_model_open_with(path, NULL, model, error);
}

dsmoe_status dsmoe_model_open_with(const char *path, const dsmoe_model_options *options,
                                   dsmoe_model **model, dsmoe_error *error)
{
    static const dsmoe_model_options usual = {0};
    if (!path || !model)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no path or no place for the model given");
    *model = NULL;
    dsmoe_model *made = calloc(1, sizeof *made);
    if (!made) return out_of_memory(path, error);
    made->kernels = kernels_get();
    dsmoe_error reason = {0};
    dsmoe_status status = open_path(made, path, options ? options : &usual, &reason);
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
    if (model->peers) serve_experts_end(model->peers, NULL); /* if a rank is lost, all know it */
    for (int64_t i = 0; model->layers && i < model->config.num_hidden_layers; i++)
        dsmoe_layer_free(model->layers[i]);
    free(model->layers);
    for (size_t i = 0; i < model->n_tensors; i++) free((char *)model->tensors[i].name);
    free(model->tensors);
    free(model->extras);
    free(model->vectors);
    octet_stores_close(&model->octets);
    if (model->files || model->gguf) weights_free(model->weights);
    shards_close(model->files);
    gguf_close(model->gguf);
    free(model);
}

/* ---- queries ------------------------------------------------------------------------------- */

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

const float *dsmoe_model_gate_bias(const dsmoe_model *model, int64_t layer)
{
    bool is_there = layer >= 0 && layer < model->config.num_hidden_layers;
    return is_there ? model->weights->layers[layer].moe.e_score_correction_bias : NULL;
}

size_t dsmoe_model_extra_count(const dsmoe_model *model) { return model->n_extras; }

const char *dsmoe_model_extra(const dsmoe_model *model, size_t index)
{
    if (index >= model->n_extras) return NULL;
    size_t at = model->extras[index];
    return model->gguf ? gguf_at(model->gguf, at)->name : shards_at(model->files, at)->name;
}

dsmoe_model_memory dsmoe_model_memory_size(const dsmoe_model *model)
{
    while (model->lender) model = model->lender;
    size_t mapped = model->gguf    ? gguf_mapped_size(model->gguf)
                    : model->files ? shards_mapped_size(model->files)
                                   : 0;
    return (dsmoe_model_memory){.mapped = mapped,
                                .copied = atomic_load(&model->octets.budget.kept),
                                .copied_most = model->octets.budget.total};
}

dsmoe_status model_intact(const dsmoe_model *model, dsmoe_error *error)
{
    while (model->lender) model = model->lender;
    if (model->gguf) return gguf_check_intact(model->gguf, error);
    return model->files ? shards_check_intact(model->files, error) : DSMOE_OK;
}

/* A token uses its share of the routed experts, and one row of the embedding unless that is the head
 * as well. A tied head with a separate tensor is not in the list. */
size_t dsmoe_model_bytes_per_token(const dsmoe_model *model)
{
    const dsmoe_config *c = &model->config;
    matrix head = model->weights->lm_head;
    bool one_for_both = head.data == model->weights->embed_tokens.data;
    double bytes = 0;
    for (size_t i = 0; i < model->n_tensors; i++) {
        const dsmoe_tensor_info *t = &model->tensors[i];
        double size = (double)t->size;
        if (strstr(t->name, ".mlp.experts."))
            size *= (double)c->num_experts_per_tok / (double)c->n_routed_experts;
        if (!strcmp(t->name, "model.embed_tokens.weight") && !one_for_both)
            size /= (double)c->vocab_size;
        bytes += size;
    }
    if (c->tie_word_embeddings && !one_for_both)
        bytes += (double)dtype_bytes(head.type, c->hidden_size) * (double)c->vocab_size;
    return (size_t)(bytes + 0.5);
}
