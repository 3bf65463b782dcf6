/* regex_syntax.c - translates the patterns of tokenizer.json to PCRE2's syntax.
 *
 * Both engines read the common part in the same way. Differences are spelled out (\s is exactly
 * White_Space, \w has marks, \h is a hexadecimal digit, \v is one character) or refused: no tokenizer is
 * better than one with wrong ids. Only the listed kinds of groups are accepted, which excludes recursion,
 * conditions and verbs. Backreferences are refused, since their cost has no bound. */
#include "text/regex.h"

#include <string.h>

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define HEX "0-9A-Fa-f"

typedef struct translator {
    const char *begin, *at, *end;
    bool in_class;
    byte_buffer *out;
    dsmoe_error *error;
} translator;

static dsmoe_status put(translator *t, const char *text)
{
    return byte_buffer_append(t->out, text, strlen(text), t->error);
}

static dsmoe_status copy(translator *t, size_t n)
{
    dsmoe_status status = byte_buffer_append(t->out, t->at, n, t->error);
    t->at += n;
    return status;
}

static size_t left(const translator *t) { return (size_t)(t->end - t->at); }

static bool next_is(const translator *t, const char *text)
{
    size_t n = strlen(text);
    return left(t) >= n && !memcmp(t->at, text, n);
}

static bool one_of(char c, const char *set) { return c != '\0' && strchr(set, c) != NULL; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_hex(char c) { return is_digit(c) || one_of(c, "abcdefABCDEF"); }

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static dsmoe_status refuse(translator *t, const char *what)
{
    return status_fail(t->error, DSMOE_ERROR_FORMAT, "%s is not supported, at byte %zu", what,
                       (size_t)(t->at - t->begin));
}

/* Translates \x41, \x{1F600} and \u1234; \x80 and up would be single bytes. */
static dsmoe_status translate_code(translator *t)
{
    char kind = t->at[1];
    size_t n_digits = kind == 'u' ? 4 : 2;
    if (kind == 'x' && left(t) > 2 && t->at[2] == '{') {
        const char *close = memchr(t->at, '}', left(t));
        if (!close) return refuse(t, "\\x{ without an end");
        for (const char *c = t->at + 3; c < close; c++)
            if (!is_hex(*c)) return refuse(t, "\\x{…} with anything but one number");
        return copy(t, (size_t)(close + 1 - t->at));
    }
    if (left(t) < 2 + n_digits) return refuse(t, "a cut-off escape");
    for (size_t i = 2; i < 2 + n_digits; i++)
        if (!is_hex(t->at[i])) return refuse(t, "a cut-off escape");
    if (kind == 'x' && !(t->at[2] >= '0' && t->at[2] <= '7'))
        return refuse(t, "a single byte by \\x");
    STATUS_TRY(put(t, "\\x{"));
    t->at += 2;
    STATUS_TRY(copy(t, n_digits));
    return put(t, "}");
}

/* To PCRE2, the name of a script also means other characters that are used with it, such as 。 with Han. To
 * other engines it means the script alone. */
static bool is_script(const char *name, size_t length)
{
    static const char *const scripts[] = {"Han",    "Hiragana", "Katakana", "Hangul",
                                          "Latin",  "Greek",    "Cyrillic", "Arabic",
                                          "Hebrew", "Thai",     "Bopomofo", "Devanagari"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strlen(scripts[i]) == length && !memcmp(scripts[i], name, length)) return true;
    return false;
}

/* Translates \p{Name} and \P{Name}. */
static dsmoe_status translate_property(translator *t)
{
    const char *close = memchr(t->at, '}', left(t));
    if (left(t) < 3 || t->at[2] != '{' || !close) return refuse(t, "\\p without {name}");
    for (const char *c = t->at + 3; c < close; c++)
        if (!is_letter(*c) && !is_digit(*c) && !one_of(*c, "_ -^&="))
            return refuse(t, "this name in \\p{…}");
    bool script = is_script(t->at + 3, (size_t)(close - t->at) - 3);
    STATUS_TRY(copy(t, 3));
    if (script) STATUS_TRY(put(t, "sc:"));
    return copy(t, (size_t)(close + 1 - t->at));
}

/* Spells out an escape for a set that the engines define differently; NULL for others. */
static const char *translate_set(char c, bool in_class)
{
    switch (c) {
    case 's': return "\\p{White_Space}";
    case 'S': return "\\P{White_Space}";
    case 'w': return in_class ? WORD : "[" WORD "]";
    case 'W': return in_class ? NULL : "[^" WORD "]";
    case 'h': return in_class ? HEX : "[" HEX "]";
    case 'H': return in_class ? NULL : "[^" HEX "]";
    case 'v': return "\\x{0b}";
    default: return NULL;
    }
}

static dsmoe_status translate_escape(translator *t)
{
    if (left(t) < 2) return refuse(t, "a backslash at the end");
    char c = t->at[1];
    const char *set = translate_set(c, t->in_class);
    if (set) {
        t->at += 2;
        return put(t, set);
    }
    if (c == 'x' || c == 'u') return translate_code(t);
    if (c == 'p' || c == 'P') return translate_property(t);
    if (is_digit(c)) return refuse(t, "a backreference or an octal number");
    const char *known = t->in_class ? "dDtnrfaeb" : "dDtnrfaebBAzZGRX";
    if (is_letter(c) && !one_of(c, known)) {
        const char what[] = {'\\', c, '\0'};
        return refuse(t, what);
    }
    return copy(t, 2);
}

/* Translates the beginning of a group: "(?" introduces a kind of group, or options. Ruby's m is PCRE2's s. */
static dsmoe_status translate_group(translator *t)
{
    if (next_is(t, "(*")) return refuse(t, "(*");
    if (!next_is(t, "(?")) return copy(t, 1);
    static const char *const groups[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (next_is(t, groups[i])) return copy(t, strlen(groups[i]));
    const char *c = t->at + 2;
    while (c < t->end && one_of(*c, "im-")) c++;
    /* The engines disagree on how far options without a group reach, unless they come first. */
    bool whole = c < t->end && *c == ')' && t->at == t->begin;
    if (c == t->at + 2 || c == t->end || (*c != ':' && !whole)) return refuse(t, "this (? group");
    STATUS_TRY(put(t, "(?"));
    for (t->at += 2; t->at < c; t->at++) {
        char option[] = {*t->at == 'm' ? 's' : *t->at, '\0'};
        STATUS_TRY(put(t, option));
    }
    return copy(t, 1);
}

static dsmoe_status open_class(translator *t)
{
    t->in_class = true;
    STATUS_TRY(copy(t, 1));
    if (next_is(t, "^")) STATUS_TRY(copy(t, 1));
    if (!next_is(t, "]")) return DSMOE_OK;
    t->at++; /* a ']' at the start of a class stands for itself */
    return put(t, "\\]");
}

static dsmoe_status translate_in_class(translator *t)
{
    if (next_is(t, "&&")) return refuse(t, "an intersection of classes");
    if (next_is(t, "[:")) {
        const char *close = memchr(t->at, ']', left(t));
        if (!close || close[-1] != ':') return refuse(t, "[: without :]");
        return copy(t, (size_t)(close + 1 - t->at));
    }
    if (next_is(t, "[")) return refuse(t, "a class within a class");
    if (*t->at == ']') t->in_class = false;
    return copy(t, 1);
}

static dsmoe_status translate_outside(translator *t)
{
    if (*t->at == '[') return open_class(t);
    if (*t->at == '(') return translate_group(t);
    if (next_is(t, "}+")) return refuse(t, "a repetition of {…}");
    if (next_is(t, "{,") && left(t) > 2 && is_digit(t->at[2])) {
        t->at++;
        return put(t, "{0");
    }
    return copy(t, 1);
}

dsmoe_status regex_translate(const char *pattern, size_t length, byte_buffer *out,
                             dsmoe_error *error)
{
    translator t = {
        .begin = pattern, .at = pattern, .end = pattern + length, .out = out, .error = error};
    /* In a long run of spaces that no line end follows, a search would try the whole rest from each start.
     * So a match must begin where the run does: if it fails there, it fails further right too. */
    if (length == 4 && !memcmp(pattern, "\\s+$", 4)) STATUS_TRY(put(&t, "(?<!\\p{White_Space})"));
    while (t.at < t.end) {
        if (*t.at == '\\')
            STATUS_TRY(translate_escape(&t));
        else if (t.in_class)
            STATUS_TRY(translate_in_class(&t));
        else
            STATUS_TRY(translate_outside(&t));
    }
    if (t.in_class) return refuse(&t, "a class without an end");
    return DSMOE_OK;
}
