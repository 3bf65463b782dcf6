/* http_fields.h - names with values: the headers of a request, its parameters, the headers of an answer; and what a
 * request's headers say of its body. */
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
/* The first of that name, without regard to case; NULL: none. */
const char *http_fields_find(const http_fields *fields, const char *name);
void http_fields_free(http_fields *fields);

/* What makes it unclear where the request ends or whom it is for, so that a proxy in front could think otherwise; NULL:
 * nothing. Only HTTP/1.0 has requests without a Host. */
const char *http_fields_fault(const http_fields *headers, const char *version);
/* Bytes that the headers promise; 0 if they say nothing, UINT64_MAX if it is more than a number holds. */
uint64_t http_fields_length(const http_fields *headers);

#endif
