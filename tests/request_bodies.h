/* request_bodies.h - bodies of requests against a small tokenizer: taken, or refused with a status, a name and
 * words. JSON in C strings has ' for ". */
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

enum {
    BOS = 265,
    EOS = 266,
    VOCABULARY = 267,
    CONTEXT = 64
}; /* 256 bytes come first, and are their ids */

/* What the last body became; `limits` may be changed, and be put back. */
extern dsmoe_tokenizer *tokenizer;
extern request_limits limits;
extern request r;
extern request_error e;

/* For cmocka's groups. */
int open_limits(void **state);
int close_limits(void **state);

/* `text` is a body, or further members, from ' on, of one that is good. To be freed. */
char *body_of(request_kind kind, const char *text);
bool take(request_kind kind, const char *text);
void must_take(request_kind kind, const char *text);
/* Leaves nothing to be freed. */
void must_refuse(request_kind kind, const char *text, int status, const char *param,
                 const char *words);

typedef struct refusal {
    request_kind kind;
    const char *text, *param, *words;
} refusal;
void refuse_all(const refusal *cases, size_t count, int status);

/* `text` many times, with what stands before and after. To be freed. */
char *repeated(const char *before, const char *text, size_t times, const char *after);
void must_refuse_many(request_kind kind, const char *before, const char *text, size_t times,
                      const char *after, const char *param, const char *words);

#endif
