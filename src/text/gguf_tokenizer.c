/* gguf_tokenizer.c - the texts of tokenizer.json and tokenizer_config.json from the metadata of a
 * GGUF file. */
#include "text/gguf_tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_write.h"
#include "text/gguf_frame.h"
#include "text/gguf_keys.h"
#include "text/gguf_pre_tokenizer.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

enum { TEXT_MAX = 4096 }; /* bytes of a token; a merge may have twice as many */

/* The contents of the metadata. Missing arrays are empty. */
typedef struct metadata {
    const gguf *file;
    gguf_array tokens, types, merges;
    int64_t bos, eos, padding; /* -1: none */
    bool add_bos, add_eos;
    gguf_string json;   /* a whole tokenizer.json; bytes are NULL if there is none */
    gguf_string config; /* likewise tokenizer_config.json; empty: the tokenizer has none */
    gguf_string chat_template;
    const gguf_pre_tokenizer *pre; /* NULL if there is a whole tokenizer.json */
} metadata;

/* ---- reading ------------------------------------------------------------------------------- */

bool gguf_tokenizer_present(const gguf *file)
{
    gguf_string model;
    bool found = false;
    dsmoe_status status = gguf_get_string(file, GGUF_KEY_MODEL, &model, &found, NULL);
    return status != DSMOE_OK || (found && !gguf_string_is(model, "none"));
}

/* Finds how texts are cut. Files that do not name a pre-tokenizer are older than the names, and their
 * models were trained with the first one. */
static dsmoe_status read_kind(metadata *m, dsmoe_error *error)
{
    const gguf *file = m->file;
    gguf_string model, pre = {"default", 7};
    bool found;
    STATUS_TRY(gguf_get_string(file, GGUF_KEY_MODEL, &model, NULL, error));
    if (!gguf_string_is(model, "gpt2"))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: " GGUF_KEY_MODEL " \"%.*s\" is not supported, only \"gpt2\"",
                           gguf_path(file), gguf_shown(model), model.bytes);
    STATUS_TRY(gguf_get_string(file, GGUF_KEY_PRE, &pre, &found, error));
    m->pre = gguf_string_is(pre, "default") ? gguf_pre_tokenizers : NULL;
    for (size_t i = 0; i < n_gguf_pre_tokenizers && !m->pre; i++)
        if (gguf_string_is(pre, gguf_pre_tokenizers[i].name)) m->pre = &gguf_pre_tokenizers[i];
    if (m->pre) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_FORMAT,
        "%s: " GGUF_KEY_PRE
        " \"%.*s\" is not supported, only \"deepseek-llm\" (and \"default\", which is"
        " taken for it), \"deepseek-coder\", \"deepseek-v3\" and \"kimi-k2\"",
        gguf_path(file), gguf_shown(pre), pre.bytes);
}

static dsmoe_status read_id(const metadata *m, const char *key, int64_t *id, dsmoe_error *error)
{
    bool found;
    *id = -1;
    STATUS_TRY(gguf_get_int(m->file, key, id, &found, error));
    if (!found || (*id >= 0 && (uint64_t)*id < m->tokens.count)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: %s is %" PRId64 ", but " GGUF_KEY_TOKENS " has %zu tokens",
                       gguf_path(m->file), key, *id, m->tokens.count);
}

static dsmoe_status read_arrays(metadata *m, dsmoe_error *error)
{
    const char *path = gguf_path(m->file);
    bool has_types, *optional = m->json.bytes ? &(bool){false} : NULL;
    STATUS_TRY(gguf_get_array(m->file, GGUF_KEY_TOKENS, GGUF_STRING, &m->tokens, optional, error));
    STATUS_TRY(gguf_get_array(m->file, GGUF_KEY_MERGES, GGUF_STRING, &m->merges, optional, error));
    STATUS_TRY(gguf_get_array(m->file, GGUF_KEY_TYPES, GGUF_I32, &m->types, &has_types, error));
    if (m->tokens.count > VOCABULARY_MAX_IDS)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: " GGUF_KEY_TOKENS " has %zu tokens, at most %d are expected", path,
                           m->tokens.count, VOCABULARY_MAX_IDS);
    if (has_types && m->types.count != m->tokens.count)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: " GGUF_KEY_TYPES " has %zu types for the %zu tokens", path,
                           m->types.count, m->tokens.count);
    for (size_t i = 0; i < m->types.count; i++) {
        int32_t type = gguf_array_i32(&m->types, i);
        if (type < GGUF_TOKEN_NORMAL || type > GGUF_TOKEN_BYTE)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: " GGUF_KEY_TYPES "[%zu] is %d, which is not a type of token",
                               path, i, type);
    }
    return DSMOE_OK;
}

static dsmoe_status read_metadata(metadata *m, dsmoe_error *error)
{
    bool found;
    if (!gguf_tokenizer_present(m->file))
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: there is no tokenizer in the file (" GGUF_KEY_MODEL
                           " is missing or \"none\")",
                           gguf_path(m->file));
    STATUS_TRY(gguf_get_string(m->file, GGUF_KEY_JSON, &m->json, &found, error));
    if (!found) STATUS_TRY(read_kind(m, error));
    STATUS_TRY(gguf_get_string(m->file, GGUF_KEY_CONFIG, &m->config, &found, error));
    STATUS_TRY(read_arrays(m, error));
    STATUS_TRY(read_id(m, GGUF_KEY_BOS, &m->bos, error));
    STATUS_TRY(read_id(m, GGUF_KEY_EOS, &m->eos, error));
    STATUS_TRY(read_id(m, GGUF_KEY_PADDING, &m->padding, error));
    STATUS_TRY(gguf_get_bool(m->file, GGUF_KEY_ADD_BOS, &m->add_bos, &found, error));
    STATUS_TRY(gguf_get_bool(m->file, GGUF_KEY_ADD_EOS, &m->add_eos, &found, error));
    return gguf_get_string(m->file, GGUF_KEY_TEMPLATE, &m->chat_template, &found, error);
}

/* BOS and EOS are control tokens, whatever the types say. Older files mark ids that the tokenizer lacks
 * as user-defined. */
static gguf_token_type type_of(const metadata *m, size_t id, gguf_string token)
{
    if ((int64_t)id == m->bos || (int64_t)id == m->eos) return GGUF_TOKEN_CONTROL;
    if (!m->types.count) return GGUF_TOKEN_NORMAL;
    gguf_token_type type = (gguf_token_type)gguf_array_i32(&m->types, id);
    if (type != GGUF_TOKEN_USER_DEFINED) return type;
    char unused[32];
    snprintf(unused, sizeof unused, "[PAD%zu]", id);
    return gguf_string_is(token, unused) ? GGUF_TOKEN_UNUSED : type;
}

static bool is_added(gguf_token_type type)
{
    return type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER_DEFINED;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Strings of an array must be text of a plausible length. */
static dsmoe_status check_string(const metadata *m, const char *key, size_t index, gguf_string s,
                                 dsmoe_error *error)
{
    const char *wrong = NULL;
    if (s.length == 0) wrong = "is empty";
    if (s.length > 2 * TEXT_MAX) wrong = "is longer than any token";
    if (!wrong && unicode_valid_length(s.bytes, s.length) != s.length) wrong = "is not UTF-8";
    if (!wrong && memchr(s.bytes, '\0', s.length)) wrong = "has a NUL in it";
    if (!wrong) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s[%zu] %s", gguf_path(m->file), key, index,
                       wrong);
}

static void put_string(FILE *text, gguf_string s)
{
    char copy[2 * TEXT_MAX + 1];
    memcpy(copy, s.bytes, s.length);
    copy[s.length] = '\0';
    json_write_string(text, copy);
}

/* Also checks the strings of all tokens. */
static dsmoe_status put_added_tokens(FILE *text, const metadata *m, dsmoe_error *error)
{
    const unsigned char *at = m->tokens.at;
    const char *separator = "";
    for (size_t i = 0; i < m->tokens.count; i++) {
        gguf_string token = gguf_next_string(&at);
        STATUS_TRY(check_string(m, GGUF_KEY_TOKENS, i, token, error));
        gguf_token_type type = type_of(m, i, token);
        if (!is_added(type)) continue;
        fprintf(text, "%s\n    {\"id\": %zu, \"content\": ", separator, i);
        put_string(text, token);
        fprintf(text, ", " GGUF_FRAME_ADDED ", \"special\": %s}",
                type == GGUF_TOKEN_CONTROL ? "true" : "false");
        separator = ",";
    }
    return DSMOE_OK;
}

/* Unused tokens stand for ids that the tokenizer does not have. */
static void put_vocab(FILE *text, const metadata *m)
{
    const unsigned char *at = m->tokens.at;
    const char *separator = "";
    for (size_t i = 0; i < m->tokens.count; i++) {
        gguf_string token = gguf_next_string(&at);
        gguf_token_type type = type_of(m, i, token);
        if (is_added(type) || type == GGUF_TOKEN_UNUSED) continue;
        fprintf(text, "%s\n      ", separator);
        put_string(text, token);
        fprintf(text, ": %zu", i);
        separator = ",";
    }
}

static dsmoe_status put_merges(FILE *text, const metadata *m, dsmoe_error *error)
{
    const unsigned char *at = m->merges.at;
    for (size_t i = 0; i < m->merges.count; i++) {
        gguf_string merge = gguf_next_string(&at);
        STATUS_TRY(check_string(m, GGUF_KEY_MERGES, i, merge, error));
        fputs(i ? ",\n      " : "\n      ", text);
        put_string(text, merge);
    }
    return DSMOE_OK;
}

/* Everything but the lists is as in the released models' file. */
static dsmoe_status put_json(FILE *text, const metadata *m, dsmoe_error *error)
{
    if (m->json.bytes) {
        fwrite(m->json.bytes, 1, m->json.length, text);
        return DSMOE_OK;
    }
    fputs("{\n  " GGUF_FRAME_HEAD ",\n  \"added_tokens\": [", text);
    STATUS_TRY(put_added_tokens(text, m, error));
    fprintf(text,
            "\n  ],\n  " GGUF_FRAME_NORMALIZER ",\n  \"pre_tokenizer\": %s,\n  " GGUF_FRAME_ENDS
            ",\n  \"model\": {\n    " GGUF_FRAME_MODEL ",\n    \"vocab\": {",
            m->pre->json);
    put_vocab(text, m);
    fputs("\n    },\n    \"merges\": [", text);
    STATUS_TRY(put_merges(text, m, error));
    fputs("\n    ]\n  }\n}\n", text);
    return DSMOE_OK;
}

/* Writes "KEY" with the token of that id if it is an added token, otherwise with null. */
static dsmoe_status put_token(FILE *text, const metadata *m, const char *key, int64_t id,
                              dsmoe_error *error)
{
    const unsigned char *at = m->tokens.at;
    gguf_string token = {0};
    for (int64_t i = 0; i <= id; i++) token = gguf_next_string(&at);
    fprintf(text, ",\n  \"%s\": ", key);
    if (id < 0 || !is_added(type_of(m, (size_t)id, token))) {
        fputs("null", text);
        return DSMOE_OK;
    }
    STATUS_TRY(check_string(m, GGUF_KEY_TOKENS, (size_t)id, token, error));
    put_string(text, token);
    return DSMOE_OK;
}

static dsmoe_status put_chat_template(FILE *text, const metadata *m, dsmoe_error *error)
{
    gguf_string form = m->chat_template;
    if (!form.bytes) return DSMOE_OK;
    if (unicode_valid_length(form.bytes, form.length) != form.length ||
        memchr(form.bytes, '\0', form.length))
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: " GGUF_KEY_TEMPLATE " is not a text",
                           gguf_path(m->file));
    char *copy = strndup(form.bytes, form.length);
    if (!copy)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", gguf_path(m->file));
    fputs(",\n  \"chat_template\": ", text);
    json_write_string(text, copy);
    free(copy);
    return DSMOE_OK;
}

/* The class of the released tokenizer obeys add_bos_token; others obey their post-processor. */
static dsmoe_status put_config(FILE *text, const metadata *m, dsmoe_error *error)
{
    if (m->config.bytes) {
        fwrite(m->config.bytes, 1, m->config.length, text);
        return DSMOE_OK;
    }
    fprintf(text, "{\n  \"add_bos_token\": %s,\n  \"add_eos_token\": %s",
            m->add_bos ? "true" : "false", m->add_eos ? "true" : "false");
    STATUS_TRY(put_token(text, m, "bos_token", m->bos, error));
    STATUS_TRY(put_chat_template(text, m, error));
    fputs(",\n  \"clean_up_tokenization_spaces\": false", text);
    STATUS_TRY(put_token(text, m, "eos_token", m->eos, error));
    STATUS_TRY(put_token(text, m, "pad_token", m->padding, error));
    fprintf(text, ",\n  \"tokenizer_class\": \"%s\",\n  \"unk_token\": null\n}\n",
            m->json.bytes ? "PreTrainedTokenizerFast" : "LlamaTokenizerFast");
    return DSMOE_OK;
}

/* ---- both texts ---------------------------------------------------------------------------- */

typedef dsmoe_status put_fn(FILE *text, const metadata *m, dsmoe_error *error);

static dsmoe_status write_text(const metadata *m, put_fn *put, char **bytes, size_t *length,
                               dsmoe_error *error)
{
    FILE *text = open_memstream(bytes, length);
    dsmoe_status status = DSMOE_OK;
    bool written = text != NULL;
    if (text) {
        status = put(text, m, error);
        written = !ferror(text);
        written = fclose(text) == 0 && written;
    }
    if (status == DSMOE_OK && !written)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", gguf_path(m->file));
    return status;
}

dsmoe_status gguf_tokenizer_text_make(const gguf *file, gguf_tokenizer_text *text,
                                      dsmoe_error *error)
{
    *text = (gguf_tokenizer_text){0};
    metadata m = {.file = file};
    STATUS_TRY(read_metadata(&m, error));
    dsmoe_status status = write_text(&m, put_json, &text->json, &text->json_length, error);
    bool has_config = !m.config.bytes || m.config.length > 0;
    if (status == DSMOE_OK && has_config)
        status = write_text(&m, put_config, &text->config, &text->config_length, error);
    if (status != DSMOE_OK) gguf_tokenizer_text_free(text);
    return status;
}

void gguf_tokenizer_text_free(gguf_tokenizer_text *text)
{
    free(text->json);
    free(text->config);
    *text = (gguf_tokenizer_text){0};
}
