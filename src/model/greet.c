/* greet.c - the handshake of ranks that compute with a model together. */
#include "model/greet.h"

#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "peers/handshake.h"

/* Lists all kernels of this machine, such as "scalar avx2". */
static void list_kernels(char *names, size_t size)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    *names = '\0';
    for (int i = 0; i < n; i++) {
        size_t used = strlen(names);
        snprintf(names + used, size - used, "%s%s", i ? " " : "", list[i]->name);
    }
}

dsmoe_status greet_ranks(const dsmoe_peers *peers, uint64_t settings, dsmoe_error *error)
{
    char names[128];
    list_kernels(names, sizeof names);
    handshake_facts facts = {
        .kernels = dsmoe_kernels_name(), .all_kernels = names, .settings = settings};
    return peers_handshake(peers, &facts, error);
}
