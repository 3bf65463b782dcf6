/* dtype.h - how the numbers of a weight are stored: the table of types.
 *
 * A new type needs a row here, kernels (kernels.h) and a quantiser (quantize.h). Numbers come in blocks: of 1
 * for plain types, otherwise of 32 or 256 that share their scales. A row of a matrix is a whole number of
 * blocks. */
#ifndef DSMOE_BASE_DTYPE_H
#define DSMOE_BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

typedef struct dtype_info {
    const char *name;
    int block;     /* numbers in a block */
    int bytes;     /* bytes of a block */
    int gguf_type; /* its number in GGUF files */
} dtype_info;

enum { N_DTYPES = DSMOE_N_DTYPES };

/* By dsmoe_dtype. It is in the header so that sizes of known types are constants for the compiler. */
static const dtype_info dtype_table[N_DTYPES] = {
    [DSMOE_F32] = {"f32", 1, 4, 0},        [DSMOE_F16] = {"f16", 1, 2, 1},
    [DSMOE_BF16] = {"bf16", 1, 2, 30},     [DSMOE_Q8_0] = {"q8_0", 32, 34, 8},
    [DSMOE_Q4_0] = {"q4_0", 32, 18, 2},    [DSMOE_Q5_0] = {"q5_0", 32, 22, 6},
    [DSMOE_Q4_K] = {"q4_k", 256, 144, 12}, [DSMOE_Q5_K] = {"q5_k", 256, 176, 13},
    [DSMOE_Q6_K] = {"q6_k", 256, 210, 14}, [DSMOE_Q5_1] = {"q5_1", 32, 24, 7},
};

/* Bytes of `n` numbers of a type, a whole number of blocks. */
static inline int64_t dtype_bytes(dsmoe_dtype type, int64_t n)
{
    return n / dtype_table[type].block * dtype_table[type].bytes;
}

/* Whether numbers share scales. */
static inline bool dtype_is_block(dsmoe_dtype type) { return dtype_table[type].block > 1; }

/* False if there is no such type. */
bool dtype_from_name(const char *name, dsmoe_dtype *type);
bool dtype_from_gguf(uint32_t gguf_type, dsmoe_dtype *type);

#endif
