/* unicode.c - UTF-8, properties of characters and normalisation forms: the only file that uses
 * utf8proc. */
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* ---- UTF-8 --------------------------------------------------------------------------------- */

size_t unicode_encode(uint32_t code, char bytes[4])
{
    size_t width = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (width == 1) {
        bytes[0] = (char)code;
        return 1;
    }
    for (size_t i = width; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(code | (0xf00u >> width & 0xff));
    return width;
}

size_t unicode_valid_length(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        uint64_t eight;
        if (length - at >= sizeof eight) { /* eight ASCII bytes at a time */
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        uint32_t code;
        size_t width = utf8_decode(text + at, length - at, &code);
        if (width == 0) break;
        at += width;
    }
    return at;
}

size_t dsmoe_utf8_complete(const char *bytes, size_t length)
{
    /* An incomplete character has at most three bytes. */
    for (size_t held = 1; held <= 3 && held <= length; held++) {
        const unsigned char *tail = (const unsigned char *)bytes + length - held;
        if (utf8_is_inside((char)*tail)) continue;
        size_t width;
        bool open = utf8_begun(tail, held, &width) == held && held < width;
        return open ? length - held : length;
    }
    return length;
}

/* ---- properties ---------------------------------------------------------------------------- */

bool unicode_is_whitespace(uint32_t code)
{
    if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool unicode_is_numeric(uint32_t code)
{
    if (code < 0x80) return code >= '0' && code <= '9';
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_NO;
}

bool unicode_is_mark(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

bool unicode_is_word(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    return letter || unicode_is_mark(code) || category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC;
}

int unicode_lower(uint32_t code, uint32_t lower[2])
{
    if (code == 0x130) { /* I with a dot: the only character that becomes two */
        lower[0] = 'i';
        lower[1] = 0x307;
        return 2;
    }
    lower[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    return 1;
}

/* ---- normalisation forms ------------------------------------------------------------------- */

/* No character decomposes into more (the longest has 18). */
enum { DECOMPOSITION_MAX = 64 };

typedef struct code_buffer {
    utf8proc_int32_t *codes;
    size_t count, capacity;
} code_buffer;

static dsmoe_status decompose(const char *text, size_t length, utf8proc_option_t options,
                              code_buffer *buffer, dsmoe_error *error)
{
    for (size_t at = 0; at < length;) {
        void *memory = buffer->codes;
        STATUS_TRY(buffer_grow(&memory, &buffer->capacity, buffer->count + DECOMPOSITION_MAX,
                               sizeof *buffer->codes, error));
        buffer->codes = memory;
        uint32_t code = 0;
        size_t width = utf8_decode(text + at, length - at, &code);
        int boundary = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)code, buffer->codes + buffer->count,
                                    DECOMPOSITION_MAX, options, &boundary);
        if (width == 0 || n < 0 || n > DECOMPOSITION_MAX)
            return status_fail(error, DSMOE_ERROR_FORMAT, "text cannot be normalised at byte %zu",
                               at);
        buffer->count += (size_t)n;
        at += width;
    }
    return DSMOE_OK;
}

static unsigned combining_class(utf8proc_int32_t code)
{
    return code < 0x300 ? 0 : (unsigned)utf8proc_get_property(code)->combining_class & 0xff;
}

/* Sorts a run of marks by class, keeping the order within a class. It is a counting sort, since a run
 * may be as long as the text. */
static dsmoe_status order_run(utf8proc_int32_t *codes, size_t count, dsmoe_error *error)
{
    size_t first[257] = {0};
    bool ordered = true;
    for (size_t i = 0; i < count; i++) {
        first[combining_class(codes[i]) + 1]++;
        if (i && combining_class(codes[i]) < combining_class(codes[i - 1])) ordered = false;
    }
    if (ordered) return DSMOE_OK;
    utf8proc_int32_t *copy = malloc(count * sizeof *copy);
    if (!copy) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for a text's marks");
    memcpy(copy, codes, count * sizeof *copy);
    for (int i = 0; i < 256; i++) first[i + 1] += first[i];
    for (size_t i = 0; i < count; i++) codes[first[combining_class(copy[i])]++] = copy[i];
    free(copy);
    return DSMOE_OK;
}

static dsmoe_status order_marks(code_buffer *buffer, dsmoe_error *error)
{
    for (size_t at = 0; at < buffer->count; at++) {
        size_t end = at;
        while (end < buffer->count && combining_class(buffer->codes[end]) != 0) end++;
        if (end - at > 1) STATUS_TRY(order_run(buffer->codes + at, end - at, error));
        at = end; /* a starter, or the end */
    }
    return DSMOE_OK;
}

dsmoe_status unicode_normalize(unicode_form form, const char *text, size_t length, byte_buffer *out,
                               dsmoe_error *error)
{
    bool compat = form == UNICODE_NFKC || form == UNICODE_NFKD;
    bool compose = form == UNICODE_NFC || form == UNICODE_NFKC;
    int options = UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0);
    code_buffer buffer = {0};
    dsmoe_status status =
        decompose(text, length, (utf8proc_option_t)(options | UTF8PROC_DECOMPOSE), &buffer, error);
    if (status == DSMOE_OK) status = order_marks(&buffer, error);
    if (status == DSMOE_OK && compose && buffer.count) {
        utf8proc_ssize_t n =
            utf8proc_normalize_utf32(buffer.codes, (utf8proc_ssize_t)buffer.count,
                                     (utf8proc_option_t)(options | UTF8PROC_COMPOSE));
        buffer.count = n < 0 ? 0 : (size_t)n;
    }
    for (size_t i = 0; i < buffer.count && status == DSMOE_OK; i++) {
        char bytes[4];
        size_t width = unicode_encode((uint32_t)buffer.codes[i], bytes);
        status = byte_buffer_append(out, bytes, width, error);
    }
    free(buffer.codes);
    return status;
}
