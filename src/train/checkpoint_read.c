/* checkpoint_read.c - reads a trainer from disk and checks that every byte is as it was written. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/mapped_file.h"
#include "formats/shards.h"
#include "train/checkpoint_form.h"
#include "train/team.h"

typedef struct opened {
    const char *folder;
    safetensors *training;
    shards *model; /* NULL: the exact weights are in `training` */
    checkpoint_state state;
    int n_model_files;
    int format; /* 2, 3 or 4 */
} opened;

static const char damaged[] = "the file is damaged, or not the one that was written here";

static dsmoe_status fail(const safetensors *file, const char *what, const char *name,
                         dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s%s", safetensors_path(file), what, name);
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static hash_kind hash_of_format(int format) { return format < 4 ? HASH_OLD : HASH_XXH64; }

/* Tensors fill the data without gaps: it is one range of bytes that begins with the first tensor. */
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

static dsmoe_status check_numbers(const opened *o, uint64_t expected, dsmoe_error *error)
{
    const safetensors *training = o->training;
    size_t size, count = safetensors_count(training);
    const unsigned char *data = data_of(training, &size);
    bool whole = count == ROW_WEIGHTS || count == N_ROWS;
    for (size_t i = 0; whole && i < count; i++)
        whole = safetensors_find(training, checkpoint_rows[i]) != NULL;
    whole = whole && checkpoint_hash(hash_of_format(o->format), data, size) == expected;
    return whole ? DSMOE_OK : fail(training, damaged, "", error);
}

/* A missing file means damage. Other reasons why a file cannot be opened do not. */
static dsmoe_status check_present(const char *path, dsmoe_error *error)
{
    struct stat info;
    if (stat(path, &info) == 0 || errno != ENOENT) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the file is missing", path);
}

static dsmoe_status check_file(const opened *o, const char *name, uint64_t expected,
                               dsmoe_error *error)
{
    char path[CHECKPOINT_PATH + FOLDER_WRITER_NAME];
    snprintf(path, sizeof path, "%s/%s", o->folder, name);
    mapped_file file;
    STATUS_TRY(check_present(path, error));
    STATUS_TRY(mapped_file_open(&file, path, error));
    dsmoe_status status = DSMOE_OK;
    if (checkpoint_hash(hash_of_format(o->format), file.bytes, file.size) != expected)
        status = status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s", path, damaged);
    if (!mapped_file_intact(&file)) status = mapped_file_lost(path, error);
    mapped_file_close(&file);
    return status;
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* Reads values in the order in which they were written, and hashes all so far. */
typedef struct value_reader {
    const safetensors *file;
    hash_state hash;
    int format;
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
        return fail(r->file, "these metadata are not 16 hexadecimal digits: ", key, error);
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
        return fail(r->file, "these metadata are not a whole number: ", key, error);
    return DSMOE_OK;
}

static dsmoe_status get_state(value_reader *r, checkpoint_state *state, dsmoe_error *error)
{
    for (int i = 0; i < (r->format == 2 ? n_state_fields_2 : n_state_fields); i++) {
        const state_field *f = &state_fields[i];
        char *field = (char *)state + f->offset;
        if (f->kind != STATE_INTEGER) {
            uint64_t bits = 0;
            bool is_there = f->kind == STATE_BITS || safetensors_metadata(r->file, f->key) != NULL;
            if (is_there) STATUS_TRY(get_bits(r, f->key, &bits, error));
            memcpy(field, &bits, sizeof bits);
        } else {
            STATUS_TRY(get_integer(r, f->key, (int64_t *)field, error));
        }
    }
    if (r->format == 2) {
        state->logged_loss = state->loss;
        state->interval_n = 0;
        state->interval_loss = state->interval_aux_loss = state->interval_device_loss = 0;
        state->interval_accuracy = state->interval_margin = 0;
    }
    bool possible = state->step >= 0 && state->n_updates >= 0 && state->n_skipped >= 0 &&
                    state->sequences >= 0 && state->best_step <= state->step &&
                    state->n_updates <= state->step && state->n_skipped <= state->step &&
                    state->n_worse >= 0 && state->evaluated_step <= state->step &&
                    state->interval_n >= 0 && state->interval_n <= state->step &&
                    (state->is_due == 0 || state->is_due == 1);
    return possible ? DSMOE_OK : fail(r->file, "its metadata have impossible numbers", "", error);
}

static dsmoe_status get_kernels(value_reader *r, checkpoint_state *state, dsmoe_error *error)
{
    const char *name;
    STATUS_TRY(get_value(r, CHECKPOINT_KERNELS_KEY, &name, error));
    if (strlen(name) >= CHECKPOINT_KERNELS) return fail(r->file, damaged, "", error);
    strncpy(state->kernels, name, CHECKPOINT_KERNELS); /* fills the rest with zeros */
    return DSMOE_OK;
}

/* Passes the hashes that this file has of the other files to `use` (NULL: only reads them). */
typedef dsmoe_status hash_fn(const opened *o, const char *name, uint64_t hash, dsmoe_error *error);

static dsmoe_status each_file_hash(value_reader *r, const opened *o, hash_fn *use,
                                   dsmoe_error *error)
{
    char name[FOLDER_WRITER_NAME], key[CHECKPOINT_HASH_KEY];
    for (int i = 0; checkpoint_hashed_file(i, o->n_model_files, name); i++) {
        uint64_t hash;
        checkpoint_hash_key(name, key);
        STATUS_TRY(get_bits(r, key, &hash, error));
        if (use) STATUS_TRY(use(o, name, hash, error));
    }
    return DSMOE_OK;
}

static dsmoe_status read_format(value_reader *r, dsmoe_error *error)
{
    static const char *const formats[] = {CHECKPOINT_FORMAT_2, CHECKPOINT_FORMAT_3,
                                          CHECKPOINT_FORMAT};
    const char *form = safetensors_metadata(r->file, CHECKPOINT_FORMAT_KEY);
    for (int i = 0; form && i < 3; i++)
        if (!strcmp(form, formats[i])) r->format = 2 + i;
    hash_begin_as(&r->hash, hash_of_format(r->format), 0);
    STATUS_TRY(get_value(r, CHECKPOINT_FORMAT_KEY, &form, error));
    if (r->format) return DSMOE_OK;
    if (strncmp(form, CHECKPOINT_FORMAT, strlen(CHECKPOINT_FORMAT) - 1))
        return fail(r->file, damaged, "", error);
    return status_fail(
        error, DSMOE_ERROR_CONFIG,
        "%s: was written by another version of dsmoe: continue the run with that version, or "
        "begin a new one from these weights with init",
        safetensors_path(r->file));
}

static dsmoe_status check_step(const opened *o, dsmoe_error *error)
{
    const char *slash = strrchr(o->folder, '/');
    int64_t step = checkpoint_step(slash ? slash + 1 : o->folder, "", "");
    if (step < 0 || step == o->state.step) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: belongs to step %" PRId64 ", but its folder to step %" PRId64,
                       safetensors_path(o->training), o->state.step, step);
}

/* Checks first that the metadata are as they were written, then that they match the numbers and the other
 * files. */
static dsmoe_status read_metadata(opened *o, dsmoe_error *error)
{
    value_reader r = {.file = o->training};
    int64_t n_files;
    uint64_t numbers, expected;
    STATUS_TRY(read_format(&r, error));
    o->format = r.format;
    STATUS_TRY(get_state(&r, &o->state, error));
    const char *interval;
    if (r.format > 2) STATUS_TRY(get_value(&r, CHECKPOINT_INTERVAL, &interval, error));
    STATUS_TRY(get_kernels(&r, &o->state, error));
    const char *base;
    o->state.base_hash = 0;
    if (safetensors_metadata(o->training, CHECKPOINT_BASE)) {
        STATUS_TRY(get_value(&r, CHECKPOINT_BASE, &base, error));
        STATUS_TRY(get_bits(&r, CHECKPOINT_BASE_HASH, &o->state.base_hash, error));
    }
    STATUS_TRY(get_integer(&r, CHECKPOINT_FILES, &n_files, error));
    if (n_files < 0 || n_files > CHECKPOINT_MAX_FILES) return fail(o->training, damaged, "", error);
    o->n_model_files = (int)n_files;
    STATUS_TRY(each_file_hash(&r, o, NULL, error));
    STATUS_TRY(get_bits(&r, CHECKPOINT_NUMBERS_HASH, &numbers, error));
    uint64_t found = hash_end(&r.hash);
    STATUS_TRY(get_bits(&r, CHECKPOINT_STATE_HASH, &expected, error));
    if (found != expected) return fail(o->training, damaged, "", error);
    STATUS_TRY(check_numbers(o, numbers, error));
    STATUS_TRY(check_step(o, error));
    return each_file_hash(&r, o, check_file, error);
}

/* ---- opening --------------------------------------------------------------------------------- */

static dsmoe_status open_files(const char *folder, opened *o, dsmoe_error *error)
{
    o->folder = folder;
    char *training = mapped_file_path(folder, "training.safetensors");
    if (!training) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    dsmoe_status status = check_present(training, error);
    if (status == DSMOE_OK) status = safetensors_open(training, &o->training, error);
    free(training);
    STATUS_TRY(status);
    STATUS_TRY(read_metadata(o, error));
    bool is_narrow = safetensors_count(o->training) == N_ROWS;
    if (!is_narrow && o->n_model_files == 0) return fail(o->training, damaged, "", error);
    return is_narrow ? DSMOE_OK : shards_open(folder, &o->model, error);
}

static void close_files(opened *o)
{
    safetensors_close(o->training);
    shards_close(o->model);
}

/* If a file has become shorter meanwhile, that is the error, whatever was read from it or found wrong with
 * it. */
static dsmoe_status settle(const opened *o, dsmoe_status status, dsmoe_error *error)
{
    if (o->training) STATUS_TRY(safetensors_check_intact(o->training, error));
    if (o->model) STATUS_TRY(shards_check_intact(o->model, error));
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

static bool has_shape(const safetensors_tensor *t, int n_dims, const int64_t *shape)
{
    bool fits = t->dtype == SAFETENSORS_F32 && t->n_dims == n_dims;
    for (int i = 0; fits && i < n_dims; i++) fits = t->shape[i] == shape[i];
    return fits;
}

/* The state of reading the files' numbers into a trainer, one parameter after the other. */
typedef struct filling {
    const opened *files;
    const dsmoe_trainer *trainer;
    const unsigned char *next; /* in a flat tensor of training.safetensors */
    mapped_bytes mapped;
} filling;

static const void *give_of_row(void *context, size_t index)
{
    filling *f = context;
    const unsigned char *numbers = f->next;
    checkpoint_forget(&f->mapped, numbers);
    f->next += (size_t)f->trainer->parameters[index].n * sizeof(float);
    return numbers;
}

static const void *give_of_model(void *context, size_t index)
{
    filling *f = context;
    const char *name = f->trainer->parameters[index].name;
    if (f->mapped.begin) memory_forget(f->mapped.begin, (size_t)(f->next - f->mapped.begin));
    const safetensors_tensor *t = shards_find(f->files->model, name, NULL);
    f->mapped.begin = t->data;
    f->next = f->mapped.begin + t->size;
    return t->data;
}

/* Checks before anything is filled: once filling has begun, all ranks must take part to its end. */
static dsmoe_status check_model(const opened *o, const dsmoe_trainer *trainer, dsmoe_error *error)
{
    bool fits = shards_count(o->model) == trainer->n_parameters;
    for (size_t i = 0; fits && i < trainer->n_parameters; i++) {
        dsmoe_tensor_info info = dsmoe_trainer_parameter(trainer, i);
        const safetensors_tensor *t = shards_find(o->model, info.name, NULL);
        fits = t && has_shape(t, info.n_dims, info.shape);
    }
    if (fits) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: model.safetensors does not have the tensors of config.json", o->folder);
}

static dsmoe_status check_row(const safetensors *file, const char *name,
                              const dsmoe_trainer *trainer, dsmoe_error *error)
{
    int64_t n = 0;
    for (size_t i = 0; i < trainer->n_parameters; i++) n += trainer->parameters[i].n;
    const safetensors_tensor *t = safetensors_find(file, name);
    if (t && has_shape(t, 1, &n)) return DSMOE_OK;
    return fail(file, "these numbers do not have the size that config.json says: ", name, error);
}

static dsmoe_status fill_trainer(const opened *o, dsmoe_trainer *t, dsmoe_error *error)
{
    int n_rows = o->model ? ROW_WEIGHTS : N_ROWS;
    if (o->model) STATUS_TRY(check_model(o, t, error));
    for (int i = 0; i < n_rows; i++)
        STATUS_TRY(check_row(o->training, checkpoint_rows[i], t, error));
    for (int i = 0; i < N_ROWS; i++) {
        filling f = {.files = o, .trainer = t};
        if (i < n_rows) f.next = safetensors_find(o->training, checkpoint_rows[i])->data;
        f.mapped = (mapped_bytes){f.next, f.next};
        STATUS_TRY(
            team_fill(t, (trainer_row)i, i < n_rows ? give_of_row : give_of_model, &f, error));
    }
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

void checkpoint_read_interval(const char *path, dsmoe_layer_losses *layers, int64_t n_layers)
{
    char *name = mapped_file_path(path, "training.safetensors");
    safetensors *file = NULL;
    const char *digits = NULL;
    memset(layers, 0, (size_t)n_layers * sizeof *layers);
    if (name && safetensors_open(name, &file, NULL) == DSMOE_OK)
        digits = safetensors_metadata(file, CHECKPOINT_INTERVAL);
    for (int64_t i = 0; digits && strlen(digits) == (size_t)n_layers * 16 && i < n_layers; i++) {
        uint32_t bits[2];
        if (sscanf(digits + 16 * i, "%8" SCNx32 "%8" SCNx32, bits, bits + 1) != 2) break;
        memcpy(&layers[i].aux_loss, bits, sizeof *bits);
        memcpy(&layers[i].device_loss, bits + 1, sizeof *bits);
    }
    safetensors_close(file);
    free(name);
}
