/* gguf_writer.c - a GGUF file written front to back.
 *
 * Metadata and descriptions of tensors are collected in memory, in the form they have in the file,
 * and written before the first byte of data. The limits are the reader's, so it can read every file
 * written here. */
#include "formats/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "formats/gguf_parts.h"
#include "formats/partial_file.h"

enum { VERSION = 3 };

/* The hashes of names, to find duplicates. */
typedef struct name_set {
    uint64_t *slots; /* 0: free */
    size_t n, capacity;
} name_set;

/* Bytes of the file that are held in memory until the data begins. */
typedef struct section {
    FILE *stream;
    char *bytes;
    size_t size;
    uint64_t count; /* keys or tensors */
    name_set names;
} section;

struct gguf_writer {
    partial_file file;
    section metadata, tensors;
    size_t *sizes; /* bytes of each tensor */
    size_t capacity;
    size_t declared;     /* bytes of all tensors */
    size_t offset;       /* of the next tensor in the data */
    size_t next, inside; /* the tensor being written, and its bytes written so far */
    bool begun;          /* the header is written: nothing more can be declared */
    dsmoe_error problem; /* the first thing that went wrong; the file can no longer be completed */
};

/* ---- names --------------------------------------------------------------------------------- */

static void put_hash(uint64_t *slots, size_t capacity, uint64_t hash)
{
    size_t at = hash % capacity;
    while (slots[at]) at = (at + 1) % capacity;
    slots[at] = hash;
}

static bool name_set_has(const name_set *set, uint64_t hash)
{
    if (set->capacity == 0) return false;
    size_t at = hash % set->capacity;
    while (set->slots[at] && set->slots[at] != hash) at = (at + 1) % set->capacity;
    return set->slots[at] == hash;
}

/* At most half of the slots are in use. */
static bool name_set_add(name_set *set, uint64_t hash)
{
    if (2 * (set->n + 1) > set->capacity) {
        size_t capacity = set->capacity ? 2 * set->capacity : 64;
        uint64_t *slots = calloc(capacity, sizeof *slots);
        if (!slots) return false;
        for (size_t i = 0; i < set->capacity; i++)
            if (set->slots[i]) put_hash(slots, capacity, set->slots[i]);
        free(set->slots);
        set->slots = slots;
        set->capacity = capacity;
    }
    put_hash(set->slots, set->capacity, hash);
    set->n++;
    return true;
}

/* ---- life ---------------------------------------------------------------------------------- */

static bool section_open(section *s)
{
    s->stream = open_memstream(&s->bytes, &s->size);
    return s->stream != NULL;
}

static void section_close(section *s)
{
    if (s->stream) fclose(s->stream);
    free(s->bytes);
    free(s->names.slots);
}

dsmoe_status gguf_writer_create(const char *path, gguf_writer **writer, dsmoe_error *error)
{
    *writer = NULL;
    gguf_writer *created = calloc(1, sizeof *created);
    dsmoe_status status;
    if (!created || !section_open(&created->metadata) || !section_open(&created->tensors))
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    else
        status = partial_file_create(&created->file, path, error);
    if (status == DSMOE_OK)
        *writer = created;
    else
        gguf_writer_abandon(created);
    return status;
}

void gguf_writer_abandon(gguf_writer *writer)
{
    if (!writer) return;
    partial_file_abandon(&writer->file);
    section_close(&writer->metadata);
    section_close(&writer->tensors);
    free(writer->sizes);
    free(writer);
}

/* ---- problems ------------------------------------------------------------------------------ */

/* Reports the problem that is kept, if any. */
static dsmoe_status report(const gguf_writer *writer, dsmoe_error *error)
{
    if (writer->problem.status == DSMOE_OK) return DSMOE_OK;
    return status_fail(error, writer->problem.status, "%s", writer->problem.message);
}

/* Reserves a name in a section. A failure is kept in `problem`. */
static dsmoe_status claim_name(gguf_writer *writer, section *s, const char *what, const char *name,
                               size_t longest)
{
    const char *path = writer->file.path;
    size_t length = strlen(name);
    if (writer->begun)
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT,
                           "%s: %s '%.128s' comes too late: the data has begun", path, what, name);
    if (length == 0 || length > longest || !gguf_name_is_text((gguf_string){name, length}))
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT,
                           "%s: the name of %s '%.128s' must be 1 to %zu bytes of UTF-8", path,
                           what, name, longest);
    uint64_t hash = hash_bytes(name, length, 0);
    hash += hash == 0; /* 0 is a free slot */
    if (name_set_has(&s->names, hash))
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT, "%s: %s '%.128s' comes twice",
                           path, what, name);
    if (!name_set_add(&s->names, hash))
        return status_fail(&writer->problem, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    s->count++;
    return DSMOE_OK;
}

/* ---- metadata ------------------------------------------------------------------------------ */

static void put_u32(FILE *stream, uint32_t value) { fwrite(&value, sizeof value, 1, stream); }
static void put_u64(FILE *stream, uint64_t value) { fwrite(&value, sizeof value, 1, stream); }

static void put_string(FILE *stream, const char *bytes, size_t length)
{
    put_u64(stream, length);
    fwrite(bytes, 1, length, stream);
}

/* Writes key and type. False after a failure: then nothing more is written. */
static bool begin_key(gguf_writer *writer, const char *key, gguf_type type)
{
    if (writer->problem.status != DSMOE_OK) return false;
    if (claim_name(writer, &writer->metadata, "key", key, GGUF_MAX_KEY) != DSMOE_OK) return false;
    if (writer->metadata.count > GGUF_MAX_KEYS) {
        status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT, "%s: more than %d keys",
                    writer->file.path, GGUF_MAX_KEYS);
        return false;
    }
    put_string(writer->metadata.stream, key, strlen(key));
    put_u32(writer->metadata.stream, type);
    return true;
}

static bool begin_array(gguf_writer *writer, const char *key, gguf_type type, size_t n)
{
    if (!begin_key(writer, key, GGUF_ARRAY)) return false;
    put_u32(writer->metadata.stream, type);
    put_u64(writer->metadata.stream, n);
    return true;
}

void gguf_writer_u32(gguf_writer *writer, const char *key, uint32_t value)
{
    if (!begin_key(writer, key, GGUF_U32)) return;
    put_u32(writer->metadata.stream, value);
    if (strcmp(key, "general.alignment") == 0 && value != GGUF_ALIGNMENT)
        status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT, "%s: key '%s' must be %d, not %u",
                    writer->file.path, key, GGUF_ALIGNMENT, value);
}

void gguf_writer_f32(gguf_writer *writer, const char *key, float value)
{
    if (begin_key(writer, key, GGUF_F32)) fwrite(&value, sizeof value, 1, writer->metadata.stream);
}

void gguf_writer_bool(gguf_writer *writer, const char *key, bool value)
{
    if (begin_key(writer, key, GGUF_BOOL)) fputc(value, writer->metadata.stream);
}

void gguf_writer_string(gguf_writer *writer, const char *key, const char *bytes, size_t length)
{
    if (begin_key(writer, key, GGUF_STRING)) put_string(writer->metadata.stream, bytes, length);
}

void gguf_writer_i32_array(gguf_writer *writer, const char *key, const int32_t *values, size_t n)
{
    if (begin_array(writer, key, GGUF_I32, n))
        fwrite(values, sizeof *values, n, writer->metadata.stream);
}

void gguf_writer_strings(gguf_writer *writer, const char *key, const gguf_string *values, size_t n)
{
    if (!begin_array(writer, key, GGUF_STRING, n)) return;
    for (size_t i = 0; i < n; i++)
        put_string(writer->metadata.stream, values[i].bytes, values[i].length);
}

/* ---- tensors ------------------------------------------------------------------------------- */

static size_t padding_behind(size_t size)
{
    return (GGUF_ALIGNMENT - size % GGUF_ALIGNMENT) % GGUF_ALIGNMENT;
}

/* Computes the size in bytes. A failure is kept in `problem`. */
static dsmoe_status measure(gguf_writer *writer, const char *name, dsmoe_dtype type, int n_dims,
                            const int64_t *shape, size_t *size)
{
    const char *path = writer->file.path;
    if (gguf_name_leads_away(name))
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT,
                           "%s: tensor '%s' has a '/' or '..' in its name", path, name);
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT,
                           "%s: tensor '%s' has %d dimensions, outside 1 to %d", path, name, n_dims,
                           GGUF_MAX_DIMS);
    const dtype_info *info = &dtype_table[type];
    int64_t numbers = 1, bytes = 0;
    bool fits = true;
    for (int i = 0; i < n_dims; i++)
        fits = fits && shape[i] > 0 && checked_mul_i64(numbers, shape[i], &numbers);
    fits = fits && checked_mul_i64(numbers / info->block, info->bytes, &bytes);
    if (fits && shape[n_dims - 1] % info->block != 0)
        return status_fail(
            &writer->problem, DSMOE_ERROR_ARGUMENT,
            "%s: tensor '%s' has rows of %lld numbers, which must be a multiple of %d (%s)", path,
            name, (long long)shape[n_dims - 1], info->block, info->name);
    int64_t end;
    if (!fits || !checked_add_i64((int64_t)writer->offset, bytes, &end) ||
        end > INT64_MAX - GGUF_ALIGNMENT)
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT,
                           "%s: tensor '%s': its shape does not fit", path, name);
    *size = (size_t)bytes;
    return DSMOE_OK;
}

static dsmoe_status keep_size(gguf_writer *writer, size_t size)
{
    size_t n = writer->tensors.count - 1;
    if (n == GGUF_MAX_TENSORS)
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT, "%s: more than %d tensors",
                           writer->file.path, GGUF_MAX_TENSORS);
    if (n == writer->capacity) {
        size_t capacity = writer->capacity ? 2 * writer->capacity : 64;
        size_t *sizes = realloc(writer->sizes, capacity * sizeof *sizes);
        if (!sizes)
            return status_fail(&writer->problem, DSMOE_ERROR_MEMORY, "%s: out of memory",
                               writer->file.path);
        writer->sizes = sizes;
        writer->capacity = capacity;
    }
    writer->sizes[n] = size;
    return DSMOE_OK;
}

static void declare(gguf_writer *writer, const char *name, dsmoe_dtype type, int n_dims,
                    const int64_t *shape)
{
    FILE *stream = writer->tensors.stream;
    size_t size = 0;
    if (claim_name(writer, &writer->tensors, "tensor", name, GGUF_NAME_SIZE - 1) != DSMOE_OK ||
        measure(writer, name, type, n_dims, shape, &size) != DSMOE_OK ||
        keep_size(writer, size) != DSMOE_OK)
        return;
    put_string(stream, name, strlen(name));
    put_u32(stream, (uint32_t)n_dims);
    for (int i = n_dims; i-- > 0;) put_u64(stream, (uint64_t)shape[i]);
    put_u32(stream, (uint32_t)dtype_table[type].gguf_type);
    put_u64(stream, writer->offset);
    writer->declared += size;
    writer->offset += size + padding_behind(size);
}

dsmoe_status gguf_writer_declare(gguf_writer *writer, const char *name, dsmoe_dtype type,
                                 int n_dims, const int64_t *shape, dsmoe_error *error)
{
    if (writer->problem.status == DSMOE_OK) declare(writer, name, type, n_dims, shape);
    return report(writer, error);
}

size_t gguf_writer_data_size(const gguf_writer *writer) { return writer->declared; }

/* ---- the file ------------------------------------------------------------------------------ */

static dsmoe_status write_padding(gguf_writer *writer)
{
    static const char zeros[GGUF_ALIGNMENT];
    return partial_file_write(&writer->file, zeros, padding_behind(writer->file.size),
                              &writer->problem);
}

static dsmoe_status begin_data(gguf_writer *writer)
{
    if (writer->begun) return DSMOE_OK;
    writer->begun = true;
    section *sections[] = {&writer->metadata, &writer->tensors};
    for (int i = 0; i < 2; i++)
        if (fflush(sections[i]->stream) != 0 || ferror(sections[i]->stream))
            return status_fail(&writer->problem, DSMOE_ERROR_MEMORY, "%s: out of memory",
                               writer->file.path);
    unsigned char head[24] = "GGUF";
    uint32_t version = VERSION;
    memcpy(head + 4, &version, 4);
    memcpy(head + 8, &writer->tensors.count, 8);
    memcpy(head + 16, &writer->metadata.count, 8);
    STATUS_TRY(partial_file_write(&writer->file, head, sizeof head, &writer->problem));
    for (int i = 0; i < 2; i++)
        STATUS_TRY(partial_file_write(&writer->file, sections[i]->bytes, sections[i]->size,
                                      &writer->problem));
    return write_padding(writer);
}

static dsmoe_status write_data(gguf_writer *writer, const void *bytes, size_t size)
{
    STATUS_TRY(begin_data(writer));
    if (size == 0) return DSMOE_OK;
    size_t left =
        writer->next < writer->tensors.count ? writer->sizes[writer->next] - writer->inside : 0;
    if (size > left)
        return status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT,
                           "%s: %zu bytes for tensor %zu of %llu, which has room for %zu",
                           writer->file.path, size, writer->next,
                           (unsigned long long)writer->tensors.count, left);
    STATUS_TRY(partial_file_write(&writer->file, bytes, size, &writer->problem));
    writer->inside += size;
    if (size < left) return DSMOE_OK;
    writer->next++;
    writer->inside = 0;
    return write_padding(writer);
}

dsmoe_status gguf_writer_write(gguf_writer *writer, const void *bytes, size_t size,
                               dsmoe_error *error)
{
    if (writer->problem.status == DSMOE_OK) write_data(writer, bytes, size);
    return report(writer, error);
}

dsmoe_status gguf_writer_finish(gguf_writer *writer, dsmoe_error *error)
{
    if (writer->problem.status == DSMOE_OK) write_data(writer, NULL, 0); /* at least the header */
    if (writer->problem.status == DSMOE_OK && writer->next < writer->tensors.count)
        status_fail(&writer->problem, DSMOE_ERROR_ARGUMENT,
                    "%s: the data ends in tensor %zu of %llu declared ones", writer->file.path,
                    writer->next, (unsigned long long)writer->tensors.count);
    dsmoe_status status = report(writer, error);
    if (status == DSMOE_OK) status = partial_file_finish(&writer->file, error);
    gguf_writer_abandon(writer);
    return status;
}
