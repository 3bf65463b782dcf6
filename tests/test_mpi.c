/* test_mpi.c - the plugin for MPI, under mpirun: the cases that every table must pass, and ranks that die,
 * are stopped, leave early, are out of step, or work long or for ever. scripts/test_mpi.sh starts it and
 * checks how it ends.
 *   test_mpi PLUGIN cases LARGEST | kill | stop | step | leave | long | chain | work */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "peers/mpi.h"
#include "peers/peers.h"
#include "peers_cases.h"

enum { PATIENCE = 3 }; /* seconds */
enum { LENGTH = 100000, MOST_RANKS = 64 };

static mpi_peers mpi;
static unsigned char bytes[MOST_RANKS][LENGTH];

static int fail(const char *what, const dsmoe_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->message);
    mpi.abort(mpi.table.context, 1);
    return 1;
}

static dsmoe_status work(void)
{
    const dsmoe_peers *p = &mpi.table;
    dsmoe_bytes parts[MOST_RANKS];
    for (int i = 0; i < p->size; i++) parts[i] = (dsmoe_bytes){bytes[i], LENGTH};
    dsmoe_error error;
    dsmoe_status status = peers_gather(p, parts, &error);
    if (status != DSMOE_OK) fail("gather", &error);
    return status;
}

/* What the last rank does while the others work. */
static void go_wrong(const char *how)
{
    dsmoe_error error;
    int64_t largest;
    for (int i = 0; i < 3; i++) work();
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "stop")) raise(SIGSTOP);
    if (!strcmp(how, "leave")) return;
    if (mpi.table.agree(mpi.table.context, 0, &largest, &error) != DSMOE_OK) fail("agree", &error);
}

/* One rank after another works longer than the patience of the others, but shows signs of life. */
static void work_long(void)
{
    const dsmoe_peers *p = &mpi.table;
    for (int r = 0; r < p->size; r++) {
        double until = clock_seconds() + 2 * PATIENCE;
        while (p->rank == r && clock_seconds() < until) p->poll(p->context);
        work();
    }
}

/* This rank sends to `to` and receives from `from`; -1: sends or receives nothing. */
static void pass_on(int to, int from)
{
    const dsmoe_peers *p = &mpi.table;
    dsmoe_bytes send[MOST_RANKS] = {0}, receive[MOST_RANKS] = {0};
    dsmoe_error error;
    if (to >= 0) send[to] = (dsmoe_bytes){bytes[p->rank], LENGTH};
    if (from >= 0) receive[from] = (dsmoe_bytes){bytes[from], LENGTH};
    dsmoe_status status = p->exchange_begin(p->context, send, receive, &error);
    if (status == DSMOE_OK) status = p->exchange_end(p->context, &error);
    if (status == DSMOE_OK) return;
    if (p->rank == 0) fail("exchange", &error);
    sleep(3 * PATIENCE);
}

/* Rank 0 waits only for rank 1, and rank 1 only for rank 2, which is stopped. Rank 1 notices first and
 * then falls silent too, but rank 0 must name rank 2. */
static void wait_in_chain(void)
{
    int rank = mpi.table.rank;
    if (rank == 2) raise(SIGSTOP);
    pass_on(rank == 2 ? 1 : -1, rank == 1 ? 2 : -1);
    pass_on(rank == 1 ? 0 : -1, rank == 0 ? 1 : -1);
}

int main(int argc, char **argv)
{
    dsmoe_error error;
    if (argc < 3) return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    mpi_peers_open *open = (mpi_peers_open *)dlsym(library, MPI_PEERS_OPEN);
    if (!open || open("0.0.0", &mpi, &error) != DSMOE_ERROR_PEER) return 1;
    if (open(DSMOE_VERSION, &mpi, &error) != DSMOE_OK) return fail("open", &error);
    const dsmoe_peers *p = &mpi.table;
    /* If a machine is gone, mpirun must notice it before the ranks do. */
    double patience = strcmp(argv[2], "work") ? PATIENCE : 600;
    if (mpi.watch(p->context, patience, &error) != DSMOE_OK) return fail("watch", &error);
    if (!strcmp(argv[2], "cases")) {
        if (!peers_cases(p, (size_t)strtoull(argv[3], NULL, 10))) mpi.abort(p->context, 1);
    } else if (!strcmp(argv[2], "long")) {
        work_long();
    } else if (!strcmp(argv[2], "chain")) {
        wait_in_chain();
    } else if (p->rank == p->size - 1 && strcmp(argv[2], "work")) {
        go_wrong(argv[2]);
    } else {
        for (;;) work();
    }
    if (mpi.close(p->context, &error) != DSMOE_OK) return fail("close", &error);
    if (p->rank == 0) printf("%d ranks pass\n", p->size);
    return 0;
}
