/* merge.c - the changes of fine-tuning, row by row. */
#include "convert/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- changed tensors --------------------------------------------------------------------------- */

static const dsmoe_tensor_info *find_tensor(const dsmoe_model *model, const char *name)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (!strcmp(model->tensors[i].name, name)) return &model->tensors[i];
    return NULL;
}

static dsmoe_status check_tensor(const char *path, const dsmoe_model *model,
                                 const safetensors_tensor *t, dsmoe_error *error)
{
    const dsmoe_tensor_info *has = find_tensor(model, t->name);
    if (!has)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %s is not in the base: it belongs to another model", path,
                           t->name);
    bool same = t->n_dims == has->n_dims;
    for (int i = 0; same && i < has->n_dims; i++) same = t->shape[i] == has->shape[i];
    if (!same)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: tensor %s has a different shape in the base: it belongs to another model", path,
            t->name);
    bool is_float = t->dtype == SAFETENSORS_F32 || t->dtype == SAFETENSORS_F16 ||
                    t->dtype == SAFETENSORS_BF16 || t->dtype == SAFETENSORS_F64;
    if (is_float) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: tensor %s is of type %s, which is not a float type", path, t->name,
                       safetensors_dtype_name(t->dtype));
}

static dsmoe_status open_tensors(merge *m, const char *path, const dsmoe_model *model,
                                 dsmoe_error *error)
{
    STATUS_TRY(shards_open(path, &m->tensors, error));
    if (shards_count(m->tensors) == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: it changes nothing", path);
    for (size_t i = 0; i < shards_count(m->tensors); i++)
        STATUS_TRY(check_tensor(path, model, shards_at(m->tensors, i), error));
    return DSMOE_OK;
}

/* ---- opening ----------------------------------------------------------------------------------- */

dsmoe_status merge_open(merge *m, const char *path, double scale, const dsmoe_model *model,
                        dsmoe_error *error)
{
    *m = (merge){.scale = (float)scale};
    if (!(m->scale - m->scale == 0.0f))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "the scale is not a finite number");
    if (dsmoe_adapter_is(path)) return dsmoe_adapter_open(path, model, &m->adapter, error);
    if (scale != 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: not an adapter, and only an adapter can be scaled", path);
    return open_tensors(m, path, model, error);
}

void merge_close(merge *m)
{
    dsmoe_adapter_free(m->adapter);
    shards_close(m->tensors);
    *m = (merge){0};
}

dsmoe_status merge_check_intact(const merge *m, dsmoe_error *error)
{
    return m->tensors ? shards_check_intact(m->tensors, error) : DSMOE_OK;
}

merge_change merge_find(const merge *m, const char *name)
{
    merge_change change = {.scale = m->scale};
    char whole[128];
    const char *half = strstr(name, ".k_b_proj.");
    if (!half) half = strstr(name, ".v_b_proj.");
    if (half) {
        snprintf(whole, sizeof whole, "%.*s.kv_b_proj.weight", (int)(half - name), name);
        name = whole;
    }
    if (m->tensors) change.instead = shards_find(m->tensors, name, NULL);
    const adapter_slot *slot = m->adapter ? adapter_find(m->adapter, name) : NULL;
    if (slot && slot->item >= 0) change.add = &m->adapter->items[slot->item];
    return change;
}

/* ---- rows -------------------------------------------------------------------------------------- */

/* Sums in double, some columns at a time, and rounds the result once. */
static void add_row(const merge_change *c, int64_t row, int64_t column, int64_t n, float *out)
{
    enum { SOME = 256 };
    const adapter_item *item = c->add;
    double factor = (double)c->scale * (double)item->scale;
    for (int64_t i = 0; i < n; i += SOME) {
        int64_t count = moe_min(SOME, n - i);
        double sums[SOME] = {0};
        for (int64_t r = 0; r < item->rank; r++) {
            float a[SOME];
            double b = (double)adapter_b(item, row, r);
            adapter_a(item, r, column + i, count, a);
            for (int64_t j = 0; j < count; j++) sums[j] += b * (double)a[j];
        }
        for (int64_t j = 0; j < count; j++)
            out[i + j] = (float)((double)out[i + j] + factor * sums[j]);
    }
}

void merge_row(const merge_change *c, int64_t row, int64_t column, int64_t n, float *out)
{
    if (c->add) add_row(c, row, column, n, out);
    if (!c->instead) return;
    const safetensors_tensor *t = c->instead;
    int64_t n_in = t->shape[t->n_dims - 1];
    safetensors_tensor_read_f32(t, (size_t)(row * n_in + column), (size_t)n, out);
}
