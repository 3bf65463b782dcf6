/* fuzz_json_line.c - any bytes as a line of JSON lines: refused at a place within the line, or what is
 * wanted of it comes out; as an array of messages the same, item by item; and what the other reader of
 * JSON takes, this one does too. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "cli/json_line.h"
#include "formats/json.h"
#include "text/unicode.h"

static void require_line_error(const json_line_error *error, size_t size)
{
    require(error->message[0] != '\0' && error->offset <= size);
    for (const char *c = error->message; *c; c++) require((unsigned char)*c >= 0x20);
}

/* `expected` is NULL where the other reader has no answer. */
static void try_string(const char *line, size_t size, const json_node *expected)
{
    json_line_error error;
    size_t length = 0, expected_length = 0;
    char *string = json_line_string(line, size, "text", &length, &error);
    if (!string) {
        require(!expected);
        require_line_error(&error, size);
        return;
    }
    require(error.message[0] == '\0' && length < size && string[length] == '\0');
    require(unicode_valid_length(string, length) == length);
    if (expected) {
        const char *text = json_node_string(expected, &expected_length);
        require(length == expected_length && memcmp(string, text, length) == 0);
    }
    free(string);
}

static void try_ids(const char *line, size_t size)
{
    json_line_error error;
    size_t n_ids = 0;
    int32_t *ids = json_line_ids(line, size, "ids", &n_ids, &error);
    if (!ids) {
        require_line_error(&error, size);
        return;
    }
    require(error.message[0] == '\0' && n_ids < size);
    for (size_t i = 0; i < n_ids; i++) require(ids[i] >= 0);
    free(ids);
}

/* An array as /load reads it: every item lies within the text, and what it holds is looked at. */
typedef struct seen_items {
    const char *text;
    size_t size, count;
} seen_items;

static bool see_item(void *context, const char *item, size_t length)
{
    seen_items *seen = context;
    json_line_error error;
    size_t n_role = 0;
    require(item >= seen->text && length > 0 && item + length <= seen->text + seen->size);
    char *role = json_line_string(item, length, "role", &n_role, &error);
    if (!role) require_line_error(&error, length);
    free(role);
    seen->count++;
    return true;
}

/* `expected` is NULL where the other reader finds no array. */
static void try_items(const char *text, size_t size, const json_node *expected)
{
    json_line_error error;
    seen_items seen = {.text = text, .size = size};
    if (!json_line_each(text, size, see_item, &seen, &error)) {
        require(!expected);
        require_line_error(&error, size);
        return;
    }
    require(error.message[0] == '\0');
    if (expected) require(seen.count == json_node_count(expected));
}

static const json_node *member(const json_node *root, const char *key)
{
    return root && json_node_kind(root) == JSON_KIND_OBJECT ? json_node_member(root, key) : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *line = (const char *)bytes;
    json_node *root = NULL;
    json_node_parse(line, size, "fuzz", &root, NULL);
    const json_node *text = member(root, "text");
    if (text && json_node_kind(text) != JSON_KIND_STRING) text = NULL;
    try_string(line, size, text);
    try_ids(line, size);
    try_items(line, size, root && json_node_kind(root) == JSON_KIND_ARRAY ? root : NULL);
    json_node_free(root);
    return 0;
}
