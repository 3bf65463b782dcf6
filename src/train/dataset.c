/* dataset.c - data to train on: a long row of tokens, cut into sequences of equal length.
 *
 * With sequences of L tokens, window i holds tokens i·L … i·L + L: the first L are its inputs, the last
 * L its targets, so that a border token is a target of one window and an input of the next. A fixed
 * random order of all windows has the held-out ones first, the others behind them; every epoch takes
 * those in a random order of its own. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/threads.h"
#include "train/data_build.h"
#include "train/data_cache.h"
#include "train/data_order.h"

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
    if (o->vocab_size < 1 || o->vocab_size > INT32_MAX)
        return status_fail(error, bad, "vocab_size must be from 1 to %d, not %" PRId64, INT32_MAX,
                           o->vocab_size);
    if (o->sequence_length < 1 || o->sequence_length > SEQUENCE_MAX)
        return status_fail(error, bad, "sequence_length must be from 1 to %d, not %" PRId64,
                           SEQUENCE_MAX, o->sequence_length);
    if (!(o->held_out >= 0 && o->held_out < 1))
        return status_fail(error, bad,
                           "held_out is a share of the sequences, from 0 to less than 1, not %g",
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

/* The cache file as it is, or made anew. */
static dsmoe_status open_cache(dsmoe_dataset *d, const data_build_options *build,
                               const char *folder, dsmoe_error *error)
{
    uint64_t key;
    STATUS_TRY(data_build_key(build, &key, error));
    char *path = mapped_file_path(folder, "data.cache");
    if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    dsmoe_status status = DSMOE_OK;
    if (!data_cache_open(&d->cache, path, key, build->vocab_size)) {
        d->info.cache_built = true;
        status = data_build(build, path, key, error);
        if (status == DSMOE_OK && !data_cache_open(&d->cache, path, key, build->vocab_size))
            status = status_fail(error, DSMOE_ERROR_IO,
                                 "%s: what was written does not come back; is something else "
                                 "writing to this file, or the disk failing?",
                                 path);
    }
    free(path);
    return status;
}

/* How many sequences there are, and how many of them are held out. */
static dsmoe_status cut(dsmoe_dataset *d, const dsmoe_dataset_options *o, dsmoe_error *error)
{
    dsmoe_dataset_info *info = &d->info;
    info->n_tokens = (int64_t)d->cache.tokens.n_tokens;
    info->n_documents = d->cache.n_documents;
    info->n_bytes = d->cache.n_bytes;
    info->n_kinds = d->cache.n_kinds;
    info->sequence_length = o->sequence_length;
    int64_t n = (info->n_tokens - 1) / o->sequence_length;
    if (n < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the data has %" PRId64 " tokens, but one sequence of %" PRId64
                           " needs %" PRId64 ": give more text or take shorter sequences",
                           info->n_tokens, o->sequence_length, o->sequence_length + 1);
    if (o->held_out > 0) {
        info->n_held_out = (int64_t)((double)n * o->held_out + 0.5);
        if (info->n_held_out < 1) info->n_held_out = 1;
    }
    info->n_train = n - info->n_held_out;
    if (info->n_train < 1)
        return status_fail(
            error, DSMOE_ERROR_ARGUMENT,
            "%" PRId64 " of %" PRId64 " sequences of %" PRId64
            " tokens are held out, so none is left to train on: give more text, take "
            "shorter sequences or hold less out",
            info->n_held_out, n, o->sequence_length);
    const uint64_t parts[] = {d->cache.token_hash, (uint64_t)info->n_tokens,
                              (uint64_t)info->sequence_length, (uint64_t)info->n_held_out};
    info->hash = hash_bytes(parts, sizeof parts, 0);
    return DSMOE_OK;
}

dsmoe_status dsmoe_dataset_open(const dsmoe_dataset_options *options, dsmoe_progress_fn *progress,
                                void *context, dsmoe_dataset **dataset, dsmoe_error *error)
{
    if (!options || !dataset)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no options or no place for the data given");
    *dataset = NULL;
    STATUS_TRY(check_options(options, error));
    document_list list;
    STATUS_TRY(
        document_list_open(options->paths, options->n_paths, options->bad_bytes, &list, error));
    int n_threads = options->n_threads ? options->n_threads : threads_available();
    const data_build_options build = {.list = &list,
                                      .tokenizer = options->tokenizer,
                                      .vocab_size = options->vocab_size,
                                      .n_threads =
                                          n_threads < THREADS_MAX ? n_threads : THREADS_MAX,
                                      .progress = progress,
                                      .context = context};
    dsmoe_dataset *made = calloc(1, sizeof *made);
    dsmoe_status status = made ? open_cache(made, &build, options->cache, error)
                               : status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    if (made) made->files = list.files;
    document_list_close(&list);
    if (status == DSMOE_OK) {
        made->seed = options->seed;
        status = cut(made, options, error);
    }
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

/* The window at a place of the fixed order. */
static int64_t window_at(const dsmoe_dataset *d, int64_t place)
{
    return data_order_at(d->info.n_train + d->info.n_held_out, held_out_seed, 0, place);
}

static void read_window(const dsmoe_dataset *d, int64_t window, int32_t *tokens, int32_t *targets)
{
    const int64_t length = d->info.sequence_length;
    const size_t begin = (size_t)(window * length);
    int32_t token = (int32_t)token_shard_token(&d->cache.tokens, begin);
    for (int64_t i = 0; i < length; i++) {
        tokens[i] = token;
        token = (int32_t)token_shard_token(&d->cache.tokens, begin + (size_t)i + 1);
        targets[i] = token;
    }
}

void dsmoe_dataset_train(const dsmoe_dataset *dataset, int64_t first, int64_t n, int32_t *tokens,
                         int32_t *targets)
{
    const dsmoe_dataset_info *info = &dataset->info;
    for (int64_t i = 0; i < n; i++) {
        int64_t epoch = (first + i) / info->n_train, place = (first + i) % info->n_train;
        place = data_order_at(info->n_train, dataset->seed, (uint64_t)epoch, place);
        read_window(dataset, window_at(dataset, info->n_held_out + place),
                    tokens + i * info->sequence_length, targets + i * info->sequence_length);
    }
}

void dsmoe_dataset_held_out(const dsmoe_dataset *dataset, int64_t first, int64_t n, int32_t *tokens,
                            int32_t *targets, int *kinds)
{
    const int64_t length = dataset->info.sequence_length;
    for (int64_t i = 0; i < n; i++) {
        int64_t window = window_at(dataset, first + i);
        read_window(dataset, window, tokens + i * length, targets + i * length);
        if (kinds) kinds[i] = data_cache_kind(&dataset->cache, window * length);
    }
}

dsmoe_status dsmoe_dataset_check(const dsmoe_dataset *dataset, dsmoe_error *error)
{
    return data_cache_check_intact(&dataset->cache, error);
}
