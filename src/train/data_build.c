/* data_build.c - turns documents into tokens in a cache file.
 *
 * Texts are cut into pieces, and pieces are gathered into a batch. All threads encode the batch, which is
 * then written piece by piece in the order of the text. Where a text is cut depends on the text alone, so
 * the file does not depend on threads or batches. Only one batch is in memory at a time, whatever the
 * files' sizes. */
#include "train/data_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "formats/mapped_file.h"
#include "text/unicode.h"
#include "train/data_conversation.h"
#include "train/tokenizer_hash.h"

enum {
    BUILD_FORM = 3,           /* changes when the same text gives different tokens */
    BUILD_FORM_BEFORE = 2,    /* the same tokens, but others are held out */
    CONVERSATIONS = 1,        /* changes when the same conversations give different tokens */
    MAX_PIECES = 1024,        /* pieces of a batch */
    PIECES_PER_THREAD = 8,    /* enough that no thread waits long for the last one */
    BATCH_MIN = 2 << 20,      /* bytes of a batch's text; no piece is larger */
    HASH_STRETCH = 256 << 20, /* bytes between two checks whether to stop */
};

_Static_assert((int)DATA_PIECE_MAX <= (int)BATCH_MIN, "a piece must fit into a batch");

/* ---- cutting a text ------------------------------------------------------------------------ */

static bool is_space_at(const char *text, size_t length)
{
    uint32_t code;
    return utf8_decode(text, length, &code) > 0 && unicode_is_whitespace(code);
}

/* Whether the space or line end at `at` stands alone between two other characters. */
static bool stands_alone(const char *text, size_t length, size_t at)
{
    if (at == 0 || at + 1 >= length) return false;
    size_t before = at - 1;
    while (before > 0 && at - before < 4 && utf8_is_inside(text[before])) before--;
    return !is_space_at(text + before, at - before) && !is_space_at(text + at + 1, length - at - 1);
}

/* The first border of a kind in [from, to); `to` if there is none. */
typedef bool border_fn(const char *text, size_t length, size_t at);

static size_t find_border(const char *text, size_t length, size_t from, size_t to,
                          border_fn *border)
{
    while (from < to && !border(text, length, from)) from++;
    return from;
}

static bool line_alone(const char *text, size_t length, size_t at)
{
    return text[at - 1] == '\n' && stands_alone(text, length, at - 1);
}

static bool line_start(const char *text, size_t length, size_t at)
{
    return text[at - 1] == '\n' && !is_space_at(text + at, length - at);
}

static bool space_alone(const char *text, size_t length, size_t at)
{
    return text[at] == ' ' && stands_alone(text, length, at);
}

static bool character_start(const char *text, size_t length, size_t at)
{
    (void)length;
    return !utf8_is_inside(text[at]);
}

size_t data_piece_length(const char *text, size_t length)
{
    static border_fn *const borders[] = {line_alone, line_start, space_alone, character_start};
    enum { N_BORDERS = sizeof borders / sizeof *borders };
    if (length <= DATA_PIECE) return length;
    size_t limit = length < DATA_PIECE_MAX ? length : DATA_PIECE_MAX;
    for (int i = 0; i < N_BORDERS; i++) {
        size_t at = find_border(text, length, DATA_PIECE, limit, borders[i]);
        if (at < limit || limit == length) return at;
    }
    return limit;
}

/* ---- a batch ------------------------------------------------------------------------------- */

typedef struct piece_ids {
    int32_t *ids;
    size_t n;
    char *learnt; /* [n] for a conversation */
} piece_ids;

typedef struct piece {
    const char *text;
    size_t length;
    const document_source *source;
    bool begins, ends;      /* its document: BOS comes before the piece, EOS after it */
    bool is_rest;           /* the held-out rest of a document whose beginning is trained on */
    dialogue *conversation; /* instead of a text */
    size_t line;            /* the line of the file */
    piece_ids own;          /* its tokens; for a preference, with the chosen answer */
    piece_ids rejected;     /* tokens of a preference with the rejected answer */
    dsmoe_status status;
    dsmoe_error error;
} piece;

typedef struct builder {
    const data_build_options *options;
    data_cache_writer writer;
    int32_t eos; /* -1: none */
    data_chat chat;
    bool has_pairs, has_others; /* whether there are preferences, and other data */
    char *text;                 /* text of the batch */
    size_t text_length, text_capacity;
    piece *pieces; /* [MAX_PIECES] */
    size_t n_pieces;
    const document_source *source;  /* whose documents are being visited */
    const document_source *written; /* whose tokens were written last */
    size_t n_written;               /* how many of its tokens were written */
    document_part part;             /* the part being visited */
    double done_before, done;       /* bytes of the files before `written`, and of it */
    double total;
} builder;

static dsmoe_status report(const builder *b, dsmoe_error *error)
{
    const data_build_options *o = b->options;
    double done = b->done_before + b->done, share = o->held_out;
    if (done > b->total) done = b->total;
    /* Each part reads all files. */
    done = b->part == DOCUMENT_TRAIN ? done - share * done : b->total - share * (b->total - done);
    if (!o->progress || o->progress(o->context, done, b->total)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
}

/* What is written from now on belongs to `source`, which is not before the last one written. */
static void enter_source(builder *b, const document_source *source)
{
    if (b->written == source) return;
    const document_source *from = b->written ? b->written : b->options->list->sources;
    for (; from < source; from++) b->done_before += (double)from->size;
    b->written = source;
    b->n_written = 0;
    b->done = 0;
}

static dsmoe_status check_tokens(const builder *b, const int32_t *tokens, size_t n,
                                 dsmoe_error *error)
{
    const document_source *source = b->written;
    int64_t vocab_size = b->options->vocab_size;
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab_size)
            return status_fail(
                error, DSMOE_ERROR_FORMAT, "%s: token %zu is id %u, but vocab_size is %lld: %s",
                source->path, b->n_written + i, (unsigned)tokens[i], (long long)vocab_size,
                source->form == DOCUMENT_SHARD ? "the shard was made for another model"
                                               : "the tokenizer belongs to another model");
    return DSMOE_OK;
}

static dsmoe_status write_tokens(builder *b, const int32_t *tokens, size_t n, dsmoe_error *error)
{
    STATUS_TRY(check_tokens(b, tokens, n, error));
    b->n_written += n;
    return data_cache_append(&b->writer, tokens, n, b->written->kind, error);
}

static bool has_answer(const piece_ids *p)
{
    bool has = false;
    for (size_t i = 0; i < p->n; i++) has = has || p->learnt[i];
    return has;
}

/* A preference between two equal answers teaches nothing. */
static bool has_lesson(const piece *p)
{
    const piece_ids *a = &p->own, *b = &p->rejected;
    if (!p->conversation->n_chosen) return has_answer(a);
    bool same = a->n == b->n && !memcmp(a->ids, b->ids, a->n * sizeof *a->ids);
    return has_answer(a) && has_answer(b) && !same;
}

static dsmoe_status write_half(builder *b, const piece *p, const piece_ids *half, data_what what,
                               dsmoe_error *error)
{
    STATUS_TRY(check_tokens(b, half->ids, half->n, error));
    b->n_written += half->n;
    return data_cache_append_conversation(&b->writer, what, half->ids, half->learnt, half->n,
                                          p->source->kind, error);
}

static dsmoe_status write_conversation(builder *b, const piece *p, dsmoe_error *error)
{
    b->done += (double)p->length;
    if (!has_lesson(p)) {
        b->writer.n_unanswered++;
        return DSMOE_OK;
    }
    b->writer.n_bytes += (int64_t)p->length;
    b->writer.n_documents++;
    if (!p->conversation->n_chosen) return write_half(b, p, &p->own, DATA_CONVERSATION, error);
    STATUS_TRY(write_half(b, p, &p->own, DATA_CHOSEN, error));
    return write_half(b, p, &p->rejected, DATA_REJECTED, error);
}

static dsmoe_status encode_dialogue(const builder *b, const dialogue *c, piece_ids *out,
                                    dsmoe_error *error)
{
    id_buffer ids = {0};
    byte_buffer learnt = {0};
    dsmoe_status status = data_conversation_encode(&b->chat, c, &ids, &learnt, error);
    *out = (piece_ids){ids.ids, ids.count, learnt.bytes};
    return status;
}

static void encode_conversation(const builder *b, piece *p)
{
    dialogue first = *p->conversation, second = first;
    if (first.n_chosen) {
        first.n_messages = first.n_chosen;
        second.messages += first.n_chosen;
        second.n_messages -= first.n_chosen;
    }
    p->status = encode_dialogue(b, &first, &p->own, &p->error);
    if (p->status == DSMOE_OK && first.n_chosen)
        p->status = encode_dialogue(b, &second, &p->rejected, &p->error);
}

static void encode_piece(void *context, int64_t task, int thread)
{
    (void)thread;
    const builder *b = context;
    piece *p = &b->pieces[task];
    if (p->conversation) {
        encode_conversation(b, p);
        return;
    }
    p->status =
        dsmoe_tokenizer_encode(b->options->tokenizer, p->text, p->length,
                               p->begins ? DSMOE_ENCODE_BOS : 0, &p->own.ids, &p->own.n, &p->error);
}

static dsmoe_status write_piece(builder *b, const piece *p, dsmoe_error *error)
{
    enter_source(b, p->source);
    if (p->status != DSMOE_OK && p->line)
        return status_fail(error, p->status, "%s: line %zu: %s", p->source->path, p->line,
                           p->error.message);
    if (p->status != DSMOE_OK)
        return status_fail(error, p->status, "%s: %s", p->source->path, p->error.message);
    if (p->conversation) return write_conversation(b, p, error);
    STATUS_TRY(write_tokens(b, p->own.ids, p->own.n, error));
    if (p->ends && b->eos >= 0) STATUS_TRY(write_tokens(b, &b->eos, 1, error));
    if (p->ends) STATUS_TRY(data_cache_end_text(&b->writer, error));
    b->done += (double)p->length;
    b->writer.n_bytes += (int64_t)p->length;
    b->writer.n_documents += p->ends && !p->is_rest;
    return DSMOE_OK;
}

static void free_ids(piece_ids *p)
{
    free(p->ids);
    free(p->learnt);
}

/* Encodes, writes and empties the batch. */
static dsmoe_status flush(builder *b, dsmoe_error *error)
{
    if (b->n_pieces == 0) return DSMOE_OK;
    threads_for(b->options->n_threads, (int64_t)b->n_pieces, encode_piece, b);
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; i < b->n_pieces; i++) {
        if (status == DSMOE_OK) status = write_piece(b, &b->pieces[i], error);
        free_ids(&b->pieces[i].own);
        free_ids(&b->pieces[i].rejected);
        free(b->pieces[i].conversation);
    }
    b->n_pieces = b->text_length = 0;
    return status == DSMOE_OK ? report(b, error) : status;
}

/* ---- documents ----------------------------------------------------------------------------- */

static dsmoe_status add_text(builder *b, const document *d, dsmoe_error *error)
{
    const char *text = d->text;
    size_t length = d->length;
    for (bool begins = true; length > 0; begins = false) {
        size_t n = data_piece_length(text, length);
        if (b->n_pieces == MAX_PIECES || n > b->text_capacity - b->text_length)
            STATUS_TRY(flush(b, error));
        char *copy = b->text + b->text_length;
        memcpy(copy, text, n);
        b->text_length += n;
        b->pieces[b->n_pieces++] = (piece){.text = copy,
                                           .length = n,
                                           .source = b->source,
                                           .begins = begins,
                                           .ends = n == length,
                                           .is_rest = d->is_rest,
                                           .line = d->line};
        text += n;
        length -= n;
    }
    return DSMOE_OK;
}

/* Finds the form of conversations when the first one needs it. */
static dsmoe_status find_form(builder *b, const document *d, dsmoe_error *error)
{
    dsmoe_error why;
    if (d->conversation->is_plain || b->chat.form) return DSMOE_OK;
    dsmoe_status status =
        dsmoe_chat_form_find(b->options->tokenizer, b->options->chat_form, &b->chat.form, &why);
    if (status == DSMOE_OK) return DSMOE_OK;
    return status_fail(error, status, "%s: line %zu is a conversation: %s", b->source->path,
                       d->line, why.message);
}

static dsmoe_status add_conversation(builder *b, const document *d, dsmoe_error *error)
{
    STATUS_TRY(find_form(b, d, error));
    if (b->n_pieces == MAX_PIECES || d->length > b->text_capacity - b->text_length)
        STATUS_TRY(flush(b, error));
    dialogue *copy = data_conversation_copy(d->conversation);
    if (!copy)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: line %zu: out of memory",
                           b->source->path, d->line);
    /* A conversation has memory of its own, but counts as its text. */
    b->text_length += d->length < b->text_capacity ? d->length : b->text_capacity;
    b->pieces[b->n_pieces++] =
        (piece){.length = d->length, .source = b->source, .conversation = copy, .line = d->line};
    return DSMOE_OK;
}

static dsmoe_status add_shard(builder *b, const document *d, dsmoe_error *error)
{
    enum { AT_ONCE = 1 << 10, BETWEEN_REPORTS = 1 << 24 };
    int32_t tokens[AT_ONCE];
    token_shard shard = {.tokens = d->tokens, .n_tokens = d->n_tokens, .token_size = d->token_size};
    STATUS_TRY(flush(b, error)); /* first the texts before it */
    enter_source(b, b->source);
    for (size_t begin = 0; begin < d->n_tokens; begin += AT_ONCE) {
        size_t n = d->n_tokens - begin < AT_ONCE ? d->n_tokens - begin : AT_ONCE;
        for (size_t i = 0; i < n; i++) tokens[i] = (int32_t)token_shard_token(&shard, begin + i);
        STATUS_TRY(write_tokens(b, tokens, n, error));
        b->done += (double)n * d->token_size;
        if (begin % BETWEEN_REPORTS == 0) STATUS_TRY(report(b, error));
    }
    b->writer.n_documents += !d->is_rest;
    STATUS_TRY(data_cache_end_text(&b->writer, error));
    return report(b, error);
}

/* Preferences have a loss of their own, so they cannot be mixed with other data. */
static dsmoe_status check_company(builder *b, const document *d, dsmoe_error *error)
{
    bool is_pair = d->conversation && d->conversation->n_chosen;
    *(is_pair ? &b->has_pairs : &b->has_others) = true;
    if (!b->has_pairs || !b->has_others) return DSMOE_OK;
    char line[32] = "";
    if (d->line) snprintf(line, sizeof line, "line %zu: ", d->line);
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: %s%s: preferences cannot be mixed with other data", b->source->path,
                       line, is_pair ? "a preference among other data" : "not a preference");
}

static dsmoe_status add_document(void *context, const document *d, dsmoe_error *error)
{
    builder *b = context;
    STATUS_TRY(check_company(b, d, error));
    if (d->tokens) return add_shard(b, d, error);
    if (!b->options->tokenizer)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: text needs a tokenizer; without one there can only be shards of "
                           "tokens (.bin)",
                           b->source->path);
    return d->conversation ? add_conversation(b, d, error) : add_text(b, d, error);
}

static double total_size(const document_list *list)
{
    double total = 0;
    for (size_t i = 0; i < list->n_sources; i++) total += (double)list->sources[i].size;
    return total;
}

/* ---- the key ------------------------------------------------------------------------------- */

static dsmoe_status hash_source(const data_build_options *o, const document_source *source,
                                double done, double total, hash_state *h, dsmoe_error *error)
{
    mapped_file file;
    STATUS_TRY(mapped_file_open(&file, source->path, error));
    hash_add_number(h, (uint64_t)source->form);
    hash_add_number(h, (uint64_t)source->kind);
    hash_add_number(h, file.size);
    dsmoe_status status = DSMOE_OK;
    for (size_t at = 0; at < file.size && status == DSMOE_OK; at += HASH_STRETCH) {
        size_t n = file.size - at < HASH_STRETCH ? file.size - at : HASH_STRETCH;
        hash_add(h, file.bytes + at, n);
        if (o->progress && !o->progress(o->context, done, total))
            status = status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
    }
    if (!mapped_file_intact(&file)) status = mapped_file_lost(source->path, error);
    mapped_file_close(&file);
    return status;
}

/* What a key is made of besides the options. */
typedef struct key_parts {
    hash_kind hashed;
    uint64_t form;
    bool conversations; /* whether the rules know conversations */
    char *const *kinds; /* names of the kinds of text, as many as the list has */
} key_parts;

/* Only lines of JSON can be conversations. */
static bool has_lines(const document_list *list)
{
    bool has = false;
    for (size_t i = 0; i < list->n_sources; i++)
        has = has || list->sources[i].form == DOCUMENT_JSONL;
    return has;
}

/* "" if there is no form; the first conversation that needs one will then fail with the reason. */
static const char *form_name(const data_build_options *o)
{
    const dsmoe_chat_form *form;
    if (!o->tokenizer || dsmoe_chat_form_find(o->tokenizer, o->chat_form, &form, NULL)) return "";
    return dsmoe_chat_form_name(form);
}

/* Computes the key; the progress shows `done` of `total` meanwhile. */
static dsmoe_status make_key(const data_build_options *options, key_parts parts, double done,
                             double total, uint64_t *key, dsmoe_error *error)
{
    const document_list *list = options->list;
    hash_state h;
    hash_begin_as(&h, parts.hashed, parts.form);
    uint64_t tokenizer = 0;
    if (options->tokenizer)
        STATUS_TRY(tokenizer_hash(options->tokenizer, parts.hashed, &tokenizer, error));
    hash_add_number(&h, tokenizer);
    hash_add_number(&h, (uint64_t)options->vocab_size);
    hash_add_number(&h, (uint64_t)list->files.bad_bytes);
    hash_add(&h, &options->held_out, sizeof options->held_out);
    for (int i = 0; i < list->n_kinds; i++)
        hash_add(&h, parts.kinds[i], strlen(parts.kinds[i]) + 1);
    if (parts.conversations && has_lines(list)) {
        const char *form = form_name(options);
        hash_add_number(&h, CONVERSATIONS);
        hash_add_number(&h, options->learns_all);
        hash_add(&h, form, strlen(form) + 1);
    }
    for (size_t i = 0; list->has_eval && i < list->n_sources; i++)
        hash_add_number(&h, list->sources[i].is_eval);
    for (size_t i = 0; i < list->n_sources; i++)
        STATUS_TRY(hash_source(options, &list->sources[i], done, total, &h, error));
    *key = hash_end(&h);
    return DSMOE_OK;
}

static key_parts parts_now(const data_build_options *options, hash_kind hashed)
{
    return (key_parts){hashed, BUILD_FORM, true, options->list->kinds};
}

dsmoe_status data_build_key(const data_build_options *options, hash_kind hashed, uint64_t *key,
                            dsmoe_error *error)
{
    return make_key(options, parts_now(options, hashed), 0, total_size(options->list), key, error);
}

static bool has_same_kinds(const document_list *list, const data_cache *cache)
{
    bool same = list->n_kinds == cache->n_kinds;
    for (int i = 0; same && i < list->n_kinds; i++) same = !strcmp(list->kinds[i], cache->kinds[i]);
    return same;
}

dsmoe_status data_build_find_text(const data_build_options *options, const data_cache *cache,
                                  bool *found, dsmoe_error *error)
{
    const document_list *list = options->list;
    const key_parts rules[] = {{cache->hashed, BUILD_FORM, true, cache->kinds},
                               {cache->hashed, BUILD_FORM, false, cache->kinds},
                               {cache->hashed, BUILD_FORM_BEFORE, false, cache->kinds}};
    bool same_kinds = has_same_kinds(list, cache);
    *found = false;
    if (list->n_kinds != cache->n_kinds) return DSMOE_OK;
    for (int i = 0; i < 3 && !*found; i++) {
        uint64_t key;
        if (i == 0 && same_kinds) continue;       /* the caller has tried that */
        if (i == 1 && !has_lines(list)) continue; /* the same as rule 0 */
        STATUS_TRY(make_key(options, rules[i], 0, total_size(list), &key, error));
        *found = key == cache->key;
    }
    return DSMOE_OK;
}

/* Whether the files are still those that the key was made from. Reading them again is fast compared with
 * encoding them. */
static dsmoe_status check_unchanged(const data_build_options *options, uint64_t key,
                                    dsmoe_error *error)
{
    uint64_t now;
    double total = total_size(options->list);
    STATUS_TRY(make_key(options, parts_now(options, HASH_XXH64), total, total, &now, error));
    if (now == key) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_IO,
        "%s%s: changed while it was read; try again when no other program writes to it",
        options->list->sources[0].path,
        options->list->n_sources > 1 ? " or another of the files" : "");
}

/* ---- all documents ------------------------------------------------------------------------- */

static dsmoe_status build_part(builder *b, const document_split *split, document_part part,
                               dsmoe_error *error)
{
    const document_list *list = b->options->list;
    b->part = part;
    b->written = NULL;
    b->done_before = b->done = 0;
    for (size_t i = 0; i < list->n_sources; i++) {
        b->source = &list->sources[i];
        STATUS_TRY(document_split_each(split, list, i, part, b->eos, add_document, b, error));
    }
    return flush(b, error);
}

static dsmoe_status build_all(builder *b, dsmoe_error *error)
{
    const data_build_options *o = b->options;
    if (!b->text || !b->pieces)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu bytes of text",
                           b->text_capacity);
    STATUS_TRY(report(b, error));
    const document_watch watch = {o->progress, o->context, b->total};
    document_split split;
    STATUS_TRY(document_split_make(&split, o->list, o->held_out, &watch, error));
    dsmoe_status status = build_part(b, &split, DOCUMENT_TRAIN, error);
    b->writer.n_train = b->writer.n_tokens;
    if (status == DSMOE_OK) status = build_part(b, &split, DOCUMENT_HELD_OUT, error);
    document_split_free(&split);
    if (status != DSMOE_OK) return status;
    if (b->writer.n_tokens == 0 && b->writer.n_unanswered > 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s%s: no conversation in it has an answer to learn",
                           o->list->sources[0].path, o->list->n_sources > 1 ? " and others" : "");
    if (b->writer.n_tokens == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s%s: no token in it; give files with text",
                           o->list->sources[0].path, o->list->n_sources > 1 ? " and others" : "");
    b->done = b->total; /* this also counts blank lines and what surrounds texts in JSON lines */
    return report(b, error);
}

/* Frees conversations of a batch that were not written because something failed before. */
static void drop_pieces(builder *b)
{
    for (size_t i = 0; i < b->n_pieces; i++) free(b->pieces[i].conversation);
}

dsmoe_status data_build(const data_build_options *options, const char *path, uint64_t key,
                        dsmoe_error *error)
{
    const document_list *list = options->list;
    builder b = {.options = options, .eos = -1, .total = total_size(list)};
    if (options->tokenizer) b.eos = dsmoe_tokenizer_eos(options->tokenizer);
    b.chat = (data_chat){.tokenizer = options->tokenizer, .learns_all = options->learns_all};
    STATUS_TRY(data_cache_create(&b.writer, path, options->vocab_size, error));
    b.writer.has_eval = list->has_eval;
    size_t wanted = (size_t)options->n_threads * PIECES_PER_THREAD * DATA_PIECE;
    b.text_capacity = wanted > BATCH_MIN ? wanted : BATCH_MIN;
    b.text = malloc(b.text_capacity);
    b.pieces = malloc(MAX_PIECES * sizeof *b.pieces);
    dsmoe_status status = build_all(&b, error);
    if (status == DSMOE_OK) status = check_unchanged(options, key, error);
    if (status == DSMOE_OK)
        status =
            data_cache_finish(&b.writer, key, options->held_out, list->kinds, list->n_kinds, error);
    data_cache_abandon(&b.writer);
    drop_pieces(&b);
    free(b.text);
    free(b.pieces);
    return status;
}
