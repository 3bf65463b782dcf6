/* cpu.c - which kernels this processor runs. */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/status.h"
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

/* The set that DSMOE_KERNELS names; NULL if it names none of these, or nothing. */
static const kernels *find_wanted(const char *wanted)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int i = 0; wanted && i < n; i++)
        if (!strcasecmp(wanted, list[i]->name)) return list[i];
    return NULL;
}

const kernels *kernels_get(void)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    const kernels *wanted = find_wanted(getenv("DSMOE_KERNELS"));
    return wanted ? wanted : list[n - 1];
}

const char *dsmoe_kernels_name(void) { return kernels_get()->name; }

dsmoe_status dsmoe_kernels_check(dsmoe_error *error)
{
    const kernels *const *list;
    const char *wanted = getenv("DSMOE_KERNELS");
    char names[64] = "";
    if (!wanted || !*wanted || find_wanted(wanted)) return DSMOE_OK;
    int n = kernels_all(&list);
    for (int i = 0, at = 0; i < n; i++)
        at +=
            snprintf(names + at, sizeof names - (size_t)at, "%s%s", i ? " or " : "", list[i]->name);
    return status_fail(error, DSMOE_ERROR_ARGUMENT,
                       "DSMOE_KERNELS is '%.64s'; on this machine it can be %s", wanted, names);
}
