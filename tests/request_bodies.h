/* request_bodies.h - request bodies for a small tokenizer: accepted, or refused with a status, a name and
 * words. In C strings JSON has ' for ". */
#ifndef DSMOE_TESTS_REQUEST_BODIES_H
#define DSMOE_TESTS_REQUEST_BODIES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "serve/request.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { BOS = 265, EOS = 266, VOCABULARY = 267, CONTEXT = 64 }; /* ids 0 to 255 are the bytes */

/* The request read from the last body. A test may change `limits` and must restore them. */
extern dsmoe_tokenizer *tokenizer;
extern request_limits limits;
extern request r;
extern request_error e;

/* Set-up and tear-down of a group of tests. */
int open_limits(void **state);
int close_limits(void **state);

/* `text` is a body or, if it begins with ', further members of a good body. To be freed. */
char *body_of(request_kind kind, const char *text);
bool take(request_kind kind, const char *text);
void must_take(request_kind kind, const char *text);
/* Leaves nothing to free. */
void must_refuse(request_kind kind, const char *text, int status, const char *param,
                 const char *words);

typedef struct refusal {
    request_kind kind;
    const char *text, *param, *words;
} refusal;
void refuse_all(const refusal *cases, size_t count, int status);

/* `text` repeated, between `before` and `after`. To be freed. */
char *repeated(const char *before, const char *text, size_t times, const char *after);
void must_refuse_many(request_kind kind, const char *before, const char *text, size_t times,
                      const char *after, const char *param, const char *words);

#endif
