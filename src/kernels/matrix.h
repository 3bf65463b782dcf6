/* matrix.h - the operands of products: weights of any type, rows of float32. */
#ifndef DSMOE_KERNELS_MATRIX_H
#define DSMOE_KERNELS_MATRIX_H

#include <stdatomic.h>

#include "base/dtype.h"

/* A weight [out, in] in the type it is stored in, wherever it lies: rows begin `stride` bytes apart
 * and need no alignment. */
typedef struct matrix {
    const void *data;
    int64_t stride;
    dsmoe_dtype type;
    /* Block types: where the same rows are as octets (see block_kernels), if someone has made them; and
     * how many rows lie there before these. May be NULL. Rows of whole octets may then lie nowhere else. */
    const struct octet_home *home;
    int64_t home_row;
    /* Which tensor of a model it is a part of, for those who keep something beside it; 0: none. */
    int32_t id;
} matrix;

/* All whole octets of a matrix, one after the other. */
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

/* The last rows from row `first` on. */
static inline matrix matrix_from(matrix m, int64_t first)
{
    m.data = matrix_at(m, first, 0);
    m.home_row += first;
    return m;
}

/* A matrix of float32 by rows: row i begins at data + stride * (index ? index[i] : i). The index is how tokens
 * are gathered for an expert without copying them first. */
typedef struct rows {
    const float *data;
    int64_t stride;
    const int32_t *index;
} rows;

static inline const float *rows_at(rows r, int64_t i)
{
    return r.data + r.stride * (r.index ? r.index[i] : i);
}

/* The last rows from row `first` on. */
static inline rows rows_from(rows r, int64_t first)
{
    if (r.index)
        r.index += first;
    else
        r.data += r.stride * first;
    return r;
}

/* The same rows from column `first` on. */
static inline rows rows_columns(rows r, int64_t first)
{
    r.data += first;
    return r;
}

#endif
