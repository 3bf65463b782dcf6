/* cpu.c - which kernels this processor runs. */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "dsmoe.h"

static const kernels *sets[3];
static int n_sets;

#if defined(__x86_64__)
/* F16C came one generation before AVX2, and not every compiler knows to ask for it. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* Compilers' answers say too whether the system saves the registers. */
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

/* Before main, so that threads find them ready. */
__attribute__((constructor)) static void find_sets(void)
{
    sets[n_sets++] = &kernels_scalar;
#if defined(__x86_64__)
    static kernels avx512;
    __builtin_cpu_init();
    if (has_avx2()) sets[n_sets++] = &kernels_avx2;
    if (has_avx512()) {
        avx512 = kernels_avx2;
        kernels_add_avx512(&avx512);
        sets[n_sets++] = &avx512;
    }
#endif
}

int kernels_all(const kernels *const **list)
{
    *list = sets;
    return n_sets;
}

/* The set that DSMOE_KERNELS names; NULL if it names none of these, or nothing. */
static const kernels *find_wanted(const char *wanted)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int i = 0; wanted && i < n; i++)
        if (!strcmp(wanted, list[i]->name)) return list[i];
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
