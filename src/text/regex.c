/* regex.c - regular expressions with limits: the only file that uses PCRE2. */
#include "text/regex.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    PARENS_MAX = 64,         /* nesting of groups */
    HEAP_MAX_KIB = 64 << 10, /* memory of the interpreter for backtracking */
    STEPS_MIN = 1 << 20,     /* steps of a search from one place, and more for a long text: the */
    STEPS_PER_BYTE = 8,      /* patterns of real tokenizers take about one per byte */
};

struct regex {
    pcre2_code *code;
    char *pattern; /* as in the file, for messages */
};

struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
};

static dsmoe_status compile(regex *r, const byte_buffer *translated, dsmoe_error *error)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, PARENS_MAX);
    /* $ and ^ match at every line, as in Ruby; \C would split characters. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int code;
    PCRE2_SIZE offset;
    r->code = pcre2_compile((PCRE2_SPTR)translated->bytes, translated->length, options, &code,
                            &offset, context);
    pcre2_compile_context_free(context);
    if (r->code) {
        /* Without a compiler to machine code, the interpreter is used. */
        (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
        return DSMOE_OK;
    }
    PCRE2_UCHAR reason[128] = "";
    pcre2_get_error_message(code, reason, sizeof reason);
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s", (const char *)reason);
}

dsmoe_status regex_compile(const char *pattern, size_t length, regex **compiled, dsmoe_error *error)
{
    *compiled = NULL;
    if (length > REGEX_MAX_LENGTH)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "a pattern of %zu bytes, at most %d are expected", length,
                           REGEX_MAX_LENGTH);
    if (length == 0) return status_fail(error, DSMOE_ERROR_FORMAT, "a pattern is empty");
    regex *r = calloc(1, sizeof *r);
    if (!r || !(r->pattern = calloc(length + 1, 1))) {
        regex_free(r);
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for a pattern");
    }
    memcpy(r->pattern, pattern, length);
    byte_buffer translated = {0};
    dsmoe_error reason;
    dsmoe_status status = regex_translate(pattern, length, &translated, &reason);
    if (status == DSMOE_OK) status = compile(r, &translated, &reason);
    byte_buffer_free(&translated);
    if (status != DSMOE_OK) {
        status_fail(error, status, "pattern \"%.64s\": %s", r->pattern, reason.message);
        regex_free(r);
        return status;
    }
    *compiled = r;
    return DSMOE_OK;
}

void regex_free(regex *compiled)
{
    if (!compiled) return;
    pcre2_code_free(compiled->code);
    free(compiled->pattern);
    free(compiled);
}

dsmoe_status regex_scratch_create(regex_scratch **scratch, dsmoe_error *error)
{
    regex_scratch *s = calloc(1, sizeof *s);
    if (s) {
        s->match = pcre2_match_data_create(1, NULL);
        s->context = pcre2_match_context_create(NULL);
    }
    if (!s || !s->match || !s->context) {
        regex_scratch_free(s);
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for searching");
    }
    pcre2_set_heap_limit(s->context, HEAP_MAX_KIB);
    *scratch = s;
    return DSMOE_OK;
}

void regex_scratch_free(regex_scratch *scratch)
{
    if (!scratch) return;
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    free(scratch);
}

dsmoe_status regex_search(const regex *compiled, regex_scratch *scratch, const char *text,
                          size_t length, size_t from, bool *found, size_t *start, size_t *end,
                          dsmoe_error *error)
{
    size_t steps =
        length > UINT32_MAX / (2 * STEPS_PER_BYTE) ? UINT32_MAX / 2 : length * STEPS_PER_BYTE;
    pcre2_set_match_limit(scratch->context, (uint32_t)(STEPS_MIN + steps));
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int n = pcre2_match(compiled->code, subject, length, from, PCRE2_NO_UTF_CHECK, scratch->match,
                        scratch->context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter has more room for backtracking */
        n = pcre2_match(compiled->code, subject, length, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        scratch->match, scratch->context);
    *found = n >= 0;
    if (n == PCRE2_ERROR_NOMATCH) return DSMOE_OK;
    if (n < 0) {
        PCRE2_UCHAR reason[128] = "";
        pcre2_get_error_message(n, reason, sizeof reason);
        return status_fail(error,
                           n == PCRE2_ERROR_NOMEMORY ? DSMOE_ERROR_MEMORY : DSMOE_ERROR_FORMAT,
                           "pattern \"%.64s\" cannot be matched with a text of %zu bytes: %s",
                           compiled->pattern, length, (const char *)reason);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(scratch->match);
    *start = place[0];
    *end = place[1];
    return DSMOE_OK;
}
