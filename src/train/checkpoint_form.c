/* checkpoint_form.c - what writing and reading a checkpoint have in common. */
#include "train/checkpoint_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/dtype.h"
#include "adapt/peft.h"
#include "text/template_file.h"

#define FIELD(name) #name, offsetof(checkpoint_state, name)
const state_field state_fields[] = {
    {FIELD(step), STATE_INTEGER},
    {FIELD(n_updates), STATE_INTEGER},
    {FIELD(n_skipped), STATE_INTEGER},
    {FIELD(sequences), STATE_INTEGER},
    {FIELD(data_hash), STATE_BITS},
    {FIELD(loss), STATE_BITS},
    {FIELD(best_loss), STATE_BITS},
    {FIELD(best_step), STATE_INTEGER},
    {FIELD(lowest_loss), STATE_BITS},
    {FIELD(n_worse), STATE_INTEGER},
    {FIELD(evaluated_step), STATE_INTEGER},
    {FIELD(is_due), STATE_INTEGER},
    {FIELD(logged_loss), STATE_BITS},
    {FIELD(interval_n), STATE_INTEGER},
    {FIELD(interval_loss), STATE_BITS},
    {FIELD(interval_aux_loss), STATE_BITS},
    {FIELD(interval_device_loss), STATE_BITS},
    {FIELD(interval_accuracy), STATE_BITS_OR_NONE},
    {FIELD(interval_margin), STATE_BITS_OR_NONE},
};
#undef FIELD
const int n_state_fields = sizeof state_fields / sizeof *state_fields;
const int n_state_fields_2 = 12;

const char *const checkpoint_rows[N_ROWS] = {"first_moment", "second_moment", "weights"};

/* ---- names ----------------------------------------------------------------------------------- */

static const char step_word[] = "step-";
enum { STEP_DIGITS = 8 }; /* at least */

dsmoe_status checkpoint_path(const char *run, const char *prefix, int64_t step, const char *suffix,
                             char path[CHECKPOINT_PATH], dsmoe_error *error)
{
    int length = snprintf(path, CHECKPOINT_PATH, "%s/checkpoints/%s%s%0*" PRId64 "%s", run, prefix,
                          step_word, STEP_DIGITS, step, suffix);
    if (length >= 0 && length < CHECKPOINT_PATH) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "%.100s...: the path is too long", run);
}

/* Skips a word if the text begins with it. */
static bool skip_word(const char **text, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*text, word, length)) return false;
    *text += length;
    return true;
}

int64_t checkpoint_step(const char *name, const char *prefix, const char *suffix)
{
    if (!skip_word(&name, prefix) || !skip_word(&name, step_word)) return -1;
    size_t n_digits = strspn(name, "0123456789");
    if (n_digits < STEP_DIGITS || n_digits > 18 || strcmp(name + n_digits, suffix)) return -1;
    if (n_digits > STEP_DIGITS && *name == '0') return -1; /* never written so */
    int64_t step = 0;
    for (size_t i = 0; i < n_digits; i++) step = 10 * step + (name[i] - '0');
    return step;
}

bool checkpoint_hashed_file(int i, int n_model_files, char name[FOLDER_WRITER_NAME])
{
    if (n_model_files == 0) {
        if (i > 1) return false;
        strcpy(name, i == 0 ? PEFT_CONFIG : PEFT_WEIGHTS);
    } else if (i == 0)
        strcpy(name, "config.json");
    else if (i <= n_model_files)
        folder_writer_file_name(i, n_model_files, name);
    else if (i == n_model_files + 1 && n_model_files > 1)
        strcpy(name, FOLDER_WRITER_INDEX);
    else
        return false;
    return true;
}

void checkpoint_hash_key(const char *name, char key[CHECKPOINT_HASH_KEY])
{
    snprintf(key, CHECKPOINT_HASH_KEY, CHECKPOINT_HASH "%s", name);
}

/* "model-00001-of-00003.safetensors" */
static bool is_shard(const char *name)
{
    int file, n_files, end = 0;
    char same[FOLDER_WRITER_NAME];
    if (sscanf(name, "model-%5d-of-%5d.safetensors%n", &file, &n_files, &end) != 2 || name[end])
        return false;
    folder_writer_file_name(file, n_files, same);
    return !strcmp(name, same);
}

bool checkpoint_owns(const char *name)
{
    static const char *const names[] = {
        "config.json",          "generation_config.json", "model.safetensors",
        FOLDER_WRITER_INDEX,    "tokenizer.json",         "tokenizer_config.json",
        "training.safetensors", "evaluation.json",        PEFT_CONFIG,
        PEFT_WEIGHTS,           "expert_cfg.json",        TEMPLATE_FILE_NAME,
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return is_shard(name);
}

double checkpoint_size(int64_t n_parameters, dsmoe_dtype dtype)
{
    double moments = 2 * sizeof(float), weights = (double)dtype_bytes(dtype, 1);
    double exact = dtype == DSMOE_F32 ? 0 : sizeof(float);
    return (double)n_parameters * (moments + weights + exact);
}

/* ---- mapped files ---------------------------------------------------------------------------- */

/* Begins at the start every time: the system also maps neighbours of a page that is touched, even after it
 * was given back. */
void checkpoint_forget(mapped_bytes *m, const unsigned char *end)
{
    enum { WORTHWHILE = 1 << 22 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)m->begin / page * page;
    if (end - m->forgotten < WORTHWHILE) return;
    madvise((void *)first, (uintptr_t)end - first, MADV_DONTNEED);
    m->forgotten = end;
}

uint64_t checkpoint_hash(hash_kind kind, const unsigned char *bytes, size_t size)
{
    enum { PIECE = 1 << 20 };
    mapped_bytes mapped = {bytes, bytes};
    hash_state hash;
    hash_begin_as(&hash, kind, 0);
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < PIECE ? size - at : PIECE;
        hash_add(&hash, bytes + at, n);
        checkpoint_forget(&mapped, bytes + at + n);
    }
    return hash_end(&hash);
}
