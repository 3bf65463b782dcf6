/* dsmoe/machine.h - the machine: its kernels, its threads, its memory, how fast it is. */
#ifndef DSMOE_MACHINE_H
#define DSMOE_MACHINE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of the kernels in use ("scalar", "avx2", …). The environment variable DSMOE_KERNELS names a
 * weaker set to use instead. */
DSMOE_API const char *dsmoe_kernels_name(void);
/* DSMOE_ERROR_ARGUMENT if DSMOE_KERNELS names a set that does not exist or that this processor cannot
 * run: the best one is used then. The message lists those there are. */
DSMOE_API dsmoe_status dsmoe_kernels_check(dsmoe_error *error);

/* What the machine can do on that many threads, averaged over that many seconds for each number.
 * The memory to read is the caller's: more than caches hold (64 MiB at least), and written to
 * before. */
typedef struct dsmoe_machine {
    double fma_gflops; /* fused multiply-adds on registers, two operations each */
    double read_gbs;   /* reading memory that no cache holds, 10^9 bytes a second */
} dsmoe_machine;
DSMOE_API dsmoe_status dsmoe_machine_measure(int n_threads, double seconds, const void *memory,
                                             size_t size, dsmoe_machine *machine,
                                             dsmoe_error *error);

/* Number of processors this process may use, and no more than a container gives it time for. */
DSMOE_API int dsmoe_machine_threads(void);
/* Bytes of memory that it could still get; UINT64_MAX if nothing says. */
DSMOE_API uint64_t dsmoe_machine_memory(void);

#ifdef __cplusplus
}
#endif
#endif
