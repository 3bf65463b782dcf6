/* json_line.c - reads one line of JSON Lines with the library's JSON reader. */
#include "cli/json_line.h"

#include <stdlib.h>
#include <string.h>

#include "formats/json.h"

/* Finds the member of that kind; NULL on failure. *root is to be freed in both cases. */
static const json_node *read_member(const char *line, size_t length, const char *key,
                                    json_kind kind, json_node **root, dsmoe_error *error)
{
    static const char mark[] = "\xef\xbb\xbf"; /* byte order mark */
    *root = NULL;
    if (length >= 3 && !memcmp(line, mark, 3)) {
        line += 3;
        length -= 3;
    }
    if (json_line_parse(line, length, true, root, error) != DSMOE_OK) return NULL;
    const json_node *found = NULL;
    if (json_node_kind(*root) == JSON_KIND_OBJECT) found = json_node_member(*root, key);
    if (!found)
        status_fail(error, DSMOE_ERROR_FORMAT, "it must be an object with a member \"%s\"", key);
    else if (json_node_kind(found) != kind)
        status_fail(error, DSMOE_ERROR_FORMAT, "\"%s\" must be %s, not %s", key,
                    json_kind_name(kind), json_kind_name(json_node_kind(found)));
    else
        return found;
    return NULL;
}

char *json_line_string(const char *line, size_t line_length, const char *key, size_t *length,
                       dsmoe_error *error)
{
    json_node *root;
    char *copy = NULL;
    const json_node *found = read_member(line, line_length, key, JSON_KIND_STRING, &root, error);
    if (found) {
        const char *string = json_node_string(found, length);
        copy = malloc(*length + 1);
        if (copy)
            memcpy(copy, string, *length + 1);
        else
            status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
    }
    json_node_free(root);
    return copy;
}

static bool is_id(const json_node *item)
{
    return json_node_kind(item) == JSON_KIND_INTEGER && json_node_integer(item) >= 0 &&
           json_node_integer(item) <= INT32_MAX;
}

static int32_t *copy_ids(const json_node *array, size_t *n_ids, dsmoe_error *error)
{
    *n_ids = json_node_count(array);
    int32_t *ids = malloc((*n_ids + 1) * sizeof *ids);
    if (!ids) status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
    for (size_t i = 0; ids && i < *n_ids; i++) {
        const json_node *item = json_node_item(array, i);
        if (is_id(item)) {
            ids[i] = (int32_t)json_node_integer(item);
            continue;
        }
        status_fail(error, DSMOE_ERROR_FORMAT,
                    "item %zu of the ids must be a whole number from 0 to %d", i + 1, INT32_MAX);
        free(ids);
        return NULL;
    }
    return ids;
}

int32_t *json_line_ids(const char *line, size_t line_length, const char *key, size_t *n_ids,
                       dsmoe_error *error)
{
    json_node *root;
    const json_node *found = read_member(line, line_length, key, JSON_KIND_ARRAY, &root, error);
    int32_t *ids = found ? copy_ids(found, n_ids, error) : NULL;
    json_node_free(root);
    return ids;
}
