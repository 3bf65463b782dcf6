/* dataset.c - data to train on: a row of training tokens and a row of held-out tokens, each cut into
 * sequences of equal length.
 *
 * With sequences of L tokens, window i of a row holds its tokens i·L … i·L + L: the first L are the inputs
 * and the last L the targets, so a border token is a target of one window and an input of the next. Every
 * epoch takes the training windows in its own random order. Held-out windows have one fixed random order, so
 * that the first few are of all kinds of text.
 *
 * If there are conversations, sequences are made of whole documents instead (data_packed.h); a held-out
 * sequence has one document. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/threads.h"
#include "train/data_build.h"
#include "train/data_packed.h"
#include "base/data_order.h"

enum { THREADS_MAX = 1024, SEQUENCE_MAX = 1 << 24 };

static const uint64_t held_out_seed = 0x68656c642d6f7574u; /* the same for every run */

struct dsmoe_dataset {
    data_cache cache;
    dsmoe_dataset_info info;
    dsmoe_data_files files;
    uint64_t seed;
    data_packed train, held_out; /* if there are conversations */
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
    if (o->n_eval_paths < 0 || (o->n_eval_paths > 0 && !o->eval_paths))
        return status_fail(error, bad, "no file or folder to read held-out text from");
    if (o->n_eval_paths > 0 && o->held_out > 0)
        return status_fail(
            error, bad, "held-out text is given: held_out, a share of the text, must be 0, not %g",
            o->held_out);
    if (o->n_threads < 0 || o->n_threads > THREADS_MAX)
        return status_fail(error, bad, "threads must be 1 to %d, not %d", THREADS_MAX,
                           o->n_threads);
    int32_t eos = o->tokenizer ? dsmoe_tokenizer_eos(o->tokenizer) : -1;
    if (eos >= o->vocab_size)
        return status_fail(error, bad,
                           "the tokenizer's EOS is id %" PRId32 ", but vocab_size is %" PRId64
                           ": the tokenizer belongs to another model",
                           eos, o->vocab_size);
    return DSMOE_OK;
}

static uint64_t hash_tokens(const data_cache *cache, hash_kind kind)
{
    const token_shard *tokens = &cache->tokens;
    if (kind == cache->hashed) return cache->token_hash;
    return hash_bytes_as(kind, tokens->tokens, tokens->n_tokens * (size_t)tokens->token_size, 0);
}

/* A hash of the tokens and the way they are cut. */
static uint64_t hash_of(const data_cache *cache, const dsmoe_dataset_options *o, hash_kind kind)
{
    const uint64_t parts[] = {hash_tokens(cache, kind), (uint64_t)cache->tokens.n_tokens,
                              (uint64_t)cache->n_train, (uint64_t)o->sequence_length};
    uint64_t hash = hash_bytes_as(kind, parts, sizeof parts, 0);
    if (!cache->documents) return hash;
    hash_state h;
    hash_begin_as(&h, kind, hash);
    hash_add_number(&h, o->drops_long);
    hash_add_number(&h, o->packs_nothing);
    hash_add(&h, cache->documents, cache->n_cuts * sizeof *cache->documents);
    hash_add(&h, cache->learnt, cache->tokens.n_tokens / 8 + 1);
    return hash_end(&h);
}

/* An earlier version may have begun the run, and the cache may be older or newer than that, so both hashes
 * are tried. */
static bool is_expected(const data_cache *cache, const dsmoe_dataset_options *o)
{
    return o->expected_hash && (hash_of(cache, o, HASH_XXH64) == o->expected_hash ||
                                hash_of(cache, o, HASH_OLD) == o->expected_hash);
}

static bool is_made_from(const data_cache *cache, uint64_t key, const dsmoe_dataset_options *o)
{
    return cache->key == key && cache->vocab_size == o->vocab_size &&
           cache->held_out == o->held_out && cache->has_eval == (o->n_eval_paths > 0);
}

/* Opens the cache file for the documents of a list: the existing one, or a new one. */
static dsmoe_status open_for_text(dsmoe_dataset *d, const dsmoe_dataset_options *o,
                                  const data_build_options *build, const char *path,
                                  dsmoe_error *error)
{
    uint64_t key;
    bool is_there = data_cache_open(&d->cache, path, NULL) == DSMOE_OK;
    hash_kind hashed = is_there ? d->cache.hashed : HASH_XXH64;
    STATUS_TRY(data_build_key(build, hashed, &key, error));
    if (is_there) {
        if (is_made_from(&d->cache, key, o)) return DSMOE_OK;
        bool is_of_run = is_expected(&d->cache, o), found = false;
        if (is_of_run) STATUS_TRY(data_build_find_text(build, &d->cache, &found, error));
        if (found) return DSMOE_OK;
        data_cache_close(&d->cache);
        if (is_of_run)
            return status_fail(
                error, DSMOE_ERROR_FORMAT,
                "%s: the text has changed since it was put into %s: restore it, or move it away "
                "to continue with what is in the cache",
                o->paths[0], path);
    }
    d->info.cache_built = true;
    if (hashed != HASH_XXH64) STATUS_TRY(data_build_key(build, HASH_XXH64, &key, error));
    STATUS_TRY(data_build(build, path, key, error));
    if (data_cache_open(&d->cache, path, NULL) == DSMOE_OK && is_made_from(&d->cache, key, o))
        return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_IO,
        "%s: the file reads back differently: another program writes to it, or the disk is failing",
        path);
}

/* Opens the cache file without the documents it was made from. */
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

/* How many windows fit into a row. */
static int64_t count_windows(int64_t n_tokens, int64_t length)
{
    return n_tokens > 0 ? (n_tokens - 1) / length : 0;
}

/* Packs documents into sequences. */
static dsmoe_status pack(dsmoe_dataset *d, const dsmoe_dataset_options *o, dsmoe_error *error)
{
    dsmoe_dataset_info *info = &d->info;
    data_packed_options options = {.first = 0,
                                   .end = d->cache.n_train,
                                   .length = o->sequence_length,
                                   .drops = o->drops_long,
                                   .alone = o->packs_nothing};
    STATUS_TRY(data_packed_make(&d->cache, &options, &d->train, error));
    options.first = d->cache.n_train;
    options.end = info->n_tokens;
    options.alone = options.apart = true;
    STATUS_TRY(data_packed_make(&d->cache, &options, &d->held_out, error));
    info->is_packed = true;
    info->has_pairs = data_cache_has_pairs(&d->cache);
    info->n_train = (int64_t)d->train.packing.n_sequences;
    info->n_held_out = (int64_t)d->held_out.packing.n_sequences;
    info->n_conversations = (int64_t)d->train.n_items;
    for (int64_t i = 0; i < info->n_train; i++) info->n_targets += d->train.n_targets[i];
    for (int64_t i = 0; i < info->n_train; i++) info->n_packed_tokens += d->train.n_tokens[i];
    info->n_cut = d->train.n_cut + d->held_out.n_cut;
    info->n_dropped = d->train.n_dropped + d->held_out.n_dropped;
    if (info->n_train > 0 && (info->n_held_out > 0 || !(o->held_out > 0 || d->cache.has_eval)))
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "no conversation is left %s%s",
                       info->n_train > 0 ? "to be held out" : "to train on",
                       info->n_dropped > 0 ? ": they are too long; use longer sequences" : "");
}

/* Finds how many sequences there are, and how many of them are held out. */
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
    bool is_of_run = is_expected(&d->cache, o);
    info->hash = is_of_run ? o->expected_hash : hash_of(&d->cache, o, HASH_XXH64);
    info->n_unanswered = d->cache.n_unanswered;
    if (o->expected_hash && !is_of_run)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: the data have changed since this run began, or it was begun with an older version "
            "of dsmoe, which held out other text: restore the data",
            o->n_paths > 0 ? o->paths[0] : d->cache.path);
    if (d->cache.documents) return pack(d, o, error);
    if (info->n_train < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the text is too short: %" PRId64
                           " tokens are left to train on, but one "
                           "sequence of %" PRId64 " needs %" PRId64
                           ": give more text, use shorter sequences or hold out less",
                           d->cache.n_train, length, length + 1);
    if (d->cache.has_eval && info->n_held_out < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the held-out text is too short: it has %" PRId64
                           " tokens, but one sequence of %" PRId64 " needs %" PRId64
                           ": give more of it, or use shorter sequences",
                           info->n_tokens_held_out, length, length + 1);
    if (o->held_out > 0 && info->n_held_out < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the text is too short: a held_out of %g holds out %" PRId64
                           " tokens, but one sequence of %" PRId64 " needs %" PRId64
                           ": give more text, use shorter sequences, or hold out more or nothing",
                           o->held_out, info->n_tokens_held_out, length, length + 1);
    return DSMOE_OK;
}

static dsmoe_status open_files(dsmoe_dataset *d, const dsmoe_dataset_options *o,
                               dsmoe_progress_fn *progress, void *context, dsmoe_error *error)
{
    document_list list = {0};
    if (o->n_paths > 0)
        STATUS_TRY(document_list_open_with_eval(o->paths, o->n_paths, o->eval_paths,
                                                o->n_eval_paths, o->bad_bytes, &list, error));
    int n_threads = o->n_threads ? o->n_threads : threads_available();
    const data_build_options build = {
        .list = &list,
        .tokenizer = o->tokenizer,
        .vocab_size = o->vocab_size,
        .held_out = o->held_out,
        .chat_form = o->chat_form,
        .learns_all = o->learns_all,
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
    data_packed_free(&dataset->train);
    data_packed_free(&dataset->held_out);
    data_cache_close(&dataset->cache);
    free(dataset);
}

/* ---- information --------------------------------------------------------------------------- */

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

/* Reads the window that begins with token number `begin`. */
static void read_window(const dsmoe_dataset *d, int64_t begin, int32_t *tokens, int32_t *targets,
                        int32_t *positions)
{
    const int64_t length = d->info.sequence_length;
    for (int64_t i = 0; positions && i < length; i++) positions[i] = (int32_t)i;
    int32_t token = (int32_t)token_shard_token(&d->cache.tokens, (size_t)begin);
    for (int64_t i = 0; i < length; i++) {
        tokens[i] = token;
        token = (int32_t)token_shard_token(&d->cache.tokens, (size_t)(begin + i + 1));
        targets[i] = token;
    }
}

/* Which training sequence is at a place of the endless row of epochs. */
static int64_t find_sequence(const dsmoe_dataset *d, int64_t place)
{
    int64_t n = d->info.n_train;
    return data_order_at(n, d->seed, (uint64_t)(place / n), place % n);
}

int64_t dsmoe_dataset_train(const dsmoe_dataset *dataset, int64_t first, int64_t n, int32_t *tokens,
                            int32_t *targets, int32_t *positions)
{
    const dsmoe_dataset_info *info = &dataset->info;
    const int64_t length = info->sequence_length;
    if (first < 0 || n < 0 || first > INT64_MAX - n) return 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t sequence = find_sequence(dataset, first + i), at = i * length;
        int32_t *own = positions ? positions + at : NULL;
        if (info->is_packed)
            data_packed_read(&dataset->train, sequence, tokens + at, targets + at, own);
        else
            read_window(dataset, sequence * length, tokens + at, targets + at, own);
    }
    return n;
}

static int64_t count_items(const data_packed *p, int64_t sequence)
{
    return p->packing.first[sequence + 1] - p->packing.first[sequence];
}

void dsmoe_dataset_count(const dsmoe_dataset *dataset, int64_t first, int64_t n, int64_t *n_targets,
                         int64_t *n_tokens)
{
    *n_targets = *n_tokens = 0;
    if (first < 0 || n < 0 || first > INT64_MAX - n) return;
    if (!dataset->info.is_packed) *n_targets = *n_tokens = n * dataset->info.sequence_length;
    for (int64_t i = 0; dataset->info.is_packed && i < n; i++) {
        int64_t sequence = find_sequence(dataset, first + i);
        *n_targets += dataset->info.has_pairs ? count_items(&dataset->train, sequence)
                                              : dataset->train.n_targets[sequence];
        *n_tokens += dataset->train.n_tokens[sequence];
    }
}

/* Which held-out sequence is at a place; the halves of a preference stay together. */
static int64_t find_held_out(const dsmoe_dataset *d, int64_t place)
{
    int64_t n = d->info.n_held_out;
    if (!d->info.has_pairs) return data_order_at(n, held_out_seed, 0, place);
    return 2 * data_order_at(n / 2, held_out_seed, 0, place / 2) + place % 2;
}

static int64_t first_token(const dsmoe_dataset *d, int64_t sequence)
{
    if (!d->info.is_packed) return d->cache.n_train + sequence * d->info.sequence_length;
    const packing *p = &d->held_out.packing;
    return d->held_out.items[p->items[p->first[sequence]]].begin;
}

int64_t dsmoe_dataset_held_out(const dsmoe_dataset *dataset, int64_t first, int64_t n,
                               int32_t *tokens, int32_t *targets, int32_t *positions, int *kinds)
{
    const dsmoe_dataset_info *info = &dataset->info;
    const int64_t length = info->sequence_length;
    if (first < 0 || n < 0 || first >= info->n_held_out) return 0;
    if (n > info->n_held_out - first) n = info->n_held_out - first;
    for (int64_t i = 0; i < n; i++) {
        int64_t sequence = find_held_out(dataset, first + i);
        int64_t begin = first_token(dataset, sequence), at = i * length;
        int32_t *own = positions ? positions + at : NULL;
        if (info->is_packed)
            data_packed_read(&dataset->held_out, sequence, tokens + at, targets + at, own);
        else
            read_window(dataset, begin, tokens + at, targets + at, own);
        if (kinds) kinds[i] = data_cache_kind(&dataset->cache, begin);
    }
    return n;
}

dsmoe_status dsmoe_dataset_check(const dsmoe_dataset *dataset, dsmoe_error *error)
{
    return data_cache_check_intact(&dataset->cache, error);
}
