/* division.c - sends the routed experts of a model to the ranks that hold them: the part of all ranks. */
#include "model/division.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "moe/wave.h"

/* ---- memory -------------------------------------------------------------------------------------- */

dsmoe_status division_open(division *d, dsmoe_error *error)
{
    const dsmoe_config *c = &d->terms.config;
    size_t n_ranks = (size_t)d->peers->size;
    d->n_matrices = 3 * (size_t)(config_moe_layers(c, c->num_hidden_layers) * c->n_routed_experts);
    d->types = calloc(d->n_matrices + 1, sizeof *d->types);
    d->claims = calloc(n_ranks, sizeof *d->claims);
    d->send = calloc(n_ranks, sizeof *d->send);
    d->receive = calloc(n_ranks, sizeof *d->receive);
    if (d->types && d->claims && d->send && d->receive) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_MEMORY,
                       "not enough memory to divide a model over %zu ranks", n_ranks);
}

void division_close(division *d)
{
    free(d->types);
    free(d->claims);
    free(d->send);
    free(d->receive);
}

/* ---- the walk ------------------------------------------------------------------------------------ */

static dsmoe_status visit_expert(const dsmoe_config *c, moe_expert *e, int holder, cargo_fn *visit,
                                 void *context, dsmoe_error *error)
{
    int64_t hidden = c->hidden_size, width = c->moe_intermediate_size;
    const cargo parts[] = {{&e->gate_proj, width, hidden, holder},
                           {&e->up_proj, width, hidden, holder},
                           {&e->down_proj, hidden, width, holder}};
    for (int i = 0; i < 3; i++) STATUS_TRY(visit(context, &parts[i], error));
    return DSMOE_OK;
}

dsmoe_status division_each(const division *d, cargo_fn *visit, void *context, dsmoe_error *error)
{
    const dsmoe_config *c = &d->terms.config;
    int n_ranks = d->peers->size;
    for (int64_t layer = 0; layer < c->num_hidden_layers; layer++) {
        if (!dsmoe_config_layer_is_moe(c, layer)) continue;
        moe_expert *experts = d->weights->layers[layer].moe.experts;
        for (int rank = 0; rank < n_ranks; rank++) {
            expert_range held = wave_held(c->n_routed_experts, rank, n_ranks);
            for (int64_t i = held.first; i < held.end; i++)
                STATUS_TRY(visit_expert(c, &experts[i], rank, visit, context, error));
        }
    }
    return DSMOE_OK;
}

bool division_is_due(division *d, size_t n_bytes)
{
    enum { AGREE_AFTER = 16 << 20 }; /* bytes; a few tenths of a second on a slow network */
    d->unagreed += n_bytes;
    if (d->unagreed < AGREE_AFTER) return false;
    d->unagreed = 0;
    return true;
}

/* ---- types --------------------------------------------------------------------------------------- */

typedef struct type_walk {
    unsigned char *next;
    bool gives; /* rank 0 */
} type_walk;

static dsmoe_status type_visit(void *context, const cargo *c, dsmoe_error *error)
{
    type_walk *walk = context;
    unsigned char *type = walk->next++;
    (void)error;
    if (walk->gives)
        *type = (unsigned char)c->matrix->type;
    else
        *c->matrix = (matrix){.type = (dsmoe_dtype)*type,
                              .stride = dtype_bytes((dsmoe_dtype)*type, c->n_in)};
    return DSMOE_OK;
}

dsmoe_status division_share_types(division *d, dsmoe_error *error)
{
    type_walk walk = {d->types, d->peers->rank == 0};
    if (walk.gives) STATUS_TRY(division_each(d, type_visit, &walk, error));
    STATUS_TRY(peers_broadcast(d->peers, 0, d->types, d->n_matrices, error));
    return walk.gives ? DSMOE_OK : division_each(d, type_visit, &walk, error);
}

/* ---- claims -------------------------------------------------------------------------------------- */

/* Ranks on one machine share its memory. Rank 0 takes none for experts: it uses the mapped file. */
static dsmoe_status judge(const division_claim *claims, int n, int rank, dsmoe_error *error)
{
    const division_claim *own = &claims[rank];
    double together = 0;
    int n_beside = -1;
    for (int i = 1; i < n; i++) {
        if (strcmp(claims[i].host, own->host) != 0) continue;
        together += (double)claims[i].experts + (double)claims[i].workspace;
        n_beside++;
    }
    if (together <= (double)own->available) return DSMOE_OK;
    char beside[64] = "";
    if (n_beside > 0)
        snprintf(beside, sizeof beside, " (with %d other rank%s there %.1f GB)", n_beside,
                 n_beside > 1 ? "s" : "", together / 1e9);
    return status_fail(error, DSMOE_ERROR_MEMORY,
                       "rank %d on %s: its experts take %.1f GB and running them %.1f GB%s, and "
                       "%.1f GB is available: use more machines, or a model with fewer bits",
                       rank, own->host, (double)own->experts / 1e9, (double)own->workspace / 1e9,
                       beside, (double)own->available / 1e9);
}

dsmoe_status division_share_claims(division *d, division_claim mine, dsmoe_error *error)
{
    int n = d->peers->size;
    snprintf(mine.host, sizeof mine.host, "%s", d->peers->host);
    d->claims[d->peers->rank] = mine;
    for (int i = 0; i < n; i++) d->send[i] = (dsmoe_bytes){&d->claims[i], sizeof d->claims[i]};
    STATUS_TRY(peers_gather(d->peers, d->send, error));
    for (int i = 1; i < n; i++) STATUS_TRY(judge(d->claims, n, i, error));
    return DSMOE_OK;
}
