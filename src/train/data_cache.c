/* data_cache.c - tokens of all documents in one file.
 *
 *   header   1024 bytes: the public fields, zeros up to OWN_FIELDS, the fields below as 64-bit numbers,
 *            zeros, and in the last eight bytes the hash of everything before them
 *   tokens   2 or 4 bytes each
 *   list     n_ranges × (end, kind) as 32-bit numbers; n_documents × (end, what) and a bit for each
 *            token, if there are conversations; then n_kinds names with a NUL after each
 *
 * Files with an older signature have the old hashes (base/hash_old.h), and can be read as well. */
#include "train/data_cache.h"

#include <stdlib.h>
#include <string.h>

enum { OWN_FIELDS = 64, HEADER_HASHED = TOKEN_SHARD_HEADER_SIZE - 8 };

static const uint64_t signature = 0x34617461442d4d44u;          /* "DM-Data4" as bytes */
static const uint64_t signature_old = 0x32617461442d4d44u;      /* the last three fields are 0 */
static const uint64_t signature_old_more = 0x33617461442d4d44u; /* one of them is not 0 */

enum {
    FIELD_SIGNATURE,
    FIELD_KEY,
    FIELD_VOCAB_SIZE,
    FIELD_HELD_OUT, /* a double */
    FIELD_TRAIN_TOKENS,
    FIELD_DOCUMENTS,
    FIELD_BYTES,
    FIELD_RANGES,
    FIELD_KINDS,
    FIELD_LIST_SIZE,
    FIELD_TOKEN_HASH,
    FIELD_LIST_HASH,
    FIELD_CUTS, /* number of documents */
    FIELD_HAS_EVAL,
    FIELD_UNANSWERED,
    N_FIELDS,
};

/* Bytes that hold one bit for each token. */
static size_t learnt_size(size_t n_tokens) { return n_tokens / 8 + 1; }

/* ---- reading ------------------------------------------------------------------------------- */

static dsmoe_status read_header(data_cache *cache, const unsigned char *bytes, size_t size,
                                const char *source, uint64_t fields[N_FIELDS], dsmoe_error *error)
{
    uint64_t hash;
    token_shard *tokens = &cache->tokens;
    STATUS_TRY(token_shard_parse_head(bytes, size, source, tokens, error));
    memcpy(&hash, bytes + HEADER_HASHED, sizeof hash);
    memcpy(fields, bytes + OWN_FIELDS, N_FIELDS * sizeof *fields);
    memcpy(&cache->held_out, &fields[FIELD_HELD_OUT], sizeof cache->held_out);
    uint64_t found = fields[FIELD_SIGNATURE];
    bool has_more = fields[FIELD_CUTS] || fields[FIELD_HAS_EVAL];
    cache->hashed = found == signature ? HASH_XXH64 : HASH_OLD;
    if (found != signature && found != signature_old && found != signature_old_more)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: not a data cache, or one of another version of dsmoe", source);
    if (hash != hash_bytes_as(cache->hashed, bytes, HEADER_HASHED, 0) ||
        fields[FIELD_VOCAB_SIZE] < 1 || fields[FIELD_VOCAB_SIZE] > INT32_MAX ||
        tokens->token_size != token_shard_size_for((int64_t)fields[FIELD_VOCAB_SIZE]) ||
        tokens->n_tokens < 1 || fields[FIELD_TRAIN_TOKENS] > tokens->n_tokens ||
        !(cache->held_out >= 0 && cache->held_out < 1) ||
        (cache->held_out == 0 && !fields[FIELD_HAS_EVAL] &&
         fields[FIELD_TRAIN_TOKENS] < tokens->n_tokens) ||
        fields[FIELD_DOCUMENTS] > INT64_MAX || fields[FIELD_BYTES] > INT64_MAX ||
        fields[FIELD_CUTS] > tokens->n_tokens || fields[FIELD_HAS_EVAL] > 1 ||
        fields[FIELD_UNANSWERED] > INT64_MAX ||
        (found != signature && has_more != (found == signature_old_more)))
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the data cache's header is damaged",
                           source);
    cache->key = fields[FIELD_KEY];
    cache->vocab_size = (int64_t)fields[FIELD_VOCAB_SIZE];
    cache->n_train = (int64_t)fields[FIELD_TRAIN_TOKENS];
    cache->token_hash = fields[FIELD_TOKEN_HASH];
    cache->n_documents = (int64_t)fields[FIELD_DOCUMENTS];
    cache->n_bytes = (int64_t)fields[FIELD_BYTES];
    cache->has_eval = fields[FIELD_HAS_EVAL];
    cache->n_unanswered = (int64_t)fields[FIELD_UNANSWERED];
    return DSMOE_OK;
}

static bool read_ranges(data_cache *cache, const unsigned char *list, size_t n_ranges)
{
    cache->ranges = malloc(n_ranges * sizeof *cache->ranges);
    if (!cache->ranges) return false;
    memcpy(cache->ranges, list, n_ranges * sizeof *cache->ranges);
    cache->n_ranges = n_ranges;
    uint32_t before = 0;
    for (size_t i = 0; i < n_ranges; i++) {
        const data_range *range = &cache->ranges[i];
        if (range->end <= before || range->kind >= (uint32_t)cache->n_kinds) return false;
        before = range->end;
    }
    return before == cache->tokens.n_tokens;
}

/* Whether preferences have both halves, and there are no other documents with them. */
static bool has_whole_pairs(const data_cache *cache)
{
    const data_document *d = cache->documents;
    size_t n = cache->n_cuts, n_halves = 0;
    for (size_t i = 0; i < n; i++) {
        n_halves += d[i].what >= DATA_CHOSEN;
        bool is_chosen = i % 2 == 0;
        if (d[i].what >= DATA_CHOSEN && d[i].what != (is_chosen ? DATA_CHOSEN : DATA_REJECTED))
            return false;
    }
    return n_halves == 0 || (n_halves == n && n % 2 == 0);
}

/* Reads the documents and which tokens are to be learned. One document must end where held-out data
 * begins. */
static bool read_documents(data_cache *cache, const unsigned char *list, size_t n)
{
    if (n == 0) return true;
    cache->documents = malloc(n * sizeof *cache->documents);
    if (!cache->documents) return false;
    memcpy(cache->documents, list, n * sizeof *cache->documents);
    cache->n_cuts = n;
    cache->learnt = list + n * sizeof *cache->documents;
    uint32_t before = 0;
    bool parts = cache->n_train == 0;
    for (size_t i = 0; i < n; i++) {
        const data_document *d = &cache->documents[i];
        if (d->end <= before || d->what > DATA_REJECTED) return false;
        before = d->end;
        parts = parts || (d->end == cache->n_train && d->what != DATA_CHOSEN);
    }
    return has_whole_pairs(cache) && parts && before == cache->tokens.n_tokens;
}

static bool read_kinds(data_cache *cache, const unsigned char *names, size_t size, uint64_t n_kinds)
{
    if (n_kinds < 1 || n_kinds > DOCUMENT_MAX_KINDS) return false;
    while ((uint64_t)cache->n_kinds < n_kinds) {
        const unsigned char *end = size > 0 ? memchr(names, '\0', size) : NULL;
        char *copy = end ? strdup((const char *)names) : NULL;
        if (!copy) return false;
        cache->kinds[cache->n_kinds++] = copy;
        size -= (size_t)(end + 1 - names);
        names = end + 1;
    }
    return size == 0;
}

static bool read_list(data_cache *cache, size_t file_size, const uint64_t fields[N_FIELDS])
{
    /* No product below can overflow: there are fewer than 2^31 tokens, and no more ranges or documents
     * than tokens. */
    const token_shard *tokens = &cache->tokens;
    size_t token_bytes = tokens->n_tokens * (size_t)tokens->token_size;
    size_t rest = file_size - TOKEN_SHARD_HEADER_SIZE; /* tokens and list */
    if (rest < token_bytes || fields[FIELD_LIST_SIZE] != rest - token_bytes ||
        fields[FIELD_RANGES] < 1 || fields[FIELD_RANGES] > tokens->n_tokens)
        return false;
    const unsigned char *list = tokens->tokens + token_bytes;
    size_t size = rest - token_bytes, n_ranges = (size_t)fields[FIELD_RANGES];
    size_t range_bytes = n_ranges * sizeof(data_range), n_cuts = (size_t)fields[FIELD_CUTS];
    size_t cut_bytes = n_cuts ? n_cuts * sizeof(data_document) + learnt_size(tokens->n_tokens) : 0;
    size_t names = range_bytes + cut_bytes;
    return names <= size &&
           fields[FIELD_LIST_HASH] == hash_bytes_as(cache->hashed, list, size, 0) &&
           fields[FIELD_TOKEN_HASH] ==
               hash_bytes_as(cache->hashed, tokens->tokens, token_bytes, 0) &&
           read_kinds(cache, list + names, size - names, fields[FIELD_KINDS]) &&
           read_ranges(cache, list, n_ranges) && read_documents(cache, list + range_bytes, n_cuts);
}

dsmoe_status data_cache_parse(const void *bytes, size_t size, const char *source, data_cache *cache,
                              dsmoe_error *error)
{
    *cache = (data_cache){0};
    uint64_t fields[N_FIELDS];
    STATUS_TRY(read_header(cache, bytes, size, source, fields, error));
    if (read_list(cache, size, fields) &&
        token_shard_find_above(&cache->tokens, cache->vocab_size) == cache->tokens.n_tokens)
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the data cache is damaged", source);
}

dsmoe_status data_cache_open(data_cache *cache, const char *path, dsmoe_error *error)
{
    *cache = (data_cache){0};
    mapped_file file;
    STATUS_TRY(mapped_file_open(&file, path, error));
    dsmoe_status status = data_cache_parse(file.bytes, file.size, path, cache, error);
    cache->file = file;
    cache->path = strdup(path);
    if (status == DSMOE_OK && !cache->path)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    if (status != DSMOE_OK) data_cache_close(cache);
    return status;
}

void data_cache_close(data_cache *cache)
{
    mapped_file_close(&cache->file);
    free(cache->path);
    free(cache->ranges);
    free(cache->documents);
    for (int i = 0; i < cache->n_kinds; i++) free(cache->kinds[i]);
    *cache = (data_cache){0};
}

dsmoe_status data_cache_check_intact(const data_cache *cache, dsmoe_error *error)
{
    return mapped_file_intact(&cache->file) ? DSMOE_OK : mapped_file_lost(cache->path, error);
}

int data_cache_kind(const data_cache *cache, int64_t token)
{
    size_t low = 0, high = cache->n_ranges - 1; /* the range is among these */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (token < (int64_t)cache->ranges[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    return (int)cache->ranges[low].kind;
}

/* ---- writing ------------------------------------------------------------------------------- */

static dsmoe_status no_memory(const data_cache_writer *w, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", w->file.path);
}

dsmoe_status data_cache_create(data_cache_writer *w, const char *path, int64_t vocab_size,
                               dsmoe_error *error)
{
    *w = (data_cache_writer){.vocab_size = vocab_size,
                             .token_size = token_shard_size_for(vocab_size)};
    hash_begin(&w->hash, 0);
    STATUS_TRY(partial_file_create(&w->file, path, error));
    w->waiting = malloc(DATA_CACHE_WAITING * sizeof *w->waiting);
    w->packed = malloc(DATA_CACHE_WAITING * (size_t)w->token_size);
    /* Zeros in place of the header, whose values are known at the end. They are not a valid header. */
    static const unsigned char zeros[TOKEN_SHARD_HEADER_SIZE];
    dsmoe_status status = w->waiting && w->packed
                              ? partial_file_write(&w->file, zeros, sizeof zeros, error)
                              : no_memory(w, error);
    if (status != DSMOE_OK) data_cache_abandon(w);
    return status;
}

static dsmoe_status write_waiting(data_cache_writer *w, dsmoe_error *error)
{
    size_t size = w->n_waiting * (size_t)w->token_size;
    token_shard_pack(w->waiting, w->n_waiting, w->token_size, w->packed);
    hash_add(&w->hash, w->packed, size);
    w->n_waiting = 0;
    return partial_file_write(&w->file, w->packed, size, error);
}

/* Extends the last range, or begins a new one. */
static dsmoe_status extend_range(data_cache_writer *w, int kind, dsmoe_error *error)
{
    if (w->n_ranges > 0 && w->ranges[w->n_ranges - 1].kind == (uint32_t)kind) {
        w->ranges[w->n_ranges - 1].end = (uint32_t)w->n_tokens;
        return DSMOE_OK;
    }
    if (w->n_ranges == w->range_capacity) {
        size_t capacity = w->range_capacity ? 2 * w->range_capacity : 64;
        data_range *ranges = realloc(w->ranges, capacity * sizeof *ranges);
        if (!ranges) return no_memory(w, error);
        w->ranges = ranges;
        w->range_capacity = capacity;
    }
    w->ranges[w->n_ranges++] = (data_range){.end = (uint32_t)w->n_tokens, .kind = (uint32_t)kind};
    return DSMOE_OK;
}

dsmoe_status data_cache_append(data_cache_writer *w, const int32_t *tokens, size_t n, int kind,
                               dsmoe_error *error)
{
    if (n == 0) return DSMOE_OK;
    if (n > TOKEN_SHARD_MAX_TOKENS - w->n_tokens)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: more than %d tokens; give less text, or train on parts of it one "
                           "after the other",
                           w->file.path, TOKEN_SHARD_MAX_TOKENS);
    w->n_tokens += n;
    STATUS_TRY(extend_range(w, kind, error));
    while (n > 0) {
        size_t room = DATA_CACHE_WAITING - w->n_waiting, count = n < room ? n : room;
        memcpy(w->waiting + w->n_waiting, tokens, count * sizeof *tokens);
        w->n_waiting += count;
        tokens += count;
        n -= count;
        if (w->n_waiting == DATA_CACHE_WAITING) STATUS_TRY(write_waiting(w, error));
    }
    return DSMOE_OK;
}

/* ---- conversations --------------------------------------------------------------------------- */

static dsmoe_status end_document(data_cache_writer *w, data_what what, dsmoe_error *error)
{
    if (w->n_cuts == w->cut_capacity) {
        size_t capacity = w->cut_capacity ? 2 * w->cut_capacity : 256;
        data_document *documents = realloc(w->documents, capacity * sizeof *documents);
        if (!documents) return no_memory(w, error);
        w->documents = documents;
        w->cut_capacity = capacity;
    }
    w->documents[w->n_cuts++] = (data_document){(uint32_t)w->n_tokens, what};
    return DSMOE_OK;
}

/* Makes room for the bits of all tokens so far; new bits are set, as texts need them. */
static dsmoe_status extend_learnt(data_cache_writer *w, dsmoe_error *error)
{
    size_t needed = learnt_size(w->n_tokens), capacity = w->learnt_capacity;
    if (needed <= capacity) return DSMOE_OK;
    while (capacity < needed) capacity = capacity ? 2 * capacity : 4096;
    unsigned char *learnt = realloc(w->learnt, capacity);
    if (!learnt) return no_memory(w, error);
    memset(learnt + w->learnt_capacity, 0xff, capacity - w->learnt_capacity);
    w->learnt = learnt;
    w->learnt_capacity = capacity;
    return DSMOE_OK;
}

dsmoe_status data_cache_end_text(data_cache_writer *w, dsmoe_error *error)
{
    size_t before = w->n_cuts ? w->documents[w->n_cuts - 1].end : 0;
    return w->n_tokens > before ? end_document(w, DATA_TEXT, error) : DSMOE_OK;
}

dsmoe_status data_cache_append_conversation(data_cache_writer *w, data_what what,
                                            const int32_t *tokens, const char *learnt, size_t n,
                                            int kind, dsmoe_error *error)
{
    size_t first = w->n_tokens;
    if (n == 0) return DSMOE_OK;
    w->has_conversations = true;
    STATUS_TRY(data_cache_append(w, tokens, n, kind, error));
    STATUS_TRY(extend_learnt(w, error));
    for (size_t i = 0; i < n; i++)
        if (!learnt[i]) w->learnt[(first + i) / 8] &= (unsigned char)~(1u << (first + i) % 8);
    return end_document(w, what, error);
}

/* The bits after those of the last token are cleared. */
static dsmoe_status write_documents(data_cache_writer *w, hash_state *hash, size_t *size,
                                    dsmoe_error *error)
{
    if (!w->has_conversations) return DSMOE_OK;
    size_t n_learnt = learnt_size(w->n_tokens), n_documents = w->n_cuts * sizeof *w->documents;
    STATUS_TRY(extend_learnt(w, error));
    w->learnt[n_learnt - 1] &= (unsigned char)((1u << w->n_tokens % 8) - 1);
    hash_add(hash, w->documents, n_documents);
    hash_add(hash, w->learnt, n_learnt);
    STATUS_TRY(partial_file_write(&w->file, w->documents, n_documents, error));
    *size += n_documents + n_learnt;
    return partial_file_write(&w->file, w->learnt, n_learnt, error);
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* Writes the list after the tokens, and puts its hash and size into the fields. */
static dsmoe_status write_list(data_cache_writer *w, char *const *kinds, int n_kinds,
                               uint64_t fields[N_FIELDS], dsmoe_error *error)
{
    hash_state hash;
    hash_begin(&hash, 0);
    size_t size = w->n_ranges * sizeof *w->ranges;
    hash_add(&hash, w->ranges, size);
    STATUS_TRY(partial_file_write(&w->file, w->ranges, size, error));
    STATUS_TRY(write_documents(w, &hash, &size, error));
    for (int i = 0; i < n_kinds; i++) {
        size_t length = strlen(kinds[i]) + 1;
        hash_add(&hash, kinds[i], length);
        STATUS_TRY(partial_file_write(&w->file, kinds[i], length, error));
        size += length;
    }
    fields[FIELD_RANGES] = w->n_ranges;
    fields[FIELD_KINDS] = (uint64_t)n_kinds;
    fields[FIELD_LIST_SIZE] = size;
    fields[FIELD_LIST_HASH] = hash_end(&hash);
    return DSMOE_OK;
}

static dsmoe_status write_rest(data_cache_writer *w, uint64_t key, double held_out,
                               char *const *kinds, int n_kinds, dsmoe_error *error)
{
    STATUS_TRY(write_waiting(w, error));
    uint64_t fields[N_FIELDS] = {[FIELD_SIGNATURE] = signature,
                                 [FIELD_CUTS] = w->has_conversations ? w->n_cuts : 0,
                                 [FIELD_HAS_EVAL] = w->has_eval,
                                 [FIELD_UNANSWERED] = (uint64_t)w->n_unanswered,
                                 [FIELD_KEY] = key,
                                 [FIELD_VOCAB_SIZE] = (uint64_t)w->vocab_size,
                                 [FIELD_TRAIN_TOKENS] = w->n_train,
                                 [FIELD_DOCUMENTS] = (uint64_t)w->n_documents,
                                 [FIELD_BYTES] = (uint64_t)w->n_bytes,
                                 [FIELD_TOKEN_HASH] = hash_end(&w->hash)};
    memcpy(&fields[FIELD_HELD_OUT], &held_out, sizeof held_out);
    STATUS_TRY(write_list(w, kinds, n_kinds, fields, error));
    unsigned char header[TOKEN_SHARD_HEADER_SIZE];
    token_shard_fill_header(header, w->token_size, (int32_t)w->n_tokens);
    memcpy(header + OWN_FIELDS, fields, sizeof fields);
    uint64_t hash = hash_bytes(header, HEADER_HASHED, 0);
    memcpy(header + HEADER_HASHED, &hash, sizeof hash);
    return partial_file_rewrite_head(&w->file, header, sizeof header, error);
}

dsmoe_status data_cache_finish(data_cache_writer *w, uint64_t key, double held_out,
                               char *const *kinds, int n_kinds, dsmoe_error *error)
{
    dsmoe_status status = write_rest(w, key, held_out, kinds, n_kinds, error);
    if (status == DSMOE_OK) status = partial_file_finish(&w->file, error);
    data_cache_abandon(w);
    return status;
}

void data_cache_abandon(data_cache_writer *w)
{
    partial_file_abandon(&w->file);
    free(w->ranges);
    free(w->documents);
    free(w->learnt);
    free(w->waiting);
    free(w->packed);
    *w = (data_cache_writer){.file.descriptor = -1};
}
