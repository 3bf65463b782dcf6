/* dsmoe/machine.h - the machine: kernels, threads, memory, speed. */
#ifndef DSMOE_MACHINE_H
#define DSMOE_MACHINE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of the kernels in use ("scalar", "avx2", …). The environment variable DSMOE_KERNELS names a
 * weaker set to use instead. */
DSMOE_API const char *dsmoe_kernels_name(void);
/* DSMOE_ERROR_ARGUMENT if DSMOE_KERNELS names a set that does not exist or that this processor cannot run;
 * the best one is then used. The message lists the sets that can be used. */
DSMOE_API dsmoe_status dsmoe_kernels_check(dsmoe_error *error);

/* What the machine can do on n_threads threads. Each number is an average over `seconds`. The caller provides
 * the memory to read: more than the caches hold (at least 64 MiB), and written to before. */
typedef struct dsmoe_machine {
    double fma_gflops; /* fused multiply-adds on registers, two operations each */
    double read_gbs;   /* reading memory that no cache holds, 10^9 bytes a second */
} dsmoe_machine;
DSMOE_API dsmoe_status dsmoe_machine_measure(int n_threads, double seconds, const void *memory,
                                             size_t size, dsmoe_machine *machine,
                                             dsmoe_error *error);

/* Number of processors that this process may use; no more than the processor time that its container is
 * granted. */
DSMOE_API int dsmoe_machine_threads(void);
/* Bytes of memory that this process can still get; UINT64_MAX if that is not known. */
DSMOE_API uint64_t dsmoe_machine_memory(void);

#ifdef __cplusplus
}
#endif
#endif
