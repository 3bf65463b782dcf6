/* cpu.c - chooses the kernels that this processor runs. */
#include "kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/status.h"
#include "dsmoe.h"
#include "kernels/kernels.h"

#if defined(__x86_64__)
static kernels avx512; /* the AVX2 set with some functions replaced: see make_avx512 */
#endif

/* Each set needs all features of the one before it, and more. */
static const kernels *const sets[] = {
    &kernels_scalar,
#if defined(__x86_64__)
    &kernels_avx2,
    &avx512,
#endif
};

/* The features that each set's files are compiled for: see their flags in CMakeLists.txt. */
static const unsigned needs[] = {0, CPU_AVX2 | CPU_FMA | CPU_F16C,
                                 CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_AVX512};

#if defined(__x86_64__)
/* __builtin_cpu_supports also checks that the operating system saves the wide registers. Not every compiler's
 * version of it knows F16C. */
static unsigned ask_features(void)
{
    unsigned a, b, c, d, features = 0;
    if (__builtin_cpu_supports("avx2")) features |= CPU_AVX2;
    if (__builtin_cpu_supports("fma")) features |= CPU_FMA;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C)) features |= CPU_F16C;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        features |= CPU_AVX512;
    return features;
}

/* Runs before main, so that threads find the set ready. It only calls AVX-512 code if the processor can
 * run it. */
__attribute__((constructor)) static void make_avx512(void)
{
    __builtin_cpu_init();
    if (!(ask_features() & CPU_AVX512)) return;
    avx512 = kernels_avx2;
    kernels_add_avx512(&avx512);
}
#else
static unsigned ask_features(void) { return 0; }
#endif

/* Asks the processor only once, since that is slow in a virtual machine. */
static unsigned cpu_features(void)
{
    static atomic_uint answer;
    const unsigned is_answered = 1u << 31;
    unsigned known = atomic_load(&answer);
    if (known & is_answered) return known & ~is_answered;
    unsigned features = ask_features();
    atomic_store(&answer, features | is_answered);
    return features;
}

int kernels_with(unsigned features)
{
    int n = 0;
    while (n < (int)(sizeof sets / sizeof *sets) && (needs[n] & ~features) == 0) n++;
    return n;
}

int kernels_all(const kernels *const **list)
{
    *list = sets;
    return kernels_with(cpu_features());
}

/* The set with the wanted name; NULL if there is none, or if `wanted` is NULL. */
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

void kernels_names(const char *between, char *out, size_t size)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    for (int i = 0, at = 0; i < n; i++)
        at += snprintf(out + at, size - (size_t)at, "%s%s", i ? between : "", list[i]->name);
}

dsmoe_status dsmoe_kernels_check(dsmoe_error *error)
{
    const char *wanted = getenv("DSMOE_KERNELS");
    char names[64];
    if (!wanted || !*wanted || find_wanted(wanted)) return DSMOE_OK;
    kernels_names(" or ", names, sizeof names);
    return status_fail(error, DSMOE_ERROR_ARGUMENT,
                       "DSMOE_KERNELS is '%.64s'; on this machine it can be %s", wanted, names);
}
