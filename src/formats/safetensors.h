/* safetensors.h - a safetensors file, checked completely when opened and then used in place.
 *
 * Form: header length (8 bytes, little-endian), header (JSON padded with spaces), data. After a
 * successful open every tensor lies inside the mapping, its size matches its shape and type, and
 * the tensors cover the data without gap or overlap. Values are not looked at: a NaN is not an
 * error here, and only the header of a 32 GB file is read. */
#ifndef DSMOE_FORMATS_SAFETENSORS_H
#define DSMOE_FORMATS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SAFETENSORS_MAX_DIMS = 8 };

typedef enum safetensors_dtype {
    SAFETENSORS_BOOL,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_I16,
    SAFETENSORS_U16,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I32,
    SAFETENSORS_U32,
    SAFETENSORS_F32,
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_U64,
} safetensors_dtype;

typedef struct safetensors_tensor {
    const char *name;
    safetensors_dtype dtype;
    int n_dims; /* 0: a scalar */
    int64_t shape[SAFETENSORS_MAX_DIMS];
    size_t n_elements; /* product of the shape */
    size_t size;       /* bytes */
    /* In the mapping. It may NOT be aligned to the element, since a header can have any length:
     * read elements with memcpy or the functions below. */
    const unsigned char *data;
} safetensors_tensor;

typedef struct safetensors safetensors;

dsmoe_status safetensors_open(const char *path, safetensors **file, dsmoe_error *error);
/* The same for bytes that the caller keeps alive; `source` names them in messages. */
dsmoe_status safetensors_parse(const unsigned char *bytes, size_t size, const char *source,
                               safetensors **file, dsmoe_error *error);
/* Invalidates everything obtained from `file`. NULL is allowed. */
void safetensors_close(safetensors *file);

const char *safetensors_path(const safetensors *file);
/* Fails if the file changed, or a page of it could not be read, while it was in use: numbers read
 * since then may be wrong or zero (see mapped_file_open). */
dsmoe_status safetensors_check_intact(const safetensors *file, dsmoe_error *error);
size_t safetensors_mapped_size(const safetensors *file); /* bytes of the file */
/* Tensors by index in [0, count), in the order of their names (as bytes). */
size_t safetensors_count(const safetensors *file);
const safetensors_tensor *safetensors_at(const safetensors *file, size_t index);
const safetensors_tensor *safetensors_find(const safetensors *file, const char *name); /* or NULL */
/* The value of a key in __metadata__, or NULL. */
const char *safetensors_metadata(const safetensors *file, const char *key);

const char *safetensors_dtype_name(safetensors_dtype dtype);
size_t safetensors_dtype_size(safetensors_dtype dtype);
/* The type of weights that equals a dtype, false if there is none; and the dtype for a type of weights,
 * F32 for types that are not plain. */
bool safetensors_dtype_as(safetensors_dtype from, dsmoe_dtype *to);
safetensors_dtype safetensors_dtype_for(dsmoe_dtype type);

/* Elements [first, first + count) as float32, from F32, F16, BF16 or F64, or as int64, from any
 * integer type but U64. False for another type. */
bool safetensors_tensor_read_f32(const safetensors_tensor *tensor, size_t first, size_t count,
                                 float *out);
bool safetensors_tensor_read_i64(const safetensors_tensor *tensor, size_t first, size_t count,
                                 int64_t *out);

#endif
