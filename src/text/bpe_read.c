/* bpe_read.c - reads the `model` of a tokenizer.json. */
#include "text/bpe.h"

#include <string.h>

#include "text/fields.h"

void bpe_free(bpe *b)
{
    vocabulary_free(&b->vocabulary);
    merges_free(&b->merges);
}

static dsmoe_status add_token(void *context, const char *key, const json_node *value,
                              dsmoe_error *error)
{
    vocabulary *v = context;
    if (json_node_kind(value) != JSON_KIND_INTEGER)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "the id of token \"%.64s\" must be an integer, not %s", key,
                           json_kind_name(json_node_kind(value)));
    return vocabulary_add_key(v, json_node_integer(value), key, strlen(key), error);
}

static dsmoe_status read_vocabulary(bpe *b, const json_node *model, dsmoe_error *error)
{
    const json_node *vocab;
    STATUS_TRY(field_need(model, "model", "vocab", JSON_KIND_OBJECT, &vocab, error));
    if (json_node_count(vocab) == 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "model: vocab is empty");
    dsmoe_error reason;
    dsmoe_status status = vocabulary_init(&b->vocabulary, json_node_count(vocab), &reason);
    if (status == DSMOE_OK) status = json_node_each(vocab, add_token, &b->vocabulary, &reason);
    if (status != DSMOE_OK) return status_fail(error, status, "model vocab: %s", reason.message);
    static const unsigned char replacement[3] = {0xef, 0xbf, 0xbd};
    for (int i = 0; i < 3; i++) b->replacement[i] = b->vocabulary.byte_ids[replacement[i]];
    return DSMOE_OK;
}

/* The two halves of "left right" or ["left", "right"]. */
static dsmoe_status merge_halves(const json_node *node, const char *halves[2], size_t lengths[2],
                                 dsmoe_error *error)
{
    json_kind kind = json_node_kind(node);
    if (kind == JSON_KIND_STRING) {
        size_t length;
        const char *text = json_node_string(node, &length), *space = strchr(text, ' ');
        if (!space || strchr(space + 1, ' '))
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "\"%.64s\" must be two tokens with one space between", text);
        halves[0] = text;
        halves[1] = space + 1;
        lengths[0] = (size_t)(space - text);
        lengths[1] = length - lengths[0] - 1;
        return DSMOE_OK;
    }
    if (kind != JSON_KIND_ARRAY || json_node_count(node) != 2)
        return status_fail(error, DSMOE_ERROR_FORMAT, "a merge must be a string or a pair");
    for (int i = 0; i < 2; i++) {
        const json_node *half = json_node_item(node, (size_t)i);
        if (json_node_kind(half) != JSON_KIND_STRING)
            return status_fail(error, DSMOE_ERROR_FORMAT, "a merge must be a pair of strings");
        halves[i] = json_node_string(half, &lengths[i]);
    }
    return DSMOE_OK;
}

/* `joined` is scratch. */
static dsmoe_status add_merge(bpe *b, const json_node *node, byte_buffer *joined,
                              dsmoe_error *error)
{
    const char *halves[2];
    size_t lengths[2];
    int32_t ids[3];
    STATUS_TRY(merge_halves(node, halves, lengths, error));
    joined->length = 0;
    for (int i = 0; i < 2; i++) {
        ids[i] = vocabulary_find_key(&b->vocabulary, halves[i], lengths[i]);
        if (ids[i] < 0)
            return status_fail(error, DSMOE_ERROR_FORMAT, "token \"%.*s\" is not in the vocab",
                               lengths[i] < 64 ? (int)lengths[i] : 64, halves[i]);
        size_t length;
        const char *piece = vocabulary_piece(&b->vocabulary, ids[i], &length);
        STATUS_TRY(byte_buffer_append(joined, piece, length, error));
    }
    ids[2] = vocabulary_find(&b->vocabulary, joined->bytes, joined->length);
    if (ids[2] < 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "\"%.64s\" makes a token that is not in the vocab", halves[0]);
    if (!merges_add(&b->merges, ids[0], ids[1], ids[2]))
        return status_fail(error, DSMOE_ERROR_FORMAT, "\"%.64s\" occurs twice", halves[0]);
    return DSMOE_OK;
}

static dsmoe_status read_merges(bpe *b, const json_node *model, dsmoe_error *error)
{
    const json_node *list;
    STATUS_TRY(field_need(model, "model", "merges", JSON_KIND_ARRAY, &list, error));
    size_t n = json_node_count(list);
    STATUS_TRY(merges_init(&b->merges, n, error));
    byte_buffer joined = {0};
    dsmoe_status status = DSMOE_OK;
    dsmoe_error reason;
    for (size_t i = 0; i < n && status == DSMOE_OK; i++) {
        status = add_merge(b, json_node_item(list, i), &joined, &reason);
        if (status != DSMOE_OK)
            status_fail(error, status, "model merges[%zu]: %s", i, reason.message);
    }
    byte_buffer_free(&joined);
    return status;
}

static dsmoe_status read_unk(bpe *b, const json_node *model, dsmoe_error *error)
{
    const char *unk;
    size_t length;
    b->unk_id = -1;
    STATUS_TRY(field_flag(model, "model", "fuse_unk", false, &b->fuse_unk, error));
    STATUS_TRY(field_string(model, "model", "unk_token", &unk, &length, error));
    if (!unk) return DSMOE_OK;
    b->unk_id = vocabulary_find_content(&b->vocabulary, unk, length);
    if (b->unk_id < 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "model: unk_token \"%.64s\" is not in the vocab", unk);
    return DSMOE_OK;
}

/* Refuses keys that change a model in ways that byte-level models do not use. */
static dsmoe_status check_plain(const json_node *model, dsmoe_error *error)
{
    bool byte_fallback;
    STATUS_TRY(field_flag(model, "model", "byte_fallback", false, &byte_fallback, error));
    if (byte_fallback)
        return status_fail(error, DSMOE_ERROR_FORMAT, "model: byte_fallback is not supported");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *affix;
        size_t length;
        STATUS_TRY(field_string(model, "model", affixes[i], &affix, &length, error));
        if (length > 0)
            return status_fail(error, DSMOE_ERROR_FORMAT, "model: %s \"%.64s\" is not supported",
                               affixes[i], affix);
    }
    const json_node *dropout = field_node(model, "dropout");
    if (!dropout) return DSMOE_OK;
    json_kind kind = json_node_kind(dropout);
    if ((kind == JSON_KIND_INTEGER || kind == JSON_KIND_REAL) && json_node_number(dropout) == 0)
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "model: dropout must be null or 0");
}

dsmoe_status bpe_read(bpe *b, const json_node *model, dsmoe_error *error)
{
    const char *type = "BPE"; /* older files have no type */
    if (json_node_member(model, "type")) STATUS_TRY(field_type(model, "model", &type, error));
    if (strcmp(type, "BPE"))
        return status_fail(error, DSMOE_ERROR_FORMAT, "model: type \"%.64s\" is not supported",
                           type);
    STATUS_TRY(check_plain(model, error));
    STATUS_TRY(field_flag(model, "model", "ignore_merges", false, &b->ignore_merges, error));
    STATUS_TRY(read_vocabulary(b, model, error));
    STATUS_TRY(read_unk(b, model, error));
    return read_merges(b, model, error);
}
