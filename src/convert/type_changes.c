/* type_changes.c - counts what happens to matrices that are already quantised. */
#include "convert/type_changes.h"

#include "base/dtype.h"

void type_changes_add(dsmoe_type_changes *changes, dsmoe_dtype from, dsmoe_dtype to)
{
    if (!dtype_is_block(from)) return;
    if (from == to)
        changes->n_kept++;
    else if (dsmoe_dtype_bits(to) > dsmoe_dtype_bits(from))
        changes->n_larger++;
    else
        changes->n_requantised++;
}
