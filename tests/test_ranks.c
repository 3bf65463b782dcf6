/* test_ranks.c - a command that joins ranks, under mpirun: which rank prints, the exit code of all of them,
 * and what is left of the job when a rank fails. scripts/test_mpi.sh starts it and checks its output.
 *   test_ranks well | usage | agreed | early | apart */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ranks.h"
#include "peers/peers.h"

static int work(const char *how)
{
    const dsmoe_peers *p;
    dsmoe_error error;
    int64_t number;
    if (!strcmp(how, "usage")) return cli_usage("test", "a wrong word");
    int exit_code = ranks_open("test", 5, &p);
    if (exit_code != CLI_OK) return exit_code;
    if (!p) {
        printf("alone\n");
        return CLI_OK;
    }
    printf("rank %d of %d, %d threads\n", p->rank, p->size, ranks_threads());
    bool is_last = p->rank == p->size - 1;
    if (!strcmp(how, "early") && is_last) return cli_failure("test", "only the last rank knows");
    if (!strcmp(how, "apart") && is_last &&
        p->broadcast(p->context, p->rank, &number, sizeof number, &error) != DSMOE_OK)
        return cli_failure("test", "%s", error.message);
    dsmoe_status status = DSMOE_OK;
    if (!strcmp(how, "agreed") && is_last)
        status = status_fail(&error, DSMOE_ERROR_IO, "the disk is full");
    status = peers_agree(p, status, &error);
    return status == DSMOE_OK ? CLI_OK : cli_failure("test", "%s", error.message);
}

int main(int argc, char **argv)
{
    ranks_begin();
    return ranks_close("test", cli_finish("test", work(argc > 1 ? argv[1] : "well")));
}
