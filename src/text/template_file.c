/* template_file.c - puts the template of chat_template.jinja, or another one, into the text of
 * tokenizer_config.json as its chat_template. So all code that reads, copies or writes the two texts of a
 * tokenizer has the template too. The other members keep their spelling. */
#include "text/template_file.h"

#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "formats/json_write.h"
#include "formats/whole_file.h"

enum { TEMPLATE_MAX_SIZE = 1 << 20 }; /* bytes; the longest public ones have tens of thousands */

static const char key[] = "\"chat_template\"";

static const char *skip_blanks(const char *at) { return at + strspn(at, " \t\r\n"); }

/* Skips a string, from its opening quote to after the closing one. The text is known to be valid. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++)
        if (*at == '\\') at++;
    return at + 1;
}

/* Skips a member, which ends at the first comma or brace outside its value. */
static const char *skip_member(const char *at)
{
    for (int depth = 0; depth > 0 || !strchr(",}", *at);) {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        if (strchr("[{", *at)) depth++;
        if (strchr("]}", *at)) depth--;
        at++;
    }
    return at;
}

/* Writes the template, then the other members of `config`, which is an object and ends with a NUL. */
static void put_members(FILE *to, const char *config, const char *template, size_t size)
{
    fprintf(to, "{\n  %s: ", key);
    json_write_text(to, template, size);
    const char *at = skip_blanks(config) + 1;
    for (at = skip_blanks(at); *at != '}';) {
        const char *end = skip_member(at);
        if (strncmp(at, key, sizeof key - 1)) fprintf(to, ",\n  %.*s", (int)(end - at), at);
        at = *end == ',' ? skip_blanks(end + 1) : end;
    }
    fputs("}\n", to);
}

static bool is_object(const tokenizer_text *config)
{
    json_node *root;
    if (json_node_parse_wide(config->bytes, config->length, config->source, &root, NULL))
        return false;
    bool is = json_node_kind(root) == JSON_KIND_OBJECT;
    json_node_free(root);
    return is;
}

dsmoe_status template_put(const tokenizer_text *config, const char *template, size_t size,
                          char **text, size_t *length, dsmoe_error *error)
{
    *text = NULL;
    if (!is_object(config)) return DSMOE_OK;
    char *copy = strndup(config->bytes, config->length);
    FILE *to = open_memstream(text, length);
    if (copy && to) put_members(to, copy, template, size);
    bool written = copy && to && !ferror(to);
    if (to && fclose(to) != 0) written = false;
    free(copy);
    if (written) return DSMOE_OK;
    if (to) free(*text);
    *text = NULL;
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", config->source);
}

dsmoe_status template_file_put(const char *path, const tokenizer_text *config, char **text,
                               size_t *length, dsmoe_error *error)
{
    whole_file file;
    *text = NULL;
    STATUS_TRY(whole_file_read(&file, path, TEMPLATE_MAX_SIZE, error));
    dsmoe_status status =
        memchr(file.bytes, '\0', file.size)
            ? status_fail(error, DSMOE_ERROR_FORMAT, "%s: not text: it has a NUL byte", path)
            : template_put(config, file.bytes, file.size, text, length, error);
    whole_file_free(&file);
    return status;
}
