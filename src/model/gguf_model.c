/* gguf_model.c - a model from a GGUF file: metadata become the configuration, tensors the
 * weights. */
#include "model/gguf_model.h"

#include "model/config.h"
#include "model/gguf_config.h"
#include "model/gguf_latent.h"
#include "model/gguf_names.h"
#include "model/load.h"

/* Norms and biases are float32 in memory; files have them in float32 or a 16-bit type. */
static dsmoe_status check_type(const char *path, const weight_spec *spec, const gguf_tensor *t,
                               dsmoe_error *error)
{
    if (spec->n_dims == 2 || !dtype_is_block(t->type)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: tensor %s has type %s; a vector can be f32, f16 or bf16", path, t->name,
                       dsmoe_dtype_name(t->type));
}

/* Each routed expert of a layer is a slice of one tensor [expert, out, in]. Heads are stacked like that
 * too, but taken all together. */
static dsmoe_status find_in_gguf(const dsmoe_model *model, const char *path,
                                 const weight_spec *spec, stored_tensor *tensor, dsmoe_error *error)
{
    gguf_place place;
    const dsmoe_config *c = &model->config;
    const gguf_tensor *t =
        gguf_place_of(c, spec->name, &place) ? gguf_find(model->gguf, place.name) : NULL;
    if (!t)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor %s is missing", path, place.name);
    const char *file = gguf_tensor_path(model->gguf, t);
    bool is_slice = place.expert >= 0;
    int64_t n_slices = gguf_place_slices(c, &place);
    const int64_t stacked[] = {n_slices, is_slice ? spec->shape[0] : spec->shape[0] / n_slices,
                               spec->shape[1]};
    bool is_stacked = is_slice || place.of_heads;
    load_shape wanted = {is_stacked ? 3 : spec->n_dims, is_stacked ? stacked : spec->shape};
    STATUS_TRY(check_type(file, spec, t, error));
    STATUS_TRY(load_check_shape(file, t->name, (load_shape){t->n_dims, t->shape}, wanted,
                                "the metadata", error));
    size_t slice = is_slice ? t->size / (size_t)stacked[0] : 0;
    *tensor = (stored_tensor){.index = gguf_index(model->gguf, t),
                              .type = t->type,
                              .data = t->data + (is_slice ? (size_t)place.expert * slice : 0)};
    return DSMOE_OK;
}

/* A file may have a tied head as a separate tensor, for readers that expect one, perhaps in a better
 * type than the embedding. It is used then, as in other readers. */
static dsmoe_status take_copied_head(dsmoe_model *m, const char *path, dsmoe_error *error)
{
    weight_spec spec = {.name = "lm_head.weight",
                        .n_dims = 2,
                        .shape = {m->config.vocab_size, m->config.hidden_size}};
    gguf_place place;
    stored_tensor t;
    if (!gguf_place_of(&m->config, spec.name, &place) || !gguf_find(m->gguf, place.name))
        return DSMOE_OK;
    STATUS_TRY(find_in_gguf(m, path, &spec, &t, error));
    m->weights->lm_head =
        (matrix){.data = t.data, .stride = dtype_bytes(t.type, spec.shape[1]), .type = t.type};
    size_t n = 0;
    for (size_t i = 0; i < m->n_extras; i++)
        if (m->extras[i] != t.index) m->extras[n++] = m->extras[i];
    m->n_extras = n;
    return DSMOE_OK;
}

dsmoe_status gguf_model_open(const char *path, dsmoe_model *m, dsmoe_error *error)
{
    STATUS_TRY(gguf_open(path, &m->gguf, error));
    STATUS_TRY(gguf_config_read(m->gguf, &m->config, error));
    STATUS_TRY(gguf_generation_config_read(m->gguf, &m->config, &m->generation, error));
    const load_files files = {.path = path,
                              .n_stored = gguf_count(m->gguf),
                              .find = find_in_gguf,
                              .kv_b_split =
                                  config_is_latent(&m->config) && gguf_latent_is_split(m->gguf)};
    STATUS_TRY(load_tensors(m, &files, error));
    m->weights->rope_pairs = true;
    return m->config.tie_word_embeddings ? take_copied_head(m, path, error) : DSMOE_OK;
}
