/* ablation_settings.c - the settings that all runs of a comparison share, one per line, as the command takes
 * them: "--steps 2000", or "--lr switch=0.001" for one architecture. */
#include "study/ablation_settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

char *ablation_settings_format(const ablation *a)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (!file) return NULL;
    const ablation_options *o = &a->options;
    fprintf(file, "--scale %s\n", o->scale->name);
    fprintf(file, "--steps %" PRId64 "\n--batch %" PRId64 "\n--seq %" PRId64 "\n", o->steps,
            o->batch, o->seq);
    choices_put(file, &o->choices);
    if (*a->tokenizer_path)
        fprintf(file, "--tokenizer %s\n", a->tokenizer_path);
    else
        fprintf(file, "--vocab-size %" PRId64 "\n", o->vocab_size);
    fprintf(file, "--bad-bytes %s\n", o->bad_bytes);
    for (int i = 0; i < o->n_data; i++) fprintf(file, "--data %s\n", a->data[i]);
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A line without its newline. */
typedef struct line {
    const char *text;
    size_t length;
} line;

/* Takes the next line from a text; false at its end. */
static bool take_line(const char **text, line *l)
{
    *l = (line){*text, strcspn(*text, "\n")};
    *text += l->length + (l->text[l->length] == '\n');
    return *text != l->text;
}

static bool begins(line l, const char *word) { return !strncmp(l.text, word, strlen(word)); }

static bool is_tokenizer(line l) { return begins(l, "--tokenizer "); }

/* How much of the line says which setting it is: "--lr ", or "--lr switch=". */
static size_t name_length(line l)
{
    const char *end = is_tokenizer(l) ? NULL : memchr(l.text, '=', l.length);
    if (!end) end = memchr(l.text, ' ', l.length);
    return end ? (size_t)(end - l.text) + 1 : l.length;
}

/* The line of a text that has the same setting. Its text is NULL if there is none. */
static line find_setting(const char *text, line wanted)
{
    size_t length = name_length(wanted);
    for (line l; take_line(&text, &l);)
        if (name_length(l) == length && !memcmp(l.text, wanted.text, length)) return l;
    return (line){0};
}

/* The data may have moved, and so may the tokenizer: its tokens show whether it is the same. */
static bool is_same(line a, line b)
{
    if (is_tokenizer(a)) return true;
    return a.length == b.length && !memcmp(a.text, b.text, a.length);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Finds the first setting of a text, data apart, that another text does not have or has with another value,
 * which `other` receives. */
static bool find_difference(const char *text, const char *other_text, line *l, line *other)
{
    while (take_line(&text, l)) {
        *other = find_setting(other_text, *l);
        if (!begins(*l, "--data ") && (!other->text || !is_same(*l, *other))) return true;
    }
    return false;
}

/* The length of a line for "%.*s" in a message. */
static int shown(line l) { return (int)(l.length < DSMOE_PATH ? l.length : DSMOE_PATH); }

dsmoe_status ablation_settings_compare(ablation *a, const char *ours, const char *theirs,
                                       dsmoe_error *error)
{
    line l, other;
    size_t length = strlen(theirs);
    if (length == 0 || theirs[length - 1] != '\n')
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s/settings.txt: the file is damaged: restore it, or choose another "
                           "folder",
                           a->out);
    a->is_other = true;
    if (find_difference(theirs, ours, &l, &other)) {
        if (other.text)
            return status_fail(error, DSMOE_ERROR_CONFIG, "%s was made with %.*s, not with %.*s",
                               a->out, shown(l), l.text, shown(other), other.text);
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s was made with %.*s, not without it",
                           a->out, shown(l), l.text);
    }
    if (find_difference(ours, theirs, &l, &other))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s was made without %.*s", a->out, shown(l),
                           l.text);
    a->is_other = false;
    return DSMOE_OK;
}
