/* chat_template.c - recognises the form of a model's chat_template (Jinja) without running it.
 *
 * A template can write the texts outside of its tags and the expressions in {{ }}. All of them are collected
 * in one spelling: blanks outside of quotes are removed, quotes are single, a line end within quotes is \n,
 * joined texts are one, message.content is message['content'], and a text outside of tags is an expression of
 * its own. A form is recognised if its template writes everything that the form's row lists, and nothing
 * else. How the template gets there (the order of its conditions, its blanks, its tools) may differ from the
 * public file. A template of our own (chat_template_write.c) is recognised by its text. */
#include <string.h>

#include "text/chat_form.h"

typedef struct span {
    const char *at;
    size_t length;
} span;

/* The collected contents of a template. */
typedef struct outline {
    byte_buffer writes;     /* each expression with a NUL at its end */
    byte_buffer statements; /* the insides of {% %}, one after another */
} outline;

/* ---- spelling -------------------------------------------------------------------------------- */

static bool ends_with(const byte_buffer *b, size_t from, const char *end)
{
    size_t length = strlen(end);
    return b->length >= from + length && !memcmp(b->bytes + b->length - length, end, length);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* "a" + "b" is "ab": the second text continues the first. */
static dsmoe_status open_quote(byte_buffer *out, size_t from, dsmoe_error *error)
{
    if (!ends_with(out, from, "'+")) return byte_buffer_append(out, "'", 1, error);
    out->length -= 2;
    return DSMOE_OK;
}

static dsmoe_status put_quoted(byte_buffer *out, char c, dsmoe_error *error)
{
    return c == '\n' ? byte_buffer_append(out, "\\n", 2, error)
                     : byte_buffer_append(out, &c, 1, error);
}

/* Appends a character outside of quotes, and gives message.content and message.role one spelling. */
static dsmoe_status put_bare(byte_buffer *out, size_t from, char c, dsmoe_error *error)
{
    static const char *const names[][2] = {{"message.content", "message['content']"},
                                           {"message.role", "message['role']"}};
    if (is_blank(c)) return DSMOE_OK;
    STATUS_TRY(byte_buffer_append(out, &c, 1, error));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ends_with(out, from, names[i][0])) {
            out->length -= strlen(names[i][0]);
            return byte_buffer_append(out, names[i][1], strlen(names[i][1]), error);
        }
    return DSMOE_OK;
}

/* Appends the inside of a tag. */
static dsmoe_status put_code(byte_buffer *out, span code, dsmoe_error *error)
{
    size_t from = out->length;
    char quote = '\0';
    for (size_t i = 0; i < code.length; i++) {
        char c = code.at[i];
        if (!quote && (c == '\'' || c == '"')) {
            quote = c;
            STATUS_TRY(open_quote(out, from, error));
        } else if (!quote) {
            STATUS_TRY(put_bare(out, from, c, error));
        } else if (c == quote) {
            quote = '\0';
            STATUS_TRY(byte_buffer_append(out, "'", 1, error));
        } else {
            STATUS_TRY(put_quoted(out, c, error));
            if (c == '\\' && i + 1 < code.length) STATUS_TRY(put_quoted(out, code.at[++i], error));
        }
    }
    return DSMOE_OK;
}

static dsmoe_status put_text(byte_buffer *out, span text, dsmoe_error *error)
{
    if (text.length == 0) return DSMOE_OK;
    STATUS_TRY(byte_buffer_append(out, "'", 1, error));
    for (size_t i = 0; i < text.length; i++) STATUS_TRY(put_quoted(out, text.at[i], error));
    return byte_buffer_append(out, "'", 2, error); /* with the NUL */
}

/* ---- tags ------------------------------------------------------------------------------------ */

typedef struct tag {
    char kind;   /* '{', '%', '#' as in {{, {%, {#; '\0': the template's end */
    span whole;  /* with its braces */
    span inside; /* without the dashes */
    bool trims_before, trims_after;
} tag;

/* Finds the end of a tag, skipping quotes, which may contain it. */
static const char *find_end(const char *at, const char *end, char kind)
{
    char last = kind == '{' ? '}' : kind, quote = '\0';
    for (; at + 1 < end; at++) {
        if (quote && *at == '\\')
            at++;
        else if (quote)
            quote = *at == quote ? '\0' : quote;
        else if (kind != '#' && (*at == '\'' || *at == '"'))
            quote = *at;
        else if (*at == last && at[1] == '}')
            return at;
    }
    return NULL;
}

/* Finds the next tag at `at` or later; false if it has no end. */
static bool find_tag(const char *at, const char *end, tag *t)
{
    *t = (tag){.whole = {end, 0}, .inside = {end, 0}};
    while (at + 1 < end && !(*at == '{' && strchr("{%#", at[1]))) at++;
    if (at + 1 >= end) return true;
    t->kind = at[1];
    const char *first = at + 2, *last = find_end(first, end, t->kind);
    if (!last) return false;
    t->whole = (span){at, (size_t)(last + 2 - at)};
    t->trims_before = first < last && *first == '-';
    if (t->trims_before) first++;
    t->trims_after = first < last && last[-1] == '-';
    if (t->trims_after) last--;
    t->inside = (span){first, (size_t)(last - first)};
    return true;
}

static bool is_statement(const tag *t) { return t->kind == '%' || t->kind == '#'; }

/* Trims the text between two tags: dashes remove blanks, and so do statements on a line of their own, as in
 * the public library that runs templates. */
static span trim(span text, const tag *before, const tag *after)
{
    const char *start = text.at;
    while (before->trims_after && text.length > 0 && is_blank(*text.at)) text.at++, text.length--;
    if (is_statement(before) && text.length > 0 && *text.at == '\n') text.at++, text.length--;
    while (after->trims_before && text.length > 0 && is_blank(text.at[text.length - 1]))
        text.length--;
    if (!is_statement(after)) return text;
    size_t length = text.length;
    while (length > 0 && (text.at[length - 1] == ' ' || text.at[length - 1] == '\t')) length--;
    bool begins_line = !before->kind && length == 0;
    if (text.at + length > start) begins_line = text.at[length - 1] == '\n';
    if (begins_line) text.length = length;
    return text;
}

static dsmoe_status read_template(outline *o, span text, bool *whole, dsmoe_error *error)
{
    const char *at = text.at, *end = at + text.length;
    tag before = {0}, t;
    do {
        *whole = find_tag(at, end, &t);
        if (!*whole) return DSMOE_OK;
        span between = {at, (size_t)(t.whole.at - at)};
        if (between.length > 0) between = trim(between, &before, &t);
        STATUS_TRY(put_text(&o->writes, between, error));
        if (t.kind == '%') STATUS_TRY(put_code(&o->statements, t.inside, error));
        if (t.kind == '{') {
            STATUS_TRY(put_code(&o->writes, t.inside, error));
            STATUS_TRY(byte_buffer_append(&o->writes, "", 1, error));
        }
        before = t;
        at = t.whole.at + t.whole.length;
    } while (t.kind);
    return byte_buffer_append(&o->statements, "", 1, error);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool is_listed(const dsmoe_chat_form *f, const char *expression)
{
    for (int i = 0; i < CHAT_WRITES && f->writes[i]; i++)
        if (!strcmp(f->writes[i] + (f->writes[i][0] == '?'), expression)) return true;
    return false;
}

static bool writes(const outline *o, const char *expression)
{
    for (size_t at = 0; at < o->writes.length; at += strlen(o->writes.bytes + at) + 1)
        if (!strcmp(o->writes.bytes + at, expression)) return true;
    return false;
}

/* Expressions that never apply: conversations here have no tools, and no errors that a template reports. */
static bool is_aside(const char *expression)
{
    return strstr(expression, "tool") || !strncmp(expression, "raise_exception(", 16) ||
           !strcmp(expression, "''");
}

/* Whether a template changes contents before it writes them. */
static bool changes_contents(const outline *o)
{
    static const char *const words[] = {"think", "strip(", "split(", "replace(", "|trim"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(o->statements.bytes, words[i])) return true;
    return false;
}

static bool is_form(const outline *o, const dsmoe_chat_form *f)
{
    if (!f->writes[0]) return false;
    if (f->mentions && !strstr(o->statements.bytes, f->mentions)) return false;
    for (size_t at = 0; at < o->writes.length; at += strlen(o->writes.bytes + at) + 1)
        if (!is_listed(f, o->writes.bytes + at) && !is_aside(o->writes.bytes + at)) return false;
    for (int i = 0; i < CHAT_WRITES && f->writes[i]; i++)
        if (f->writes[i][0] != '?' && !writes(o, f->writes[i])) return false;
    return true;
}

/* Finds the form whose own template (chat_form_template) this is. */
static dsmoe_status find_own(span text, const dsmoe_chat_form **form, dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; i < n_chat_forms && status == DSMOE_OK && !*form; i++) {
        byte_buffer own = {0};
        status = chat_form_template(&chat_forms[i], &own, error);
        if (status == DSMOE_OK && own.length == text.length &&
            !memcmp(own.bytes, text.at, text.length))
            *form = &chat_forms[i];
        byte_buffer_free(&own);
    }
    return status;
}

dsmoe_status chat_form_recognise(const char *text, size_t length, const dsmoe_chat_form **form,
                                 dsmoe_error *error)
{
    *form = NULL;
    if (memchr(text, '\0', length)) return DSMOE_OK;
    if (length > 0 && text[length - 1] == '\n') length--; /* the public library drops it too */
    STATUS_TRY(find_own((span){text, length}, form, error));
    if (*form) return DSMOE_OK;
    outline o = {0};
    bool whole;
    dsmoe_status status = read_template(&o, (span){text, length}, &whole, error);
    if (status == DSMOE_OK && whole && !changes_contents(&o))
        for (size_t i = 0; i < n_chat_forms && !*form; i++)
            if (is_form(&o, &chat_forms[i])) *form = &chat_forms[i];
    byte_buffer_free(&o.writes);
    byte_buffer_free(&o.statements);
    return status;
}
