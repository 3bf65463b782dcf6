/* imatrix_make.c - runs a text through a model and sums the squares of every matrix's inputs. The sums
 * are float64, and one thread adds to them in the order of the tokens, so they do not depend on how
 * many threads compute the products. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "convert/imatrix.h"
#include "convert/source.h"
#include "formats/gguf_writer.h"
#include "formats/output.h"
#include "engine/engine.h"
#include "model/kv_b.h"

enum { DEFAULT_CTX = 512, BATCH_MAX = 512, CTX_MAX = 1 << 24 };

/* One matrix of a model file, or the stacked ones of a layer's experts. */
typedef struct collected {
    char name[GGUF_PLACE_SIZE];
    int64_t n_matrices, n_in;
    double *sums;   /* [n_matrices, n_in] */
    double *counts; /* [n_matrices], whole numbers */
} collected;

/* The sums to which a weight's inputs are added. */
typedef struct owner {
    const void *data; /* the weight's numbers */
    collected *of;
    int64_t matrix;
} owner;

typedef struct collector {
    const char *path;
    source source;
    collected *all; /* [n] */
    size_t n;
    owner *owners; /* [n_owners] in order of address */
    size_t n_owners;
    double *memory; /* of all sums */
} collector;

static dsmoe_status out_of_memory(const collector *c, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", c->path);
}

/* ---- entries and owners ---------------------------------------------------------------------- */

static int compare_owners(const void *left, const void *right)
{
    const char *a = ((const owner *)left)->data, *b = ((const owner *)right)->data;
    return (a > b) - (a < b);
}

/* Routers stay float32. An embedding is looked up, not multiplied with, unless it is also the head. */
static bool is_collected(const source *s, const source_tensor *t)
{
    bool is_embedding = !strcmp(t->name, "model.embed_tokens.weight");
    return t->role == WEIGHT_LINEAR && (!is_embedding || s->config.tie_word_embeddings);
}

/* The entry of a tensor. It is new, except for experts after the first. */
static collected *entry_of(collector *c, const source_tensor *t, const char *name)
{
    for (size_t i = c->n; t->place.expert > 0 && i > 0; i--)
        if (!strcmp(c->all[i - 1].name, name)) return &c->all[i - 1];
    collected *made = &c->all[c->n++];
    snprintf(made->name, sizeof made->name, "%s", name);
    made->n_matrices = gguf_place_slices(&c->source.config, &t->place);
    made->n_in = t->n_in;
    return made;
}

/* A tensor, or one slice of a stacked one. */
static void add_owner(collector *c, const void *data, collected *of, int64_t number)
{
    c->owners[c->n_owners++] = (owner){data, of, number};
}

/* Heads of k_b_proj and v_b_proj. The address of a head's first row identifies it; in a whole kv_b_proj, the
 * first row of its keys or values. */
static void add_heads(collector *c, const source_tensor *t, collected *of)
{
    const dsmoe_config *config = &c->source.config;
    int64_t n = t->n_rows / of->n_matrices;
    for (int64_t head = 0; head < of->n_matrices; head++) {
        int64_t row = t->way == SOURCE_KEYS     ? kv_b_key_row(config, head * n)
                      : t->way == SOURCE_VALUES ? kv_b_value_row(config, head * n)
                                                : head * n;
        add_owner(c, matrix_at(t->weight, row, 0), of, head);
    }
}

static void list_entries(collector *c)
{
    gguf_place head;
    gguf_place_of(&c->source.config, "lm_head.weight", &head);
    for (size_t i = 0; i < c->source.n_tensors; i++) {
        const source_tensor *t = &c->source.tensors[i];
        if (!is_collected(&c->source, t)) continue;
        bool is_head = !strcmp(t->name, "model.embed_tokens.weight");
        collected *of = entry_of(c, t, is_head ? head.name : t->place.name);
        const void *data = is_head ? c->source.model->weights->lm_head.data : t->weight.data;
        if (t->place.of_heads)
            add_heads(c, t, of);
        else
            add_owner(c, data, of, t->place.expert < 0 ? 0 : t->place.expert);
    }
    qsort(c->owners, c->n_owners, sizeof *c->owners, compare_owners);
}

/* These are fewer numbers than the model has, so the products cannot overflow. */
static dsmoe_status place_sums(collector *c, dsmoe_error *error)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->n; i++) n += c->all[i].n_matrices * (c->all[i].n_in + 1);
    c->memory = calloc((size_t)n, sizeof *c->memory);
    if (!c->memory) return out_of_memory(c, error);
    double *next = c->memory;
    for (size_t i = 0; i < c->n; i++) {
        c->all[i].sums = next;
        c->all[i].counts = next + c->all[i].n_matrices * c->all[i].n_in;
        next = c->all[i].counts + c->all[i].n_matrices;
    }
    return DSMOE_OK;
}

/* An upper bound: one for each weight, and one for each head of weights that have heads. */
static size_t count_owners(const source *s)
{
    size_t n = s->n_tensors;
    for (size_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].place.of_heads) n += (size_t)s->config.num_attention_heads;
    return n;
}

static dsmoe_status collector_prepare(collector *c, const dsmoe_model *model, dsmoe_error *error)
{
    STATUS_TRY(source_of_model(c->path, model, true, &c->source, error));
    c->all = calloc(c->source.n_tensors, sizeof *c->all);
    c->owners = calloc(count_owners(&c->source), sizeof *c->owners);
    if (!c->all || !c->owners) return out_of_memory(c, error);
    list_entries(c);
    return place_sums(c, error);
}

static void collector_free(collector *c)
{
    source_free(&c->source);
    free(c->all);
    free(c->owners);
    free(c->memory);
}

/* ---- collecting ------------------------------------------------------------------------------ */

static void see_inputs(void *context, matrix weight, rows x, int64_t n_rows, int64_t n_in)
{
    const collector *c = context;
    owner wanted = {.data = weight.data};
    const owner *o = bsearch(&wanted, c->owners, c->n_owners, sizeof wanted, compare_owners);
    if (!o || o->of->n_in != n_in) return;
    double *sums = o->of->sums + o->matrix * n_in;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *row = rows_at(x, r);
        for (int64_t i = 0; i < n_in; i++) sums[i] += (double)row[i] * (double)row[i];
    }
    o->of->counts[o->matrix] += (double)n_rows;
}

typedef struct run {
    const int32_t *tokens;
    int64_t n_tokens, n_ctx;
    const dsmoe_imatrix_options *options;
} run;

/* Computes the logits of all tokens, as the head is one of the matrices, but does not read them. */
static dsmoe_status run_tokens(collector *c, const dsmoe_model *model, const run *r,
                               dsmoe_error *error)
{
    const dsmoe_imatrix_options *o = r->options;
    dsmoe_engine_options wanted = {.n_ctx = r->n_ctx,
                                   .n_batch = r->n_ctx < BATCH_MAX ? r->n_ctx : BATCH_MAX,
                                   .n_threads = o->n_threads};
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    STATUS_TRY(dsmoe_engine_create(model, &wanted, &engine, error));
    const input_watch watch = {see_inputs, c};
    engine_watch_inputs(engine, &watch);
    dsmoe_status status = dsmoe_sequence_create(engine, &sequence, error);
    for (int64_t done = 0; status == DSMOE_OK && done < r->n_tokens;) {
        int64_t n = r->n_tokens - done < r->n_ctx ? r->n_tokens - done : r->n_ctx;
        dsmoe_turn turn = {
            .sequence = sequence, .tokens = r->tokens + done, .n_tokens = n, .n_logits = n};
        status = dsmoe_sequence_rewind(sequence, 0, error);
        if (status == DSMOE_OK) status = dsmoe_engine_forward(engine, &turn, 1, error);
        done += n;
        if (status == DSMOE_OK && o->progress &&
            !o->progress(o->context, (double)done, (double)r->n_tokens))
            status = status_fail(error, DSMOE_ERROR_STOPPED, "%s: stopped", c->path);
    }
    dsmoe_engine_free(engine);
    return status;
}

static int64_t count_unused_experts(const collector *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->source.n_tensors; i++) {
        const source_tensor *t = &c->source.tensors[i];
        if (t->place.expert < 0 || !strstr(t->name, ".down_proj.")) continue;
        owner wanted = {.data = t->weight.data};
        const owner *o = bsearch(&wanted, c->owners, c->n_owners, sizeof wanted, compare_owners);
        n += o && o->of->counts[o->matrix] == 0;
    }
    return n;
}

/* ---- the file -------------------------------------------------------------------------------- */

static dsmoe_status declare_all(const collector *c, gguf_writer *writer, dsmoe_error *error)
{
    for (size_t i = 0; i < c->n; i++) {
        const collected *e = &c->all[i];
        char sums[IMATRIX_NAME_SIZE], counts[IMATRIX_NAME_SIZE];
        if (!imatrix_names(e->name, sums, counts))
            return status_fail(error, DSMOE_ERROR_CONFIG, "%s: the name %s is too long", c->path,
                               e->name);
        const int64_t sums_shape[] = {e->n_matrices, e->n_in}, counts_shape[] = {e->n_matrices, 1};
        STATUS_TRY(gguf_writer_declare(writer, sums, DSMOE_F32, 2, sums_shape, error));
        STATUS_TRY(gguf_writer_declare(writer, counts, DSMOE_F32, 2, counts_shape, error));
    }
    return DSMOE_OK;
}

static dsmoe_status write_floats(gguf_writer *writer, const double *x, int64_t n,
                                 dsmoe_error *error)
{
    enum { SOME = 1024 };
    for (int64_t done = 0; done < n; done += SOME) {
        float narrow[SOME];
        int64_t count = n - done < SOME ? n - done : SOME;
        for (int64_t i = 0; i < count; i++) narrow[i] = (float)x[done + i];
        STATUS_TRY(gguf_writer_write(writer, narrow, (size_t)count * sizeof *narrow, error));
    }
    return DSMOE_OK;
}

static dsmoe_status write_all(const collector *c, gguf_writer *writer, dsmoe_error *error)
{
    for (size_t i = 0; i < c->n; i++) {
        const collected *e = &c->all[i];
        STATUS_TRY(write_floats(writer, e->sums, e->n_matrices * e->n_in, error));
        STATUS_TRY(write_floats(writer, e->counts, e->n_matrices, error));
    }
    return DSMOE_OK;
}

/* Called before the tokens are run, so that a file that cannot be written is reported before the work. */
static dsmoe_status begin_file(const collector *c, const run *r, gguf_writer **made,
                               dsmoe_error *error)
{
    const char *dataset = r->options->dataset ? r->options->dataset : "";
    const gguf_string datasets[] = {{dataset, strlen(dataset)}};
    STATUS_TRY(gguf_writer_create(c->path, made, error));
    gguf_writer *writer = *made;
    gguf_writer_string(writer, "general.type", "imatrix", 7);
    gguf_writer_strings(writer, "imatrix.datasets", datasets, 1);
    gguf_writer_u32(writer, "imatrix.chunk_count",
                    (uint32_t)((r->n_tokens + r->n_ctx - 1) / r->n_ctx));
    gguf_writer_u32(writer, "imatrix.chunk_size", (uint32_t)r->n_ctx);
    STATUS_TRY(declare_all(c, writer, error));
    return output_check_room(c->path, (double)gguf_writer_data_size(writer), error);
}

static dsmoe_status make_file(collector *c, const dsmoe_model *model, const run *r,
                              dsmoe_error *error)
{
    gguf_writer *writer = NULL;
    dsmoe_status status = begin_file(c, r, &writer, error);
    if (status == DSMOE_OK) status = run_tokens(c, model, r, error);
    if (status == DSMOE_OK) status = write_all(c, writer, error);
    if (status == DSMOE_OK) return gguf_writer_finish(writer, error);
    gguf_writer_abandon(writer);
    return status;
}

dsmoe_status dsmoe_imatrix_make(const dsmoe_model *model, const int32_t *tokens, int64_t n_tokens,
                                const dsmoe_imatrix_options *options, const char *path,
                                dsmoe_error *error)
{
    static const dsmoe_imatrix_options defaults = {0};
    if (!model || !tokens || !path || !*path)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no model, no tokens or no path given");
    if (model->peers)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the model is divided among ranks, and inputs of experts on other ranks "
                           "are not visible here");
    if (!options) options = &defaults;
    run r = {tokens, n_tokens, options->n_ctx ? options->n_ctx : DEFAULT_CTX, options};
    if (n_tokens < 1 || r.n_ctx < 1 || r.n_ctx > CTX_MAX || options->n_threads < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%" PRId64 " tokens in pieces of %" PRId64 " on %d threads cannot work",
                           n_tokens, r.n_ctx, options->n_threads);
    if (r.n_ctx > n_tokens) r.n_ctx = n_tokens;
    const dsmoe_output output = {
        .path = path, .kind = DSMOE_OUTPUT_IMATRIX, .replace = options->replace};
    STATUS_TRY(dsmoe_output_check(&output, error));
    collector c = {.path = path};
    dsmoe_status status = collector_prepare(&c, model, error);
    if (status == DSMOE_OK) status = make_file(&c, model, &r, error);
    if (status == DSMOE_OK && options->n_unused_experts)
        *options->n_unused_experts = count_unused_experts(&c);
    collector_free(&c);
    return status;
}
