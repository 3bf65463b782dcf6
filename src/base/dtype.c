/* dtype.c - types by their names and numbers. */
#include "base/dtype.h"

#include <string.h>

const char *dsmoe_dtype_name(dsmoe_dtype dtype)
{
    return (unsigned)dtype < N_DTYPES ? dtype_table[dtype].name : "unknown";
}

double dsmoe_dtype_bits(dsmoe_dtype dtype)
{
    if ((unsigned)dtype >= N_DTYPES) return 0;
    return 8.0 * dtype_table[dtype].bytes / dtype_table[dtype].block;
}

bool dtype_from_name(const char *name, dsmoe_dtype *type)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (!strcmp(name, dtype_table[i].name)) {
            *type = (dsmoe_dtype)i;
            return true;
        }
    return false;
}

bool dtype_from_gguf(uint32_t gguf_type, dsmoe_dtype *type)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (gguf_type == (uint32_t)dtype_table[i].gguf_type) {
            *type = (dsmoe_dtype)i;
            return true;
        }
    return false;
}
