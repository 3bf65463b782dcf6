/* peft.c - PEFT's folder: reading and writing.
 *
 * The tensors of a module are "base_model.model." + its name + ".lora_A.weight", [rank, in], and +
 * ".lora_B.weight", [out, rank]. */
#include "adapt/peft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/folder.h"
#include "formats/json_write.h"
#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "formats/safetensors_writer.h"
#include "formats/whole_file.h"
#include "kernels/quantize.h"

#define PREFIX "base_model.model."
#define A_SUFFIX ".lora_A.weight"
#define B_SUFFIX ".lora_B.weight"

enum { MOST_CONFIG = 16 << 20, NAME = 160 };

/* ---- reading ----------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Finds a tensor's module; false if the tensor's name does not have that form. */
static bool split_name(const char *name, char module[NAME], bool *is_a)
{
    *is_a = ends_with(name, A_SUFFIX);
    if (strncmp(name, PREFIX, strlen(PREFIX)) || (!*is_a && !ends_with(name, B_SUFFIX)))
        return false;
    size_t length = strlen(name) - strlen(PREFIX) - strlen(A_SUFFIX);
    if (strlen(name) < strlen(PREFIX) + strlen(A_SUFFIX) || length == 0 || length >= NAME - 8)
        return false;
    memcpy(module, name + strlen(PREFIX), length);
    module[length] = '\0';
    return true;
}

static dsmoe_status find_slot(const dsmoe_adapter *a, const char *tensor, const char *module,
                              adapter_slot **slot, dsmoe_error *error)
{
    char name[NAME + 8];
    snprintf(name, sizeof name, "%s.weight", module);
    *slot = adapter_find(a, name);
    if (!*slot)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: it adapts %s, which the model does not have: it was made for "
                           "another model",
                           a->path, module);
    if ((*slot)->role == WEIGHT_LINEAR && strcmp(module, "model.embed_tokens")) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor %s: adapters of %s are not supported",
                       a->path, tensor,
                       (*slot)->role == WEIGHT_ROUTER ? "routers" : "the embedding");
}

/* Reads A or B of an item. */
static dsmoe_status read_half(const dsmoe_adapter *a, const safetensors_tensor *t,
                              adapter_item *item, bool is_a, dsmoe_error *error)
{
    const adapter_slot *slot = item->slot;
    int64_t n_rows = is_a ? item->rank : slot->n_out, n_columns = is_a ? slot->n_in : item->rank;
    if (t->n_dims != 2 || t->shape[0] != n_rows || t->shape[1] != n_columns)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %s is [%lld, %lld], not [%lld, %lld]: it was made for "
                           "another model or rank",
                           a->path, t->name, (long long)(t->n_dims > 0 ? t->shape[0] : 0),
                           (long long)(t->n_dims > 1 ? t->shape[1] : 0), (long long)n_rows,
                           (long long)n_columns);
    dsmoe_dtype *type = is_a ? &item->a_type : &item->b_type;
    void **to = is_a ? &item->a : &item->b;
    bool as_it_is = safetensors_dtype_as(t->dtype, type); /* otherwise float32 */
    if (!as_it_is) *type = DSMOE_F32;
    *to = malloc((size_t)dtype_bytes(*type, (int64_t)t->n_elements));
    if (!*to) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", a->path);
    if (as_it_is)
        memcpy(*to, t->data, t->n_elements * safetensors_dtype_size(t->dtype));
    else if (!safetensors_tensor_read_f32(t, 0, t->n_elements, *to))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %s is of type %s, which is not a float type", a->path,
                           t->name, safetensors_dtype_name(t->dtype));
    return DSMOE_OK;
}

static dsmoe_status read_tensor(dsmoe_adapter *a, const peft_config *config,
                                const safetensors_tensor *t, dsmoe_error *error)
{
    char module[NAME];
    bool is_a;
    adapter_slot *slot;
    if (!split_name(t->name, module, &is_a))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor %.200s is not of the form %sMODULE%s or …%s", a->path,
                           t->name, PREFIX, A_SUFFIX, B_SUFFIX);
    STATUS_TRY(find_slot(a, t->name, module, &slot, error));
    bool is_new = slot->item < 0;
    adapter_item *item = adapter_item_of(a, slot);
    if (!item) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", a->path);
    if (is_new) STATUS_TRY(peft_config_of(config, module, &item->rank, &item->scale, error));
    return read_half(a, t, item, is_a, error);
}

static dsmoe_status read_weights(dsmoe_adapter *a, const peft_config *config, const char *path,
                                 dsmoe_error *error)
{
    safetensors *file;
    STATUS_TRY(safetensors_open(path, &file, error));
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; status == DSMOE_OK && i < safetensors_count(file); i++)
        status = read_tensor(a, config, safetensors_at(file, i), error);
    if (status == DSMOE_OK) status = safetensors_check_intact(file, error);
    safetensors_close(file);
    return status;
}

dsmoe_status peft_read(dsmoe_adapter *a, dsmoe_error *error)
{
    char *config_path = mapped_file_path(a->path, PEFT_CONFIG);
    char *weights_path = mapped_file_path(a->path, PEFT_WEIGHTS);
    whole_file text = {0};
    peft_config *config = NULL;
    dsmoe_status status = DSMOE_OK;
    if (!config_path || !weights_path)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", a->path);
    if (status == DSMOE_OK) status = whole_file_read(&text, config_path, MOST_CONFIG, error);
    if (status == DSMOE_OK)
        status = peft_config_parse(text.bytes, text.size, config_path, &config, error);
    if (status == DSMOE_OK) status = read_weights(a, config, weights_path, error);
    peft_config_free(config);
    whole_file_free(&text);
    free(config_path);
    free(weights_path);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* An item of the folder. */
typedef struct put_item {
    const adapter_slot *slot;
    low_rank low;               /* rows of B are in the model's order */
    dsmoe_dtype a_type, b_type; /* to write them in */
} put_item;

typedef struct put_folder {
    const put_item *items;
    int64_t n_items;
    peft_words words;
    int64_t r;
    double alpha;
} put_folder;

/* The name without ".weight". */
static int module_length(const adapter_slot *slot) { return (int)strlen(slot->name) - 7; }

static double alpha_of(const put_folder *f, const put_item *item)
{
    double rank = (double)item->low.rank;
    double alpha = (double)item->low.scale * (f->words.use_rslora ? sqrt(rank) : rank);
    double nearest = round(alpha * 1024) / 1024; /* the scale is a rounded quotient */
    return (float)(nearest / (f->words.use_rslora ? sqrt(rank) : rank)) == item->low.scale ? nearest
                                                                                           : alpha;
}

/* The last part of each name, once: "q_proj", "gate_proj", … */
static void put_targets(FILE *text, const put_folder *f)
{
    enum { MOST = 32 };
    const char *seen[MOST];
    int n = 0;
    fputs("[", text);
    for (int64_t i = 0; i < f->n_items; i++) {
        const char *name = f->items[i].slot->name;
        int length = module_length(f->items[i].slot), first = length, known = 0;
        while (first > 0 && name[first - 1] != '.') first--;
        while (known < n && strncmp(seen[known], name + first, (size_t)(length - first) + 1))
            known++;
        if (known < n || n == MOST) continue;
        seen[n++] = name + first;
        fprintf(text, "%s\"%.*s\"", n > 1 ? ", " : "", length - first, name + first);
    }
    fputs("]", text);
}

static void put_pattern(FILE *text, const put_folder *f, bool of_ranks)
{
    bool first = true;
    fputc('{', text);
    for (int64_t i = 0; i < f->n_items; i++) {
        const put_item *item = &f->items[i];
        double value = of_ranks ? (double)item->low.rank : alpha_of(f, item);
        if (value == (of_ranks ? (double)f->r : f->alpha)) continue;
        fprintf(text, "%s\n    \"%.*s\": ", first ? "" : ",", module_length(item->slot),
                item->slot->name);
        json_write_number(text, value);
        first = false;
    }
    fputs(first ? "}" : "\n  }", text);
}

static void put_config(FILE *text, const void *context)
{
    const put_folder *f = context;
    fputs("{\n  \"alpha_pattern\": ", text);
    put_pattern(text, f, false);
    fputs(",\n  \"base_model_name_or_path\": ", text);
    if (f->words.base)
        json_write_text(text, f->words.base, strlen(f->words.base));
    else
        fputs("null", text);
    fputs(",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n  \"inference_mode\": true,\n"
          "  \"init_lora_weights\": true,\n  \"lora_alpha\": ",
          text);
    json_write_number(text, f->alpha);
    fputs(",\n  \"lora_dropout\": ", text);
    json_write_number(text, f->words.lora_dropout);
    fprintf(text, ",\n  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n",
            (long long)f->r);
    fputs("  \"rank_pattern\": ", text);
    put_pattern(text, f, true);
    fputs(",\n  \"target_modules\": ", text);
    put_targets(text, f);
    fprintf(text,
            ",\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n  \"use_rslora\": %s\n}\n",
            f->words.use_rslora ? "true" : "false");
}

static dsmoe_status declare(safetensors_writer *writer, const put_item *item, bool is_a,
                            dsmoe_error *error)
{
    char name[NAME + 64];
    const adapter_slot *slot = item->slot;
    const int64_t a_shape[] = {item->low.rank, slot->n_in},
                  b_shape[] = {slot->n_out, item->low.rank};
    snprintf(name, sizeof name, "%s%.*s%s", PREFIX, module_length(slot), slot->name,
             is_a ? A_SUFFIX : B_SUFFIX);
    return safetensors_writer_declare(writer, name,
                                      safetensors_dtype_for(is_a ? item->a_type : item->b_type), 2,
                                      is_a ? a_shape : b_shape, error);
}

enum { SOME = 256 }; /* numbers that are written together */

static dsmoe_status write_some(safetensors_writer *writer, dsmoe_dtype type, const float *numbers,
                               int64_t n, dsmoe_error *error)
{
    unsigned char bytes[SOME * sizeof(float)];
    quantize_row(type, n, numbers, NULL, bytes);
    return safetensors_writer_write(writer, bytes, (size_t)dtype_bytes(type, n), error);
}

static dsmoe_status write_a(safetensors_writer *writer, const put_item *item, dsmoe_error *error)
{
    const low_rank *low = &item->low;
    int64_t n = low->rank * item->slot->n_in;
    for (int64_t i = 0; i < n; i += SOME) {
        float numbers[SOME];
        int64_t here = moe_min(SOME, n - i);
        low_rank_widen(low->a_type, low->a, i, here, numbers);
        STATUS_TRY(write_some(writer, item->a_type, numbers, here, error));
    }
    return DSMOE_OK;
}

/* Row `row` in the model's order, from low->b or from the panels. */
static dsmoe_status write_b_row(safetensors_writer *writer, const put_item *item, int64_t row,
                                dsmoe_error *error)
{
    const low_rank *low = &item->low;
    for (int64_t first = 0; first < low->rank; first += SOME) {
        float numbers[SOME];
        int64_t here = moe_min(SOME, low->rank - first);
        for (int64_t r = first; r < first + here; r++)
            if (low->b)
                numbers[r - first] = low->b[row * low->rank + r];
            else
                low_rank_widen(low->panels_type, low->panels, low_rank_place(low->rank, row, r), 1,
                               &numbers[r - first]);
        STATUS_TRY(write_some(writer, item->b_type, numbers, here, error));
    }
    return DSMOE_OK;
}

static dsmoe_status write_item(safetensors_writer *writer, const put_item *item, dsmoe_error *error)
{
    STATUS_TRY(write_a(writer, item, error));
    for (int64_t row = 0; row < item->slot->n_out; row++)
        STATUS_TRY(write_b_row(writer, item, adapter_model_row(item->slot, row), error));
    return DSMOE_OK;
}

static dsmoe_status write_numbers(const put_folder *f, safetensors_writer *writer,
                                  dsmoe_error *error)
{
    STATUS_TRY(safetensors_writer_metadata(writer, "format", "pt", error));
    for (int64_t i = 0; i < f->n_items; i++) {
        STATUS_TRY(declare(writer, &f->items[i], true, error));
        STATUS_TRY(declare(writer, &f->items[i], false, error));
    }
    for (int64_t i = 0; i < f->n_items; i++) STATUS_TRY(write_item(writer, &f->items[i], error));
    return DSMOE_OK;
}

static dsmoe_status write_folder(put_folder *f, const char *folder, const peft_words *words,
                                 dsmoe_error *error)
{
    safetensors_writer *writer;
    if (words) f->words = *words;
    f->r = f->items[0].low.rank;
    f->alpha = alpha_of(f, &f->items[0]);
    STATUS_TRY(folder_make(folder, error));
    char *path = mapped_file_path(folder, PEFT_WEIGHTS);
    if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    dsmoe_status status = safetensors_writer_create(path, &writer, error);
    free(path);
    STATUS_TRY(status);
    status = write_numbers(f, writer, error);
    if (status != DSMOE_OK) {
        safetensors_writer_abandon(writer);
        return status;
    }
    STATUS_TRY(safetensors_writer_finish(writer, error));
    return partial_file_write_text(folder, PEFT_CONFIG, put_config, f, error);
}

dsmoe_status peft_write(const dsmoe_adapter *a, const char *folder, const peft_words *words,
                        dsmoe_error *error)
{
    put_item *items = malloc((size_t)a->n_items * sizeof *items);
    if (!items) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    for (int64_t i = 0; i < a->n_items; i++) {
        const adapter_item *item = &a->items[i];
        items[i] = (put_item){item->slot, adapter_low_rank(item), item->a_type, item->b_type};
    }
    put_folder f = {.items = items, .n_items = a->n_items};
    dsmoe_status status = write_folder(&f, folder, words, error);
    free(items);
    return status;
}

dsmoe_status peft_write_table(const adapter *table, const dsmoe_model *model, const char *folder,
                              const peft_words *words, dsmoe_error *error)
{
    dsmoe_adapter *names; /* of the model's matrices */
    STATUS_TRY(adapter_create(model, folder, &names, error));
    put_item *items = malloc((size_t)names->n_slots * sizeof *items);
    put_folder f = {.items = items};
    dsmoe_dtype type = words ? words->dtype : DSMOE_F32;
    for (int64_t i = 0; items && i < names->n_slots; i++) {
        const adapter_slot *slot = &names->slots[i];
        if (slot->id > 0 && slot->id < table->n && table->of[slot->id].rank > 0)
            items[f.n_items++] = (put_item){slot, table->of[slot->id], type, type};
    }
    dsmoe_status status;
    if (!items)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    else if (f.n_items == 0)
        status = status_fail(error, DSMOE_ERROR_ARGUMENT, "%s: nothing is adapted", folder);
    else
        status = write_folder(&f, folder, words, error);
    free(items);
    dsmoe_adapter_free(names);
    return status;
}
