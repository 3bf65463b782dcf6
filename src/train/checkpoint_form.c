/* checkpoint_form.c - what writing and reading a checkpoint have in common. */
#include "train/checkpoint_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"

const char *const checkpoint_files[] = {
    "config.json",    "generation_config.json", "model.safetensors",
    "tokenizer.json", "tokenizer_config.json",  "training.safetensors",
};
const int n_checkpoint_files = sizeof checkpoint_files / sizeof *checkpoint_files;

#define FIELD(name) #name, offsetof(checkpoint_state, name)
const state_field state_fields[] = {
    {FIELD(step), STATE_INTEGER},       {FIELD(n_updates), STATE_INTEGER},
    {FIELD(n_skipped), STATE_INTEGER},  {FIELD(sequences), STATE_INTEGER},
    {FIELD(data_hash), STATE_BITS},     {FIELD(loss), STATE_BITS},
    {FIELD(held_out_loss), STATE_BITS}, {FIELD(best_loss), STATE_BITS},
    {FIELD(best_step), STATE_INTEGER},
};
#undef FIELD
const int n_state_fields = sizeof state_fields / sizeof *state_fields;

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

/* Moves behind a word that the text begins with. */
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
    if (n_digits > STEP_DIGITS && *name == '0') return -1; /* not as it is written here */
    int64_t step = 0;
    for (size_t i = 0; i < n_digits; i++) step = 10 * step + (name[i] - '0');
    return step;
}

/* ---- mapped files ---------------------------------------------------------------------------- */

/* From the start every time: the system maps neighbours of a page that is touched, behind it too. */
void checkpoint_forget(mapped_bytes *m, const unsigned char *end)
{
    enum { WORTHWHILE = 1 << 22 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)m->begin / page * page;
    if (end - m->forgotten < WORTHWHILE) return;
    madvise((void *)first, (uintptr_t)end - first, MADV_DONTNEED);
    m->forgotten = end;
}

uint64_t checkpoint_hash(const unsigned char *bytes, size_t size)
{
    enum { PIECE = 1 << 20 };
    mapped_bytes mapped = {bytes, bytes};
    hash_state hash;
    hash_begin(&hash, 0);
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < PIECE ? size - at : PIECE;
        hash_add(&hash, bytes + at, n);
        checkpoint_forget(&mapped, bytes + at + n);
    }
    return hash_end(&hash);
}
