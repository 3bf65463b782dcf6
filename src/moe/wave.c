/* wave.c - what ranks that share the experts of a layer tell each other before rows travel. */
#include "moe/wave.h"

#include <string.h>

#include "peers/peers.h"

/* A rank's report: status, tokens, has_more, the number of tokens it sends to each rank, its
 * dispatch.offsets. */
enum { STATUS, TOKENS, HAS_MORE, SENT };

static int64_t row_size(int n_ranks, int64_t n_experts) { return SENT + n_ranks + n_experts + 1; }

size_t wave_said_size(int n_ranks, int64_t n_experts)
{
    return (size_t)row_size(n_ranks, n_experts) * sizeof(int32_t);
}

expert_range wave_held(int64_t n, int rank, int n_ranks)
{
    return (expert_range){n * rank / n_ranks, n * (rank + 1) / n_ranks};
}

int32_t *wave_place_said(arena *a, const dsmoe_layer *layer)
{
    int n_ranks = peers_size(layer->peers);
    if (!layer->peers) return NULL;
    return arena_take(a, n_ranks * row_size(n_ranks, layer->config.n_routed_experts),
                      sizeof(int32_t));
}

wave wave_place(arena *a, const dsmoe_layer *layer, int64_t capacity)
{
    if (!layer->peers) return (wave){0};
    return (wave){
        .peers = layer->peers,
        .n_experts = layer->config.n_routed_experts,
        .capacity = capacity,
        .parts = arena_take(a, layer->peers->size, sizeof(dsmoe_bytes)),
        .load = arena_take(a, layer->peers->size, sizeof(int64_t)),
    };
}

static int32_t *row_of(const wave *w, int unit)
{
    return w->said + unit * row_size(w->peers->size, w->n_experts);
}

void wave_say(const wave *w, dsmoe_status status, int64_t n_tokens, bool has_more,
              const int32_t *offsets, const int64_t *n_sent)
{
    int32_t *row = row_of(w, w->peers->rank);
    row[STATUS] = (int32_t)status;
    row[TOKENS] = (int32_t)n_tokens;
    row[HAS_MORE] = has_more;
    for (int rank = 0; rank < w->peers->size; rank++) row[SENT + rank] = (int32_t)n_sent[rank];
    memcpy(row + SENT + w->peers->size, offsets, (size_t)(w->n_experts + 1) * sizeof *row);
}

dsmoe_status wave_gather(const wave *w, dsmoe_status mine, dsmoe_error *error)
{
    int n_ranks = w->peers->size;
    size_t size = wave_said_size(n_ranks, w->n_experts);
    for (int i = 0; i < n_ranks; i++) w->parts[i] = (dsmoe_bytes){row_of(w, i), size};
    dsmoe_error lost;
    dsmoe_status status = peers_gather(w->peers, w->parts, &lost);
    if (status != DSMOE_OK) return status_fail(error, status, "%s", lost.message);
    for (int i = 0; i < n_ranks; i++)
        if (row_of(w, i)[STATUS] != DSMOE_OK) return peers_agree(w->peers, mine, error);
    return DSMOE_OK;
}

int64_t wave_tokens(const wave *w, int unit) { return row_of(w, unit)[TOKENS]; }

const int32_t *wave_offsets(const wave *w, int unit)
{
    return row_of(w, unit) + SENT + w->peers->size;
}

int64_t wave_first_row(const wave *w, int unit, int rank)
{
    return wave_offsets(w, unit)[wave_held(w->n_experts, rank, w->peers->size).first];
}

int64_t wave_rows(const wave *w, int unit, int rank)
{
    const int32_t *offsets = wave_offsets(w, unit);
    expert_range held = wave_held(w->n_experts, rank, w->peers->size);
    return offsets[held.end] - offsets[held.first];
}

int64_t wave_sent(const wave *w, int unit, int rank) { return row_of(w, unit)[SENT + rank]; }

bool wave_has_more(const wave *w)
{
    for (int i = 0; i < w->peers->size; i++)
        if (row_of(w, i)[HAS_MORE]) return true;
    return false;
}

/* Adds a unit's rows to the load of all other ranks; false if that is too much for one of them. */
static bool add_unit(const wave *w, int unit)
{
    bool fits = true;
    for (int rank = 0; rank < w->peers->size; rank++) {
        if (rank != unit) w->load[rank] += wave_rows(w, unit, rank);
        fits = fits && w->load[rank] <= w->capacity;
    }
    return fits;
}

bool wave_next_round(const wave *w, unit_range *last)
{
    int n_ranks = w->peers->size;
    if (last->end == n_ranks) return false;
    for (int rank = 0; rank < n_ranks; rank++) w->load[rank] = 0;
    *last = (unit_range){last->end, last->end};
    /* One unit always fits, since capacity is at least all its rows. */
    while (last->end < n_ranks && add_unit(w, last->end)) last->end++;
    return true;
}
