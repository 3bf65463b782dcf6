/* mpi.h - ranks joined by MPI: the interface of the plugin dsmoe_mpi.so. The command loads it if mpirun
 * has started several processes. Everything else is the same with and without Open MPI. */
#ifndef DSMOE_PEERS_MPI_H
#define DSMOE_PEERS_MPI_H

#include "dsmoe.h"

typedef struct mpi_peers {
    dsmoe_peers table;
    /* From now on a call fails if a rank that it waits for gives no sign of life for `patience` seconds
     * (0: never). Ranks that poll or wait send signs of life. All ranks call this once, before other
     * calls; rank 0's number counts. */
    dsmoe_status (*watch)(void *context, double patience, dsmoe_error *error);
    /* Call this on every normal exit, after all other calls: it waits for the other ranks. If it fails, or
     * if a call failed before, use abort instead. */
    dsmoe_status (*close)(void *context, dsmoe_error *error);
    /* Ends this process and all other ranks; does not return. */
    void (*abort)(void *context, int exit_code);
} mpi_peers;

/* The one function of the plugin, and its name for dlsym. It is called once, before any thread is started.
 * `version` is the caller's DSMOE_VERSION: a plugin of another version may have other structures. */
#define MPI_PEERS_OPEN "dsmoe_mpi_open"
typedef dsmoe_status mpi_peers_open(const char *version, mpi_peers *out, dsmoe_error *error);
DSMOE_API mpi_peers_open dsmoe_mpi_open;

#endif
