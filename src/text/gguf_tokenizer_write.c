/* gguf_tokenizer_write.c - writes the keys of a tokenizer to a GGUF file, from the two texts of a
 * folder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/fields.h"
#include "text/gguf_frame.h"
#include "text/gguf_keys.h"
#include "text/gguf_pre_tokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_files.h"

enum { PAD_SIZE = 16 }; /* "[PAD1048575]" */

/* Strings point into the parsed texts, or are made here. */
typedef struct writing {
    const char *path;
    const dsmoe_tokenizer *tokenizer; /* was made from both texts, so they are valid */
    const json_node *root, *config;   /* the parsed texts; `config` may be NULL */
    gguf_string *tokens;              /* [n_tokens] */
    int32_t *types;                   /* [n_tokens] */
    char (*pads)[PAD_SIZE];           /* [n_tokens] */
    size_t n_tokens;
    gguf_string *merges; /* [n_merges] */
    char *joined;        /* strings of merges that are pairs in the JSON */
    size_t n_merges;
    const gguf_pre_tokenizer *pre; /* the one with the same cuts; NULL: none */
} writing;

/* ---- what the keys can express ------------------------------------------------------------- */

static bool flag(const json_node *object, const char *key)
{
    const json_node *node = field_node(object, key);
    return node && json_node_kind(node) == JSON_KIND_BOOL && json_node_bool(node);
}

/* Bytes of the merges that are pairs, as "left right". */
static size_t joined_size(const json_node *list)
{
    size_t size = 0, length; /* at most the size of the text, so the sum fits */
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

/* The members of an object must be the frame's, apart from the lists. */
typedef struct frame_check {
    const json_node *frame;
    const char *const *lists; /* ended by NULL */
} frame_check;

static dsmoe_status check_member(void *context, const char *key, const json_node *value,
                                 dsmoe_error *error)
{
    const frame_check *check = context;
    for (const char *const *list = check->lists; *list; list++)
        if (!strcmp(key, *list)) return DSMOE_OK;
    const json_node *framed = json_node_member(check->frame, key);
    if (framed && json_node_same(value, framed)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s differs", key);
}

/* Whether an object has the whole frame, all of the lists, and nothing else. */
static bool fits_frame(const json_node *object, const json_node *frame, const char *const *lists)
{
    size_t n_lists = 0;
    while (lists[n_lists]) n_lists++;
    frame_check check = {frame, lists};
    return json_node_count(object) == json_node_count(frame) + n_lists &&
           json_node_each(object, check_member, &check, NULL) == DSMOE_OK;
}

/* Readers restore added tokens sorted by id, and not in the vocabulary. Checks that they are like that. */
static bool added_fit(const json_node *added, const json_node *frame, const json_node *vocab)
{
    static const char *const own[] = {"id", "content", "special", NULL};
    int64_t last = -1;
    for (size_t i = 0; i < json_node_count(added); i++) {
        const json_node *token = json_node_item(added, i);
        int64_t id = json_node_integer(json_node_member(token, "id"));
        const char *content = json_node_string(json_node_member(token, "content"), NULL);
        if (id <= last || json_node_member(vocab, content) || !fits_frame(token, frame, own))
            return false;
        last = id;
    }
    return true;
}

static bool is_special_or_none(const writing *w, int32_t id)
{
    return id < 0 || dsmoe_tokenizer_is_special(w->tokenizer, id);
}

/* Whether the arrays, with the frame of the released models, make the same as `root`. */
static bool is_expressible(const writing *w, const json_node *frame)
{
    static const char *const lists[] = {"added_tokens", "pre_tokenizer", "model", NULL};
    static const char *const model_lists[] = {"vocab", "merges", NULL};
    const json_node *model = json_node_member(w->root, "model");
    const json_node *added = field_node(w->root, "added_tokens");
    return w->pre && added && fits_frame(w->root, json_node_member(frame, "root"), lists) &&
           fits_frame(model, json_node_member(frame, "model"), model_lists) &&
           joined_size(json_node_member(model, "merges")) ==
               0 && /* pairs would come back as strings */
           added_fit(added, json_node_member(frame, "added"), json_node_member(model, "vocab")) &&
           is_special_or_none(w, dsmoe_tokenizer_bos(w->tokenizer)) &&
           is_special_or_none(w, dsmoe_tokenizer_eos(w->tokenizer));
}

/* Finds the public name for the way this tokenizer cuts texts. */
static dsmoe_status find_pre_tokenizer(writing *w, dsmoe_error *error)
{
    const json_node *cuts = field_node(w->root, "pre_tokenizer");
    for (size_t i = 0; cuts && i < n_gguf_pre_tokenizers && !w->pre; i++) {
        const gguf_pre_tokenizer *pre = &gguf_pre_tokenizers[i];
        json_node *known;
        STATUS_TRY(json_node_parse(pre->json, strlen(pre->json), pre->name, &known, error));
        if (json_node_same(cuts, known)) w->pre = pre;
        json_node_free(known);
    }
    return DSMOE_OK;
}

static dsmoe_status check_expressible(const writing *w, bool *expressible, dsmoe_error *error)
{
    char *text;
    json_node *frame;
    if (asprintf(&text,
                 "{\"root\": {" GGUF_FRAME_HEAD "," GGUF_FRAME_NORMALIZER "," GGUF_FRAME_ENDS
                 "}, \"model\": {" GGUF_FRAME_MODEL "}, \"added\": {" GGUF_FRAME_ADDED "}}") < 0)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", w->path);
    dsmoe_status status = json_node_parse(text, strlen(text), w->path, &frame, error);
    free(text);
    STATUS_TRY(status);
    *expressible = is_expressible(w, frame);
    json_node_free(frame);
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

/* Every id of the tokenizer is below n_tokens: write_texts() has checked it. */
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

/* Writes texts of the folder; json.bytes is NULL if the keys express everything. */
static void write_texts_as_they_are(gguf_string json, gguf_string config, gguf_writer *writer)
{
    if (json.bytes) gguf_writer_string(writer, GGUF_KEY_JSON, json.bytes, json.length);
    gguf_writer_string(writer, GGUF_KEY_CONFIG, config.bytes ? config.bytes : "", config.length);
}

static void write_keys(const writing *w, gguf_writer *writer)
{
    write_string(writer, GGUF_KEY_MODEL, "gpt2");
    write_string(writer, GGUF_KEY_PRE, (w->pre ? w->pre : gguf_pre_tokenizers)->name);
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
}

/* Writes all keys once the texts are open and parsed. */
static dsmoe_status write_texts(writing *w, const tokenizer_files *files, gguf_writer *writer,
                                dsmoe_error *error)
{
    bool expressible = false;
    if (w->n_tokens > VOCABULARY_MAX_IDS)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: a vocab_size of %zu is too large for a tokenizer, at most %d works",
                           w->path, w->n_tokens, VOCABULARY_MAX_IDS);
    if (dsmoe_tokenizer_size(w->tokenizer) > (int64_t)w->n_tokens)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: %" PRId64 " tokens, but the model has a vocab_size of %zu", w->path,
                           dsmoe_tokenizer_size(w->tokenizer), w->n_tokens);
    STATUS_TRY(find_pre_tokenizer(w, error));
    STATUS_TRY(check_expressible(w, &expressible, error));
    STATUS_TRY(make_arrays(w, error));
    write_keys(w, writer);
    gguf_string json = {files->text.bytes, files->text.length},
                config = {files->config.bytes, files->config.length};
    write_texts_as_they_are(expressible ? (gguf_string){0} : json, config, writer);
    return DSMOE_OK;
}

dsmoe_status gguf_tokenizer_write(const char *path, const dsmoe_chat_form *form, int64_t vocab_size,
                                  gguf_writer *writer, dsmoe_error *error)
{
    tokenizer_files files;
    dsmoe_tokenizer *tokenizer = NULL;
    json_node *root = NULL, *config = NULL;
    STATUS_TRY(tokenizer_files_open(&files, path, error));
    dsmoe_status status = form ? tokenizer_files_set_form(&files, form, error) : DSMOE_OK;
    const tokenizer_text *text = &files.text, *beside = files.config.bytes ? &files.config : NULL;
    if (status == DSMOE_OK) status = tokenizer_parse(text, beside, &tokenizer, error);
    if (status == DSMOE_OK)
        status = json_node_parse(text->bytes, text->length, text->source, &root, error);
    if (status == DSMOE_OK && beside)
        status =
            json_node_parse_wide(beside->bytes, beside->length, beside->source, &config, error);
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
