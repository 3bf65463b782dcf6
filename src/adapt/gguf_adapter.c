/* gguf_adapter.c - adapters in GGUF files: reading and writing. */
#include "adapt/gguf_adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_writer.h"
#include "kernels/quantize.h"
#include "model/config.h"

enum { NAME = GGUF_PLACE_SIZE + 8 };

static dsmoe_status out_of_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* The row of the public layout that is row `row` of a tensor in a GGUF file. */
static int64_t public_row(const dsmoe_model *model, const adapter_slot *slot, int64_t row)
{
    return slot->place.permuted ? gguf_source_row(config_head_dim(&model->config), row) : row;
}

/* ---- reading: metadata ------------------------------------------------------------------------- */

/* The two families "deepseek" and "deepseek2" have the same names of tensors. */
static const char *architecture_of(const dsmoe_model *model)
{
    return config_is_latent(&model->config) ? "deepseek2" : "deepseek";
}

static dsmoe_status check_word(const gguf *file, const char *key, const char *wanted,
                               dsmoe_error *error)
{
    gguf_string value = {NULL, 0};
    STATUS_TRY(gguf_get_string(file, key, &value, NULL, error));
    if (gguf_string_is(value, wanted)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s is \"%.*s\", not \"%s\"", gguf_path(file),
                       key, gguf_shown(value), value.bytes, wanted);
}

static dsmoe_status check_words(const gguf *file, const dsmoe_model *model, double *alpha,
                                dsmoe_error *error)
{
    gguf_string type = {NULL, 0};
    bool found;
    STATUS_TRY(gguf_get_string(file, "general.type", &type, &found, error));
    if (!found || !gguf_string_is(type, "adapter"))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: not an adapter: its general.type is not \"adapter\"",
                           gguf_path(file));
    STATUS_TRY(check_word(file, "general.architecture", architecture_of(model), error));
    STATUS_TRY(check_word(file, "adapter.type", "lora", error));
    gguf_array tokens;
    STATUS_TRY(
        gguf_get_array(file, "adapter.alora.invocation_tokens", GGUF_U32, &tokens, &found, error));
    if (found)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: it applies only after certain tokens (adapter.alora), which is not "
                           "supported",
                           gguf_path(file));
    return gguf_get_float(file, "adapter.lora.alpha", alpha, NULL, error);
}

/* ---- reading: tensors -------------------------------------------------------------------------- */

typedef struct reader {
    dsmoe_adapter *adapter;
    const gguf *file;
    double alpha;
    bool *used; /* [tensors of the file] */
} reader;

static const gguf_tensor *find_half(const reader *r, const adapter_slot *slot, const char *end)
{
    char name[NAME];
    snprintf(name, sizeof name, "%s%s", slot->place.name, end);
    const gguf_tensor *found = gguf_find(r->file, name);
    if (found) r->used[gguf_index(r->file, found)] = true;
    return found;
}

/* Checks that A or B is [slices, rows, columns], or [rows, columns] if it is not stacked. */
static dsmoe_status check_half(const reader *r, const adapter_slot *slot, const gguf_tensor *t,
                               int64_t n_rows, int64_t n_columns, dsmoe_error *error)
{
    bool stacked = slot->place.expert >= 0;
    int64_t slices = gguf_place_slices(&r->adapter->model->config, &slot->place);
    const int64_t wanted[] = {slices, n_rows, n_columns};
    int n_dims = stacked ? 3 : 2;
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) same = t->shape[i] == wanted[i + 3 - n_dims];
    if (!same)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: tensor %s does not have the shape that the model needs, [%lld, %lld]%s: "
            "it was made for another model",
            r->adapter->path, t->name, (long long)n_rows, (long long)n_columns,
            stacked ? " of each expert" : "");
    if (dtype_is_block(t->type))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %s is of type %s, which is not a float type",
                           r->adapter->path, t->name, dsmoe_dtype_name(t->type));
    return DSMOE_OK;
}

/* A slice of A or B. Rows of B are put in the public order. NULL: no memory. */
static void *read_slice(const reader *r, const adapter_slot *slot, const gguf_tensor *t,
                        int64_t n_rows, int64_t n_columns, bool is_b)
{
    size_t row_size = (size_t)dtype_bytes(t->type, n_columns);
    unsigned char *out = malloc((size_t)n_rows * row_size);
    if (!out) return NULL;
    const dsmoe_model *model = r->adapter->model;
    int64_t slice = slot->place.expert >= 0 ? slot->place.expert : 0;
    const unsigned char *from = t->data + (size_t)(slice * n_rows) * row_size;
    for (int64_t row = 0; row < n_rows; row++, from += row_size) {
        int64_t to = is_b ? public_row(model, slot, row) : row;
        memcpy(out + (size_t)to * row_size, from, row_size);
    }
    return out;
}

/* An expert whose slices are both zeros is not adapted. */
static dsmoe_status keep_halves(reader *r, adapter_slot *slot, adapter_item halves,
                                dsmoe_error *error)
{
    bool read = halves.a && halves.b;
    bool nothing = read && slot->place.expert >= 0 &&
                   adapter_all_zero(halves.a_type, halves.a, halves.rank * slot->n_in) &&
                   adapter_all_zero(halves.b_type, halves.b, slot->n_out * halves.rank);
    adapter_item *item = read && !nothing ? adapter_item_of(r->adapter, slot) : NULL;
    if (item) {
        *item = halves;
        return DSMOE_OK;
    }
    free(halves.a);
    free(halves.b);
    return nothing ? DSMOE_OK : out_of_memory(r->adapter->path, error);
}

static dsmoe_status read_slot(reader *r, adapter_slot *slot, dsmoe_error *error)
{
    const gguf_tensor *a = find_half(r, slot, ".lora_a"), *b = find_half(r, slot, ".lora_b");
    if (!a && !b) return DSMOE_OK;
    if (!a || !b)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s has no matching lora_%c",
                           r->adapter->path, (a ? a : b)->name, a ? 'b' : 'a');
    int64_t rank = a->n_dims > 1 ? a->shape[a->n_dims - 2] : 0;
    if (slot->role != WEIGHT_LINEAR || !strcmp(slot->name, "model.embed_tokens.weight"))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %s: adapters of %s are not supported", r->adapter->path,
                           a->name, slot->role == WEIGHT_ROUTER ? "routers" : "the embedding");
    STATUS_TRY(check_half(r, slot, a, rank, slot->n_in, error));
    STATUS_TRY(check_half(r, slot, b, slot->n_out, rank, error));
    adapter_item halves = {.slot = slot,
                           .rank = rank,
                           .scale = (float)(r->alpha / (double)rank),
                           .a = read_slice(r, slot, a, rank, slot->n_in, false),
                           .b = read_slice(r, slot, b, slot->n_out, rank, true),
                           .a_type = a->type,
                           .b_type = b->type};
    return keep_halves(r, slot, halves, error);
}

static dsmoe_status check_all_used(const reader *r, dsmoe_error *error)
{
    for (size_t i = 0; i < gguf_count(r->file); i++)
        if (!r->used[i])
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: tensor %s adapts nothing that the model has: it was made for "
                               "another model",
                               r->adapter->path, gguf_at(r->file, i)->name);
    return DSMOE_OK;
}

static dsmoe_status read_file(dsmoe_adapter *a, const gguf *file, dsmoe_error *error)
{
    reader r = {.adapter = a, .file = file, .used = calloc(gguf_count(file) + 1, sizeof(bool))};
    if (!r.used) return out_of_memory(a->path, error);
    dsmoe_status status = check_words(file, a->model, &r.alpha, error);
    for (int64_t i = 0; status == DSMOE_OK && i < a->n_slots; i++)
        status = read_slot(&r, &a->slots[i], error);
    if (status == DSMOE_OK) status = check_all_used(&r, error);
    if (status == DSMOE_OK) status = gguf_check_intact(file, error);
    free(r.used);
    return status;
}

dsmoe_status gguf_adapter_read(dsmoe_adapter *a, dsmoe_error *error)
{
    gguf *file;
    STATUS_TRY(gguf_open(a->path, &file, error));
    dsmoe_status status = read_file(a, file, error);
    gguf_close(file);
    return status;
}

bool adapter_is_gguf(const char *path)
{
    gguf *file;
    gguf_string type = {NULL, 0};
    bool found = false;
    size_t length = strlen(path);
    if (length < 5 || strcmp(path + length - 5, ".gguf") ||
        gguf_open(path, &file, NULL) != DSMOE_OK)
        return false;
    bool is = gguf_get_string(file, "general.type", &type, &found, NULL) == DSMOE_OK && found &&
              gguf_string_is(type, "adapter");
    gguf_close(file);
    return is;
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* A tensor of the base in the file, with its slices. The slots of a layer's experts are consecutive. */
typedef struct target {
    const adapter_slot *first;
    int64_t n_slices, rank; /* the largest of the slices */
} target;

typedef struct writing {
    const dsmoe_adapter *adapter;
    gguf_writer *writer;
    double alpha;
    target *targets;
    int64_t n_targets;
} writing;

static const adapter_item *item_of(const dsmoe_adapter *a, const adapter_slot *slot)
{
    return slot->item >= 0 ? &a->items[slot->item] : NULL;
}

/* The slot of the same projection of another expert. */
static const adapter_slot *slice_of(const target *t, int64_t slice)
{
    return t->first + 3 * slice; /* each expert has gate_proj, up_proj and down_proj */
}

static void list_target(writing *w, const adapter_slot *slot)
{
    target t = {.first = slot, .n_slices = 1};
    if (slot->place.expert > 0) return; /* the first expert stands for all */
    t.n_slices = gguf_place_slices(&w->adapter->model->config, &slot->place);
    for (int64_t i = 0; i < t.n_slices; i++) {
        const adapter_item *item = item_of(w->adapter, slice_of(&t, i));
        if (item && item->rank > t.rank) t.rank = item->rank;
    }
    if (t.rank > 0) w->targets[w->n_targets++] = t;
}

static dsmoe_status list_targets(writing *w, dsmoe_error *error)
{
    const dsmoe_adapter *a = w->adapter;
    w->targets = malloc((size_t)a->n_slots * sizeof *w->targets);
    if (!w->targets) return out_of_memory(a->path, error);
    for (int64_t i = 0; i < a->n_slots; i++) {
        if (a->slots[i].item >= 0 && strstr(a->slots[i].name, ".kv_b_proj."))
            return status_fail(
                error, DSMOE_ERROR_ARGUMENT,
                "%s: it adapts %s, which GGUF files split into two tensors; use dsmoe merge "
                "to make a model of the base and the adapter",
                a->path, a->slots[i].name);
        list_target(w, &a->slots[i]);
    }
    w->alpha = 1; /* of the first item, unless its factor is 0 */
    if (a->items[0].scale != 0) w->alpha = (double)a->items[0].scale * (double)a->items[0].rank;
    return DSMOE_OK;
}

/* The file has one alpha. The rest of a slice's own factor is multiplied into B. */
static float factor_of(const writing *w, const target *t, const adapter_item *item)
{
    return (float)((double)item->scale * (double)t->rank / w->alpha);
}

/* The type that all slices have, if it holds their numbers; otherwise float32. */
static dsmoe_dtype half_type(const writing *w, const target *t, bool is_a)
{
    const adapter_item *first = NULL;
    for (int64_t i = 0; i < t->n_slices; i++) {
        const adapter_item *item = item_of(w->adapter, slice_of(t, i));
        if (!item) continue;
        if (!first) first = item;
        bool same = is_a ? item->a_type == first->a_type : item->b_type == first->b_type;
        if (!same || (!is_a && factor_of(w, t, item) != 1.0f)) return DSMOE_F32;
    }
    return is_a ? first->a_type : first->b_type; /* a target has at least one item */
}

static dsmoe_status declare_half(const writing *w, const target *t, bool is_a, dsmoe_error *error)
{
    char name[NAME];
    const adapter_slot *slot = t->first;
    const int64_t shape[] = {t->n_slices, is_a ? t->rank : slot->n_out,
                             is_a ? slot->n_in : t->rank};
    bool stacked = slot->place.expert >= 0;
    snprintf(name, sizeof name, "%s%s", slot->place.name, is_a ? ".lora_a" : ".lora_b");
    return gguf_writer_declare(w->writer, name, half_type(w, t, is_a), stacked ? 3 : 2,
                               shape + !stacked, error);
}

/* Rows of A beyond the slice's own rank stay zero. */
static void fill_a(const target *t, const adapter_item *item, float *out)
{
    adapter_a(item, 0, 0, item->rank * t->first->n_in, out);
}

static void fill_b(const writing *w, const target *t, const adapter_item *item, float *out)
{
    float factor = factor_of(w, t, item);
    for (int64_t row = 0; row < item->slot->n_out; row++) {
        int64_t from = public_row(w->adapter->model, item->slot, row);
        for (int64_t i = 0; i < item->rank; i++)
            out[row * t->rank + i] = factor * adapter_b(item, from, i);
    }
}

static dsmoe_status write_half(const writing *w, const target *t, bool is_a, dsmoe_error *error)
{
    int64_t n = t->rank * (is_a ? t->first->n_in : t->first->n_out);
    dsmoe_dtype type = half_type(w, t, is_a);
    float *slice = malloc((size_t)n * sizeof *slice);
    void *bytes = malloc((size_t)dtype_bytes(type, n));
    dsmoe_status status = slice && bytes ? DSMOE_OK : out_of_memory(w->adapter->path, error);
    for (int64_t i = 0; status == DSMOE_OK && i < t->n_slices; i++) {
        const adapter_item *item = item_of(w->adapter, slice_of(t, i));
        memset(slice, 0, (size_t)n * sizeof *slice);
        if (item && is_a) fill_a(t, item, slice);
        if (item && !is_a) fill_b(w, t, item, slice);
        quantize_row(type, n, slice, NULL, bytes);
        status = gguf_writer_write(w->writer, bytes, (size_t)dtype_bytes(type, n), error);
    }
    free(bytes);
    free(slice);
    return status;
}

static void write_words(const writing *w)
{
    const char *architecture = architecture_of(w->adapter->model);
    gguf_writer_string(w->writer, "general.architecture", architecture, strlen(architecture));
    gguf_writer_string(w->writer, "general.type", "adapter", 7);
    gguf_writer_string(w->writer, "adapter.type", "lora", 4);
    gguf_writer_f32(w->writer, "adapter.lora.alpha", (float)w->alpha);
}

static dsmoe_status write_all(const writing *w, dsmoe_error *error)
{
    write_words(w);
    for (int64_t i = 0; i < w->n_targets; i++) {
        STATUS_TRY(declare_half(w, &w->targets[i], true, error));
        STATUS_TRY(declare_half(w, &w->targets[i], false, error));
    }
    for (int64_t i = 0; i < w->n_targets; i++) {
        STATUS_TRY(write_half(w, &w->targets[i], true, error));
        STATUS_TRY(write_half(w, &w->targets[i], false, error));
    }
    return DSMOE_OK;
}

dsmoe_status gguf_adapter_write(const dsmoe_adapter *a, const char *path, bool replace,
                                dsmoe_error *error)
{
    const char *inputs[] = {a->path};
    dsmoe_output output = {.path = path,
                           .kind = DSMOE_OUTPUT_ADAPTER,
                           .replace = replace,
                           .inputs = inputs,
                           .n_inputs = 1};
    STATUS_TRY(dsmoe_output_check(&output, error));
    writing w = {.adapter = a};
    dsmoe_status status = list_targets(&w, error);
    if (status == DSMOE_OK) status = gguf_writer_create(path, &w.writer, error);
    if (status == DSMOE_OK) {
        status = write_all(&w, error);
        if (status == DSMOE_OK)
            status = gguf_writer_finish(w.writer, error);
        else
            gguf_writer_abandon(w.writer);
    }
    free(w.targets);
    return status;
}
