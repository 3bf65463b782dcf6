/* source.c - rows of a model's tensors, wherever they come from. */
#include "convert/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/threads.h"
#include "kernels/quantize.h"
#include "model/config.h"
#include "model/init.h"

typedef struct lister {
    source *source;
    size_t capacity;
} lister;

static dsmoe_status out_of_memory(const source *s, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", s->name);
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
    if (s->model && spec->n_dims == 2) t.weight = *spec->slot.matrix;
    if (s->model && spec->n_dims == 1) t.vector = *spec->slot.vector;
    if (t.n_in > s->longest) s->longest = t.n_in;
    s->tensors[s->n_tensors++] = t;
    if (gguf_place_of(spec->name, &s->tensors[s->n_tensors - 1].place)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: tensor %s has no name in GGUF files",
                       s->name, spec->name);
}

static dsmoe_status list_tensors(source *s, dsmoe_error *error)
{
    lister l = {.source = s};
    model_weights *weights = s->model ? s->model->weights : NULL;
    dsmoe_status status = weights_each(&s->config, weights, list_tensor, &l, error);
    if (status != DSMOE_OK) source_free(s);
    return status;
}

dsmoe_status source_of_model(const char *name, const dsmoe_model *model, source *s,
                             dsmoe_error *error)
{
    *s = (source){.name = name,
                  .config = model->config,
                  .model = model,
                  .as_gguf = model->weights->rope_pairs};
    return list_tensors(s, error);
}

dsmoe_status source_fresh(const char *name, const dsmoe_config *config, uint64_t seed, source *s,
                          dsmoe_error *error)
{
    *s = (source){.name = name, .config = *config, .seed = seed};
    return list_tensors(s, error);
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

/* Any block may be any of the stock: which, the place of the block in its tensor decides. */
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

/* Where row `row` of the target lies in the source. */
static int64_t row_in_source(const source *s, const source_tensor *t, int64_t row, bool as_gguf)
{
    int64_t head_dim = config_head_dim(&s->config);
    if (!t->place.permuted || s->as_gguf == as_gguf) return row;
    return as_gguf ? gguf_source_row(head_dim, row) : gguf_target_row(head_dim, row);
}

/* Of a bias of q or k it is the numbers that change places. */
static void vector_row(const source *s, const source_tensor *t, bool as_gguf, float *out)
{
    for (int64_t i = 0; i < t->n_in; i++) out[i] = t->vector[row_in_source(s, t, i, as_gguf)];
}

static void fresh_row(const source *s, const source_tensor *t, int64_t row, bool as_gguf,
                      float *out)
{
    int64_t first = t->n_dims == 2 ? row_in_source(s, t, row, as_gguf) * t->n_in : 0;
    init_numbers(&s->config, s->seed, t->name, t->role, first, t->n_in, out);
}

static const void *row_bytes(const source *s, const source_tensor *t, int64_t row, bool as_gguf)
{
    return matrix_at(t->weight, row_in_source(s, t, row, as_gguf), 0);
}

/* As float32. */
static void widen_row(const source *s, const source_tensor *t, int64_t row, bool as_gguf,
                      float *out)
{
    if (!s->model)
        fresh_row(s, t, row, as_gguf, out);
    else if (t->n_dims == 1)
        vector_row(s, t, as_gguf, out);
    else
        s->model->kernels->dtypes[t->weight.type].widen(t->n_in, row_bytes(s, t, row, as_gguf),
                                                        out);
}

static bool can_hold(dsmoe_dtype type, const float *x, int64_t n)
{
    static const float f16_limit = 65520; /* from here on float16 is infinite */
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
    if (s->model && t->n_dims == 2 && t->weight.type == form.type) {
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
