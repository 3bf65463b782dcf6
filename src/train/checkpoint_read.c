/* checkpoint_read.c - a trainer from disk, each byte of it as it was written. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "formats/mapped_file.h"
#include "formats/safetensors.h"
#include "train/checkpoint_form.h"

typedef struct opened {
    safetensors *model, *training;
    checkpoint_state state;
} opened;

static const char damaged[] = "the file is damaged, or not the one that was written here";

static dsmoe_status fail(const safetensors *file, const char *what, const char *name,
                         dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s%s", safetensors_path(file), what, name);
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* Values in the order in which they were written, and the hash of all so far. */
typedef struct value_reader {
    const safetensors *file;
    hash_state hash;
} value_reader;

static dsmoe_status get_value(value_reader *r, const char *key, const char **value,
                              dsmoe_error *error)
{
    *value = safetensors_metadata(r->file, key);
    if (!*value) return fail(r->file, "no metadata ", key, error);
    hash_add(&r->hash, *value, strlen(*value) + 1);
    return DSMOE_OK;
}

static dsmoe_status get_bits(value_reader *r, const char *key, uint64_t *bits, dsmoe_error *error)
{
    const char *value;
    STATUS_TRY(get_value(r, key, &value, error));
    if (strlen(value) != 16 || strspn(value, "0123456789abcdef") != 16)
        return fail(r->file, "no 16 hexadecimal digits as metadata ", key, error);
    *bits = strtoull(value, NULL, 16);
    return DSMOE_OK;
}

static dsmoe_status get_integer(value_reader *r, const char *key, int64_t *number,
                                dsmoe_error *error)
{
    const char *value;
    STATUS_TRY(get_value(r, key, &value, error));
    const char *digits = value + (*value == '-');
    errno = 0;
    *number = strtoll(value, NULL, 10);
    if (!*digits || strspn(digits, "0123456789") != strlen(digits) || errno)
        return fail(r->file, "no whole number as metadata ", key, error);
    return DSMOE_OK;
}

static dsmoe_status get_state(value_reader *r, checkpoint_state *state, dsmoe_error *error)
{
    for (int i = 0; i < n_state_fields; i++) {
        const state_field *f = &state_fields[i];
        char *field = (char *)state + f->offset;
        if (f->kind == STATE_BITS) {
            uint64_t bits;
            STATUS_TRY(get_bits(r, f->key, &bits, error));
            memcpy(field, &bits, sizeof bits);
        } else {
            STATUS_TRY(get_integer(r, f->key, (int64_t *)field, error));
        }
    }
    bool possible = state->step >= 0 && state->n_updates >= 0 && state->n_skipped >= 0 &&
                    state->sequences >= 0 && state->best_step <= state->step &&
                    state->n_updates <= state->step && state->n_skipped <= state->step;
    return possible ? DSMOE_OK
                    : fail(r->file, "numbers that no run can have as metadata", "", error);
}

typedef struct file_hashes {
    uint64_t config, model, moments;
} file_hashes;

static dsmoe_status get_metadata(const safetensors *file, checkpoint_state *state,
                                 file_hashes *hashes, dsmoe_error *error)
{
    value_reader r = {.file = file};
    hash_begin(&r.hash, 0);
    const char *form;
    STATUS_TRY(get_value(&r, CHECKPOINT_FORMAT_KEY, &form, error));
    if (strcmp(form, CHECKPOINT_FORMAT))
        return fail(file, "not the training state that this version writes", "", error);
    STATUS_TRY(get_state(&r, state, error));
    STATUS_TRY(get_bits(&r, CHECKPOINT_CONFIG_HASH, &hashes->config, error));
    STATUS_TRY(get_bits(&r, CHECKPOINT_MODEL_HASH, &hashes->model, error));
    STATUS_TRY(get_bits(&r, CHECKPOINT_MOMENTS_HASH, &hashes->moments, error));
    uint64_t found = hash_end(&r.hash), expected;
    STATUS_TRY(get_bits(&r, CHECKPOINT_STATE_HASH, &expected, error));
    return found == expected ? DSMOE_OK : fail(file, damaged, "", error);
}

/* ---- hashes ---------------------------------------------------------------------------------- */

/* Tensors tile the data: it is one row of bytes that begins with the first of them. */
static const unsigned char *data_of(const safetensors *file, size_t *size)
{
    const unsigned char *first = NULL;
    *size = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor *t = safetensors_at(file, i);
        if (!first || t->data < first) first = t->data;
        *size += t->size;
    }
    return first;
}

static dsmoe_status check_file(const char *path, uint64_t expected, dsmoe_error *error)
{
    mapped_file file;
    STATUS_TRY(mapped_file_open_guarded(&file, path, error));
    dsmoe_status status = DSMOE_OK;
    if (checkpoint_hash(file.bytes, file.size) != expected)
        status = status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s", path, damaged);
    if (!mapped_file_intact(&file)) status = mapped_file_lost(path, error);
    mapped_file_close(&file);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static dsmoe_status check_training(const char *folder, opened *o, file_hashes *hashes,
                                   dsmoe_error *error)
{
    STATUS_TRY(get_metadata(o->training, &o->state, hashes, error));
    size_t size;
    const unsigned char *data = data_of(o->training, &size);
    if (safetensors_count(o->training) != 2 || !safetensors_find(o->training, "first_moment") ||
        !safetensors_find(o->training, "second_moment") ||
        checkpoint_hash(data, size) != hashes->moments)
        return fail(o->training, damaged, "", error);
    const char *slash = strrchr(folder, '/');
    int64_t step = checkpoint_step(slash ? slash + 1 : folder, "", "");
    if (step < 0 || step == o->state.step) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: is of step %" PRId64 ", its folder of %" PRId64,
                       safetensors_path(o->training), o->state.step, step);
}

static dsmoe_status open_files(const char *folder, opened *o, dsmoe_error *error)
{
    char *training = mapped_file_path(folder, "training.safetensors");
    char *model = mapped_file_path(folder, "model.safetensors");
    char *config = mapped_file_path(folder, "config.json");
    file_hashes hashes;
    dsmoe_status status = DSMOE_OK;
    if (!training || !model || !config)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    if (status == DSMOE_OK) status = safetensors_open(training, &o->training, error);
    if (status == DSMOE_OK) status = check_training(folder, o, &hashes, error);
    if (status == DSMOE_OK) status = check_file(config, hashes.config, error);
    if (status == DSMOE_OK) status = check_file(model, hashes.model, error);
    if (status == DSMOE_OK) status = safetensors_open(model, &o->model, error);
    free(training);
    free(model);
    free(config);
    return status;
}

static void close_files(opened *o)
{
    safetensors_close(o->training);
    safetensors_close(o->model);
}

/* What was read of a file that is no longer whole, or was found wrong with it, means nothing. */
static dsmoe_status settle(const opened *o, dsmoe_status status, dsmoe_error *error)
{
    const safetensors *files[] = {o->training, o->model};
    for (int i = 0; i < 2; i++)
        if (files[i]) STATUS_TRY(safetensors_check_intact(files[i], error));
    return status;
}

dsmoe_status checkpoint_check(const char *path, checkpoint_state *state, dsmoe_error *error)
{
    opened o = {0};
    dsmoe_status status = settle(&o, open_files(path, &o, error), error);
    *state = o.state;
    close_files(&o);
    return status;
}

/* ---- into a trainer -------------------------------------------------------------------------- */

static dsmoe_status find_tensor(const safetensors *file, const char *name, int n_dims,
                                const int64_t *shape, const safetensors_tensor **tensor,
                                dsmoe_error *error)
{
    const safetensors_tensor *t = safetensors_find(file, name);
    if (!t) return fail(file, "there is no tensor ", name, error);
    bool fits = t->dtype == SAFETENSORS_F32 && t->n_dims == n_dims;
    for (int i = 0; fits && i < n_dims; i++) fits = t->shape[i] == shape[i];
    if (!fits) return fail(file, "not the type and shape that config.json says: ", name, error);
    *tensor = t;
    return DSMOE_OK;
}

static dsmoe_status read_weights(const safetensors *file, dsmoe_trainer *trainer,
                                 dsmoe_error *error)
{
    if (safetensors_count(file) != trainer->n_parameters)
        return fail(file, "not as many tensors as config.json says", "", error);
    size_t size;
    const unsigned char *data = data_of(file, &size);
    mapped_bytes mapped = {data, data};
    for (size_t i = 0; i < trainer->n_parameters; i++) {
        dsmoe_tensor_info info = dsmoe_model_tensor(trainer->model, i);
        const safetensors_tensor *t;
        STATUS_TRY(find_tensor(file, info.name, info.n_dims, info.shape, &t, error));
        memcpy(trainer->weights + trainer->parameters[i].begin, t->data, t->size);
        checkpoint_forget(&mapped, t->data + t->size); /* in the file they have the same order */
    }
    return DSMOE_OK;
}

static dsmoe_status read_moment(const safetensors *file, const char *name,
                                const dsmoe_trainer *trainer, float *moment, dsmoe_error *error)
{
    int64_t n = 0;
    for (size_t i = 0; i < trainer->n_parameters; i++) n += trainer->parameters[i].n;
    const safetensors_tensor *t;
    STATUS_TRY(find_tensor(file, name, 1, &n, &t, error));
    const unsigned char *next = t->data;
    mapped_bytes mapped = {next, next};
    for (size_t i = 0; i < trainer->n_parameters; i++) {
        const parameter *p = &trainer->parameters[i];
        size_t size = (size_t)p->n * sizeof *moment;
        memcpy(moment + p->begin, next, size);
        next += size;
        checkpoint_forget(&mapped, next);
    }
    return DSMOE_OK;
}

static dsmoe_status fill_trainer(const opened *o, dsmoe_trainer *t, dsmoe_error *error)
{
    STATUS_TRY(read_weights(o->model, t, error));
    STATUS_TRY(read_moment(o->training, "first_moment", t, t->first_moment, error));
    STATUS_TRY(read_moment(o->training, "second_moment", t, t->second_moment, error));
    t->n_updates = o->state.n_updates;
    t->n_batches = 0;
    t->poisoned = false;
    return DSMOE_OK;
}

dsmoe_status checkpoint_read(const char *path, dsmoe_trainer *trainer, checkpoint_state *state,
                             dsmoe_error *error)
{
    opened o = {0};
    dsmoe_status status = open_files(path, &o, error);
    if (status == DSMOE_OK) status = fill_trainer(&o, trainer, error);
    status = settle(&o, status, error);
    *state = o.state;
    close_files(&o);
    return status;
}
