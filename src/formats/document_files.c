/* document_files.c - describes in words which files were found as data. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/documents.h"

static const char *const names[] = {
    [DSMOE_BAD_BYTES_REPLACE] = "replace",
    [DSMOE_BAD_BYTES_KEEP] = "keep",
    [DSMOE_BAD_BYTES_SKIP] = "skip",
};

static const char *const reasons[DSMOE_N_LEFT_OUT] = {
    [DSMOE_LEFT_OUT_BINARY] = "not text",
    [DSMOE_LEFT_OUT_BAD_BYTES] = "not UTF-8 throughout",
    [DSMOE_LEFT_OUT_EMPTY] = "empty",
    [DSMOE_LEFT_OUT_LINK] = "behind broken or circular links",
    [DSMOE_LEFT_OUT_SPECIAL] = "not files",
    [DSMOE_LEFT_OUT_TWICE] = "found twice",
};

bool dsmoe_bad_bytes_find(const char *name, dsmoe_bad_bytes *bad_bytes)
{
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *bad_bytes = (dsmoe_bad_bytes)i;
            return true;
        }
    return false;
}

typedef struct line {
    char *text;
    size_t size, length;
} line;

__attribute__((format(printf, 2, 3))) static void put(line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(l->text + l->length, l->size - l->length, format, arguments);
    va_end(arguments);
    /* The text contains names of files: keep it to one printable line. */
    for (; n > 0 && l->text[l->length]; l->length++)
        if ((unsigned char)l->text[l->length] < 0x20 || l->text[l->length] == 0x7f)
            l->text[l->length] = '?';
}

static void put_left_out(line *l, const dsmoe_data_files *files)
{
    int64_t n = 0;
    for (int i = 0; i < DSMOE_N_LEFT_OUT; i++) n += files->n_left_out[i];
    if (n == 0) return;
    put(l, "%" PRId64 " of %" PRId64 " files left out (%" PRId64 " byte%s): ", n,
        n + files->n_files, files->n_bytes_left_out, files->n_bytes_left_out == 1 ? "" : "s");
    const char *between = "";
    for (int i = 0; i < DSMOE_N_LEFT_OUT; i++) {
        if (files->n_left_out[i] == 0) continue;
        put(l, "%s%" PRId64 " %s", between, files->n_left_out[i], reasons[i]);
        between = ", ";
    }
    put(l, "; the first is %s", files->first_left_out);
}

void dsmoe_data_files_describe(const dsmoe_data_files *files, char *text, size_t size)
{
    if (size == 0) return;
    *text = '\0';
    line l = {.text = text, .size = size};
    put_left_out(&l, files);
    if (files->n_bad_files == 0) return;
    bool one = files->n_bad_bytes == 1;
    put(&l, "%s%" PRId64 " byte%s not UTF-8 and %s, in %" PRId64 " file%s; the first is %s",
        l.length > 0 ? "; " : "", files->n_bad_bytes, one ? " is" : "s are",
        files->bad_bytes == DSMOE_BAD_BYTES_KEEP ? "kept" : "read as U+FFFD", files->n_bad_files,
        files->n_bad_files == 1 ? "" : "s", files->first_bad);
}
