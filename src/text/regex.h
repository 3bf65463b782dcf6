/* regex.h - regular expressions of a tokenizer over valid UTF-8. The library behind them (PCRE2) is
 * named in regex.c only.
 *
 * Patterns come from untrusted files and were written for another engine (Oniguruma with Ruby's
 * syntax), so regex_syntax.c rewrites what the two read differently and refuses what no tokenizer
 * needs: recursion, backreferences, single bytes. A search has a budget: a pattern that explodes is
 * an error, not a hang. */
#ifndef DSMOE_TEXT_REGEX_H
#define DSMOE_TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "text/buffer.h"

enum { REGEX_MAX_LENGTH = 16 << 10 }; /* bytes of a pattern; the longest public one has 2 KiB */

typedef struct regex regex;

dsmoe_status regex_compile(const char *pattern, size_t length, regex **compiled,
                           dsmoe_error *error);
void regex_free(regex *compiled); /* NULL is allowed */

/* The working memory of searches: one for each thread, for any number of expressions. */
typedef struct regex_scratch regex_scratch;
dsmoe_status regex_scratch_create(regex_scratch **scratch, dsmoe_error *error);
void regex_scratch_free(regex_scratch *scratch); /* NULL is allowed */

/* The leftmost match that begins at `from` or later, in [*start, *end). */
dsmoe_status regex_search(const regex *compiled, regex_scratch *scratch, const char *text,
                          size_t length, size_t from, bool *found, size_t *start, size_t *end,
                          dsmoe_error *error);

/* Appends the pattern in the syntax of PCRE2. */
dsmoe_status regex_translate(const char *pattern, size_t length, byte_buffer *out,
                             dsmoe_error *error);

#endif
