/* settings_change.c - changes of settings for a run that has begun: which are allowed, and how they are
 * described. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/settings.h"
#include "train/settings_table.h"

static const setting *find(const char *key)
{
    for (int i = 0; i < settings_count; i++)
        if (!strcmp(key, settings_table[i].key)) return &settings_table[i];
    return NULL;
}

static size_t field_size(const setting *s)
{
    switch (s->kind) {
    case SETTING_INTEGER: return sizeof(int64_t);
    case SETTING_NUMBER: return sizeof(double);
    case SETTING_FLAG: return sizeof(bool);
    case SETTING_TEXT:
    case SETTING_TEXTS: break;
    }
    return (size_t)s->count * s->size;
}

static bool is_same(const setting *s, const dsmoe_run_settings *a, const dsmoe_run_settings *b)
{
    const char *x = (const char *)a + s->offset, *y = (const char *)b + s->offset;
    if (s->kind != SETTING_TEXT && s->kind != SETTING_TEXTS) return !memcmp(x, y, field_size(s));
    for (int i = 0; i < s->count; i++, x += s->size, y += s->size)
        if (strncmp(x, y, s->size)) return false; /* bytes after the NUL do not count */
    return true;
}

static dsmoe_status refuse(const setting *s, const dsmoe_run_settings *settings, const char *name,
                           dsmoe_error *error)
{
    char *value = settings_describe(settings, s->key);
    dsmoe_status status = status_fail(error, DSMOE_ERROR_CONFIG,
                                      "%s cannot change in a run that has begun: it was %s", name,
                                      value ? value : "another one");
    free(value);
    return status;
}

dsmoe_status settings_change(dsmoe_run_settings *settings, const dsmoe_run_settings *given,
                             const char *key, const char *name, dsmoe_error *error)
{
    const setting *s = find(key);
    if (!s) return status_fail(error, DSMOE_ERROR_ARGUMENT, "there is no setting '%.64s'", key);
    if (is_same(s, settings, given)) return DSMOE_OK;
    if (!s->may_change) return refuse(s, settings, name, error);
    memcpy((char *)settings + s->offset, (const char *)given + s->offset, field_size(s));
    return DSMOE_OK;
}

/* Whether a setting is not set: -1, or an empty text. */
static bool is_unset(const setting *s, const dsmoe_run_settings *settings)
{
    const char *field = (const char *)settings + s->offset;
    switch (s->kind) {
    case SETTING_INTEGER: return s->or_minus_one && *(const int64_t *)field == -1;
    case SETTING_NUMBER: return s->or_minus_one && *(const double *)field == -1;
    case SETTING_FLAG: return false;
    case SETTING_TEXT:
    case SETTING_TEXTS: return !*field;
    }
    return false;
}

/* Writes the value for people to read. */
static void put_words(FILE *text, const setting *s, const dsmoe_run_settings *settings)
{
    if (is_unset(s, settings))
        fputs("not set", text);
    else
        settings_put_value(text, s, settings);
}

char *settings_describe(const dsmoe_run_settings *settings, const char *key)
{
    char *value = NULL;
    size_t length;
    FILE *text = open_memstream(&value, &length);
    if (!text) return NULL;
    put_words(text, find(key), settings);
    if (fclose(text) == 0) return value;
    free(value);
    return NULL;
}

/* ---- differences ----------------------------------------------------------------------------- */

bool settings_differ(const dsmoe_run_settings *before, const dsmoe_run_settings *after)
{
    for (int i = 0; i < settings_count; i++)
        if (!is_same(&settings_table[i], before, after)) return true;
    return false;
}

void settings_put_changes(FILE *text, const dsmoe_run_settings *before,
                          const dsmoe_run_settings *after)
{
    const char *between = "{";
    for (int i = 0; i < settings_count; i++) {
        const setting *s = &settings_table[i];
        if (is_same(s, before, after)) continue;
        fprintf(text, "%s\"%s\":[", between, s->key);
        settings_put_value(text, s, before);
        fputc(',', text);
        settings_put_value(text, s, after);
        fputc(']', text);
        between = ",";
    }
    fputc('}', text);
}

char *settings_describe_changes(const dsmoe_run_settings *before, const dsmoe_run_settings *after,
                                const char *(*name)(const char *key))
{
    char *changes = NULL;
    size_t length;
    FILE *text = open_memstream(&changes, &length);
    if (!text) return NULL;
    const char *between = "";
    for (int i = 0; i < settings_count; i++) {
        const setting *s = &settings_table[i];
        if (is_same(s, before, after)) continue;
        fprintf(text, "%s%s ", between, name ? name(s->key) : s->key);
        put_words(text, s, before);
        fputs(" -> ", text);
        put_words(text, s, after);
        between = ", ";
    }
    if (fclose(text) == 0) return changes;
    free(changes);
    return NULL;
}
