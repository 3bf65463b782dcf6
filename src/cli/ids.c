/* ids.c - token ids as people write them. */
#include "cli/ids.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { LONGEST_SHOWN = 40 }; /* bytes of a wrong word in a message */

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',';
}

/* One word of digits; false if it is not an id. */
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

static size_t count_words(const char *text, const char *end)
{
    size_t count = 0;
    for (const char *c = text; c < end; c++)
        count += !is_separator(*c) && (c == text || is_separator(c[-1]));
    return count;
}

static int refuse_word(ids_source source, const char *text, const char *word, size_t length)
{
    size_t line = 1, shown = length < LONGEST_SHOWN ? length : LONGEST_SHOWN;
    for (const char *c = text; c < word; c++) line += *c == '\n';
    char copy[LONGEST_SHOWN + 1];
    for (size_t i = 0; i < shown; i++) copy[i] = word[i] ? word[i] : '?';
    copy[shown] = '\0';
    return cli_failure(source.command, "%s: '%s%s' in line %zu is not a token id", source.name,
                       copy, shown < length ? "..." : "", line);
}

int ids_parse(ids_source source, const char *text, size_t length, int32_t **ids, size_t *n_ids)
{
    const char *end = text + length;
    size_t count = count_words(text, end);
    *n_ids = 0;
    *ids = calloc(count + 1, sizeof **ids);
    if (!*ids)
        return cli_failure(source.command, "%s: not enough memory for %zu token ids", source.name,
                           count);
    for (const char *c = text; c < end;) {
        size_t n = word_length(c, end);
        if (n > 0 && !parse_id(c, n, &(*ids)[(*n_ids)++])) {
            free(*ids);
            *ids = NULL;
            return refuse_word(source, text, c, n);
        }
        c += n + 1;
    }
    return CLI_OK;
}

dsmoe_status ids_check(const int32_t *ids, size_t n_ids, int64_t vocab_size, bool from_text,
                       dsmoe_error *error)
{
    size_t i = 0;
    while (i < n_ids && ids[i] >= 0 && ids[i] < vocab_size) i++;
    if (i == n_ids) return DSMOE_OK;
    error->status = DSMOE_ERROR_ARGUMENT;
    if (from_text)
        snprintf(error->message, sizeof error->message,
                 "the tokenizer makes token %" PRId32 " of this text, but the model's vocab_size is"
                 " %" PRId64 ": they do not belong together",
                 ids[i], vocab_size);
    else
        snprintf(error->message, sizeof error->message,
                 "token %" PRId32 ", number %zu, is not below the model's vocab_size %" PRId64,
                 ids[i], i + 1, vocab_size);
    return error->status;
}
