/* gguf.h - a GGUF file (version 3, little-endian), checked completely when opened and then used in
 * place.
 *
 * Form: magic, version, counts; metadata (key, type, value); tensor descriptions; padding; data.
 * After a successful open every string and array lies inside the mapping. Every tensor's size matches
 * its shape and type, and it lies inside the data without overlapping another. Values are not looked
 * at. A split model is several files in one folder, NAME-00001-of-00003.gguf and so on. Opening any
 * of them opens them all; only the first one's metadata is used. */
#ifndef DSMOE_FORMATS_GGUF_H
#define DSMOE_FORMATS_GGUF_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/status.h"

enum { GGUF_MAX_DIMS = 4, GGUF_ALIGNMENT = 32 };

/* Types of metadata, with their numbers in the file. */
typedef enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
} gguf_type;

/* Bytes in the file, without a NUL at the end; they can have any values. */
typedef struct gguf_string {
    const char *bytes;
    size_t length;
} gguf_string;

bool gguf_string_is(gguf_string string, const char *word);
int gguf_shown(gguf_string string); /* for "%.*s": how many of its bytes a message shows */

/* Elements in the file, checked to lie inside it. Arrays of arrays are refused when a file is opened. */
typedef struct gguf_array {
    gguf_type type;
    size_t count;
    const unsigned char *at; /* the first element; strings follow each other with their lengths */
} gguf_array;

typedef struct gguf_tensor {
    const char *name; /* valid UTF-8, 1 to 63 bytes */
    dsmoe_dtype type;
    int n_dims; /* 1 to 4 */
    /* Slowest first, as everywhere in this project: a matrix is [out, in], stacked experts are
     * [expert, out, in]. Entries from n_dims on are 1. */
    int64_t shape[GGUF_MAX_DIMS];
    size_t size;               /* bytes */
    const unsigned char *data; /* in the mapping; aligned to the file's alignment only */
} gguf_tensor;

typedef struct gguf gguf;

dsmoe_status gguf_open(const char *path, gguf **file, dsmoe_error *error);
/* The same for the bytes of one unsplit file, which the caller keeps alive; `source` names them in
 * messages. */
dsmoe_status gguf_parse(const unsigned char *bytes, size_t size, const char *source, gguf **file,
                        dsmoe_error *error);
/* Invalidates everything obtained from `file`. NULL is allowed. */
void gguf_close(gguf *file);

const char *gguf_path(const gguf *file); /* of the first file of a split model */
/* Fails if a file changed while it was in use: numbers read since then may be wrong. */
dsmoe_status gguf_check_intact(const gguf *file, dsmoe_error *error);
size_t gguf_mapped_size(const gguf *file); /* bytes of all its files */

/* Tensors by index in [0, count), in the order of their names (as bytes). */
size_t gguf_count(const gguf *file);
const gguf_tensor *gguf_at(const gguf *file, size_t index);
const gguf_tensor *gguf_find(const gguf *file, const char *name); /* or NULL */
size_t gguf_index(const gguf *file, const gguf_tensor *tensor);   /* of a tensor of `file` */
/* The file a tensor lies in, for messages. */
const char *gguf_tensor_path(const gguf *file, const gguf_tensor *tensor);

/* Metadata. If a key is missing, *value is unchanged and *found becomes false; if `found` is NULL, the
 * key is required and a missing one is an error. A value of another kind is an error that names the
 * file and the key. gguf_get_int accepts integers of any width if they fit. */
dsmoe_status gguf_get_int(const gguf *file, const char *key, int64_t *value, bool *found,
                          dsmoe_error *error);
dsmoe_status gguf_get_float(const gguf *file, const char *key, double *value, bool *found,
                            dsmoe_error *error); /* F32 or F64 */
dsmoe_status gguf_get_bool(const gguf *file, const char *key, bool *value, bool *found,
                           dsmoe_error *error);
dsmoe_status gguf_get_string(const gguf *file, const char *key, gguf_string *value, bool *found,
                             dsmoe_error *error);
/* `type` is the required type of the elements. */
dsmoe_status gguf_get_array(const gguf *file, const char *key, gguf_type type, gguf_array *value,
                            bool *found, dsmoe_error *error);

/* Steps through an array of strings: begin with array.at and call it `count` times. */
gguf_string gguf_next_string(const unsigned char **at);
int32_t gguf_array_i32(const gguf_array *array, size_t index); /* of an array of I32 */

#endif
