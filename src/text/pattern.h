/* pattern.h - what a tokenizer looks for in a text: a string, a regular expression or a numeric
 * character; and a scan for all its matches. */
#ifndef DSMOE_TEXT_PATTERN_H
#define DSMOE_TEXT_PATTERN_H

#include "formats/json.h"
#include "text/regex.h"

typedef enum pattern_kind { PATTERN_STRING, PATTERN_REGEX, PATTERN_NUMERIC } pattern_kind;

typedef struct pattern {
    pattern_kind kind;
    regex *expression;
    byte_buffer string;
} pattern;

/* Reads the member "pattern" of an object: {"String": …} or {"Regex": …}. */
dsmoe_status pattern_read(pattern *p, const json_node *object, const char *where,
                          dsmoe_error *error);
/* Allowed on a zeroed pattern and after a failed read. */
void pattern_free(pattern *p);

typedef struct pattern_scan {
    const pattern *pattern;
    regex_scratch *scratch;
    const char *text; /* valid UTF-8 */
    size_t length;
    size_t from;     /* where to look next */
    size_t last_end; /* of the last match */
    bool matched;    /* there was a match */
} pattern_scan;

/* Finds the next match, [*start, *end). An empty match right after the match before it is skipped. */
dsmoe_status pattern_next(pattern_scan *scan, bool *found, size_t *start, size_t *end,
                          dsmoe_error *error);

#endif
