/* gguf_fields.c - reads metadata of a GGUF file into a configuration by tables. */
#include "model/gguf_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gguf_whole_key gguf_reader_key(const gguf_reader *r, const char *key)
{
    gguf_whole_key whole;
    snprintf(whole.name, sizeof whole.name, "%s%s", key[0] == '.' ? r->architecture : "", key);
    return whole;
}

/* ---- values -------------------------------------------------------------------------------- */

double gguf_shortest(double value)
{
    if ((double)(float)value != value) return value; /* true for a NaN */
    char digits[32];
    for (int precision = 1; precision <= 9; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if ((float)strtod(digits, NULL) == (float)value) break;
    }
    return strtod(digits, NULL);
}

dsmoe_status gguf_reader_int(const gguf_reader *r, const char *key, int64_t *value,
                             dsmoe_error *error)
{
    bool found;
    return gguf_get_int(r->file, gguf_reader_key(r, key).name, value, &found, error);
}

dsmoe_status gguf_reader_number(const gguf_reader *r, const char *key, double *value,
                                dsmoe_error *error)
{
    bool found;
    STATUS_TRY(gguf_get_float(r->file, gguf_reader_key(r, key).name, value, &found, error));
    if (found) *value = gguf_shortest(*value);
    return DSMOE_OK;
}

dsmoe_status gguf_reader_flag(const gguf_reader *r, const char *key, bool *value,
                              dsmoe_error *error)
{
    bool found;
    return gguf_get_bool(r->file, gguf_reader_key(r, key).name, value, &found, error);
}

dsmoe_status gguf_reader_string(const gguf_reader *r, const char *key, gguf_string *value,
                                dsmoe_error *error)
{
    bool found;
    return gguf_get_string(r->file, gguf_reader_key(r, key).name, value, &found, error);
}

bool gguf_reader_has_int(const gguf_reader *r, const char *key)
{
    int64_t value;
    bool found = false;
    return gguf_get_int(r->file, gguf_reader_key(r, key).name, &value, &found, NULL) == DSMOE_OK &&
           found;
}

static dsmoe_status read_field(const gguf_reader *r, const gguf_field *f, bool is_number,
                               dsmoe_config *config, dsmoe_error *error)
{
    void *at = (char *)config + f->offset;
    if (is_number) return gguf_reader_number(r, f->key, at, error);
    if (!f->required) return gguf_reader_int(r, f->key, at, error);
    return gguf_get_int(r->file, gguf_reader_key(r, f->key).name, at, NULL, error);
}

dsmoe_status gguf_reader_fill(const gguf_reader *r, dsmoe_config *config, dsmoe_error *error)
{
    for (int i = 0; i < r->n_tables; i++)
        for (int j = 0; j < r->tables[i].n; j++)
            STATUS_TRY(read_field(r, &r->tables[i].at[j], r->tables[i].are_numbers, config, error));
    return DSMOE_OK;
}

/* ---- fixed values -------------------------------------------------------------------------- */

dsmoe_status gguf_reader_expect_int(const gguf_reader *r, const char *key, int64_t wanted,
                                    dsmoe_error *error)
{
    int64_t value = wanted;
    STATUS_TRY(gguf_reader_int(r, key, &value, error));
    if (value == wanted) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "%s: %s is %" PRId64 "; only %" PRId64 " is supported", gguf_path(r->file),
                       gguf_reader_key(r, key).name, value, wanted);
}

dsmoe_status gguf_reader_expect_number(const gguf_reader *r, const char *key, double wanted,
                                       dsmoe_error *error)
{
    double value = wanted;
    STATUS_TRY(gguf_reader_number(r, key, &value, error));
    if (value == wanted) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %g; only %g is supported",
                       gguf_path(r->file), gguf_reader_key(r, key).name, value, wanted);
}

/* ---- messages ------------------------------------------------------------------------------ */

static bool begins_with(const char *text, const char *name)
{
    size_t length = strlen(name);
    char next = strncmp(text, name, length) ? '_' : text[length];
    return next != '_' && (next < 'a' || next > 'z');
}

/* The field whose name in config.json the text begins with, or NULL. */
static const gguf_field *field_at(const gguf_reader *r, const char *text)
{
    for (int i = 0; i < r->n_tables; i++)
        for (int j = 0; j < r->tables[i].n; j++)
            if (begins_with(text, r->tables[i].at[j].name)) return &r->tables[i].at[j];
    return NULL;
}

dsmoe_status gguf_reader_fail(const gguf_reader *r, dsmoe_status status, const char *message,
                              dsmoe_error *error)
{
    char told[sizeof error->message] = "";
    size_t length = 0;
    bool begins = true; /* a word begins here */
    while (*message && length < sizeof told - 1) {
        const gguf_field *field = begins ? field_at(r, message) : NULL;
        if (!field) {
            begins = *message == ' ';
            told[length++] = *message++;
            continue;
        }
        int n = snprintf(told + length, sizeof told - length, "%s",
                         gguf_reader_key(r, field->key).name);
        length += (size_t)n < sizeof told - length ? (size_t)n : sizeof told - length - 1;
        message += strlen(field->name);
    }
    told[length] = '\0';
    return status_fail(error, status, "%s: %s", gguf_path(r->file), told);
}
