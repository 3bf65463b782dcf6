/* cpu.c - which kernels this processor runs. */
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "dsmoe.h"

enum { MAX_SETS = 4 };

int kernels_all(const kernels *const **list)
{
    static const kernels *sets[MAX_SETS];
    int n = 0;
    sets[n++] = &kernels_scalar;
#if defined(__x86_64__)
    /* F16C came one generation before AVX2, and not every compiler knows to ask for it. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets[n++] = &kernels_avx2;
#endif
    *list = sets;
    return n;
}

const kernels *kernels_get(void)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    const char *wanted = getenv("DSMOE_KERNELS");
    for (int i = 0; wanted && i < n; i++)
        if (!strcmp(wanted, list[i]->name)) return list[i];
    return list[n - 1];
}

const char *dsmoe_kernels_name(void) { return kernels_get()->name; }
