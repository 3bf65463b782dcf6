/* conversation_file.c - reads a conversation that was saved. */
#include "cli/conversation_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/json_line.h"

static const off_t largest = 64 << 20; /* bytes: more than any context holds */

typedef struct file_reader {
    conversation *c;
    const char *text;
    char *problem;
} file_reader;

/* Always false, so that a function can end with it. */
static bool complain(const file_reader *r, const char *what)
{
    if (!*r->problem) snprintf(r->problem, CONVERSATION_PROBLEM, "%s", what);
    return false;
}

static bool complain_at(const file_reader *r, const char *at, const char *what)
{
    size_t line = 1;
    for (const char *c = r->text; c < at; c++) line += *c == '\n';
    if (!*r->problem) snprintf(r->problem, CONVERSATION_PROBLEM, "line %zu: %s", line, what);
    return false;
}

/* The role that message number `count` may have: a system message comes first, users and assistants take
 * turns. The name that is kept, or NULL. */
static const char *expect_role(const conversation *c, const char *role)
{
    bool has_system = c->count > 0 && !strcmp(c->messages[0].role, "system");
    const char *expected = (c->count - has_system) % 2 == 0 ? "user" : "assistant";
    if (!strcmp(role, expected)) return expected;
    return c->count == 0 && !strcmp(role, "system") ? "system" : NULL;
}

static bool take_message(void *context, const char *item, size_t length)
{
    file_reader *r = context;
    json_line_error error;
    size_t n_role, n_content;
    char what[128];
    bool ok = false;
    char *content = NULL, *role = json_line_string(item, length, "role", &n_role, &error);
    if (role) content = json_line_string(item, length, "content", &n_content, &error);
    if (!content) {
        free(role);
        return complain_at(r, item + error.offset, error.message);
    }
    const char *kept = expect_role(r->c, role);
    if (!kept) {
        snprintf(what, sizeof what, "message %zu has the role \"%.32s\", out of turn",
                 r->c->count + 1, role);
        complain(r, what);
    } else {
        ok = conversation_add(r->c, kept, content, n_content) || complain(r, "not enough memory");
    }
    free(content);
    free(role);
    return ok;
}

static bool parse(file_reader *r, size_t length)
{
    json_line_error error;
    const conversation *c = r->c;
    if (!json_line_each(r->text, length, take_message, r, &error))
        return complain_at(r, r->text + error.offset, error.message);
    if (c->count == 0) return complain(r, "there are no messages in it");
    return !strcmp(c->messages[c->count - 1].role, "assistant") ||
           complain(r, "the last message is without an answer");
}

/* All of a file that is one, to be freed; NULL after a complaint. */
static char *read_text(const file_reader *r, const char *path, size_t *length)
{
    struct stat info;
    char *text = NULL;
    FILE *file = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? fopen(path, "r") : NULL;
    if (!file) {
        bool is_there = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
        complain(r, is_there ? "is not a file" : strerror(errno));
        return NULL;
    }
    if (info.st_size > largest)
        complain(r, "is too large for a conversation");
    else if (!(text = malloc((size_t)info.st_size + 1)))
        complain(r, "not enough memory");
    *length = text ? fread(text, 1, (size_t)info.st_size, file) : 0;
    fclose(file);
    return text;
}

bool conversation_open(const char *path, conversation *c, char problem[CONVERSATION_PROBLEM])
{
    size_t length;
    *c = (conversation){0};
    *problem = '\0';
    file_reader r = {.c = c, .problem = problem};
    char *text = read_text(&r, path, &length);
    if (!text) return false;
    r.text = text;
    bool ok = parse(&r, length);
    free(text);
    if (!ok) conversation_free(c);
    return ok;
}
