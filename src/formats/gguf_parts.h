/* gguf_parts.h - what the files that read GGUF share: one file of a model, as its bytes say. A
 * model is one part, or several if it was split. */
#ifndef DSMOE_FORMATS_GGUF_PARTS_H
#define DSMOE_FORMATS_GGUF_PARTS_H

#include "formats/gguf.h"
#include "formats/mapped_file.h"

/* A name has at most 63 bytes (a reader of the format keeps it in 64). Counts of the header beyond
 * these limits are refused, so that a small file cannot ask for much memory. */
enum {
    GGUF_NAME_SIZE = 64,
    GGUF_MAX_KEY = 65535,
    GGUF_MAX_KEYS = 1 << 16,
    GGUF_MAX_TENSORS = 1 << 17
};

typedef struct gguf_key {
    gguf_string name;
    gguf_type type;
    gguf_type elements; /* of an array */
    size_t count;       /* bytes of a string, elements of an array */
    /* The value, its first byte or its first element; in the file, checked. */
    const unsigned char *at;
} gguf_key;

typedef struct gguf_part {
    char *path;
    mapped_file mapping; /* zero over bytes of the caller */
    const unsigned char *bytes;
    size_t size;
    gguf_key *keys; /* by name */
    size_t n_keys;
    gguf_tensor *tensors; /* as they lie in the file */
    size_t n_tensors;
    char (*names)[GGUF_NAME_SIZE]; /* of the tensors */
} gguf_part;

struct gguf {
    gguf_part *parts; /* at least one; the first has the metadata */
    size_t n_parts;
    gguf_tensor *tensors; /* of all parts, by name */
    size_t n_tensors;
};

/* How far a file has been read. */
typedef struct gguf_cursor {
    const char *path;
    const unsigned char *bytes;
    size_t size, at;
} gguf_cursor;

/* The next `size` bytes, or a number of them; false if fewer are left. */
bool gguf_cursor_take(gguf_cursor *cursor, size_t size, const unsigned char **at);
bool gguf_cursor_u32(gguf_cursor *cursor, uint32_t *value);
bool gguf_cursor_u64(gguf_cursor *cursor, uint64_t *value);
/* The name of the `index`-th `what`, of 1 to `longest` bytes of UTF-8 without control
 * characters. */
dsmoe_status gguf_cursor_name(gguf_cursor *cursor, const char *what, size_t index, size_t longest,
                              gguf_string *name, dsmoe_error *error);
/* What every name must be: UTF-8 without control characters. */
bool gguf_name_is_text(gguf_string name);
/* What that of a tensor must not: a '/' or ".." in it. It may become that of a file some day. */
bool gguf_name_leads_away(const char *name);

/* Keys and tensors, checked, at their places in the file: bytes and size are given. */
dsmoe_status gguf_part_read_keys(gguf_part *part, gguf_cursor *cursor, uint64_t n_keys,
                                 dsmoe_error *error);
dsmoe_status gguf_part_read_tensors(gguf_part *part, gguf_cursor *cursor, uint64_t n_tensors,
                                    dsmoe_error *error);
/* Maps and reads; on failure nothing is left. */
dsmoe_status gguf_part_open(gguf_part *part, const char *path, dsmoe_error *error);
void gguf_part_close(gguf_part *part); /* allowed on zeros */

const gguf_key *gguf_part_find(const gguf_part *part, const char *key); /* or NULL */
dsmoe_status gguf_part_get_int(const gguf_part *part, const char *key, int64_t *value, bool *found,
                               dsmoe_error *error);

/* In how many files the model is that the part belongs to: 1 if it is whole. */
dsmoe_status gguf_split_count(const gguf_part *part, size_t *count, dsmoe_error *error);
/* Takes the part, of `count`, over and opens the others beside it: parts 0 to n_parts of `file` are
 * open then, after a failure as well. */
dsmoe_status gguf_split_open(gguf *file, gguf_part *part, size_t count, dsmoe_error *error);
/* Once the tensors of all parts are known. */
dsmoe_status gguf_split_check_tensors(const gguf *file, dsmoe_error *error);

#endif
