/* json_line.c - a strict reader of one JSON object, made for lines of many megabytes: it walks over
 * what is not wanted without keeping it. */
#include "cli/json_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "base/utf8.h"

enum { MAX_DEPTH = 256 };

typedef struct reader {
    const char *start, *at, *end;
    json_line_error *error;
} reader;

/* What is made of the wanted member. */
typedef enum wanted_kind { WANTED_STRING, WANTED_IDS } wanted_kind;

typedef struct wanted {
    const char *key;
    wanted_kind kind;
    bool found;
    char *string;
    int32_t *ids;
    size_t count; /* bytes or ids */
} wanted;

/* Always false, so that a function can end with: return fail(r, "…"); the first message counts. */
static bool fail(reader *r, const char *message)
{
    if (*r->error->message) return false;
    r->error->offset = (size_t)(r->at - r->start);
    snprintf(r->error->message, sizeof r->error->message, "%s", message);
    return false;
}

static void skip_blanks(reader *r)
{
    while (r->at < r->end && memchr(" \t\r\n", *r->at, 4)) r->at++;
}

/* Whether the next character, after blanks, is `c`, which is then read. */
static bool accept(reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* ---- strings ------------------------------------------------------------------------------- */

/* The four digits of \uXXXX. */
static bool read_hex(reader *r, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = r->at < r->end ? *r->at : '\0';
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return fail(r, "\\u needs four hexadecimal digits");
        *code = *code << 4 | digit;
    }
    return true;
}

/* Appends a code point at *out and moves it on. */
static void put_utf8(char **out, uint32_t code)
{
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (code < 0x80) {
        *(*out)++ = (char)code;
        return;
    }
    int size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = size - 1; i > 0; i--, code >>= 6) (*out)[i] = (char)(0x80 | (code & 0x3f));
    **out = (char)(leads[size] | code);
    *out += size;
}

/* After "\u": one code unit, or two that together are one character. */
static bool read_unicode(reader *r, char **out)
{
    uint32_t code, low;
    if (!read_hex(r, &code)) return false;
    if (code >= 0xdc00 && code <= 0xdfff) return fail(r, "half a surrogate pair");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fail(r, "half a surrogate pair");
        r->at += 2;
        if (!read_hex(r, &low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return fail(r, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(out, code);
    return true;
}

/* After a backslash. */
static bool read_escape(reader *r, char **out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->end ? *r->at : '\0';
    if (c == 'u') {
        r->at++;
        return read_unicode(r, out);
    }
    const char *name = c ? strchr(names, c) : NULL;
    if (!name) return fail(r, "an escape that JSON does not have");
    *(*out)++ = values[name - names];
    r->at++;
    return true;
}

/* The string here, its quotes included, to `out`, which has room for as many bytes as the text of
 * the string takes on the line: no escape is shorter than what it stands for. */
static bool read_string(reader *r, char *out, size_t *length)
{
    char *start = out;
    if (!accept(r, '"')) return fail(r, "a string is expected");
    while (r->at < r->end && *r->at != '"') {
        if (*r->at == '\\') {
            r->at++;
            if (!read_escape(r, &out)) return false;
            continue;
        }
        uint32_t code = 0;
        size_t size = utf8_decode(r->at, (size_t)(r->end - r->at), &code);
        if (size == 0) return fail(r, "not UTF-8");
        if (code < 0x20) return fail(r, "a control character within a string");
        memcpy(out, r->at, size);
        out += size;
        r->at += size;
    }
    if (r->at == r->end) return fail(r, "a string without an end");
    r->at++;
    *length = (size_t)(out - start);
    return true;
}

/* Bytes up to the end of the string here, at most as many as are left of the line. */
static size_t string_room(reader *r)
{
    skip_blanks(r);
    const char *c = r->at;
    if (c < r->end) c++;
    for (; c < r->end && *c != '"'; c++)
        if (*c == '\\' && c + 1 < r->end) c++;
    return (size_t)(c - r->at) + 1;
}

/* The string here in memory of its own; NULL on failure. */
static char *copy_string(reader *r, size_t *length)
{
    char *string = malloc(string_room(r));
    if (!string) {
        fail(r, "not enough memory for the string");
        return NULL;
    }
    if (!read_string(r, string, length)) {
        free(string);
        return NULL;
    }
    string[*length] = '\0';
    return string;
}

/* ---- other values -------------------------------------------------------------------------- */

static bool read_id(reader *r, int32_t *id)
{
    int64_t number = 0;
    skip_blanks(r);
    const char *digits = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        number = 10 * number + (*r->at - '0');
        if (number > INT32_MAX) return fail(r, "a number too large for a token id");
        r->at++;
    }
    if (r->at == digits || (*digits == '0' && r->at - digits > 1))
        return fail(r, "a token id is expected");
    *id = (int32_t)number;
    return true;
}

/* The array of ids here in memory of its own; NULL on failure. */
static int32_t *copy_ids(reader *r, size_t *n_ids)
{
    size_t room = 1;
    for (const char *c = r->at; c < r->end && *c != ']'; c++) room += *c == ',';
    int32_t *ids = calloc(room, sizeof *ids);
    *n_ids = 0;
    if (!ids) {
        fail(r, "not enough memory for the ids");
        return NULL;
    }
    bool ok = accept(r, '[') || fail(r, "an array of token ids is expected");
    if (ok && accept(r, ']')) return ids;
    while (ok) {
        ok = read_id(r, &ids[(*n_ids)++]);
        if (ok && accept(r, ']')) return ids;
        if (ok) ok = accept(r, ',') || fail(r, "',' or ']' is expected");
    }
    free(ids);
    return NULL;
}

static size_t skip_digits(reader *r)
{
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return (size_t)(r->at - start);
}

static bool skip_number(reader *r)
{
    if (*r->at == '-') r->at++;
    const char *digits = r->at;
    size_t n = skip_digits(r);
    if (n == 0 || (n > 1 && *digits == '0')) return fail(r, "a value is expected");
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (skip_digits(r) == 0) return fail(r, "digits are expected");
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-')) r->at++;
        if (skip_digits(r) == 0) return fail(r, "digits are expected");
    }
    return true;
}

static bool skip_string(reader *r)
{
    size_t length;
    char *string = copy_string(r, &length);
    free(string);
    return string != NULL;
}

static bool skip_scalar(reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    skip_blanks(r);
    if (r->at == r->end) return fail(r, "a value is expected");
    if (*r->at == '"') return skip_string(r);
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(r->end - r->at) < length || memcmp(r->at, words[i], length) != 0) continue;
        r->at += length;
        return true;
    }
    return skip_number(r);
}

static bool skip_key(reader *r)
{
    return skip_string(r) && (accept(r, ':') || fail(r, "':' is expected"));
}

/* Any value. The open brackets are a stack of our own: a hostile line must not use up that of the
 * program. */
static bool skip_value(reader *r)
{
    char closing[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        bool is_array = accept(r, '['), is_object = !is_array && accept(r, '{');
        if (is_array || is_object) {
            if (depth == MAX_DEPTH) return fail(r, "brackets are nested too deep");
            closing[depth++] = is_array ? ']' : '}';
            if (!accept(r, closing[depth - 1])) {
                if (is_object && !skip_key(r)) return false;
                continue; /* with the first value inside */
            }
            depth--;
        } else if (!skip_scalar(r)) {
            return false;
        }
        while (depth > 0 && accept(r, closing[depth - 1])) depth--;
        if (depth == 0) return true;
        if (!accept(r, ',')) return fail(r, "',' or a closing bracket is expected");
        if (closing[depth - 1] == '}' && !skip_key(r)) return false;
    }
}

/* ---- the object ---------------------------------------------------------------------------- */

static bool read_wanted(reader *r, wanted *w)
{
    if (w->found) return fail(r, "the member is there twice");
    w->found = true;
    skip_blanks(r);
    switch (w->kind) {
    case WANTED_STRING: return (w->string = copy_string(r, &w->count)) != NULL;
    case WANTED_IDS: return (w->ids = copy_ids(r, &w->count)) != NULL;
    }
    return false;
}

static bool read_member(reader *r, wanted *w)
{
    size_t length;
    char *key = copy_string(r, &length);
    if (!key) return false;
    bool is_wanted = length == strlen(w->key) && !memcmp(key, w->key, length);
    free(key);
    if (!accept(r, ':')) return fail(r, "':' is expected");
    return is_wanted ? read_wanted(r, w) : skip_value(r);
}

/* Some editors begin a file with a byte order mark. */
static void skip_byte_order_mark(reader *r)
{
    if (r->end - r->at >= 3 && !memcmp(r->at, "\xef\xbb\xbf", 3)) r->at += 3;
}

static bool read_object(reader *r, wanted *w)
{
    skip_byte_order_mark(r);
    if (!accept(r, '{')) return fail(r, "an object is expected");
    if (!accept(r, '}')) {
        do {
            if (!read_member(r, w)) return false;
        } while (accept(r, ','));
        if (!accept(r, '}')) return fail(r, "',' or '}' is expected");
    }
    skip_blanks(r);
    if (r->at < r->end) return fail(r, "something after the object");
    if (w->found) return true;
    char message[sizeof r->error->message];
    snprintf(message, sizeof message, "the object has no \"%s\"", w->key);
    return fail(r, message);
}

char *json_line_string(const char *line, size_t line_length, const char *key, size_t *length,
                       json_line_error *error)
{
    reader r = {line, line, line + line_length, error};
    wanted w = {.key = key, .kind = WANTED_STRING};
    *error = (json_line_error){0};
    if (!read_object(&r, &w)) {
        free(w.string);
        return NULL;
    }
    *length = w.count;
    return w.string;
}

int32_t *json_line_ids(const char *line, size_t line_length, const char *key, size_t *n_ids,
                       json_line_error *error)
{
    reader r = {line, line, line + line_length, error};
    wanted w = {.key = key, .kind = WANTED_IDS};
    *error = (json_line_error){0};
    if (!read_object(&r, &w)) {
        free(w.ids);
        return NULL;
    }
    *n_ids = w.count;
    return w.ids;
}

bool json_line_each(const char *text, size_t length, json_item_fn *visit, void *context,
                    json_line_error *error)
{
    reader r = {text, text, text + length, error};
    *error = (json_line_error){0};
    skip_byte_order_mark(&r);
    if (!accept(&r, '[')) return fail(&r, "an array is expected");
    if (!accept(&r, ']')) {
        do {
            skip_blanks(&r);
            const char *item = r.at;
            if (!skip_value(&r) || !visit(context, item, (size_t)(r.at - item))) return false;
        } while (accept(&r, ','));
        if (!accept(&r, ']')) return fail(&r, "',' or ']' is expected");
    }
    skip_blanks(&r);
    return r.at == r.end || fail(&r, "something after the array");
}
