/* load.c - finds the tensors of a model in files of any form, checks them and points to them. */
#include "model/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct loader {
    dsmoe_model *model;
    const char *path;
    load_find_fn *find;
    bool *used;        /* [tensors of all files] */
    arena vectors;     /* measures in a first walk, places in a second */
    size_t n_capacity; /* of the list of tensors; a stacked tensor counts as many */
} loader;

static void write_shape(load_shape shape, char text[128])
{
    size_t length = 0;
    for (int i = 0; i < shape.n_dims && length < 128; i++)
        length += (size_t)snprintf(text + length, 128 - length, i ? ", %lld" : "%lld",
                                   (long long)shape.at[i]);
}

dsmoe_status load_check_shape(const char *path, const char *name, load_shape found,
                              load_shape wanted, const char *by, dsmoe_error *error)
{
    bool fits = found.n_dims == wanted.n_dims;
    for (int i = 0; fits && i < found.n_dims; i++) fits = found.at[i] == wanted.at[i];
    if (fits) return DSMOE_OK;
    char is[128] = "", should_be[128] = "";
    write_shape(found, is);
    write_shape(wanted, should_be);
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: tensor %s has the shape [%s], but %s requires [%s]", path, name, is, by,
                       should_be);
}

static dsmoe_status out_of_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* Appends to the list of tensors. */
static dsmoe_status list_tensor(loader *l, const weight_spec *spec, dsmoe_dtype type,
                                dsmoe_error *error)
{
    dsmoe_model *m = l->model;
    if (m->n_tensors == l->n_capacity) {
        size_t capacity = l->n_capacity ? 2 * l->n_capacity : 64;
        void *grown = realloc(m->tensors, capacity * sizeof *m->tensors);
        if (!grown) return out_of_memory(l->path, error);
        m->tensors = grown;
        l->n_capacity = capacity;
    }
    dsmoe_tensor_info info = {.name = strdup(spec->name), .dtype = type, .n_dims = spec->n_dims};
    if (!info.name) return out_of_memory(l->path, error);
    for (int i = 0; i < spec->n_dims; i++) info.shape[i] = spec->shape[i];
    info.size = (size_t)dtype_bytes(type, spec->shape[0] * spec->shape[1]);
    m->tensors[m->n_tensors++] = info;
    return DSMOE_OK;
}

/* First walk: checks that everything is there, and measures the memory of the vectors. */
static dsmoe_status check_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    loader *l = context;
    stored_tensor t;
    STATUS_TRY(l->find(l->model, l->path, spec, &t, error));
    l->used[t.index] = true;
    if (spec->n_dims == 1) arena_take(&l->vectors, spec->shape[0], sizeof(float));
    return list_tensor(l, spec, t.type, error);
}

/* Second walk: points to the matrices in the files; converts the vectors, which are few, to float32. */
static dsmoe_status load_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    loader *l = context;
    stored_tensor t;
    STATUS_TRY(l->find(l->model, l->path, spec, &t, error));
    if (spec->n_dims == 1) {
        *spec->slot.vector = arena_take(&l->vectors, spec->shape[0], sizeof(float));
        l->model->kernels->dtypes[t.type].widen(spec->shape[0], t.data, *spec->slot.vector);
        return DSMOE_OK;
    }
    *spec->slot.matrix =
        (matrix){.data = t.data, .stride = dtype_bytes(t.type, spec->shape[1]), .type = t.type};
    return DSMOE_OK;
}

static void list_extras(dsmoe_model *m, const bool *used, size_t n_stored)
{
    for (size_t i = 0; i < n_stored; i++)
        if (!used[i]) m->extras[m->n_extras++] = i;
}

/* Memory for the weights is allocated after the first walk, when they are known to be in the files: a
 * configuration may claim any number of them. */
dsmoe_status load_tensors(dsmoe_model *m, const load_files *files, dsmoe_error *error)
{
    const char *path = files->path;
    loader l = {.model = m, .path = path, .find = files->find};
    model_weights nowhere = {.kv_b_split = files->kv_b_split};
    l.used = calloc(files->n_stored + 1, sizeof *l.used);
    m->extras = calloc(files->n_stored + 1, sizeof *m->extras);
    dsmoe_status status;
    if (!l.used || !m->extras) {
        status = out_of_memory(path, error);
        goto done;
    }
    l.vectors = arena_over(NULL);
    status = weights_each(&m->config, &nowhere, check_visit, &l, error);
    if (status != DSMOE_OK) goto done;
    list_extras(m, l.used, files->n_stored);
    m->weights = weights_create(&m->config);
    m->vectors = memory_alloc(arena_size(&l.vectors));
    if (!m->weights || !m->vectors) {
        status = out_of_memory(path, error);
        goto done;
    }
    m->weights->kv_b_split = files->kv_b_split;
    l.vectors = arena_over(m->vectors);
    status = weights_each(&m->config, m->weights, load_visit, &l, error);
    if (m->config.tie_word_embeddings) m->weights->lm_head = m->weights->embed_tokens;
done:
    free(l.used);
    return status;
}
