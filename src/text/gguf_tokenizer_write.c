/* gguf_tokenizer_write.c - the keys of a tokenizer in a GGUF file from the two texts of a
 * folder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/fields.h"
#include "text/gguf_keys.h"
#include "text/gguf_pre_tokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_files.h"

enum { PAD_SIZE = 16 }; /* "[PAD1048575]" */

/* Strings lie in the trees, or are made here. */
typedef struct writing {
    const char *path;
    const dsmoe_tokenizer *tokenizer; /* has read both texts, so they are what they should be */
    const json_node *root, *config;   /* of the texts; the second may be NULL */
    gguf_string *tokens;              /* [n_tokens] */
    int32_t *types;                   /* the same */
    char (*pads)[PAD_SIZE];           /* the same */
    size_t n_tokens;
    gguf_string *merges; /* [n_merges] */
    char *joined;        /* merges that are pairs in the text */
    size_t n_merges;
} writing;

/* ---- can the keys say it all? -------------------------------------------------------------- */

static bool same_json(const json_node *a, const json_node *b);

static dsmoe_status same_member(void *context, const char *key, const json_node *value,
                                dsmoe_error *error)
{
    const json_node *other = json_node_member(context, key);
    if (other && same_json(value, other)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s differs", key);
}

/* Recursion is bounded by the depth that JSON may have. */
static bool same_json(const json_node *a, const json_node *b)
{
    json_kind kind = json_node_kind(a);
    if (kind != json_node_kind(b)) return false;
    size_t lengths[2];
    switch (kind) {
    case JSON_KIND_NULL: return true;
    case JSON_KIND_BOOL: return json_node_bool(a) == json_node_bool(b);
    case JSON_KIND_INTEGER:
    case JSON_KIND_REAL: return json_node_number(a) == json_node_number(b);
    case JSON_KIND_STRING: {
        const char *left = json_node_string(a, &lengths[0]);
        const char *right = json_node_string(b, &lengths[1]);
        return lengths[0] == lengths[1] && !memcmp(left, right, lengths[0]);
    }
    case JSON_KIND_ARRAY:
        if (json_node_count(a) != json_node_count(b)) return false;
        for (size_t i = 0; i < json_node_count(a); i++)
            if (!same_json(json_node_item(a, i), json_node_item(b, i))) return false;
        return true;
    case JSON_KIND_OBJECT:
        return json_node_count(a) == json_node_count(b) &&
               json_node_each(a, same_member, (void *)b, NULL) == DSMOE_OK;
    }
    return false;
}

static bool flag(const json_node *object, const char *key)
{
    const json_node *node = field_node(object, key);
    return node && json_node_kind(node) == JSON_KIND_BOOL && json_node_bool(node);
}

/* An added token that is found as it is written, and in no other way. */
static bool is_plain(const json_node *added, const json_node *vocab)
{
    const char *content = json_node_string(json_node_member(added, "content"), NULL);
    return !flag(added, "single_word") && !flag(added, "lstrip") && !flag(added, "rstrip") &&
           !json_node_member(vocab, content);
}

static bool is_special_or_none(const writing *w, int32_t id)
{
    return id < 0 || dsmoe_tokenizer_is_special(w->tokenizer, id);
}

/* Whether the arrays and the name of the released pre-tokenizer make the same tokenizer again. */
static dsmoe_status check_expressible(const writing *w, bool *expressible, dsmoe_error *error)
{
    json_node *released;
    STATUS_TRY(json_node_parse(gguf_pre_tokenizer_json, strlen(gguf_pre_tokenizer_json), w->path,
                               &released, error));
    const json_node *model = json_node_member(w->root, "model");
    const json_node *vocab = json_node_member(model, "vocab");
    const json_node *added = field_node(w->root, "added_tokens");
    *expressible = same_json(json_node_member(w->root, "pre_tokenizer"), released) &&
                   w->tokenizer->normalizer.n_steps == 0 && !flag(model, "ignore_merges") &&
                   !field_node(model, "unk_token") &&
                   is_special_or_none(w, dsmoe_tokenizer_bos(w->tokenizer)) &&
                   is_special_or_none(w, dsmoe_tokenizer_eos(w->tokenizer));
    for (size_t i = 0; added && i < json_node_count(added) && *expressible; i++)
        *expressible = is_plain(json_node_item(added, i), vocab);
    json_node_free(released);
    return DSMOE_OK;
}

/* ---- the arrays ---------------------------------------------------------------------------- */

static void set_token(writing *w, int64_t id, const char *text, size_t length, gguf_token_type type)
{
    w->tokens[id] = (gguf_string){text, length};
    w->types[id] = (int32_t)type;
}

static dsmoe_status take_token(void *context, const char *key, const json_node *value,
                               dsmoe_error *error)
{
    (void)error;
    set_token(context, json_node_integer(value), key, strlen(key), GGUF_TOKEN_NORMAL);
    return DSMOE_OK;
}

/* Every id of the tokenizer is one of the model: that is known before. */
static dsmoe_status fill_tokens(writing *w, dsmoe_error *error)
{
    const json_node *model = json_node_member(w->root, "model");
    STATUS_TRY(json_node_each(json_node_member(model, "vocab"), take_token, w, error));
    const json_node *added = field_node(w->root, "added_tokens");
    for (size_t i = 0; added && i < json_node_count(added); i++) {
        const json_node *token = json_node_item(added, i);
        size_t length;
        const char *content = json_node_string(json_node_member(token, "content"), &length);
        set_token(w, json_node_integer(json_node_member(token, "id")), content, length,
                  flag(token, "special") ? GGUF_TOKEN_CONTROL : GGUF_TOKEN_USER_DEFINED);
    }
    for (size_t i = 0; i < w->n_tokens; i++) {
        if (w->tokens[i].bytes) continue;
        int length = snprintf(w->pads[i], PAD_SIZE, "[PAD%zu]", i);
        set_token(w, (int64_t)i, w->pads[i], (size_t)length, GGUF_TOKEN_UNUSED);
    }
    return DSMOE_OK;
}

/* Bytes of the merges that are pairs, as "left right". */
static size_t joined_size(const json_node *list)
{
    size_t size = 0, length; /* no more than there is text, so the sum fits */
    for (size_t i = 0; i < json_node_count(list); i++) {
        const json_node *merge = json_node_item(list, i);
        if (json_node_kind(merge) != JSON_KIND_ARRAY) continue;
        for (size_t j = 0; j < 2; j++) {
            json_node_string(json_node_item(merge, j), &length);
            size += length + 1;
        }
    }
    return size;
}

static void fill_merges(writing *w, const json_node *list)
{
    char *at = w->joined;
    for (size_t i = 0; i < w->n_merges; i++) {
        const json_node *merge = json_node_item(list, i);
        if (json_node_kind(merge) == JSON_KIND_STRING) {
            w->merges[i].bytes = json_node_string(merge, &w->merges[i].length);
            continue;
        }
        w->merges[i].bytes = at;
        for (size_t j = 0; j < 2; j++) {
            size_t length;
            const char *half = json_node_string(json_node_item(merge, j), &length);
            memcpy(at, half, length);
            at += length;
            *at++ = ' ';
        }
        w->merges[i].length = (size_t)(at - w->merges[i].bytes) - 1; /* without the last space */
    }
}

static dsmoe_status make_arrays(writing *w, dsmoe_error *error)
{
    const json_node *list = json_node_member(json_node_member(w->root, "model"), "merges");
    w->n_merges = json_node_count(list);
    w->tokens = calloc(w->n_tokens, sizeof *w->tokens);
    w->types = calloc(w->n_tokens, sizeof *w->types);
    w->pads = calloc(w->n_tokens, sizeof *w->pads);
    w->merges = calloc(w->n_merges + 1, sizeof *w->merges);
    w->joined = malloc(joined_size(list) + 1);
    if (!w->tokens || !w->types || !w->pads || !w->merges || !w->joined)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", w->path);
    fill_merges(w, list);
    return fill_tokens(w, error);
}

/* ---- the keys ------------------------------------------------------------------------------ */

static void write_string(gguf_writer *writer, const char *key, const char *text)
{
    gguf_writer_string(writer, key, text, strlen(text));
}

static void write_id(gguf_writer *writer, const char *key, int32_t id)
{
    if (id >= 0) gguf_writer_u32(writer, key, (uint32_t)id);
}

/* The token that a key of tokenizer_config.json names; -1: none. */
static int32_t config_token(const writing *w, const char *key)
{
    const json_node *node = w->config ? field_node(w->config, key) : NULL;
    if (node && json_node_kind(node) == JSON_KIND_OBJECT) node = field_node(node, "content");
    if (!node || json_node_kind(node) != JSON_KIND_STRING) return -1;
    size_t length;
    const char *content = json_node_string(node, &length);
    return vocabulary_find_content(&w->tokenizer->bpe.vocabulary, content, length);
}

static void write_keys(const writing *w, gguf_string json, gguf_writer *writer)
{
    write_string(writer, GGUF_KEY_MODEL, "gpt2");
    write_string(writer, GGUF_KEY_PRE, GGUF_PRE_TOKENIZER_NAME);
    gguf_writer_strings(writer, GGUF_KEY_TOKENS, w->tokens, w->n_tokens);
    gguf_writer_i32_array(writer, GGUF_KEY_TYPES, w->types, w->n_tokens);
    gguf_writer_strings(writer, GGUF_KEY_MERGES, w->merges, w->n_merges);
    write_id(writer, GGUF_KEY_BOS, dsmoe_tokenizer_bos(w->tokenizer));
    write_id(writer, GGUF_KEY_EOS, dsmoe_tokenizer_eos(w->tokenizer));
    write_id(writer, GGUF_KEY_PADDING, config_token(w, "pad_token"));
    gguf_writer_bool(writer, GGUF_KEY_ADD_BOS, dsmoe_tokenizer_adds_bos(w->tokenizer));
    gguf_writer_bool(writer, GGUF_KEY_ADD_EOS, w->config && flag(w->config, "add_eos_token"));
    const json_node *form = w->config ? field_node(w->config, "chat_template") : NULL;
    if (form && json_node_kind(form) == JSON_KIND_STRING)
        write_string(writer, GGUF_KEY_TEMPLATE, json_node_string(form, NULL));
    if (json.bytes) gguf_writer_string(writer, GGUF_KEY_JSON, json.bytes, json.length);
}

/* With the texts open and read. */
static dsmoe_status write_texts(writing *w, const tokenizer_files *files, gguf_writer *writer,
                                dsmoe_error *error)
{
    bool expressible;
    if (w->n_tokens > VOCABULARY_MAX_IDS)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: a vocab_size of %zu is too large for a tokenizer, at most %d works",
                           w->path, w->n_tokens, VOCABULARY_MAX_IDS);
    if (dsmoe_tokenizer_size(w->tokenizer) > (int64_t)w->n_tokens)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: %" PRId64 " tokens, but the model has a vocab_size of %zu", w->path,
                           dsmoe_tokenizer_size(w->tokenizer), w->n_tokens);
    STATUS_TRY(check_expressible(w, &expressible, error));
    STATUS_TRY(make_arrays(w, error));
    gguf_string json = {files->text.bytes, files->text.length};
    write_keys(w, expressible ? (gguf_string){0} : json, writer);
    return DSMOE_OK;
}

dsmoe_status gguf_tokenizer_write(const char *path, int64_t vocab_size, gguf_writer *writer,
                                  dsmoe_error *error)
{
    tokenizer_files files;
    dsmoe_tokenizer *tokenizer = NULL;
    json_node *root = NULL, *config = NULL;
    STATUS_TRY(tokenizer_files_open(&files, path, error));
    const tokenizer_text *text = &files.text, *beside = files.config.bytes ? &files.config : NULL;
    dsmoe_status status = tokenizer_parse(text, beside, &tokenizer, error);
    if (status == DSMOE_OK)
        status = json_node_parse(text->bytes, text->length, text->source, &root, error);
    if (status == DSMOE_OK && beside)
        status = json_node_parse(beside->bytes, beside->length, beside->source, &config, error);
    writing w = {.path = path,
                 .tokenizer = tokenizer,
                 .root = root,
                 .config = config,
                 .n_tokens = (size_t)vocab_size};
    if (status == DSMOE_OK) status = write_texts(&w, &files, writer, error);
    free(w.tokens);
    free(w.types);
    free(w.pads);
    free(w.merges);
    free(w.joined);
    json_node_free(root);
    json_node_free(config);
    dsmoe_tokenizer_free(tokenizer);
    tokenizer_files_close(&files);
    return status;
}
