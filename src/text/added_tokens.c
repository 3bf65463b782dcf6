/* added_tokens.c - tokens that are found in a text by their literal content. */
#include "text/added_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/fields.h"
#include "text/unicode.h"

enum {
    MAX_TOKENS = 1 << 16,
    MAX_CONTENT = 1024, /* bytes; a search may walk this far from every place of a text */
};

/* ---- the tree -------------------------------------------------------------------------------- */

static dsmoe_status add_node(added_tree *tree, unsigned char byte, uint32_t *number,
                             dsmoe_error *error)
{
    if (tree->count == 0) tree->count = 1;
    void *memory = tree->nodes;
    STATUS_TRY(buffer_grow(&memory, &tree->capacity, tree->count + 1, sizeof *tree->nodes, error));
    tree->nodes = memory;
    tree->nodes[tree->count] = (added_node){.byte = byte};
    *number = (uint32_t)tree->count++;
    return DSMOE_OK;
}

static uint32_t find_child(const added_tree *tree, uint32_t node, unsigned char byte)
{
    uint32_t child = tree->nodes[node].child;
    while (child && tree->nodes[child].byte != byte) child = tree->nodes[child].sibling;
    return child;
}

/* Finds the node of the last byte; adds missing nodes. */
static dsmoe_status tree_path(added_tree *tree, const char *content, size_t length, uint32_t *last,
                              dsmoe_error *error)
{
    uint32_t node = tree->roots[(unsigned char)content[0]];
    if (!node) {
        STATUS_TRY(add_node(tree, (unsigned char)content[0], &node, error));
        tree->roots[(unsigned char)content[0]] = node;
    }
    for (size_t i = 1; i < length; i++) {
        unsigned char byte = (unsigned char)content[i];
        uint32_t child = find_child(tree, node, byte);
        if (!child) {
            STATUS_TRY(add_node(tree, byte, &child, error));
            tree->nodes[child].sibling = tree->nodes[node].child;
            tree->nodes[node].child = child;
        }
        node = child;
    }
    *last = node;
    return DSMOE_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* How a token is spelled in the normalised text. */
static dsmoe_status normalize_content(const normalizer *normalize, const char *content,
                                      size_t length, byte_buffer *out, dsmoe_error *error)
{
    regex_scratch *scratch;
    STATUS_TRY(regex_scratch_create(&scratch, error));
    dsmoe_status status = normalizer_run(normalize, scratch, content, length, out, error);
    regex_scratch_free(scratch);
    return status;
}

static dsmoe_status plant(added_tokens *a, const normalizer *normalize, bool normalized,
                          const char *content, size_t length, dsmoe_error *error)
{
    byte_buffer spelled = {0};
    dsmoe_status status = normalized && normalize->n_steps
                              ? normalize_content(normalize, content, length, &spelled, error)
                              : byte_buffer_append(&spelled, content, length, error);
    uint32_t node = 0;
    added_tree *tree = normalized ? &a->normalized : &a->raw;
    if (status == DSMOE_OK && spelled.length > 0)
        status = tree_path(tree, spelled.bytes, spelled.length, &node, error);
    byte_buffer_free(&spelled);
    if (status != DSMOE_OK || !node) return status;
    if (tree->nodes[node].token)
        return status_fail(error, DSMOE_ERROR_FORMAT, "content \"%.64s\" occurs twice", content);
    tree->nodes[node].token = (uint32_t)a->n_tokens; /* of the one just added, plus 1 */
    return DSMOE_OK;
}

static dsmoe_status read_token(added_tokens *a, const json_node *node, const char *where,
                               const normalizer *normalize, vocabulary *v, dsmoe_error *error)
{
    if (json_node_kind(node) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s must be an object, not %s", where,
                           json_kind_name(json_node_kind(node)));
    added_token token;
    const json_node *id, *content;
    bool normalized;
    STATUS_TRY(field_need(node, where, "id", JSON_KIND_INTEGER, &id, error));
    STATUS_TRY(field_need(node, where, "content", JSON_KIND_STRING, &content, error));
    STATUS_TRY(field_flag(node, where, "special", false, &token.special, error));
    STATUS_TRY(field_flag(node, where, "single_word", false, &token.single_word, error));
    STATUS_TRY(field_flag(node, where, "lstrip", false, &token.lstrip, error));
    STATUS_TRY(field_flag(node, where, "rstrip", false, &token.rstrip, error));
    STATUS_TRY(field_flag(node, where, "normalized", !token.special, &normalized, error));
    size_t length;
    const char *text = json_node_string(content, &length);
    if (length == 0 || length > MAX_CONTENT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: content has %zu bytes, outside 1 to %d",
                           where, length, MAX_CONTENT);
    dsmoe_error reason;
    dsmoe_status status =
        vocabulary_add_literal(v, json_node_integer(id), text, length, token.special, &reason);
    if (status == DSMOE_OK) {
        token.id = (int32_t)json_node_integer(id);
        a->tokens[a->n_tokens++] = token;
        status = plant(a, normalize, normalized, text, length, &reason);
    }
    if (status != DSMOE_OK) return status_fail(error, status, "%s: %s", where, reason.message);
    return DSMOE_OK;
}

dsmoe_status added_tokens_read(added_tokens *a, const json_node *list, const normalizer *normalize,
                               vocabulary *v, dsmoe_error *error)
{
    if (!list) return DSMOE_OK;
    if (json_node_kind(list) != JSON_KIND_ARRAY)
        return status_fail(error, DSMOE_ERROR_FORMAT, "added_tokens must be an array, not %s",
                           json_kind_name(json_node_kind(list)));
    size_t n = json_node_count(list);
    if (n > MAX_TOKENS)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "added_tokens has %zu tokens, at most %d are expected", n, MAX_TOKENS);
    a->tokens = malloc((n + 1) * sizeof *a->tokens);
    if (!a->tokens) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for added_tokens");
    for (size_t i = 0; i < n; i++) {
        char where[48];
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        STATUS_TRY(read_token(a, json_node_item(list, i), where, normalize, v, error));
    }
    return DSMOE_OK;
}

void added_tokens_free(added_tokens *a)
{
    free(a->tokens);
    free(a->raw.nodes);
    free(a->normalized.nodes);
    memset(a, 0, sizeof *a);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* The longest token that the text begins with, NULL if there is none. */
static const added_token *longest_token(const added_tokens *a, const added_tree *tree,
                                        const char *text, size_t length, bool special,
                                        size_t *token_length)
{
    const added_token *longest = NULL;
    uint32_t node = tree->roots[(unsigned char)text[0]];
    for (size_t i = 1; node; i++) {
        uint32_t number = tree->nodes[node].token;
        if (number && (special || !a->tokens[number - 1].special)) {
            longest = &a->tokens[number - 1];
            *token_length = i;
        }
        node = i < length ? find_child(tree, node, (unsigned char)text[i]) : 0;
    }
    return longest;
}

/* The character that ends right before `at`; 0 if there is none. */
static size_t decode_before(const char *text, size_t at, uint32_t *code)
{
    for (size_t width = 1; width <= 4 && width <= at; width++)
        if (utf8_decode(text + at - width, width, code) == width) return width;
    return 0;
}

static bool stands_alone(const char *text, size_t length, const added_match *match)
{
    uint32_t code;
    if (decode_before(text, match->start, &code) && unicode_is_word(code)) return false;
    return !utf8_decode(text + match->end, length - match->end, &code) || !unicode_is_word(code);
}

/* Takes the whitespace around a token, back to `from` at most. */
static void take_whitespace(const added_token *token, const char *text, size_t length, size_t from,
                            added_match *match)
{
    uint32_t code;
    size_t width;
    while (token->lstrip && match->start > from &&
           (width = decode_before(text, match->start, &code)) != 0 &&
           width <= match->start - from && unicode_is_whitespace(code))
        match->start -= width;
    while (token->rstrip &&
           (width = utf8_decode(text + match->end, length - match->end, &code)) != 0 &&
           unicode_is_whitespace(code))
        match->end += width;
}

bool added_tokens_find(const added_tokens *a, const added_tree *tree, const char *text,
                       size_t length, size_t from, bool special, added_match *match)
{
    for (size_t at = from; at < length; at++) {
        if (!tree->roots[(unsigned char)text[at]]) continue;
        size_t token_length = 0;
        const added_token *token =
            longest_token(a, tree, text + at, length - at, special, &token_length);
        if (!token) continue;
        *match = (added_match){at, at + token_length, token->id};
        if (token->single_word && !stands_alone(text, length, match)) {
            at += token_length - 1; /* it stays text, and no other token begins within it */
            continue;
        }
        take_whitespace(token, text, length, from, match);
        return true;
    }
    return false;
}
