/* request_error.c - why a request is refused, as a status, a line and OpenAI's error object. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "formats/json_write.h"
#include "serve/request.h"

const char *request_error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

/* Makes a message one line of UTF-8: it may quote a client's bytes, and may be cut within a character. */
static void make_printable(char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        size_t size = utf8_character(text, left);
        if (size == 0 || (unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
            size = 1;
        }
        text += size;
        left -= size;
    }
}

bool request_refuse(request_error *error, int status, const char *param, const char *format, ...)
{
    error->status = status;
    error->type = request_error_type(status);
    snprintf(error->param, sizeof error->param, "%s", param);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    make_printable(error->param);
    make_printable(error->message);
    return false;
}

char *request_error_body(const request_error *error)
{
    char *body = NULL;
    size_t length;
    FILE *text = open_memstream(&body, &length);
    if (!text) return NULL;
    fputs("{\"error\":{\"message\":", text);
    json_write_string(text, error->message);
    fputs(",\"type\":", text);
    json_write_string(text, error->type);
    fprintf(text, ",\"code\":%d,\"param\":", error->status);
    if (error->param[0])
        json_write_string(text, error->param);
    else
        fputs("null", text);
    fputs("}}", text);
    bool whole = !ferror(text);
    if (fclose(text) == 0 && whole) return body;
    free(body);
    return NULL;
}
