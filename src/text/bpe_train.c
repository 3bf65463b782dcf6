/* bpe_train.c - trains a tokenizer on text: counts words, learns merges, writes the files. */
#include "text/bpe_train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "formats/folder.h"
#include "text/pre_tokenizer.h"
#include "text/train_count.h"
#include "text/vocabulary.h"

static const int64_t default_vocab_size = 8192, default_max_bytes = 100000000;

typedef struct job {
    const dsmoe_tokenizer_train_options *options;
    int64_t vocab_size, max_bytes;
    int n_threads;
    dsmoe_progress_fn *progress;
    void *context;
} job;

static dsmoe_status check_options(const dsmoe_tokenizer_train_options *o, const char *folder,
                                  dsmoe_error *error)
{
    const int64_t least = TRAIN_BYTES + TRAIN_SPECIAL;
    if (!o || !o->paths || o->n_paths < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no text to train a tokenizer on is given");
    if (!folder || !*folder)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no folder for the tokenizer is given");
    if (o->vocab_size != 0 && (o->vocab_size < least || o->vocab_size > VOCABULARY_MAX_IDS))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "vocab_size must be from %" PRId64 " (every byte and the special tokens)"
                           " to %d, not %" PRId64,
                           least, VOCABULARY_MAX_IDS, o->vocab_size);
    if (o->max_bytes < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "max_bytes must not be negative");
    if (!(o->held_out >= 0 && o->held_out < 1))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "held_out is a share of the text, from 0 to less than 1, not %g",
                           o->held_out);
    if (o->n_threads < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "threads must be at least 1, not %d",
                           o->n_threads);
    return DSMOE_OK;
}

/* ---- the text -------------------------------------------------------------------------------- */

static dsmoe_status read_pre_tokenizer(pre_tokenizer *pre, dsmoe_error *error)
{
    json_node *node = NULL;
    STATUS_TRY(json_node_parse(train_pre_tokenizer, strlen(train_pre_tokenizer), "pre_tokenizer",
                               &node, error));
    dsmoe_status status = pre_tokenizer_read(pre, node, error);
    json_node_free(node);
    return status;
}

/* Text must not be mixed with another tokenizer's tokens: the same ids would mean different things. */
static dsmoe_status check_forms(const document_list *list, dsmoe_error *error)
{
    const document_source *text = NULL, *shard = NULL;
    for (size_t i = 0; i < list->n_sources; i++) {
        const document_source **found = list->sources[i].form == DOCUMENT_SHARD ? &shard : &text;
        if (!*found) *found = &list->sources[i];
    }
    if (!text || !shard) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_FORMAT,
        "%s: holds tokens that another tokenizer made, which cannot be mixed with the "
        "text (%s) and a tokenizer trained on it: give that tokenizer, or leave out "
        "one of the two",
        shard->path, text->path);
}

static dsmoe_status count_words(const job *j, train_words *words, int64_t *n_bytes,
                                dsmoe_error *error)
{
    document_list list = {0};
    pre_tokenizer pre = {0};
    train_count_options options = {.pre = &pre,
                                   .held_out = j->options->held_out,
                                   .max_bytes = (double)j->max_bytes,
                                   .n_threads = j->n_threads,
                                   .progress = j->progress,
                                   .context = j->context};
    dsmoe_status status = document_list_open(j->options->paths, j->options->n_paths,
                                             j->options->bad_bytes, &list, error);
    if (status == DSMOE_OK) status = check_forms(&list, error);
    if (status == DSMOE_OK) status = read_pre_tokenizer(&pre, error);
    if (status == DSMOE_OK) status = train_count(&list, &options, words, n_bytes, error);
    if (status == DSMOE_OK && *n_bytes == 0)
        status = status_fail(error, DSMOE_ERROR_FORMAT, "%s: no text to learn from%s",
                             j->options->paths[0],
                             list.n_sources > 0 && list.sources[0].form == DOCUMENT_SHARD
                                 ? ", only tokens: give the tokenizer that made them"
                                 : "");
    if (j->options->files) *j->options->files = list.files;
    document_list_close(&list);
    pre_tokenizer_free(&pre);
    return status;
}

/* ---- the tokens ------------------------------------------------------------------------------ */

static dsmoe_status learn(const job *j, train_vocabulary *v, dsmoe_error *error)
{
    train_words words = {0};
    int64_t n_bytes = 0;
    size_t n_tokens = (size_t)j->vocab_size - TRAIN_SPECIAL;
    dsmoe_status status = count_words(j, &words, &n_bytes, error);
    if (status == DSMOE_OK)
        status = train_merges(&words, n_tokens, j->progress, j->context, v, error);
    train_words_free(&words);
    if (status == DSMOE_OK && v->count < n_tokens && j->options->vocab_size)
        status =
            status_fail(error, DSMOE_ERROR_ARGUMENT,
                        "%s: %" PRId64 " bytes of text allow %zu tokens at most, not %" PRId64,
                        j->options->paths[0], n_bytes, v->count + TRAIN_SPECIAL, j->vocab_size);
    if (j->options->n_text_bytes) *j->options->n_text_bytes = n_bytes;
    if (j->options->n_text_tokens) *j->options->n_text_tokens = v->n_text_tokens;
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

typedef struct found_names { /* "": none */
    char owner[64];          /* a file of a run, or a model's weights */
    char config[64];         /* of a model; alone it may be the config of a run to come */
    char tokenizer[64];
} found_names;

static bool look_at_name(void *context, const char *name)
{
    found_names *found = context;
    char(*place)[64] = NULL;
    if (!strcmp(name, "settings.json") || ends_with(name, ".safetensors") ||
        ends_with(name, ".gguf"))
        place = &found->owner;
    else if (!strcmp(name, "config.json"))
        place = &found->config;
    else if (!strcmp(name, "tokenizer.json") || !strcmp(name, "tokenizer_config.json"))
        place = &found->tokenizer;
    if (place) snprintf(*place, sizeof *place, "%s", name);
    return true;
}

/* A model is useless with a tokenizer other than its own, so that one must not be replaced. */
static dsmoe_status check_folder(const char *folder, bool replace, dsmoe_error *error)
{
    found_names found = {0};
    if (access(folder, F_OK) != 0) return DSMOE_OK;
    STATUS_TRY(folder_each(folder, look_at_name, &found, error));
    if (*found.owner || (*found.config && *found.tokenizer))
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: holds %s, of a run or a model, whose tokenizer is a part of it; "
                           "choose another folder",
                           folder, *found.owner ? found.owner : found.config);
    if (*found.tokenizer && !replace)
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: already holds '%s'; choose another folder, or ask for it to be "
                           "replaced",
                           folder, found.tokenizer);
    return DSMOE_OK;
}

/* Called before the long work, so that a folder that cannot be written is reported immediately. */
static dsmoe_status make_folder(const char *folder, dsmoe_error *error)
{
    dsmoe_status status = folder_make(folder, error);
    if (status == DSMOE_OK && access(folder, W_OK | X_OK) != 0)
        status = status_fail(error, DSMOE_ERROR_IO, "%s: cannot write to the folder: %s", folder,
                             strerror(errno));
    return status;
}

dsmoe_status dsmoe_tokenizer_train(const dsmoe_tokenizer_train_options *options, const char *folder,
                                   dsmoe_progress_fn *progress, void *context, dsmoe_error *error)
{
    STATUS_TRY(check_options(options, folder, error));
    job j = {options,
             options->vocab_size ? options->vocab_size : default_vocab_size,
             options->max_bytes ? options->max_bytes : default_max_bytes,
             options->n_threads ? options->n_threads : threads_available(),
             progress,
             context};
    STATUS_TRY(check_folder(folder, options->replace, error));
    char *made = folder_missing(folder);
    train_vocabulary v = {0};
    dsmoe_status status = make_folder(folder, error);
    if (status == DSMOE_OK) status = learn(&j, &v, error);
    if (status == DSMOE_OK) status = train_write(folder, &v, error);
    if (status != DSMOE_OK) folder_unmake(folder, made);
    free(made);
    train_vocabulary_free(&v);
    return status;
}
