/* avx512.c - the table of the AVX-512 set: what it does in its own way. */
#include "kernels/avx512.h"

void kernels_add_avx512(kernels *set)
{
    set->name = "avx512";
    for (int t = 0; t < N_DTYPES; t++)
        if (set->dtypes[t].blocks) set->dtypes[t].blocks = &blocks_avx512[t];
    set->quantize = quantize_avx512;
}
