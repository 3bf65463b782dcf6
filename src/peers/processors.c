/* processors.c - ranks that share a machine share its processors. By default mpirun binds each of two
 * ranks to one core. A rank then has one thread and most of the machine is idle, which goes unnoticed
 * without a warning. */
#include "peers/processors.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "peers/peers.h"

/* Asking for all processors shows which ones the system allows, whatever this process is bound to. */
processors_here processors_look(void)
{
    processors_here here;
    cpu_set_t bound, all;
    here.may_use = here.could_use = threads_available();
    if (sched_getaffinity(0, sizeof bound, &bound) != 0) return here;
    memset(&all, 0xFF, sizeof all);
    if (sched_setaffinity(0, sizeof all, &all) != 0) return here;
    here.could_use = threads_available();
    sched_setaffinity(0, sizeof bound, &bound);
    return here;
}

/* This is what each rank sends the others. */
typedef struct place {
    char host[256];
    int32_t may_use, could_use;
} place;

static int ranks_beside(const place *places, int n, int rank)
{
    int count = 0;
    for (int i = 0; i < n; i++) count += !strcmp(places[i].host, places[rank].host);
    return count;
}

static int part_of(const place *places, int n, int rank)
{
    int part = places[rank].could_use / ranks_beside(places, n, rank);
    return part > 1 ? part : 1;
}

static void warn(const place *places, int n, char *out, size_t size)
{
    int first = -1, n_bound = 0;
    for (int i = n - 1; i >= 0; i--)
        if (places[i].may_use < part_of(places, n, i)) {
            first = i;
            n_bound++;
        }
    *out = '\0';
    if (n_bound == 0) return;
    const place *p = &places[first];
    snprintf(out, size,
             "rank %d on %.64s is bound to %d of %d processors, but its share is %d%s: start it "
             "with mpirun --bind-to none",
             first, p->host, p->may_use, p->could_use, part_of(places, n, first),
             n_bound > 1 ? " (other ranks are bound too)" : "");
}

dsmoe_status processors_divide(const dsmoe_peers *p, processors_here here, processors_part *out,
                               dsmoe_error *error)
{
    size_t n = (size_t)p->size;
    place *places = calloc(n, sizeof *places);
    dsmoe_bytes *parts = calloc(n, sizeof *parts);
    dsmoe_status status = DSMOE_OK;
    if (!places || !parts)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for %d ranks", p->size);
    status = peers_agree(p, status, error);
    if (status != DSMOE_OK) goto end;
    place *own = &places[p->rank];
    snprintf(own->host, sizeof own->host, "%s", p->host);
    own->may_use = here.may_use;
    own->could_use = here.could_use;
    for (int i = 0; i < p->size; i++) parts[i] = (dsmoe_bytes){&places[i], sizeof places[i]};
    status = peers_gather(p, parts, error);
    if (status != DSMOE_OK) goto end;
    int part = part_of(places, p->size, p->rank);
    out->n_threads = here.may_use < part ? here.may_use : part;
    warn(places, p->size, out->warning, sizeof out->warning);
end:
    free(places);
    free(parts);
    return status;
}
