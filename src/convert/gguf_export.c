/* gguf_export.c - writes a GGUF file tensor by tensor. The experts of a layer become one tensor, the rows of
 * q and k change places (see gguf_names.h), kv_b_proj becomes two tensors, and a tied head is written as a
 * separate tensor, as other readers expect. This project's readers find dsmoe.tie_word_embeddings. */
#include "convert/gguf_export.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "convert/export_keys.h"
#include "convert/type_changes.h"
#include "formats/gguf_writer.h"
#include "model/config.h"
#include "model/row_pump.h"

/* A tensor of the file. */
typedef struct target {
    char name[GGUF_PLACE_SIZE];
    dsmoe_dtype type;
    int64_t n_parts;
    const source_tensor **parts; /* [n_parts] of equal shape, one after the other */
    int64_t n_slices; /* its matrices: experts, which are parts, or the heads of one part */
} target;

typedef struct export_job {
    const gguf_export *e;
    target *targets;
    size_t n_targets;
    const source_tensor **parts; /* of all targets */
    source_tensor head;          /* a tied head */
    gguf_writer *writer;
    row_pump *pump;
    float *importance; /* of the tensor being written, [n_slices, n_in]; NULL without an imatrix */
    const target *now; /* the tensor being written */
    bool weighted;     /* `importance` is that of `now` */
} export_job;

static dsmoe_status out_of_memory(const gguf_export *e, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", e->path);
}

/* ---- unsupported models ---------------------------------------------------------------------- */

static dsmoe_status refuse(const source *s, const char *what, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: a GGUF file cannot express %s", s->name,
                       what);
}

static dsmoe_status check_expressible(const source *s, dsmoe_error *error)
{
    const dsmoe_config *c = &s->config;
    bool has_moe = c->n_routed_experts > 0, latent = config_is_latent(c);
    if (has_moe && c->norm_topk_prob && !latent)
        return refuse(s, "norm_topk_prob: its readers never renormalise gate values", error);
    if (has_moe && c->routed_scaling_factor != 0 && c->routed_scaling_factor != 1 && !latent)
        return refuse(s, "a routed_scaling_factor of this type of model", error);
    if (has_moe && c->moe_layer_freq != 1) return refuse(s, "a moe_layer_freq other than 1", error);
    if (c->attention_bias) return refuse(s, "attention_bias", error);
    if (c->rope_scaling == DSMOE_ROPE_DYNAMIC) return refuse(s, "dynamic rope_scaling", error);
    if (c->rope_scaling == DSMOE_ROPE_LINEAR && latent)
        return refuse(s, "linear rope_scaling with latent attention", error);
    bool is_even = c->mscale == c->mscale_all_dim && c->mscale != 0;
    if (c->rope_scaling == DSMOE_ROPE_YARN && !is_even)
        return refuse(s, "an mscale other than mscale_all_dim: its readers take them for equal",
                      error);
    return DSMOE_OK;
}

/* ---- the tensors of the file ----------------------------------------------------------------- */

/* The tensor of the file that a tensor belongs to. It is new, except for experts after the first. */
static target *target_of(export_job *job, const source_tensor *t, const char *name)
{
    for (size_t i = job->n_targets; t->place.expert > 0 && i > 0; i--)
        if (!strcmp(job->targets[i - 1].name, name)) return &job->targets[i - 1];
    target *made = &job->targets[job->n_targets];
    memcpy(made->name, name, sizeof made->name);
    made->parts = job->n_targets ? made[-1].parts + made[-1].n_parts : job->parts;
    made->n_slices = gguf_place_slices(&job->e->source->config, &t->place);
    made->n_parts = t->place.expert < 0 ? 1 : made->n_slices;
    job->n_targets++;
    return made;
}

static void add_part(export_job *job, const source_tensor *t, const char *name)
{
    target *to = target_of(job, t, name);
    to->parts[t->place.expert < 0 ? 0 : t->place.expert] = t;
    if (t->place.expert <= 0) {
        to->type = mixture_type(&job->e->mixture, job->e->source, t, name);
    } else if (job->e->mixture.as_is && source_kept_dtype(job->e->source, t) != to->type) {
        to->type = DSMOE_F32; /* experts of different types cannot be stacked as they are */
    }
}

static dsmoe_status list_targets(export_job *job, dsmoe_error *error)
{
    const source *s = job->e->source;
    size_t most = s->n_tensors + 1; /* and a tied head */
    job->targets = calloc(most, sizeof *job->targets);
    job->parts = calloc(most, sizeof *job->parts);
    if (!job->targets || !job->parts) return out_of_memory(job->e, error);
    for (size_t i = 0; i < s->n_tensors; i++)
        add_part(job, &s->tensors[i], s->tensors[i].place.name);
    if (!s->config.tie_word_embeddings) return DSMOE_OK;
    gguf_place head;
    gguf_place_of(&s->config, "lm_head.weight", &head);
    for (size_t i = 0; i < s->n_tensors; i++)
        if (!strcmp(s->tensors[i].name, "model.embed_tokens.weight")) job->head = s->tensors[i];
    if (s->model) job->head.weight = s->model->weights->lm_head; /* a file may have a finer one */
    add_part(job, &job->head, head.name);
    return DSMOE_OK;
}

static void count_changes(const export_job *job)
{
    const source *s = job->e->source;
    if (!job->e->changes) return;
    *job->e->changes = (dsmoe_type_changes){0};
    for (size_t i = 0; i < job->n_targets; i++)
        for (int64_t j = 0; j < job->targets[i].n_parts; j++)
            type_changes_add(job->e->changes, source_dtype(s, job->targets[i].parts[j]),
                             job->targets[i].type);
}

/* The type of most numbers. */
static dsmoe_dtype most_common(const export_job *job)
{
    int64_t counts[N_DTYPES] = {0};
    dsmoe_dtype most = DSMOE_F32;
    for (size_t i = 0; i < job->n_targets; i++) {
        const target *t = &job->targets[i];
        if (t->parts[0]->n_dims == 2)
            counts[t->type] += t->n_parts * t->parts[0]->n_rows * t->parts[0]->n_in;
    }
    for (int type = 0; type < N_DTYPES; type++)
        if (counts[type] > counts[most]) most = (dsmoe_dtype)type;
    return most;
}

/* Rows of one matrix of the tensor. */
static int64_t slice_rows(const target *t)
{
    return t->n_parts * t->parts[0]->n_rows / t->n_slices;
}

static dsmoe_status declare_targets(export_job *job, dsmoe_error *error)
{
    for (size_t i = 0; i < job->n_targets; i++) {
        const target *t = &job->targets[i];
        const source_tensor *part = t->parts[0];
        const int64_t shape[] = {t->n_slices, slice_rows(t), part->n_in};
        bool is_stacked = part->place.expert >= 0 || part->place.of_heads;
        int n_dims = is_stacked ? 3 : part->n_dims;
        STATUS_TRY(
            gguf_writer_declare(job->writer, t->name, t->type, n_dims, shape + 3 - n_dims, error));
    }
    return DSMOE_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool make_row(void *context, int64_t row, float *scratch, void *out)
{
    const export_job *job = context;
    const target *t = job->now;
    int64_t n_rows = t->parts[0]->n_rows, n = t->parts[0]->n_in, part = row / n_rows;
    source_form form = {.as_gguf = true, .type = t->type};
    if (job->weighted) form.importance = job->importance + row / slice_rows(t) * n;
    return source_make_row(job->e->source, t->parts[part], row % n_rows, form, scratch, out);
}

static dsmoe_status write_target(export_job *job, const target *t, dsmoe_error *error)
{
    const source_tensor *part = t->parts[0];
    row_pump_tensor tensor = {.n_rows = t->n_parts * part->n_rows,
                              .n = part->n_in,
                              .row_size = (size_t)dtype_bytes(t->type, part->n_in),
                              .make = make_row,
                              .context = job};
    job->now = t;
    job->weighted = false;
    STATUS_TRY(source_stock(job->e->source, t->type, job->e->n_threads, error));
    if (job->importance && dtype_is_block(t->type))
        STATUS_TRY(imatrix_importance(job->e->imatrix, t->name, t->n_slices, part->n_in,
                                      job->importance, &job->weighted, error));
    int64_t bad_row;
    STATUS_TRY(row_pump_run(job->pump, &tensor, &bad_row, error));
    if (bad_row < 0) return DSMOE_OK;
    return source_fail_row(job->e->source, t->parts[bad_row / part->n_rows], bad_row % part->n_rows,
                           t->type, error);
}

static dsmoe_status write_bytes(void *to, const void *bytes, size_t size, dsmoe_error *error)
{
    return gguf_writer_write(to, bytes, size, error);
}

/* Whether importances are expected: not of the embedding, which is looked up, not multiplied with. A tied
 * head is a separate tensor in a GGUF file. */
static bool is_weighed(const target *t)
{
    return dtype_is_block(t->type) && strcmp(t->name, "token_embd.weight");
}

/* Called before anything is written, so that an imatrix of another model is refused immediately. */
static dsmoe_status check_imatrix(const export_job *job, dsmoe_error *error)
{
    const gguf_export *e = job->e;
    int64_t n_weighed = 0, n_known = 0;
    for (size_t i = 0; i < job->n_targets; i++) {
        const target *t = &job->targets[i];
        bool known = false;
        if (!is_weighed(t)) continue;
        STATUS_TRY(
            imatrix_knows(e->imatrix, t->name, t->n_slices, t->parts[0]->n_in, &known, error));
        n_weighed++;
        n_known += known;
    }
    if (n_weighed > 0 && n_known == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: made for another model: it has none of the %lld matrices here",
                           imatrix_path(e->imatrix), (long long)n_weighed);
    if (e->n_without_importance) *e->n_without_importance = n_weighed - n_known;
    if (e->n_weighed) *e->n_weighed = n_weighed;
    return DSMOE_OK;
}

/* Memory for the importances of the largest tensor. */
static dsmoe_status prepare_importance(export_job *job, dsmoe_error *error)
{
    int64_t most = 0;
    for (size_t i = 0; i < job->n_targets; i++) {
        int64_t n = job->targets[i].n_slices * job->targets[i].parts[0]->n_in;
        if (n > most) most = n;
    }
    job->importance = memory_alloc((size_t)most * sizeof *job->importance);
    return job->importance ? DSMOE_OK : out_of_memory(job->e, error);
}

static dsmoe_status write_targets(export_job *job, dsmoe_error *error)
{
    const gguf_export *e = job->e;
    row_pump_options options = {.path = e->path,
                                .write = write_bytes,
                                .to = job->writer,
                                .n_threads = e->n_threads,
                                .longest = e->source->longest,
                                .total = gguf_writer_data_size(job->writer),
                                .progress = e->progress,
                                .context = e->context};
    if (e->imatrix) STATUS_TRY(prepare_importance(job, error));
    STATUS_TRY(row_pump_create(&options, &job->pump, error));
    for (size_t i = 0; i < job->n_targets; i++)
        STATUS_TRY(write_target(job, &job->targets[i], error));
    return row_pump_flush(job->pump, error);
}

/* ---- the file -------------------------------------------------------------------------------- */

static dsmoe_status write_file(export_job *job, dsmoe_error *error)
{
    STATUS_TRY(list_targets(job, error));
    count_changes(job);
    if (job->e->imatrix) STATUS_TRY(check_imatrix(job, error));
    STATUS_TRY(gguf_writer_create(job->e->path, &job->writer, error));
    STATUS_TRY(export_keys_write(job->e, most_common(job), job->writer, error));
    STATUS_TRY(declare_targets(job, error));
    STATUS_TRY(write_targets(job, error));
    /* If the source changed meanwhile, its numbers may be wrong. */
    STATUS_TRY(source_check_intact(job->e->source, error));
    if (job->e->imatrix) STATUS_TRY(imatrix_check_intact(job->e->imatrix, error));
    gguf_writer *writer = job->writer;
    job->writer = NULL; /* gguf_writer_finish frees it */
    dsmoe_status status = gguf_writer_finish(writer, error);
    /* The file may exist without being safe on disk. With `replace` it may be the old one, and stays. */
    if (status != DSMOE_OK && !job->e->replace) unlink(job->e->path);
    return status;
}

dsmoe_status gguf_export_write(const gguf_export *e, dsmoe_error *error)
{
    STATUS_TRY(check_expressible(e->source, error));
    export_job job = {.e = e};
    dsmoe_status status = write_file(&job, error);
    gguf_writer_abandon(job.writer);
    row_pump_free(job.pump);
    free(job.importance);
    free(job.targets);
    free(job.parts);
    return status;
}
