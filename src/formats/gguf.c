/* gguf.c - opens a GGUF file, or all files of a split one, and finds tensors by name. All of it is
 * untrusted: numbers are compared before they are added. */
#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "formats/gguf_parts.h"

enum { VERSION = 3 };

/* ---- one file ------------------------------------------------------------------------------ */

static dsmoe_status read_version(const gguf_part *part, gguf_cursor *cursor, dsmoe_error *error)
{
    const unsigned char *magic;
    uint32_t version;
    if (!gguf_cursor_take(cursor, 4, &magic))
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %zu bytes are too few for a GGUF file",
                           part->path, part->size);
    if (memcmp(magic, "GGUF", 4) != 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: not a GGUF file: the bytes at offset 0 are not 'GGUF'", part->path);
    if (!gguf_cursor_u32(cursor, &version))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: the file ends at offset %zu, in its header: file cut short?",
                           part->path, part->size);
    if (version == (uint32_t)VERSION << 24)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: the version at offset 4 is that of a big-endian file, which is not "
                           "supported",
                           part->path);
    if (version != VERSION)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: GGUF version %u at offset 4, only version %d is supported",
                           part->path, version, VERSION);
    return DSMOE_OK;
}

/* Checks a whole file, whose bytes and size are set, and fills in keys and tensors. */
static dsmoe_status read_part(gguf_part *part, dsmoe_error *error)
{
    gguf_cursor cursor = {.path = part->path, .bytes = part->bytes, .size = part->size};
    uint64_t n_tensors, n_keys;
    STATUS_TRY(read_version(part, &cursor, error));
    if (!gguf_cursor_u64(&cursor, &n_tensors) || !gguf_cursor_u64(&cursor, &n_keys))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: the file ends at offset %zu, in its header: file cut short?",
                           part->path, part->size);
    STATUS_TRY(gguf_part_read_keys(part, &cursor, n_keys, error));
    return gguf_part_read_tensors(part, &cursor, n_tensors, error);
}

dsmoe_status gguf_part_open(gguf_part *part, const char *path, dsmoe_error *error)
{
    *part = (gguf_part){.path = strdup(path)};
    dsmoe_status status;
    if (!part->path)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    else
        status = mapped_file_open(&part->mapping, path, error);
    if (status == DSMOE_OK) {
        part->bytes = part->mapping.bytes;
        part->size = part->mapping.size;
        status = read_part(part, error);
        /* If pages were lost, that is the error, whatever the check found in their place. */
        if (!mapped_file_intact(&part->mapping)) status = mapped_file_lost(path, error);
    }
    if (status != DSMOE_OK) gguf_part_close(part);
    return status;
}

void gguf_part_close(gguf_part *part)
{
    mapped_file_close(&part->mapping);
    free(part->keys);
    free(part->tensors);
    free(part->names);
    free(part->path);
    *part = (gguf_part){0};
}

/* ---- all files ----------------------------------------------------------------------------- */

static int compare_tensors(const void *left, const void *right)
{
    const gguf_tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Puts all tensors into one sorted list; no name may occur twice. */
static dsmoe_status merge_tensors(gguf *file, dsmoe_error *error)
{
    size_t n_tensors = 0;
    for (size_t i = 0; i < file->n_parts; i++) n_tensors += file->parts[i].n_tensors;
    file->tensors = calloc(n_tensors + 1, sizeof *file->tensors); /* + 1: never of size 0 */
    if (!file->tensors)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", gguf_path(file));
    for (size_t i = 0; i < file->n_parts; i++) {
        gguf_part *part = &file->parts[i];
        memcpy(file->tensors + file->n_tensors, part->tensors,
               part->n_tensors * sizeof *part->tensors);
        file->n_tensors += part->n_tensors;
        free(part->tensors);
        part->tensors = NULL;
    }
    qsort(file->tensors, n_tensors, sizeof *file->tensors, compare_tensors);
    for (size_t i = 1; i < n_tensors; i++) {
        const gguf_tensor *one = &file->tensors[i - 1], *other = one + 1;
        if (compare_tensors(one, other) != 0) continue;
        const char *here = gguf_tensor_path(file, one), *there = gguf_tensor_path(file, other);
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor '%s' occurs twice%s%s", here,
                           one->name, here == there ? "" : ", also in ",
                           here == there ? "" : there);
    }
    return DSMOE_OK;
}

/* Takes over the part and opens the other parts, if any. */
static dsmoe_status gather(gguf *file, gguf_part *part, bool may_be_split, dsmoe_error *error)
{
    size_t count = 1;
    dsmoe_status status = gguf_split_count(part, &count, error);
    if (status == DSMOE_OK && count > 1 && !may_be_split)
        status = status_fail(error, DSMOE_ERROR_FORMAT,
                             "%s: key 'split.count' says that there are %zu files, but this is one",
                             part->path, count);
    if (status == DSMOE_OK && !(file->parts = calloc(count, sizeof *file->parts)))
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", part->path);
    if (status != DSMOE_OK) {
        gguf_part_close(part);
        return status;
    }
    if (count > 1) {
        STATUS_TRY(gguf_split_open(file, part, count, error));
    } else {
        file->parts[0] = *part;
        file->n_parts = 1;
    }
    STATUS_TRY(merge_tensors(file, error));
    return count > 1 ? gguf_split_check_tensors(file, error) : DSMOE_OK;
}

static dsmoe_status complete(gguf_part *part, bool may_be_split, gguf **file, dsmoe_error *error)
{
    gguf *opened = calloc(1, sizeof *opened);
    if (!opened) {
        dsmoe_status status =
            status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", part->path);
        gguf_part_close(part);
        return status;
    }
    dsmoe_status status = gather(opened, part, may_be_split, error);
    if (status == DSMOE_OK)
        *file = opened;
    else
        gguf_close(opened);
    return status;
}

dsmoe_status gguf_open(const char *path, gguf **file, dsmoe_error *error)
{
    *file = NULL;
    gguf_part part;
    STATUS_TRY(gguf_part_open(&part, path, error));
    return complete(&part, true, file, error);
}

dsmoe_status gguf_parse(const unsigned char *bytes, size_t size, const char *source, gguf **file,
                        dsmoe_error *error)
{
    *file = NULL;
    gguf_part part = {.path = strdup(source), .bytes = bytes, .size = size};
    if (!part.path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", source);
    dsmoe_status status = read_part(&part, error);
    if (status == DSMOE_OK) return complete(&part, false, file, error);
    gguf_part_close(&part);
    return status;
}

void gguf_close(gguf *file)
{
    if (!file) return;
    for (size_t i = 0; i < file->n_parts; i++) gguf_part_close(&file->parts[i]);
    free(file->parts);
    free(file->tensors);
    free(file);
}

/* ---- queries ------------------------------------------------------------------------------- */

const char *gguf_path(const gguf *file) { return file->parts[0].path; }

dsmoe_status gguf_check_intact(const gguf *file, dsmoe_error *error)
{
    for (size_t i = 0; i < file->n_parts; i++)
        if (!mapped_file_intact(&file->parts[i].mapping))
            return mapped_file_lost(file->parts[i].path, error);
    return DSMOE_OK;
}

size_t gguf_mapped_size(const gguf *file)
{
    size_t size = 0;
    for (size_t i = 0; i < file->n_parts; i++) size += file->parts[i].size;
    return size;
}

size_t gguf_count(const gguf *file) { return file->n_tensors; }

const gguf_tensor *gguf_at(const gguf *file, size_t index) { return &file->tensors[index]; }

const gguf_tensor *gguf_find(const gguf *file, const char *name)
{
    gguf_tensor key = {.name = name};
    return bsearch(&key, file->tensors, file->n_tensors, sizeof key, compare_tensors);
}

size_t gguf_index(const gguf *file, const gguf_tensor *tensor)
{
    return (size_t)(tensor - file->tensors);
}

const char *gguf_tensor_path(const gguf *file, const gguf_tensor *tensor)
{
    for (size_t i = 1; i < file->n_parts; i++) {
        const gguf_part *part = &file->parts[i];
        if (tensor->data >= part->bytes && tensor->data < part->bytes + part->size)
            return part->path;
    }
    return gguf_path(file);
}
