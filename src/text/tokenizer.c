/* tokenizer.c - opens a tokenizer: tokenizer.json describes it, and tokenizer_config.json names the
 * tokens that begin and end a text. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat_form.h"
#include "text/fields.h"
#include "text/tokenizer_files.h"

/* ---- BOS and EOS ----------------------------------------------------------------------------- */

/* Names of BOS and EOS for a tokenizer without tokenizer_config.json. */
static const char *const bos_names[] = {"<｜begin▁of▁sentence｜>", "<s>", "<|begin_of_text|>",
                                        NULL};
static const char *const eos_names[] = {"<｜end▁of▁sentence｜>", "</s>", "<|end_of_text|>",
                                        "<|endoftext|>", NULL};

static int32_t find_special(const dsmoe_tokenizer *t, const char *content)
{
    int32_t id = vocabulary_find_content(&t->bpe.vocabulary, content, strlen(content));
    return dsmoe_tokenizer_is_special(t, id) ? id : -1;
}

static int32_t find_by_name(const dsmoe_tokenizer *t, const char *const *names)
{
    int32_t id = -1;
    for (; *names && id < 0; names++) id = find_special(t, *names);
    return id;
}

/* The special token that a TemplateProcessing puts first, or NULL. Nothing else in a post-processor
 * matters for a single text. The depth limit of JSON bounds the recursion. */
static const char *template_first(const json_node *post)
{
    if (!post || json_node_kind(post) != JSON_KIND_OBJECT) return NULL;
    const json_node *list = field_node(post, "processors"); /* of a Sequence */
    if (list && json_node_kind(list) == JSON_KIND_ARRAY) {
        const char *first = NULL;
        for (size_t i = 0; i < json_node_count(list) && !first; i++)
            first = template_first(json_node_item(list, i));
        return first;
    }
    const json_node *single = field_node(post, "single");
    if (!single || json_node_kind(single) != JSON_KIND_ARRAY || json_node_count(single) == 0)
        return NULL;
    const json_node *item = json_node_item(single, 0);
    if (json_node_kind(item) != JSON_KIND_OBJECT) return NULL;
    const json_node *token = field_node(item, "SpecialToken");
    if (!token || json_node_kind(token) != JSON_KIND_OBJECT) return NULL;
    const json_node *id = field_node(token, "id");
    return id && json_node_kind(id) == JSON_KIND_STRING ? json_node_string(id, NULL) : NULL;
}

/* bos_token or eos_token: null, a string, or an object with a content. */
static dsmoe_status read_config_token(const dsmoe_tokenizer *t, const json_node *config,
                                      const char *key, int32_t *id, dsmoe_error *error)
{
    const json_node *node = field_node(config, key), *content = node;
    *id = -1;
    if (!node) return DSMOE_OK;
    if (json_node_kind(node) == JSON_KIND_OBJECT)
        STATUS_TRY(field_need(node, key, "content", JSON_KIND_STRING, &content, error));
    if (json_node_kind(content) != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s must be a string or an object, not %s",
                           key, json_kind_name(json_node_kind(node)));
    size_t length;
    const char *name = json_node_string(content, &length);
    *id = vocabulary_find_content(&t->bpe.vocabulary, name, length);
    if (*id >= 0) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s \"%.64s\" is not a token of %s", key, name,
                       t->source);
}

static dsmoe_status read_config(dsmoe_tokenizer *t, const json_node *config, dsmoe_error *error)
{
    if (json_node_kind(config) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "the top level must be an object, not %s",
                           json_kind_name(json_node_kind(config)));
    STATUS_TRY(read_config_token(t, config, "bos_token", &t->bos, error));
    STATUS_TRY(read_config_token(t, config, "eos_token", &t->eos, error));
    return DSMOE_OK;
}

/* The template for conversations without tools in a list of named templates; NULL: there is none. */
static const json_node *default_template(const json_node *list)
{
    for (size_t i = 0; i < json_node_count(list); i++) {
        const json_node *item = json_node_item(list, i);
        bool is_object = json_node_kind(item) == JSON_KIND_OBJECT;
        const json_node *name = is_object ? field_node(item, "name") : NULL;
        if (name && json_node_kind(name) == JSON_KIND_STRING &&
            !strcmp(json_node_string(name, NULL), "default"))
            return field_node(item, "template");
    }
    return NULL;
}

static dsmoe_status read_template(dsmoe_tokenizer *t, const json_node *config, dsmoe_error *error)
{
    const json_node *node = field_node(config, "chat_template");
    t->has_chat = node != NULL;
    if (node && json_node_kind(node) == JSON_KIND_ARRAY) node = default_template(node);
    if (!node || json_node_kind(node) != JSON_KIND_STRING) return DSMOE_OK;
    size_t length;
    const char *text = json_node_string(node, &length);
    return chat_form_recognise(text, length, &t->chat_form, error);
}

/* Reads whether texts begin with BOS. Without a config, also finds BOS and EOS. */
static dsmoe_status read_adds_bos(dsmoe_tokenizer *t, const json_node *post,
                                  const json_node *config, dsmoe_error *error)
{
    const char *first = template_first(post);
    int32_t first_id = first ? find_special(t, first) : -1;
    if (!config) {
        t->bos = first_id >= 0 ? first_id : find_by_name(t, bos_names);
        t->eos = find_by_name(t, eos_names);
    }
    t->adds_bos = first_id >= 0 && first_id == t->bos;
    if (!config) return DSMOE_OK;
    bool adds_eos; /* not used, since texts are continued, but it must be valid */
    STATUS_TRY(field_flag(config, "the top level", "add_eos_token", false, &adds_eos, error));
    return field_flag(config, "the top level", "add_bos_token", t->adds_bos, &t->adds_bos, error);
}

/* ---- the parts ------------------------------------------------------------------------------- */

static dsmoe_status read_root(dsmoe_tokenizer *t, const json_node *root, dsmoe_error *error)
{
    if (json_node_kind(root) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "the top level must be an object, not %s",
                           json_kind_name(json_node_kind(root)));
    const json_node *model, *pre;
    STATUS_TRY(field_need(root, "the top level", "model", JSON_KIND_OBJECT, &model, error));
    STATUS_TRY(field_need(root, "the top level", "pre_tokenizer", JSON_KIND_OBJECT, &pre, error));
    /* Unsupported types are refused before the long lists are read. */
    STATUS_TRY(normalizer_read(&t->normalizer, field_node(root, "normalizer"), error));
    STATUS_TRY(pre_tokenizer_read(&t->pre_tokenizer, pre, error));
    STATUS_TRY(bpe_read(&t->bpe, model, error));
    return added_tokens_read(&t->added, field_node(root, "added_tokens"), &t->normalizer,
                             &t->bpe.vocabulary, error);
}

/* Reads both parsed files. Messages name the file that has the error. */
static dsmoe_status assemble(dsmoe_tokenizer *t, const json_node *root, const json_node *config,
                             const char *config_source, dsmoe_error *error)
{
    dsmoe_error reason;
    dsmoe_status status = read_root(t, root, &reason);
    if (status != DSMOE_OK) return status_fail(error, status, "%s: %s", t->source, reason.message);
    if (config) status = read_config(t, config, &reason);
    if (status == DSMOE_OK && config) status = read_template(t, config, &reason);
    if (status == DSMOE_OK)
        status = read_adds_bos(t, field_node(root, "post_processor"), config, &reason);
    if (status != DSMOE_OK)
        return status_fail(error, status, "%s: %s", config ? config_source : t->source,
                           reason.message);
    return DSMOE_OK;
}

dsmoe_status tokenizer_parse(const tokenizer_text *text, const tokenizer_text *config,
                             dsmoe_tokenizer **tokenizer, dsmoe_error *error)
{
    *tokenizer = NULL;
    json_node *root = NULL, *config_root = NULL;
    dsmoe_tokenizer *t = calloc(1, sizeof *t);
    dsmoe_status status = DSMOE_OK;
    if (!t || !(t->source = strdup(text->source)))
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", text->source);
    if (status == DSMOE_OK)
        status = json_node_parse(text->bytes, text->length, text->source, &root, error);
    if (status == DSMOE_OK && config)
        status = json_node_parse_wide(config->bytes, config->length, config->source, &config_root,
                                      error);
    if (status == DSMOE_OK)
        status = assemble(t, root, config_root, config ? config->source : NULL, error);
    json_node_free(root);
    json_node_free(config_root);
    if (status != DSMOE_OK) {
        dsmoe_tokenizer_free(t);
        return status;
    }
    *tokenizer = t;
    return DSMOE_OK;
}

void dsmoe_tokenizer_free(dsmoe_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    free(tokenizer->source);
    bpe_free(&tokenizer->bpe);
    added_tokens_free(&tokenizer->added);
    normalizer_free(&tokenizer->normalizer);
    pre_tokenizer_free(&tokenizer->pre_tokenizer);
    free(tokenizer);
}

/* ---- files ----------------------------------------------------------------------------------- */

dsmoe_status dsmoe_tokenizer_open(const char *path, dsmoe_tokenizer **tokenizer, dsmoe_error *error)
{
    *tokenizer = NULL;
    tokenizer_files files;
    STATUS_TRY(tokenizer_files_open(&files, path, error));
    dsmoe_status status =
        tokenizer_parse(&files.text, files.config.bytes ? &files.config : NULL, tokenizer, error);
    tokenizer_files_close(&files);
    return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

int64_t dsmoe_tokenizer_size(const dsmoe_tokenizer *tokenizer)
{
    return (int64_t)tokenizer->bpe.vocabulary.n_ids;
}

int32_t dsmoe_tokenizer_bos(const dsmoe_tokenizer *tokenizer) { return tokenizer->bos; }

int32_t dsmoe_tokenizer_eos(const dsmoe_tokenizer *tokenizer) { return tokenizer->eos; }

bool dsmoe_tokenizer_adds_bos(const dsmoe_tokenizer *tokenizer)
{
    return tokenizer->adds_bos && tokenizer->bos >= 0;
}

bool dsmoe_tokenizer_has_chat(const dsmoe_tokenizer *tokenizer) { return tokenizer->has_chat; }

bool dsmoe_tokenizer_is_special(const dsmoe_tokenizer *tokenizer, int32_t id)
{
    const vocabulary_token *token = vocabulary_token_at(&tokenizer->bpe.vocabulary, id);
    return token && token->special;
}

const char *dsmoe_tokenizer_piece(const dsmoe_tokenizer *tokenizer, int32_t id, size_t *length)
{
    return vocabulary_piece(&tokenizer->bpe.vocabulary, id, length);
}
