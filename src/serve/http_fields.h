/* http_fields.h - lists of names with values: headers and parameters of a request, headers of an answer. Also
 * checks a request's headers. */
#ifndef DSMOE_SERVE_HTTP_FIELDS_H
#define DSMOE_SERVE_HTTP_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct http_field {
    struct http_field *next;
    char *value; /* after the name */
    char name[];
} http_field;

/* Copies, in the order in which they were added; a NULL value is "". */
typedef struct http_fields {
    http_field *first, *last;
} http_fields;

/* False if there is no memory. */
bool http_fields_add(http_fields *fields, const char *name, const char *value);
/* The value of the first field with that name, ignoring case; NULL: none. */
const char *http_fields_find(const http_fields *fields, const char *name);
void http_fields_free(http_fields *fields);

/* A fault that makes it unclear where the request ends or which host it is for, so that a proxy in front of
 * the server could read it differently; NULL: none. Only HTTP/1.0 allows requests without a Host. */
const char *http_fields_fault(const http_fields *headers, const char *version);
/* The Content-Length; 0 if there is none, UINT64_MAX if it is larger than that. */
uint64_t http_fields_length(const http_fields *headers);

#endif
