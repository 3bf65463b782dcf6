/* mpi.h - ranks joined by MPI: what the plugin dsmoe_mpi.so offers to the command, which loads it where mpirun has
 * started several of it. Everything else is the same with and without Open MPI. */
#ifndef DSMOE_PEERS_MPI_H
#define DSMOE_PEERS_MPI_H

#include "dsmoe.h"

typedef struct mpi_peers {
    dsmoe_peers table;
    /* From now on a call fails if a rank that it waits for gives no sign of life for so many seconds (0: never). Ranks
     * that poll or wait give them. All ranks call it once, first; rank 0's number counts. */
    dsmoe_status (*watch)(void *context, double patience, dsmoe_error *error);
    /* On every ordinary way out, after the last call: waits for the other ranks. If it fails, or if a call has
     * failed before, only abort is left. */
    dsmoe_status (*close)(void *context, dsmoe_error *error);
    /* Ends this process and all other ranks; does not return. */
    void (*abort)(void *context, int exit_code);
} mpi_peers;

/* The one function of the plugin, and its name for dlsym. Called once, before any thread is started. `version` is the
 * caller's DSMOE_VERSION: a plugin of another one may have other structures. */
#define MPI_PEERS_OPEN "dsmoe_mpi_open"
typedef dsmoe_status mpi_peers_open(const char *version, mpi_peers *out, dsmoe_error *error);
DSMOE_API mpi_peers_open dsmoe_mpi_open;

#endif
