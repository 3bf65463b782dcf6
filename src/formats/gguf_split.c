/* gguf_split.c - a model in several GGUF files in one folder.
 *
 * Each part's metadata and name say which part it is, and of how many: NAME-00002-of-00003.gguf has
 * split.no 1 and split.count 3. The other parts are looked for next to the path that the user gave,
 * even if that is a link. Only a path that is not named like a part is followed to the file it leads
 * to. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_parts.h"

enum { MAX_PARTS = 65535 }; /* the keys are 16 bits wide in every public file */

static const char key_number[] = "split.no", key_count[] = "split.count",
                  key_tensors[] = "split.tensors.count";

dsmoe_status gguf_split_count(const gguf_part *part, size_t *count, dsmoe_error *error)
{
    int64_t value = 1;
    bool found;
    STATUS_TRY(gguf_part_get_int(part, key_count, &value, &found, error));
    if (value < 0 || value > MAX_PARTS)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: key '%s' is %lld, outside 0 to %d",
                           part->path, key_count, (long long)value, MAX_PARTS);
    *count = value > 1 ? (size_t)value : 1;
    return DSMOE_OK;
}

/* ---- names --------------------------------------------------------------------------------- */

enum { TAIL_LENGTH = sizeof "-00001-of-00001.gguf" - 1 };

static void make_tail(char tail[TAIL_LENGTH + 1], size_t index, size_t count)
{
    /* The modulus shows the compiler that the numbers fit; the limits ensure it anyway. */
    snprintf(tail, TAIL_LENGTH + 1, "-%05zu-of-%05zu.gguf", (index + 1) % 100000, count % 100000);
}

static bool has_tail(const char *path, const char *tail)
{
    size_t length = strlen(path);
    return length > TAIL_LENGTH && strcmp(path + length - TAIL_LENGTH, tail) == 0;
}

/* The path of part `index`, made from the path of another part; NULL if out of memory. */
static char *sibling_path(const char *path, size_t index, size_t count)
{
    char *sibling = strdup(path);
    if (sibling) make_tail(sibling + strlen(sibling) - TAIL_LENGTH, index, count);
    return sibling;
}

/* The path under which a part was opened, if it is named like a part; otherwise the path of the
 * file that it leads to, which must be named like a part. The caller frees it. */
static dsmoe_status find_name(const gguf_part *part, size_t index, size_t count, char **name,
                              dsmoe_error *error)
{
    char tail[TAIL_LENGTH + 1];
    make_tail(tail, index, count);
    bool is_named_so = has_tail(part->path, tail);
    *name = is_named_so ? strdup(part->path) : realpath(part->path, NULL);
    if (!*name && (is_named_so || errno == ENOMEM))
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", part->path);
    if (*name && has_tail(*name, tail)) return DSMOE_OK;
    free(*name);
    *name = NULL;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: part %zu of %zu of a split model must have a name that ends with '%s'",
                       part->path, index + 1, count, tail);
}

/* ---- opening ------------------------------------------------------------------------------- */

static dsmoe_status read_number(const gguf_part *part, size_t count, size_t *index,
                                dsmoe_error *error)
{
    int64_t value = 0;
    STATUS_TRY(gguf_part_get_int(part, key_number, &value, NULL, error));
    if (value < 0 || (uint64_t)value >= count)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: key '%s' is %lld, but there are %zu parts, numbered from 0",
                           part->path, key_number, (long long)value, count);
    *index = (size_t)value;
    return DSMOE_OK;
}

/* Checks that a part is the one that its name says. */
static dsmoe_status check_part(const gguf_part *part, size_t index, size_t count,
                               dsmoe_error *error)
{
    size_t own_index = 0;
    int64_t own_count = 0;
    STATUS_TRY(gguf_part_get_int(part, key_count, &own_count, NULL, error));
    if (own_count != (int64_t)count)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: key '%s' is %lld, but another part of the model says %zu",
                           part->path, key_count, (long long)own_count, count);
    STATUS_TRY(read_number(part, count, &own_index, error));
    if (own_index != index)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: key '%s' is %zu, but by its name it must be %zu", part->path,
                           key_number, own_index, index);
    return DSMOE_OK;
}

/* Opens the next part. */
static dsmoe_status open_part(gguf *file, const char *path, size_t count, dsmoe_error *error)
{
    gguf_part *part = &file->parts[file->n_parts];
    STATUS_TRY(gguf_part_open(part, path, error));
    return check_part(part, file->n_parts++, count, error);
}

static dsmoe_status open_parts(gguf *file, const char *name, gguf_part *given, size_t index,
                               size_t count, dsmoe_error *error)
{
    while (file->n_parts < count) {
        if (file->n_parts == index) {
            file->parts[file->n_parts++] = *given;
            *given = (gguf_part){0};
            continue;
        }
        char *path = sibling_path(name, file->n_parts, count);
        if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", name);
        dsmoe_status status = open_part(file, path, count, error);
        free(path);
        if (status != DSMOE_OK) return status;
    }
    return DSMOE_OK;
}

dsmoe_status gguf_split_open(gguf *file, gguf_part *part, size_t count, dsmoe_error *error)
{
    size_t index = 0;
    char *name = NULL;
    dsmoe_status status = read_number(part, count, &index, error);
    if (status == DSMOE_OK) status = find_name(part, index, count, &name, error);
    if (status == DSMOE_OK) status = open_parts(file, name, part, index, count, error);
    free(name);
    gguf_part_close(part); /* empty if `file` has taken it over */
    return status;
}

dsmoe_status gguf_split_check_tensors(const gguf *file, dsmoe_error *error)
{
    for (size_t i = 0; i < file->n_parts; i++) {
        const gguf_part *part = &file->parts[i];
        int64_t total = (int64_t)file->n_tensors;
        bool found;
        STATUS_TRY(gguf_part_get_int(part, key_tensors, &total, i ? &found : NULL, error));
        if (total != (int64_t)file->n_tensors)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: key '%s' is %lld, but the %zu files have %zu tensors",
                               part->path, key_tensors, (long long)total, file->n_parts,
                               file->n_tensors);
    }
    return DSMOE_OK;
}
