/* adapter.c - an adapter in memory, and its checks against the model that it is for. */
#include "adapt/adapter.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapt/gguf_adapter.h"
#include "adapt/peft.h"
#include "base/memory.h"
#include "formats/mapped_file.h"
#include "model/config.h"

static dsmoe_status out_of_memory(const dsmoe_adapter *a, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", a->path);
}

/* ---- slots ------------------------------------------------------------------------------------- */

static dsmoe_status add_slot(void *context, const weight_spec *spec, dsmoe_error *error)
{
    dsmoe_adapter *a = context;
    if (spec->n_dims != 2) return DSMOE_OK;
    if (a->n_slots == a->capacity) {
        int64_t capacity = a->capacity ? 2 * a->capacity : 256;
        adapter_slot *grown = realloc(a->slots, (size_t)capacity * sizeof *grown);
        if (!grown) return out_of_memory(a, error);
        a->slots = grown;
        a->capacity = capacity;
    }
    adapter_slot *slot = &a->slots[a->n_slots];
    *slot = (adapter_slot){.name = strdup(spec->name),
                           .role = spec->role,
                           .n_out = spec->shape[0],
                           .n_in = spec->shape[1],
                           .item = -1};
    if (!slot->name) return out_of_memory(a, error);
    a->n_slots++;
    gguf_place_of(&a->model->config, slot->name, &slot->place);
    if (slot->place.permuted && a->model->weights->rope_pairs)
        slot->paired = config_head_dim(&a->model->config);
    return DSMOE_OK;
}

/* Both lists are in the order of weights_each, but a GGUF model may have two halves instead of kv_b_proj. */
static void number_slots(dsmoe_adapter *a)
{
    const dsmoe_model *m = a->model;
    size_t next = 0;
    for (int64_t i = 0; i < a->n_slots; i++)
        for (size_t j = next; j < m->n_tensors; j++)
            if (!strcmp(m->tensors[j].name, a->slots[i].name)) {
                a->slots[i].id = (int32_t)j + 1;
                next = j + 1;
                break;
            }
}

dsmoe_status adapter_create(const dsmoe_model *model, const char *path, dsmoe_adapter **made,
                            dsmoe_error *error)
{
    dsmoe_adapter *a = calloc(1, sizeof *a);
    *made = NULL;
    if (a) *a = (dsmoe_adapter){.path = strdup(path), .model = model};
    if (!a || !a->path) {
        free(a);
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    }
    dsmoe_status status = weights_each(&model->config, NULL, add_slot, a, error);
    if (status != DSMOE_OK) {
        dsmoe_adapter_free(a);
        return status;
    }
    a->capacity = 0; /* now for items */
    number_slots(a);
    *made = a;
    return DSMOE_OK;
}

void dsmoe_adapter_free(dsmoe_adapter *a)
{
    if (!a) return;
    for (int64_t i = 0; !a->memory && i < a->n_items; i++) {
        free(a->items[i].a);
        free(a->items[i].b);
    }
    memory_release(a->memory, a->memory_size);
    for (int64_t i = 0; i < a->n_slots; i++) free(a->slots[i].name);
    free(a->items);
    free(a->slots);
    free(a->of);
    free(a->path);
    free(a);
}

/* ---- items ------------------------------------------------------------------------------------- */

adapter_slot *adapter_find(const dsmoe_adapter *a, const char *name)
{
    for (int64_t i = 0; i < a->n_slots; i++)
        if (!strcmp(a->slots[i].name, name)) return &a->slots[i];
    return NULL;
}

adapter_item *adapter_item_of(dsmoe_adapter *a, adapter_slot *slot)
{
    if (slot->item >= 0) return &a->items[slot->item];
    if (a->n_items == a->capacity) {
        int64_t capacity = a->capacity ? 2 * a->capacity : 64;
        adapter_item *grown = realloc(a->items, (size_t)capacity * sizeof *grown);
        if (!grown) return NULL;
        a->items = grown;
        a->capacity = capacity;
    }
    slot->item = a->n_items;
    a->items[a->n_items] = (adapter_item){.slot = slot};
    return &a->items[a->n_items++];
}

/* ---- numbers ----------------------------------------------------------------------------------- */

enum { SOME = 256 }; /* numbers that are widened together */

static bool all_finite(dsmoe_dtype type, const void *numbers, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i += SOME) {
        float x[SOME];
        int64_t here = moe_min(SOME, n - i);
        low_rank_widen(type, numbers, i, here, x);
        for (int64_t j = 0; j < here; j++) finite &= x[j] - x[j] == 0.0f;
    }
    return finite;
}

bool adapter_all_zero(dsmoe_dtype type, const void *numbers, int64_t n)
{
    bool zero = true;
    for (int64_t i = 0; zero && i < n; i += SOME) {
        float x[SOME];
        int64_t here = moe_min(SOME, n - i);
        low_rank_widen(type, numbers, i, here, x);
        for (int64_t j = 0; j < here; j++) zero &= x[j] == 0.0f;
    }
    return zero;
}

int64_t adapter_model_row(const adapter_slot *slot, int64_t row)
{
    if (slot->paired == 0) return row;
    int64_t half = slot->paired / 2, within = row % slot->paired;
    return row - within + within % half * 2 + within / half; /* the reverse of gguf_source_row */
}

void adapter_a(const adapter_item *item, int64_t r, int64_t column, int64_t n, float *out)
{
    low_rank_widen(item->a_type, item->a, r * item->slot->n_in + column, n, out);
}

float adapter_b(const adapter_item *item, int64_t row, int64_t r)
{
    float number;
    int64_t place = low_rank_place(item->rank, adapter_model_row(item->slot, row), r);
    low_rank_widen(item->b_type, item->b, place, 1, &number);
    return number;
}

low_rank adapter_low_rank(const adapter_item *item)
{
    return (low_rank){.a = item->a,
                      .panels = item->b,
                      .a_type = item->a_type,
                      .panels_type = item->b_type,
                      .rank = item->rank,
                      .scale = item->scale};
}

/* ---- checks ------------------------------------------------------------------------------------ */

static dsmoe_status check_item(const dsmoe_adapter *a, const adapter_item *item, dsmoe_error *error)
{
    const adapter_slot *slot = item->slot;
    if (!item->a || !item->b)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: for %s it has %c but not %c", a->path,
                           slot->name, item->a ? 'A' : 'B', item->a ? 'B' : 'A');
    if (!all_finite(item->a_type, item->a, item->rank * slot->n_in) ||
        !all_finite(item->b_type, item->b, slot->n_out * item->rank) ||
        !all_finite(DSMOE_F32, &item->scale, 1))
        return status_fail(error, DSMOE_ERROR_NONFINITE,
                           "%s: the numbers for %s contain a NaN or an infinity", a->path,
                           slot->name);
    return DSMOE_OK;
}

/* ---- the table --------------------------------------------------------------------------------- */

/* Takes memory for n numbers. Until memory is allocated, only counts them and returns NULL. */
static void *take(dsmoe_adapter *a, dsmoe_dtype type, int64_t n)
{
    void *at = a->memory ? (char *)a->memory + a->memory_used : NULL;
    a->memory_used += (size_t)moe_parts(dtype_bytes(type, n), CACHE_LINE) * CACHE_LINE;
    return at;
}

static void *take_a(dsmoe_adapter *a, const adapter_item *item)
{
    return take(a, item->a_type, item->rank * item->slot->n_in);
}

static void *take_b(dsmoe_adapter *a, const adapter_item *item)
{
    return take(a, item->b_type,
                moe_parts(item->slot->n_out, PANEL_COLUMNS) * PANEL_COLUMNS * item->rank);
}

/* All numbers get one allocation: in huge pages a token reads its share of them without page walks. */
static dsmoe_status take_memory(dsmoe_adapter *a, dsmoe_error *error)
{
    for (int64_t i = 0; i < a->n_items; i++) {
        take_a(a, &a->items[i]);
        take_b(a, &a->items[i]);
    }
    a->memory_size = a->memory_used;
    a->memory_used = 0;
    a->memory = memory_reserve(a->memory_size);
    return a->memory ? DSMOE_OK : out_of_memory(a, error);
}

/* Copies B into panels, the layout that products read. */
static void lay_in_panels(const adapter_item *item, unsigned char *panels)
{
    int64_t rank = item->rank, size = dtype_bytes(item->b_type, 1);
    const unsigned char *from = item->b;
    for (int64_t row = 0; row < item->slot->n_out; row++) {
        int64_t column = adapter_model_row(item->slot, row);
        for (int64_t r = 0; r < rank; r++, from += size)
            memcpy(panels + low_rank_place(rank, column, r) * size, from, (size_t)size);
    }
}

static void move_item(dsmoe_adapter *a, adapter_item *item)
{
    void *numbers = take_a(a, item), *panels = take_b(a, item);
    memcpy(numbers, item->a, (size_t)dtype_bytes(item->a_type, item->rank * item->slot->n_in));
    lay_in_panels(item, panels);
    free(item->a);
    free(item->b);
    item->a = numbers;
    item->b = panels;
}

/* An item that adds only zeros stays out of the table, so that the model's own bits do not change. */
static void enter_item(dsmoe_adapter *a, adapter_item *item)
{
    const adapter_slot *slot = item->slot;
    bool nothing =
        item->scale == 0 || adapter_all_zero(item->b_type, item->b, slot->n_out * item->rank);
    move_item(a, item);
    if (slot->id == 0 || nothing) return;
    a->of[slot->id] = adapter_low_rank(item);
    if (item->rank > a->table.most_rank) a->table.most_rank = item->rank;
}

dsmoe_status adapter_finish(dsmoe_adapter *a, dsmoe_error *error)
{
    if (a->n_items == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: it adapts nothing", a->path);
    a->of = calloc(a->model->n_tensors + 1, sizeof *a->of);
    if (!a->of) return out_of_memory(a, error);
    a->table = (adapter){.of = a->of, .n = (int64_t)a->model->n_tensors + 1};
    for (int64_t i = 0; i < a->n_items; i++) STATUS_TRY(check_item(a, &a->items[i], error));
    STATUS_TRY(take_memory(a, error));
    for (int64_t i = 0; i < a->n_slots; i++) /* in the order of a pass */
        if (a->slots[i].item >= 0) enter_item(a, &a->items[a->slots[i].item]);
    return DSMOE_OK;
}

/* ---- files ------------------------------------------------------------------------------------- */

bool adapter_is_folder(const char *path)
{
    char *config = mapped_file_path(path, PEFT_CONFIG);
    bool found = config && access(config, F_OK) == 0;
    free(config);
    return found;
}

bool dsmoe_adapter_is(const char *path)
{
    return path && (adapter_is_folder(path) || adapter_is_gguf(path));
}

static dsmoe_status read_files(dsmoe_adapter *a, dsmoe_error *error)
{
    struct stat info;
    if (adapter_is_folder(a->path)) return peft_read(a, error);
    if (stat(a->path, &info) == 0 && S_ISDIR(info.st_mode))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: this folder is not an adapter: it has no " PEFT_CONFIG, a->path);
    return gguf_adapter_read(a, error);
}

dsmoe_status dsmoe_adapter_open(const char *path, const dsmoe_model *model, dsmoe_adapter **opened,
                                dsmoe_error *error)
{
    if (!path || !model || !opened)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a path, a model and a place for the adapter are needed");
    *opened = NULL;
    dsmoe_adapter *a;
    if (model->lender || model->peers)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: adapters are for whole models, without probes", path);
    STATUS_TRY(adapter_create(model, path, &a, error));
    dsmoe_status status = read_files(a, error);
    if (status == DSMOE_OK) status = adapter_finish(a, error);
    if (status == DSMOE_OK)
        *opened = a;
    else
        dsmoe_adapter_free(a);
    return status;
}

dsmoe_status dsmoe_adapter_write(const dsmoe_adapter *a, const char *to, bool replace,
                                 dsmoe_error *error)
{
    if (!a || !to || !*to)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no adapter or no target given");
    size_t length = strlen(to);
    if (length > 5 && !strcmp(to + length - 5, ".gguf"))
        return gguf_adapter_write(a, to, replace, error);
    static const char *const own[] = {PEFT_CONFIG, PEFT_WEIGHTS};
    STATUS_TRY(dsmoe_output_folder_check(to, own, 0, error));
    return peft_write(a, to, NULL, error);
}

dsmoe_adapter_info dsmoe_adapter_get_info(const dsmoe_adapter *a)
{
    dsmoe_adapter_info info = {.path = a->path, .n_matrices = a->n_items};
    for (int64_t i = 0; i < a->n_items; i++) {
        const adapter_item *item = &a->items[i];
        if (item->rank > info.rank) info.rank = item->rank;
        info.n_parameters += item->rank * (item->slot->n_in + item->slot->n_out);
    }
    return info;
}
