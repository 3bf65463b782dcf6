/* matrix.h - the operands of products: weights of any type, rows of float32. */
#ifndef DSMOE_KERNELS_MATRIX_H
#define DSMOE_KERNELS_MATRIX_H

#include <stdatomic.h>

#include "base/dtype.h"

/* A weight [out, in] of any type, where it is stored. Rows begin `stride` bytes apart and need no
 * alignment. */
typedef struct matrix {
    const void *data;
    int64_t stride;
    dsmoe_dtype type;
    /* Block types: the octets (see block_kernels) of the tensor that these rows are part of, and the index of
     * the first of these rows in it. If octets exist, `data` need not hold the rows of whole octets. May be
     * NULL. */
    const struct octet_home *home;
    int64_t home_row;
    /* The tensor of a model that it is part of. Adapters find their additions with it. 0: none. */
    int32_t id;
} matrix;

/* Holds all whole octets of a tensor, one after the other. */
typedef struct octet_home {
    _Atomic(const unsigned char *) octets; /* NULL until they are made */
} octet_home;

static inline matrix matrix_f32(const float *data, int64_t width)
{
    return (matrix){.data = data, .stride = width * (int64_t)sizeof *data, .type = DSMOE_F32};
}

static inline const unsigned char *matrix_at(matrix m, int64_t row, int64_t column)
{
    return (const unsigned char *)m.data + m.stride * row + dtype_bytes(m.type, column);
}

/* The rows of m beginning with row `first`. */
static inline matrix matrix_from(matrix m, int64_t first)
{
    m.data = matrix_at(m, first, 0);
    m.home_row += first;
    return m;
}

/* Rows of float32: row i begins at data + stride * (index ? index[i] : i). The index selects the tokens of an
 * expert without copying them. */
typedef struct rows {
    const float *data;
    int64_t stride;
    const int32_t *index;
} rows;

static inline const float *rows_at(rows r, int64_t i)
{
    return r.data + r.stride * (r.index ? r.index[i] : i);
}

/* The rows of r beginning with row `first`. */
static inline rows rows_from(rows r, int64_t first)
{
    if (r.index)
        r.index += first;
    else
        r.data += r.stride * first;
    return r;
}

/* The same rows, beginning with column `first`. */
static inline rows rows_columns(rows r, int64_t first)
{
    r.data += first;
    return r;
}

#endif
