/* gguf_metadata.c - the metadata of a GGUF file: checked in one walk, then looked up by name.
 *
 * Every count or length in the file is compared with the bytes that are left before it is used. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_parts.h"

/* ---- types -------------------------------------------------------------------------------- */

enum { LENGTH_SIZE = 8 };

/* The least size of a value in bytes. */
static const struct {
    const char *name;
    size_t size;
} types[] = {
    [GGUF_U8] = {"U8", 1},
    [GGUF_I8] = {"I8", 1},
    [GGUF_U16] = {"U16", 2},
    [GGUF_I16] = {"I16", 2},
    [GGUF_U32] = {"U32", 4},
    [GGUF_I32] = {"I32", 4},
    [GGUF_F32] = {"F32", 4},
    [GGUF_BOOL] = {"BOOL", 1},
    [GGUF_STRING] = {"STRING", LENGTH_SIZE},
    [GGUF_ARRAY] = {"ARRAY", 12},
    [GGUF_U64] = {"U64", 8},
    [GGUF_I64] = {"I64", 8},
    [GGUF_F64] = {"F64", 8},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- the walk ----------------------------------------------------------------------------- */

static dsmoe_status cut_short(const gguf_cursor *cursor, gguf_string key, dsmoe_error *error)
{
    return status_fail(
        error, DSMOE_ERROR_FORMAT,
        "%s: the file ends in the value of key '%.*s' at offset %zu: file cut short?", cursor->path,
        gguf_shown(key), key.bytes, cursor->at);
}

static dsmoe_status skip_bools(gguf_cursor *cursor, gguf_string key, size_t count,
                               dsmoe_error *error)
{
    const unsigned char *at;
    if (!gguf_cursor_take(cursor, count, &at)) return cut_short(cursor, key, error);
    for (size_t i = 0; i < count; i++)
        if (at[i] > 1)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: key '%.*s' holds %u at offset %zu, where a BOOL must be 0 or 1",
                               cursor->path, gguf_shown(key), key.bytes, at[i],
                               (size_t)(at + i - cursor->bytes));
    return DSMOE_OK;
}

static dsmoe_status take_string(gguf_cursor *cursor, gguf_string key, const unsigned char **at,
                                size_t *length, dsmoe_error *error)
{
    uint64_t claimed;
    size_t begin = cursor->at;
    if (!gguf_cursor_u64(cursor, &claimed)) return cut_short(cursor, key, error);
    *length = claimed;
    if (gguf_cursor_take(cursor, *length, at)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: key '%.*s' has a string of %llu bytes at offset %zu, but only %zu "
                       "follow: file cut short?",
                       cursor->path, gguf_shown(key), key.bytes, (unsigned long long)claimed, begin,
                       cursor->size - cursor->at);
}

static dsmoe_status skip_elements(gguf_cursor *cursor, const gguf_key *key, dsmoe_error *error)
{
    if (key->elements == GGUF_BOOL) return skip_bools(cursor, key->name, key->count, error);
    if (key->elements != GGUF_STRING) {
        cursor->at += key->count * types[key->elements].size;
        return DSMOE_OK;
    }
    const unsigned char *at;
    size_t length;
    for (size_t i = 0; i < key->count; i++)
        STATUS_TRY(take_string(cursor, key->name, &at, &length, error));
    return DSMOE_OK;
}

static dsmoe_status read_array(gguf_cursor *cursor, gguf_key *key, dsmoe_error *error)
{
    uint32_t type;
    uint64_t count;
    size_t begin = cursor->at;
    if (!gguf_cursor_u32(cursor, &type) || !gguf_cursor_u64(cursor, &count))
        return cut_short(cursor, key->name, error);
    if (type == GGUF_ARRAY)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: key '%.*s' is an array of arrays at offset %zu, which is not "
                           "supported",
                           cursor->path, gguf_shown(key->name), key->name.bytes, begin);
    if (type >= N_TYPES)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: key '%.*s' is an array of the unknown type %u at offset %zu",
                           cursor->path, gguf_shown(key->name), key->name.bytes, type, begin);
    size_t left = cursor->size - cursor->at;
    if (count > left / types[type].size)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: key '%.*s' has an array of %llu %s at offset %zu, but only %zu bytes "
            "follow: file cut short?",
            cursor->path, gguf_shown(key->name), key->name.bytes, (unsigned long long)count,
            types[type].name, begin, left);
    key->elements = (gguf_type)type;
    key->count = (size_t)count;
    key->at = cursor->bytes + cursor->at;
    return skip_elements(cursor, key, error);
}

static dsmoe_status read_value(gguf_cursor *cursor, gguf_key *key, dsmoe_error *error)
{
    key->at = cursor->bytes + cursor->at;
    switch (key->type) {
    case GGUF_BOOL: return skip_bools(cursor, key->name, 1, error);
    case GGUF_STRING: return take_string(cursor, key->name, &key->at, &key->count, error);
    case GGUF_ARRAY: return read_array(cursor, key, error);
    default:
        if (gguf_cursor_take(cursor, types[key->type].size, &key->at)) return DSMOE_OK;
        return cut_short(cursor, key->name, error);
    }
}

static int compare_names(gguf_string a, gguf_string b)
{
    int order = memcmp(a.bytes, b.bytes, a.length < b.length ? a.length : b.length);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_keys(const void *left, const void *right)
{
    const gguf_key *a = left, *b = right;
    return compare_names(a->name, b->name);
}

dsmoe_status gguf_part_read_keys(gguf_part *part, gguf_cursor *cursor, uint64_t n_keys,
                                 dsmoe_error *error)
{
    enum { SMALLEST_KEY = LENGTH_SIZE + 1 + 4 + 1 };
    size_t left = cursor->size - cursor->at;
    if (n_keys > GGUF_MAX_KEYS || n_keys > left / SMALLEST_KEY)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: %llu metadata keys at offset 16 are too many for the %zu bytes that "
            "follow, or more than %d",
            part->path, (unsigned long long)n_keys, left, GGUF_MAX_KEYS);
    part->keys = calloc(n_keys + 1, sizeof *part->keys); /* + 1: never of size 0 */
    if (!part->keys) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", part->path);
    for (size_t i = 0; i < n_keys; i++) {
        gguf_key *key = &part->keys[i];
        uint32_t type;
        STATUS_TRY(gguf_cursor_name(cursor, "metadata key", i, GGUF_MAX_KEY, &key->name, error));
        if (!gguf_cursor_u32(cursor, &type)) return cut_short(cursor, key->name, error);
        if (type >= N_TYPES)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: key '%.*s' has the unknown type %u at offset %zu", part->path,
                               gguf_shown(key->name), key->name.bytes, type, cursor->at - 4);
        key->type = (gguf_type)type;
        STATUS_TRY(read_value(cursor, key, error));
    }
    part->n_keys = n_keys;
    qsort(part->keys, n_keys, sizeof *part->keys, compare_keys);
    for (size_t i = 1; i < n_keys; i++)
        if (compare_keys(&part->keys[i - 1], &part->keys[i]) == 0)
            return status_fail(error, DSMOE_ERROR_FORMAT, "%s: key '%.*s' occurs twice", part->path,
                               gguf_shown(part->keys[i].name), part->keys[i].name.bytes);
    return DSMOE_OK;
}

/* ---- values by name ------------------------------------------------------------------------ */

const gguf_key *gguf_part_find(const gguf_part *part, const char *key)
{
    gguf_key wanted = {.name = {key, strlen(key)}};
    return bsearch(&wanted, part->keys, part->n_keys, sizeof wanted, compare_keys);
}

/* Finds a key. *there is NULL if it is missing, which is an error unless `found` is given. */
static dsmoe_status look_up(const gguf_part *part, const char *key, const gguf_key **there,
                            bool *found, dsmoe_error *error)
{
    *there = gguf_part_find(part, key);
    if (found) *found = *there != NULL;
    if (*there || found) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: there is no key '%s'", part->path, key);
}

static dsmoe_status wrong_kind(const gguf_part *part, const gguf_key *key, const char *wanted,
                               dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: key '%.*s' must be %s, not %s", part->path,
                       gguf_shown(key->name), key->name.bytes, wanted, types[key->type].name);
}

/* A little-endian integer, its sign extended if it has one. */
static int64_t integer_at(const unsigned char *at, gguf_type type)
{
    uint64_t value = 0;
    memcpy(&value, at, types[type].size);
    uint64_t sign = (uint64_t)1 << (8 * types[type].size - 1);
    bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    return (int64_t)(is_signed ? (value ^ sign) - sign : value);
}

dsmoe_status gguf_part_get_int(const gguf_part *part, const char *key, int64_t *value, bool *found,
                               dsmoe_error *error)
{
    const gguf_key *there;
    STATUS_TRY(look_up(part, key, &there, found, error));
    if (!there) return DSMOE_OK;
    switch (there->type) {
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_BOOL:
    case GGUF_STRING:
    case GGUF_ARRAY: return wrong_kind(part, there, "an integer", error);
    default: break;
    }
    int64_t number = integer_at(there->at, there->type);
    if (there->type == GGUF_U64 && number < 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: key '%s' is %llu, which is too large",
                           part->path, key, (unsigned long long)number);
    *value = number;
    return DSMOE_OK;
}

dsmoe_status gguf_get_int(const gguf *file, const char *key, int64_t *value, bool *found,
                          dsmoe_error *error)
{
    return gguf_part_get_int(&file->parts[0], key, value, found, error);
}

dsmoe_status gguf_get_float(const gguf *file, const char *key, double *value, bool *found,
                            dsmoe_error *error)
{
    const gguf_key *there;
    STATUS_TRY(look_up(&file->parts[0], key, &there, found, error));
    if (!there) return DSMOE_OK;
    float narrow;
    if (there->type == GGUF_F32) {
        memcpy(&narrow, there->at, sizeof narrow);
        *value = narrow;
    } else if (there->type == GGUF_F64) {
        memcpy(value, there->at, sizeof *value);
    } else {
        return wrong_kind(&file->parts[0], there, "F32 or F64", error);
    }
    return DSMOE_OK;
}

dsmoe_status gguf_get_bool(const gguf *file, const char *key, bool *value, bool *found,
                           dsmoe_error *error)
{
    const gguf_key *there;
    STATUS_TRY(look_up(&file->parts[0], key, &there, found, error));
    if (!there) return DSMOE_OK;
    if (there->type != GGUF_BOOL) return wrong_kind(&file->parts[0], there, "a BOOL", error);
    *value = *there->at != 0;
    return DSMOE_OK;
}

dsmoe_status gguf_get_string(const gguf *file, const char *key, gguf_string *value, bool *found,
                             dsmoe_error *error)
{
    const gguf_key *there;
    STATUS_TRY(look_up(&file->parts[0], key, &there, found, error));
    if (!there) return DSMOE_OK;
    if (there->type != GGUF_STRING) return wrong_kind(&file->parts[0], there, "a STRING", error);
    *value = (gguf_string){(const char *)there->at, there->count};
    return DSMOE_OK;
}

dsmoe_status gguf_get_array(const gguf *file, const char *key, gguf_type type, gguf_array *value,
                            bool *found, dsmoe_error *error)
{
    const gguf_key *there;
    STATUS_TRY(look_up(&file->parts[0], key, &there, found, error));
    if (!there) return DSMOE_OK;
    if (there->type != GGUF_ARRAY) return wrong_kind(&file->parts[0], there, "an ARRAY", error);
    if (there->elements != type)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: key '%s' must be an array of %s, not of %s", file->parts[0].path,
                           key, types[type].name, types[there->elements].name);
    *value = (gguf_array){.type = type, .count = there->count, .at = there->at};
    return DSMOE_OK;
}

bool gguf_string_is(gguf_string string, const char *word)
{
    return string.length == strlen(word) && memcmp(string.bytes, word, string.length) == 0;
}

int gguf_shown(gguf_string string)
{
    enum { LONGEST = 128 };
    return string.length < LONGEST ? (int)string.length : LONGEST;
}

gguf_string gguf_next_string(const unsigned char **at)
{
    uint64_t length;
    memcpy(&length, *at, sizeof length);
    gguf_string string = {(const char *)*at + sizeof length, (size_t)length};
    *at += sizeof length + length;
    return string;
}

int32_t gguf_array_i32(const gguf_array *array, size_t index)
{
    assert(array->type == GGUF_I32 && index < array->count);
    int32_t value;
    memcpy(&value, array->at + index * sizeof value, sizeof value);
    return value;
}
