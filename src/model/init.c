/* init.c - writes a freshly initialised model to a folder, row by row in the order of weights_each. A
 * number depends only on the seed, the name of its tensor and its place in it, not on threads, pieces
 * or the other layers of the model. */
#include "model/init.h"

#include <math.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "base/threads.h"
#include "kernels/quantize.h"
#include "model/config.h"
#include "model/folder_writer.h"
#include "model/row_pump.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* A hash (FNV-1a). */
uint64_t init_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

void init_numbers(const dsmoe_config *config, uint64_t seed, const char *name, weight_role role,
                  int64_t first, int64_t n, float *out)
{
    uint64_t at = (uint64_t)first;
    float bound = (float)(1.0 / sqrt((double)config->hidden_size));
    float deviation = (float)config->initializer_range;
    switch (role) {
    case WEIGHT_LINEAR: rng_normal(out, n, seed, init_stream(name), at, deviation); break;
    case WEIGHT_ROUTER: rng_uniform(out, n, seed, init_stream(name), at, -bound, bound); break;
    case WEIGHT_NORM:
    case WEIGHT_BIAS:
    case WEIGHT_CORRECTION:
        for (int64_t i = 0; i < n; i++) out[i] = role == WEIGHT_NORM ? 1.0f : 0.0f;
        break;
    }
}

/* ---- the folder ------------------------------------------------------------------------------ */

typedef struct init_job {
    const dsmoe_config *config;
    const init_options *options;
    folder_writer *writer;
    row_pump *pump;
    int64_t longest;         /* numbers of a row */
    const weight_spec *spec; /* the tensor being written */
} init_job;

/* A vector is one row. */
static int64_t row_length(const weight_spec *spec) { return spec->shape[spec->n_dims - 1]; }

static dsmoe_status declare_tensor(void *context, const weight_spec *spec, dsmoe_error *error)
{
    init_job *job = context;
    if (row_length(spec) > job->longest) job->longest = row_length(spec);
    return folder_writer_declare(job->writer, spec->name,
                                 weight_dtype(spec->role, job->options->dtype), spec->n_dims,
                                 spec->shape, error);
}

static bool make_row(void *context, int64_t row, float *scratch, void *out)
{
    const init_job *job = context;
    const weight_spec *spec = job->spec;
    int64_t n = row_length(spec);
    init_numbers(job->config, job->options->seed, spec->name, spec->role, row * n, n, scratch);
    quantize_row(weight_dtype(spec->role, job->options->dtype), n, scratch, NULL, out);
    return true;
}

static dsmoe_status write_tensor(void *context, const weight_spec *spec, dsmoe_error *error)
{
    init_job *job = context;
    job->spec = spec;
    int64_t n = row_length(spec), bad_row;
    row_pump_tensor tensor = {
        .n_rows = spec->n_dims == 2 ? spec->shape[0] : 1,
        .n = n,
        .row_size = (size_t)dtype_bytes(weight_dtype(spec->role, job->options->dtype), n),
        .make = make_row,
        .context = job};
    return row_pump_run(job->pump, &tensor, &bad_row, error);
}

static dsmoe_status write_bytes(void *to, const void *bytes, size_t size, dsmoe_error *error)
{
    return folder_writer_write(to, bytes, size, error);
}

static dsmoe_status write_tensors(init_job *job, const char *folder, dsmoe_error *error)
{
    STATUS_TRY(weights_each(job->config, NULL, declare_tensor, job, error));
    row_pump_options options = {.path = folder,
                                .write = write_bytes,
                                .to = job->writer,
                                .n_threads = job->options->n_threads,
                                .longest = job->longest,
                                .total = folder_writer_data_size(job->writer),
                                .progress = job->options->progress,
                                .context = job->options->context};
    STATUS_TRY(row_pump_create(&options, &job->pump, error));
    STATUS_TRY(weights_each(job->config, NULL, write_tensor, job, error));
    return row_pump_flush(job->pump, error);
}

dsmoe_status init_folder(const char *folder, const dsmoe_config *config,
                         const init_options *options, dsmoe_error *error)
{
    static const char *const own[] = {"tokenizer.json", "tokenizer_config.json",
                                      "chat_template.jinja"}; /* may be there before */
    init_job job = {.config = config, .options = options};
    STATUS_TRY(dsmoe_output_folder_check(folder, own, sizeof own / sizeof *own, error));
    STATUS_TRY(folder_writer_create(folder, options->shard_size, &job.writer, error));
    dsmoe_status status = write_tensors(&job, folder, error);
    row_pump_free(job.pump);
    const folder_writer_words words = {.config = config, .dtype = options->dtype};
    if (status == DSMOE_OK) return folder_writer_finish(job.writer, &words, error);
    folder_writer_abandon(job.writer);
    return status;
}

dsmoe_status dsmoe_model_init(const char *path, const dsmoe_config *config, dsmoe_dtype dtype,
                              uint64_t seed, int n_threads, dsmoe_progress_fn *progress,
                              void *context, dsmoe_error *error)
{
    if (!path || !*path || !config)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no folder or no configuration given");
    if (dtype != DSMOE_F32 && dtype != DSMOE_F16 && dtype != DSMOE_BF16)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "there is no type %d", (int)dtype);
    if (n_threads < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "threads must be at least 1, not %d",
                           n_threads);
    STATUS_TRY(config_check(config, error));
    init_options options = {
        dtype,    seed,   n_threads ? n_threads : threads_available(), FOLDER_WRITER_SHARD_SIZE,
        progress, context};
    return init_folder(path, config, &options, error);
}
