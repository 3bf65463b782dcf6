/* conversation_file.c - reads a conversation that was saved. */
#include "cli/conversation_file.h"

#include <string.h>

#include "formats/json.h"
#include "formats/whole_file.h"

enum { LARGEST = 64 << 20 }; /* bytes: more than any context holds */

/* Whether the next message may have this role: a system message may come first, then users and assistants
 * take turns. Returns a constant with the role, or NULL. */
static const char *expect_role(const conversation *c, const char *role)
{
    bool has_system = c->count > 0 && !strcmp(c->messages[0].role, "system");
    const char *expected = (c->count - has_system) % 2 == 0 ? "user" : "assistant";
    if (!strcmp(role, expected)) return expected;
    return c->count == 0 && !strcmp(role, "system") ? "system" : NULL;
}

/* A member that must be a string; NULL if it is not. */
static const char *find_string(const json_node *object, const char *key, size_t *length)
{
    const json_node *node =
        json_node_kind(object) == JSON_KIND_OBJECT ? json_node_member(object, key) : NULL;
    return node && json_node_kind(node) == JSON_KIND_STRING ? json_node_string(node, length) : NULL;
}

static dsmoe_status take_message(conversation *c, const json_node *message, dsmoe_error *error)
{
    size_t n_role, n_content, number = c->count + 1;
    const char *role = find_string(message, "role", &n_role);
    const char *content = find_string(message, "content", &n_content);
    if (!role || !content)
        return status_fail(error, DSMOE_ERROR_FORMAT, "message %zu has no string \"%s\"", number,
                           role ? "content" : "role");
    const char *kept = expect_role(c, role);
    if (!kept)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "message %zu has the role \"%.32s\", out of turn", number, role);
    if (conversation_add(c, kept, content, n_content)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
}

static dsmoe_status take_messages(conversation *c, const json_node *root, dsmoe_error *error)
{
    if (json_node_kind(root) != JSON_KIND_ARRAY)
        return status_fail(error, DSMOE_ERROR_FORMAT, "it must be an array of messages, not %s",
                           json_kind_name(json_node_kind(root)));
    for (size_t i = 0; i < json_node_count(root); i++)
        STATUS_TRY(take_message(c, json_node_item(root, i), error));
    if (c->count == 0) return status_fail(error, DSMOE_ERROR_FORMAT, "there are no messages in it");
    if (!strcmp(c->messages[c->count - 1].role, "assistant")) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "the last message has no answer");
}

dsmoe_status conversation_open(const char *path, conversation *c, dsmoe_error *error)
{
    whole_file file;
    json_node *root;
    dsmoe_error reason;
    *c = (conversation){0};
    STATUS_TRY(whole_file_read(&file, path, LARGEST, error));
    dsmoe_status status = json_node_parse_nul(file.bytes, file.size, path, &root, error);
    whole_file_free(&file);
    STATUS_TRY(status);
    status = take_messages(c, root, &reason);
    json_node_free(root);
    if (status == DSMOE_OK) return DSMOE_OK;
    conversation_free(c);
    return status_fail(error, status, "%s: %s", path, reason.message);
}
