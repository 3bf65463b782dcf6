/* source.c - makes rows of a model's tensors. */
#include "convert/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/threads.h"
#include "kernels/quantize.h"
#include "model/config.h"
#include "model/init.h"
#include "model/kv_b.h"

typedef struct lister {
    source *source;
    size_t capacity;
    size_t next; /* index of a tensor of the model */
} lister;

static dsmoe_status out_of_memory(const source *s, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", s->name);
}

/* A fresh model has a whole kv_b_proj. */
static source_way way_of(const source *s, const char *name)
{
    bool is_whole = !s->model || !s->model->weights->kv_b_split;
    if (is_whole && strstr(name, ".k_b_proj.")) return SOURCE_KEYS;
    if (is_whole && strstr(name, ".v_b_proj.")) return SOURCE_VALUES;
    return !is_whole && strstr(name, ".kv_b_proj.") ? SOURCE_HALVES : SOURCE_AS_IS;
}

static void take_matrix(const source *s, const weight_spec *spec, source_tensor *t)
{
    long long number = 0;
    t->way = way_of(s, spec->name);
    if (t->way != SOURCE_AS_IS) sscanf(spec->name, "model.layers.%lld.", &number);
    t->layer = number;
    const layer_weights *layer = s->model ? &s->model->weights->layers[number] : NULL;
    if (layer && t->way == SOURCE_AS_IS) {
        t->weight = *spec->slot.matrix;
    } else if (layer && t->way == SOURCE_HALVES) {
        dsmoe_dtype type = layer->k_b_proj.type;
        t->weight.type = type == layer->v_b_proj.type ? type : DSMOE_F32;
    } else if (layer) {
        t->weight = layer->kv_b_proj;
    }
    t->stored = t->weight.type;
}

/* Folders and GGUF files have the same vectors in the same order. */
static void take_vector(lister *l, const weight_spec *spec, source_tensor *t)
{
    const dsmoe_model *m = l->source->model;
    t->vector = *spec->slot.vector;
    while (strcmp(m->tensors[l->next].name, spec->name)) l->next++;
    t->stored = m->tensors[l->next].dtype;
}

static dsmoe_status list_tensor(void *context, const weight_spec *spec, dsmoe_error *error)
{
    lister *l = context;
    source *s = l->source;
    if (s->n_tensors == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 256;
        source_tensor *grown = realloc(s->tensors, capacity * sizeof *grown);
        if (!grown) return out_of_memory(s, error);
        s->tensors = grown;
        l->capacity = capacity;
    }
    source_tensor t = {.name = strdup(spec->name), .role = spec->role, .n_dims = spec->n_dims};
    if (!t.name) return out_of_memory(s, error);
    t.n_rows = spec->n_dims == 2 ? spec->shape[0] : 1;
    t.n_in = spec->shape[spec->n_dims - 1];
    if (spec->n_dims == 2) take_matrix(s, spec, &t);
    if (s->model && spec->n_dims == 1) take_vector(l, spec, &t);
    if (t.n_in > s->longest) s->longest = t.n_in;
    bool has_place = gguf_place_of(&s->config, spec->name, &t.place);
    s->tensors[s->n_tensors++] = t;
    if (has_place) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: tensor %s has no name in GGUF files",
                       s->name, spec->name);
}

static dsmoe_status list_tensors(source *s, bool for_gguf, dsmoe_error *error)
{
    lister l = {.source = s};
    model_weights weights = {0};
    if (s->model) weights = *s->model->weights;
    weights.kv_b_split = for_gguf;
    dsmoe_status status = weights_each(&s->config, &weights, list_tensor, &l, error);
    if (status != DSMOE_OK) source_free(s);
    return status;
}

dsmoe_status source_of_model(const char *name, const dsmoe_model *model, bool for_gguf, source *s,
                             dsmoe_error *error)
{
    *s = (source){.name = name,
                  .config = model->config,
                  .model = model,
                  .as_gguf = model->weights->rope_pairs};
    return list_tensors(s, for_gguf, error);
}

dsmoe_status source_fresh(const char *name, const dsmoe_config *config, uint64_t seed, source *s,
                          dsmoe_error *error)
{
    *s = (source){.name = name, .config = *config, .seed = seed};
    return list_tensors(s, true, error);
}

void source_change(source *s, const merge *changes)
{
    for (size_t i = 0; i < s->n_tensors; i++)
        s->tensors[i].change = merge_find(changes, s->tensors[i].name);
    s->changes = changes;
}

dsmoe_status source_check_intact(const source *s, dsmoe_error *error)
{
    if (s->model) STATUS_TRY(model_intact(s->model, error));
    return s->changes ? merge_check_intact(s->changes, error) : DSMOE_OK;
}

void source_free(source *s)
{
    for (size_t i = 0; i < s->n_tensors; i++) free(s->tensors[i].name);
    free(s->tensors);
    for (int i = 0; i < N_DTYPES; i++) free(s->stocks[i]);
    *s = (source){0};
}

dsmoe_dtype source_dtype(const source *s, const source_tensor *t)
{
    return s->model && t->n_dims == 2 ? t->weight.type : DSMOE_F32;
}

dsmoe_dtype source_kept_dtype(const source *s, const source_tensor *t)
{
    dsmoe_dtype type = source_dtype(s, t);
    bool of_columns = t->way == SOURCE_KEYS || t->way == SOURCE_HALVES;
    return of_columns && dtype_is_block(type) ? DSMOE_F16 : type;
}

/* ---- blocks of a fresh model ----------------------------------------------------------------- */

enum { STOCK = 1 << 20, STOCK_TASK = 1 << 13 }; /* numbers of a stock, and of a task */

typedef struct stock_job {
    const source *s;
    dsmoe_dtype type;
    unsigned char *blocks;
} stock_job;

static void stock_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const stock_job *job = context;
    float x[STOCK_TASK];
    int64_t first = task * STOCK_TASK;
    init_numbers(&job->s->config, job->s->seed, "stock", WEIGHT_LINEAR, first, STOCK_TASK, x);
    quantize_row(job->type, STOCK_TASK, x, NULL, job->blocks + dtype_bytes(job->type, first));
}

dsmoe_status source_stock(source *s, dsmoe_dtype type, int n_threads, dsmoe_error *error)
{
    if (s->model || !dtype_is_block(type) || s->stocks[type]) return DSMOE_OK;
    s->stocks[type] = malloc((size_t)dtype_bytes(type, STOCK));
    if (!s->stocks[type]) return out_of_memory(s, error);
    stock_job job = {s, type, s->stocks[type]};
    threads_for(n_threads, STOCK / STOCK_TASK, stock_task, &job);
    return DSMOE_OK;
}

/* Draws each block from the stock, by its position in the tensor. */
static void draw_row(const source *s, const source_tensor *t, int64_t row, dsmoe_dtype type,
                     unsigned char *out)
{
    int block = dtype_table[type].block, size = dtype_table[type].bytes;
    int64_t n = t->n_in / block;
    uint64_t stream = init_stream(t->name);
    for (int64_t i = 0; i < n; i++) {
        uint64_t drawn = rng_bits(s->seed, stream, (uint64_t)(row * n + i)) % (STOCK / block);
        memcpy(out + i * size, s->stocks[type] + drawn * (uint64_t)size, (size_t)size);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The reverse of gguf_source_row. */
static int64_t gguf_target_row(int64_t head_dim, int64_t row)
{
    int64_t within = row % head_dim, half = head_dim / 2;
    return row - within + within % half * 2 + within / half;
}

/* The row of the source that is row `row` of the target. */
static int64_t row_in_source(const source *s, const source_tensor *t, int64_t row, bool as_gguf)
{
    int64_t head_dim = config_head_dim(&s->config);
    if (t->way == SOURCE_VALUES) return kv_b_value_row(&s->config, row);
    if (!t->place.permuted || s->as_gguf == as_gguf) return row;
    return as_gguf ? gguf_source_row(head_dim, row) : gguf_target_row(head_dim, row);
}

/* In a bias of q or k the numbers are reordered. */
static void vector_row(const source *s, const source_tensor *t, bool as_gguf, float *out)
{
    for (int64_t i = 0; i < t->n_in; i++) out[i] = t->vector[row_in_source(s, t, i, as_gguf)];
}

/* The halves get the same numbers as kv_b_proj in a fresh folder. */
static void fresh_kv_b(const source *s, const source_tensor *t, int64_t row, float *out)
{
    const dsmoe_config *c = &s->config;
    char name[128];
    snprintf(name, sizeof name, "model.layers.%lld.self_attn.kv_b_proj.weight",
             (long long)t->layer);
    if (t->way == SOURCE_VALUES) {
        int64_t first = kv_b_value_row(c, row) * c->kv_lora_rank;
        init_numbers(c, s->seed, name, t->role, first, t->n_in, out);
        return;
    }
    int64_t first = kv_b_key_row(c, row) * c->kv_lora_rank + kv_b_key_column(c, row);
    for (int64_t i = 0; i < t->n_in; i++)
        init_numbers(c, s->seed, name, t->role, first + i * c->kv_lora_rank, 1, &out[i]);
}

static void fresh_row(const source *s, const source_tensor *t, int64_t row, bool as_gguf,
                      float *out)
{
    int64_t first = t->n_dims == 2 ? row_in_source(s, t, row, as_gguf) * t->n_in : 0;
    if (t->way == SOURCE_AS_IS)
        init_numbers(&s->config, s->seed, t->name, t->role, first, t->n_in, out);
    else
        fresh_kv_b(s, t, row, out);
}

static const void *row_bytes(const source *s, const source_tensor *t, int64_t row, bool as_gguf)
{
    return matrix_at(t->weight, row_in_source(s, t, row, as_gguf), 0);
}

/* Changes a row of the target, by its place in the public layout. */
static void change_row(const source *s, const source_tensor *t, int64_t row, bool as_gguf,
                       float *out)
{
    const dsmoe_config *c = &s->config;
    int64_t head_dim = config_head_dim(c);
    bool permuted = t->place.permuted && as_gguf;
    if (strstr(t->name, ".k_b_proj.")) {
        for (int64_t i = 0; i < t->n_in; i++)
            merge_row(&t->change, kv_b_key_row(c, row) + i, kv_b_key_column(c, row), 1, &out[i]);
    } else if (strstr(t->name, ".v_b_proj.")) {
        merge_row(&t->change, kv_b_value_row(c, row), 0, t->n_in, out);
    } else if (t->n_dims == 1 && permuted) {
        for (int64_t i = 0; i < t->n_in; i++)
            merge_row(&t->change, 0, gguf_source_row(head_dim, i), 1, &out[i]);
    } else {
        merge_row(&t->change, permuted ? gguf_source_row(head_dim, row) : row, 0, t->n_in, out);
    }
}

/* Makes a row as float32, without changes. */
static void widen_base(const source *s, const source_tensor *t, int64_t row, bool as_gguf,
                       float *out)
{
    if (!s->model) {
        fresh_row(s, t, row, as_gguf, out);
        return;
    }
    const kernels *kn = s->model->kernels;
    if (t->n_dims == 1)
        vector_row(s, t, as_gguf, out);
    else if (t->way == SOURCE_KEYS)
        kv_b_key(kn, &s->config, t->weight, row, out);
    else if (t->way == SOURCE_HALVES)
        kv_b_whole(kn, &s->config, &s->model->weights->layers[t->layer], row, out);
    else
        kn->dtypes[t->weight.type].widen(t->n_in, row_bytes(s, t, row, as_gguf), out);
}

static void widen_row(const source *s, const source_tensor *t, int64_t row, bool as_gguf,
                      float *out)
{
    widen_base(s, t, row, as_gguf, out);
    if (merge_changes(&t->change)) change_row(s, t, row, as_gguf, out);
}

/* Whether rows of the target are unchanged rows of the model in that type. */
static bool has_rows(const source *s, const source_tensor *t, dsmoe_dtype type)
{
    return s->model && !merge_changes(&t->change) && t->n_dims == 2 && t->weight.type == type &&
           (t->way == SOURCE_AS_IS || t->way == SOURCE_VALUES);
}

static bool can_hold(dsmoe_dtype type, const float *x, int64_t n)
{
    static const float f16_limit = 65520; /* from this on, float16 is infinite */
    bool finite = true, large = false;
    for (int64_t i = 0; i < n; i++) {
        bool is_finite = x[i] - x[i] == 0.0f;
        finite &= is_finite;
        large |= is_finite && fabsf(x[i]) >= f16_limit;
    }
    return (finite || !dtype_is_block(type)) && !(large && type == DSMOE_F16);
}

bool source_make_row(const source *s, const source_tensor *t, int64_t row, source_form form,
                     float *scratch, void *out)
{
    if (has_rows(s, t, form.type)) {
        memcpy(out, row_bytes(s, t, row, form.as_gguf), (size_t)dtype_bytes(form.type, t->n_in));
        return true;
    }
    if (s->stocks[form.type]) {
        draw_row(s, t, row_in_source(s, t, row, form.as_gguf), form.type, out);
        return true;
    }
    widen_row(s, t, row, form.as_gguf, scratch);
    if (!can_hold(form.type, scratch, t->n_in)) return false;
    quantize_row(form.type, t->n_in, scratch, form.importance, out);
    return true;
}

dsmoe_status source_fail_row(const source *s, const source_tensor *t, int64_t row, dsmoe_dtype type,
                             dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_NONFINITE,
                       "%s: row %lld of %s has a number that %s cannot hold: a NaN, an infinity or "
                       "one too large",
                       s->name, (long long)row, t->name, dsmoe_dtype_name(type));
}

static bool numbers_fit(const float *x, int64_t n, dsmoe_dtype type)
{
    enum { SOME = 256 };
    for (int64_t i = 0; i < n; i += SOME) {
        int64_t count = n - i < SOME ? n - i : SOME;
        float narrow[SOME], again[SOME];
        quantize_row(type, count, x + i, NULL, narrow);
        kernels_get()->dtypes[type].widen(count, narrow, again);
        if (memcmp(x + i, again, (size_t)count * sizeof *x)) return false;
    }
    return true;
}

bool source_fits(const source *s, const source_tensor *t, dsmoe_dtype type, float *scratch)
{
    for (int64_t row = 0; row < t->n_rows; row++) {
        widen_row(s, t, row, s->as_gguf, scratch);
        if (!numbers_fit(scratch, t->n_in, type)) return false;
    }
    return true;
}
