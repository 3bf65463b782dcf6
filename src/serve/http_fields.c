/* http_fields.c - lists of names with values, and checks of a request's headers. */
#include "serve/http_fields.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool http_fields_add(http_fields *fields, const char *name, const char *value)
{
    size_t name_size = strlen(name) + 1, value_size = value ? strlen(value) + 1 : 1;
    http_field *field = malloc(sizeof *field + name_size + value_size);
    if (!field) return false;
    memcpy(field->name, name, name_size);
    field->value = field->name + name_size;
    memcpy(field->value, value ? value : "", value_size);
    field->next = NULL;
    if (fields->last)
        fields->last->next = field;
    else
        fields->first = field;
    fields->last = field;
    return true;
}

const char *http_fields_find(const http_fields *fields, const char *name)
{
    for (const http_field *field = fields->first; field; field = field->next)
        if (!strcasecmp(field->name, name)) return field->value;
    return NULL;
}

void http_fields_free(http_fields *fields)
{
    for (http_field *field = fields->first, *next; field; field = next) {
        next = field->next;
        free(field);
    }
    *fields = (http_fields){0};
}

/* Some programs read "Content-Length : 5" as that header, others do not. */
static bool is_token(const char *name)
{
    static const char letters[] = "!#$%&'*+-.^_`|~0123456789"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    return *name && name[strspn(name, letters)] == '\0';
}

const char *http_fields_fault(const http_fields *headers, const char *version)
{
    int n_lengths = 0, n_encodings = 0, n_hosts = 0;
    for (const http_field *field = headers->first; field; field = field->next) {
        if (!is_token(field->name)) return "a header has an invalid name";
        n_hosts += !strcasecmp(field->name, "Host");
        if (!strcasecmp(field->name, "Content-Length")) {
            n_lengths++;
            if (!*field->value || field->value[strspn(field->value, "0123456789")])
                return "Content-Length is not a number";
        }
        if (!strcasecmp(field->name, "Transfer-Encoding")) {
            n_encodings++;
            if (strcasecmp(field->value, "chunked")) return "Transfer-Encoding is not chunked";
        }
    }
    if (n_hosts > 1) return "Host is given more than once";
    if (n_hosts < 1 && strcmp(version, "HTTP/1.0")) return "the header Host is missing";
    if (n_lengths > 1) return "Content-Length is given more than once";
    if (n_encodings > 1) return "Transfer-Encoding is given more than once";
    if (n_lengths && n_encodings)
        return "the request has both a Content-Length and a Transfer-Encoding";
    return NULL;
}

uint64_t http_fields_length(const http_fields *headers)
{
    const char *text = http_fields_find(headers, "Content-Length");
    uint64_t length = 0;
    for (; text && *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(length, 10, &length) ||
            __builtin_add_overflow(length, (uint64_t)(*text - '0'), &length))
            return UINT64_MAX;
    return length;
}
