/* dataset.c - data to train on: two rows of tokens, to learn from and held out, each cut into sequences
 * of equal length.
 *
 * With sequences of L tokens, window i of a row holds its tokens i·L … i·L + L: the first L are the
 * inputs, the last L the targets, so that a border token is a target of one window and an input of the
 * next. Every epoch takes the windows to learn from in a random order of its own; those held out have a
 * fixed random order, so that the first few are of all kinds of text. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/threads.h"
#include "train/data_build.h"
#include "base/data_order.h"

enum { THREADS_MAX = 1024, SEQUENCE_MAX = 1 << 24 };

static const uint64_t held_out_seed = 0x68656c642d6f7574u; /* the same for every run */

struct dsmoe_dataset {
    data_cache cache;
    dsmoe_dataset_info info;
    dsmoe_data_files files;
    uint64_t seed;
};

/* ---- opening ------------------------------------------------------------------------------- */

static dsmoe_status check_options(const dsmoe_dataset_options *o, dsmoe_error *error)
{
    const dsmoe_status bad = DSMOE_ERROR_ARGUMENT;
    if (!o->cache) return status_fail(error, bad, "no folder for the cache file given");
    if (o->n_paths < 0 || (o->n_paths > 0 && !o->paths))
        return status_fail(error, bad, "no file or folder to read text from");
    if (o->vocab_size < 1 || o->vocab_size > INT32_MAX)
        return status_fail(error, bad, "vocab_size must be from 1 to %d, not %" PRId64, INT32_MAX,
                           o->vocab_size);
    if (o->sequence_length < 1 || o->sequence_length > SEQUENCE_MAX)
        return status_fail(error, bad, "sequence_length must be from 1 to %d, not %" PRId64,
                           SEQUENCE_MAX, o->sequence_length);
    if (!(o->held_out >= 0 && o->held_out < 1))
        return status_fail(error, bad,
                           "held_out is a share of the text, from 0 to less than 1, not %g",
                           o->held_out);
    if (o->n_threads < 0 || o->n_threads > THREADS_MAX)
        return status_fail(error, bad, "threads are 1 to %d, not %d", THREADS_MAX, o->n_threads);
    int32_t eos = o->tokenizer ? dsmoe_tokenizer_eos(o->tokenizer) : -1;
    if (eos >= o->vocab_size)
        return status_fail(error, bad,
                           "the tokenizer's EOS is id %" PRId32 ", but vocab_size is %" PRId64
                           ": the tokenizer belongs to another model",
                           eos, o->vocab_size);
    return DSMOE_OK;
}

/* A number for the tokens and the way they are cut. */
static uint64_t hash_of(const data_cache *cache, int64_t sequence_length)
{
    const uint64_t parts[] = {cache->token_hash, (uint64_t)cache->tokens.n_tokens,
                              (uint64_t)cache->n_train, (uint64_t)sequence_length};
    return hash_bytes(parts, sizeof parts, 0);
}

static bool is_made_from(const data_cache *cache, uint64_t key, const dsmoe_dataset_options *o)
{
    return cache->key == key && cache->vocab_size == o->vocab_size &&
           cache->held_out == o->held_out;
}

/* The cache file for the documents of a list: the one that is there, or a new one. */
static dsmoe_status open_for_text(dsmoe_dataset *d, const dsmoe_dataset_options *o,
                                  const data_build_options *build, const char *path,
                                  dsmoe_error *error)
{
    uint64_t key;
    STATUS_TRY(data_build_key(build, &key, error));
    if (data_cache_open(&d->cache, path, NULL) == DSMOE_OK) {
        if (is_made_from(&d->cache, key, o)) return DSMOE_OK;
        bool is_expected =
            o->expected_hash && hash_of(&d->cache, o->sequence_length) == o->expected_hash;
        bool found = false;
        if (is_expected) STATUS_TRY(data_build_find_text(build, &d->cache, &found, error));
        if (found) return DSMOE_OK;
        data_cache_close(&d->cache);
        if (is_expected)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: the text has changed since it was put into %s: bring it back, "
                               "or move it away to go on with what is there",
                               o->paths[0], path);
    }
    d->info.cache_built = true;
    STATUS_TRY(data_build(build, path, key, error));
    if (data_cache_open(&d->cache, path, NULL) == DSMOE_OK && is_made_from(&d->cache, key, o))
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO,
                       "%s: what was written does not come back; is something else writing to "
                       "this file, or the disk failing?",
                       path);
}

/* The cache file without the documents it was made from. */
static dsmoe_status open_alone(dsmoe_dataset *d, const dsmoe_dataset_options *o, const char *path,
                               dsmoe_error *error)
{
    STATUS_TRY(data_cache_open(&d->cache, path, error));
    if (d->cache.vocab_size != o->vocab_size)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: made for a vocab_size of %" PRId64 ", not %" PRId64, path,
                           d->cache.vocab_size, o->vocab_size);
    if (d->cache.held_out != o->held_out)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: made with a held_out of %g, not %g",
                           path, d->cache.held_out, o->held_out);
    return DSMOE_OK;
}

static dsmoe_status open_cache(dsmoe_dataset *d, const dsmoe_dataset_options *o,
                               const data_build_options *build, dsmoe_error *error)
{
    char *path = mapped_file_path(o->cache, "data.cache");
    if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", o->cache);
    dsmoe_status status =
        o->n_paths == 0 ? open_alone(d, o, path, error) : open_for_text(d, o, build, path, error);
    free(path);
    return status;
}

/* So many windows fit into a row. */
static int64_t count_windows(int64_t n_tokens, int64_t length)
{
    return n_tokens > 0 ? (n_tokens - 1) / length : 0;
}

/* How many sequences there are, and how many of them are held out. */
static dsmoe_status cut(dsmoe_dataset *d, const dsmoe_dataset_options *o, dsmoe_error *error)
{
    dsmoe_dataset_info *info = &d->info;
    const int64_t length = o->sequence_length;
    info->n_tokens = (int64_t)d->cache.tokens.n_tokens;
    info->n_tokens_held_out = info->n_tokens - d->cache.n_train;
    info->n_documents = d->cache.n_documents;
    info->n_bytes = d->cache.n_bytes;
    info->n_kinds = d->cache.n_kinds;
    info->sequence_length = length;
    info->n_train = count_windows(d->cache.n_train, length);
    info->n_held_out = count_windows(info->n_tokens_held_out, length);
    info->hash = hash_of(&d->cache, length);
    if (o->expected_hash && info->hash != o->expected_hash)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: the data have changed since this run began, or an older version of dsmoe, which "
            "held out other text, began it: bring them back",
            o->n_paths > 0 ? o->paths[0] : d->cache.path);
    if (info->n_train < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the text is too short: %" PRId64
                           " tokens are left to train on, but one "
                           "sequence of %" PRId64 " needs %" PRId64
                           ": give more text, take shorter sequences or hold less out",
                           d->cache.n_train, length, length + 1);
    if (o->held_out > 0 && info->n_held_out < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the text is too short: a held_out of %g holds out %" PRId64
                           " tokens, but one sequence of %" PRId64 " needs %" PRId64
                           ": give more text, take shorter sequences, or hold out more or nothing",
                           o->held_out, info->n_tokens_held_out, length, length + 1);
    return DSMOE_OK;
}

static dsmoe_status open_files(dsmoe_dataset *d, const dsmoe_dataset_options *o,
                               dsmoe_progress_fn *progress, void *context, dsmoe_error *error)
{
    document_list list = {0};
    if (o->n_paths > 0)
        STATUS_TRY(document_list_open(o->paths, o->n_paths, o->bad_bytes, &list, error));
    int n_threads = o->n_threads ? o->n_threads : threads_available();
    const data_build_options build = {
        .list = &list,
        .tokenizer = o->tokenizer,
        .vocab_size = o->vocab_size,
        .held_out = o->held_out,
        .n_threads = n_threads < THREADS_MAX ? n_threads : THREADS_MAX,
        .progress = progress,
        .context = context,
    };
    d->files = list.files;
    dsmoe_status status = open_cache(d, o, &build, error);
    document_list_close(&list);
    return status;
}

dsmoe_status dsmoe_dataset_open(const dsmoe_dataset_options *options, dsmoe_progress_fn *progress,
                                void *context, dsmoe_dataset **dataset, dsmoe_error *error)
{
    if (!options || !dataset)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no options or no place for the data given");
    *dataset = NULL;
    STATUS_TRY(check_options(options, error));
    dsmoe_dataset *made = calloc(1, sizeof *made);
    if (!made) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    made->seed = options->seed;
    dsmoe_status status = open_files(made, options, progress, context, error);
    if (status == DSMOE_OK) status = cut(made, options, error);
    if (status != DSMOE_OK) {
        dsmoe_dataset_free(made);
        return status;
    }
    *dataset = made;
    return DSMOE_OK;
}

void dsmoe_dataset_free(dsmoe_dataset *dataset)
{
    if (!dataset) return;
    data_cache_close(&dataset->cache);
    free(dataset);
}

/* ---- what there is ------------------------------------------------------------------------- */

dsmoe_dataset_info dsmoe_dataset_get_info(const dsmoe_dataset *dataset) { return dataset->info; }

const dsmoe_data_files *dsmoe_dataset_files(const dsmoe_dataset *dataset)
{
    return &dataset->files;
}

const char *dsmoe_dataset_kind_name(const dsmoe_dataset *dataset, int kind)
{
    return kind >= 0 && kind < dataset->cache.n_kinds ? dataset->cache.kinds[kind] : NULL;
}

/* ---- sequences ----------------------------------------------------------------------------- */

/* The window that begins with that token. */
static void read_window(const dsmoe_dataset *d, int64_t begin, int32_t *tokens, int32_t *targets)
{
    const int64_t length = d->info.sequence_length;
    int32_t token = (int32_t)token_shard_token(&d->cache.tokens, (size_t)begin);
    for (int64_t i = 0; i < length; i++) {
        tokens[i] = token;
        token = (int32_t)token_shard_token(&d->cache.tokens, (size_t)(begin + i + 1));
        targets[i] = token;
    }
}

int64_t dsmoe_dataset_train(const dsmoe_dataset *dataset, int64_t first, int64_t n, int32_t *tokens,
                            int32_t *targets)
{
    const dsmoe_dataset_info *info = &dataset->info;
    const int64_t length = info->sequence_length;
    if (first < 0 || n < 0 || first > INT64_MAX - n) return 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t epoch = (first + i) / info->n_train, place = (first + i) % info->n_train;
        int64_t window = data_order_at(info->n_train, dataset->seed, (uint64_t)epoch, place);
        read_window(dataset, window * length, tokens + i * length, targets + i * length);
    }
    return n;
}

int64_t dsmoe_dataset_held_out(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                               int32_t *tokens, int32_t *targets, int *kinds)
{
    const dsmoe_dataset_info *info = &dataset->info;
    const int64_t length = info->sequence_length;
    if (first < 0 || n < 0 || first >= info->n_held_out) return 0;
    if (n > info->n_held_out - first) n = info->n_held_out - first;
    for (int64_t i = 0; i < n; i++) {
        int64_t window = data_order_at(info->n_held_out, held_out_seed, 0, first + i);
        int64_t begin = dataset->cache.n_train + window * length;
        read_window(dataset, begin, tokens + i * length, targets + i * length);
        if (kinds) kinds[i] = data_cache_kind(&dataset->cache, begin);
    }
    return n;
}

dsmoe_status dsmoe_dataset_check(const dsmoe_dataset *dataset, dsmoe_error *error)
{
    return data_cache_check_intact(&dataset->cache, error);
}
