/* gguf_parts.h - shared by the sources that read GGUF: a part, which is one file of a model. A model
 * has one part, or several if it was split. */
#ifndef DSMOE_FORMATS_GGUF_PARTS_H
#define DSMOE_FORMATS_GGUF_PARTS_H

#include "formats/gguf.h"
#include "formats/mapped_file.h"

/* A tensor's name has at most 63 bytes (other readers of the format keep it in 64). Larger counts in
 * the header are refused, so that a small file cannot claim much memory. */
enum {
    GGUF_NAME_SIZE = 64,
    GGUF_MAX_KEY = 65535,
    GGUF_MAX_KEYS = 1 << 16,
    GGUF_MAX_TENSORS = 1 << 17
};

typedef struct gguf_key {
    gguf_string name;
    gguf_type type;
    gguf_type elements; /* type of an array's elements */
    size_t count;       /* bytes of a string, elements of an array */
    /* The value, its first byte or its first element, in the file; checked. */
    const unsigned char *at;
} gguf_key;

typedef struct gguf_part {
    char *path;
    mapped_file mapping; /* zero if the bytes are the caller's */
    const unsigned char *bytes;
    size_t size;
    gguf_key *keys; /* sorted by name */
    size_t n_keys;
    gguf_tensor *tensors; /* in the order of the file */
    size_t n_tensors;
    char (*names)[GGUF_NAME_SIZE]; /* of the tensors */
} gguf_part;

struct gguf {
    gguf_part *parts; /* at least one; the first has the metadata */
    size_t n_parts;
    gguf_tensor *tensors; /* of all parts, sorted by name */
    size_t n_tensors;
};

/* A position in a file that is being read. */
typedef struct gguf_cursor {
    const char *path;
    const unsigned char *bytes;
    size_t size, at;
} gguf_cursor;

/* Take the next `size` bytes, or a number; false if too few bytes are left. */
bool gguf_cursor_take(gguf_cursor *cursor, size_t size, const unsigned char **at);
bool gguf_cursor_u32(gguf_cursor *cursor, uint32_t *value);
bool gguf_cursor_u64(gguf_cursor *cursor, uint64_t *value);
/* Reads the name of the `index`-th `what`: 1 to `longest` bytes of UTF-8 without control
 * characters. */
dsmoe_status gguf_cursor_name(gguf_cursor *cursor, const char *what, size_t index, size_t longest,
                              gguf_string *name, dsmoe_error *error);
/* Whether a name is UTF-8 without control characters, as every name must be. */
bool gguf_name_is_text(gguf_string name);
/* Whether a name contains '/' or "..", as a tensor's must not: it may be used as a file name. */
bool gguf_name_leads_away(const char *name);

/* Read and check keys and tensors. The part's bytes and size must be set. */
dsmoe_status gguf_part_read_keys(gguf_part *part, gguf_cursor *cursor, uint64_t n_keys,
                                 dsmoe_error *error);
dsmoe_status gguf_part_read_tensors(gguf_part *part, gguf_cursor *cursor, uint64_t n_tensors,
                                    dsmoe_error *error);
/* Maps and reads a file. After a failure there is nothing to close. */
dsmoe_status gguf_part_open(gguf_part *part, const char *path, dsmoe_error *error);
void gguf_part_close(gguf_part *part); /* allowed on zeros */

const gguf_key *gguf_part_find(const gguf_part *part, const char *key); /* or NULL */
dsmoe_status gguf_part_get_int(const gguf_part *part, const char *key, int64_t *value, bool *found,
                               dsmoe_error *error);

/* The number of parts of the model that this part belongs to: 1 if it is not split. */
dsmoe_status gguf_split_count(const gguf_part *part, size_t *count, dsmoe_error *error);
/* Takes over one part of `count` and opens the others in its folder. Afterwards the first n_parts
 * parts of `file` are open, even after a failure. */
dsmoe_status gguf_split_open(gguf *file, gguf_part *part, size_t count, dsmoe_error *error);
/* Checks split.tensors.count, once the tensors of all parts are known. */
dsmoe_status gguf_split_check_tensors(const gguf *file, dsmoe_error *error);

#endif
