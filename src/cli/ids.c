/* ids.c - token ids as people write them. */
#include "cli/ids.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { LONGEST_SHOWN = 40 }; /* bytes of a wrong word in a message */

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',';
}

/* One word of digits; false if it is no id. */
static bool parse_id(const char *word, size_t length, int32_t *id)
{
    int64_t number = 0;
    for (size_t i = 0; i < length; i++) {
        if (word[i] < '0' || word[i] > '9') return false;
        number = 10 * number + (word[i] - '0');
        if (number > INT32_MAX) return false;
    }
    *id = (int32_t)number;
    return length > 0;
}

static size_t word_length(const char *text, const char *end)
{
    const char *c = text;
    while (c < end && !is_separator(*c)) c++;
    return (size_t)(c - text);
}

int ids_parse(const char *command, const char *text, size_t length, int32_t **ids, size_t *n_ids)
{
    const char *end = text + length;
    size_t count = 0;
    for (const char *c = text; c < end; c++)
        count += !is_separator(*c) && (c == text || is_separator(c[-1]));
    *n_ids = 0;
    *ids = calloc(count + 1, sizeof **ids);
    if (!*ids) return cli_failure(command, "not enough memory for %zu token ids", count);
    for (const char *c = text; c < end;) {
        size_t n = word_length(c, end);
        if (n > 0 && !parse_id(c, n, &(*ids)[(*n_ids)++])) {
            free(*ids);
            *ids = NULL;
            return cli_failure(command, "'%.*s' is no token id",
                               n < LONGEST_SHOWN ? (int)n : LONGEST_SHOWN, c);
        }
        c += n + 1;
    }
    return CLI_OK;
}
