/* wave.h - what ranks that share the experts of a layer know of each other before rows travel.
 *
 * Each rank holds a range of the routed experts and brings a unit of tokens of its own, or none; the units of all
 * ranks are a wave, in the order of the ranks. In one gathering every rank says how many rows its unit has for
 * each expert, and whether it is well. From then on all know the size of every message, and come by the same
 * arithmetic to the same rounds: units whose rows travel together, so many that no rank has more to take in than
 * it has room for. */
#ifndef DSMOE_MOE_WAVE_H
#define DSMOE_MOE_WAVE_H

#include "moe/dispatch.h"

/* The routed experts that a rank holds: consecutive ones, as many as the others within one. */
expert_range wave_held(int64_t n_routed_experts, int rank, int n_ranks);

typedef struct wave {
    const dsmoe_peers *peers;    /* NULL: alone */
    int64_t n_experts, capacity; /* capacity: rows of others that a rank takes in at a time */
    int32_t *said;               /* a row for each rank, see wave.c: filled in by wave_gather */
    dsmoe_bytes *parts;          /* [n_ranks] of scratch */
    int64_t *load;               /* [n_ranks] of scratch */
} wave;

/* Bytes that each rank sends about itself. */
size_t wave_said_size(int n_ranks, int64_t n_routed_experts);

/* `said` apart, as training keeps it for backward. Nothing at all if the layer is alone. */
int32_t *wave_place_said(arena *a, const dsmoe_layer *layer);
wave wave_place(arena *a, const dsmoe_layer *layer, int64_t capacity);

/* This rank's own words: what dispatch sorted, and how many different tokens of it each rank gets. */
void wave_say(const wave *w, dsmoe_status status, int64_t n_tokens, bool has_more,
              const int32_t *offsets, const int64_t *n_sent);
/* Of all ranks. If a rank has failed, its error is that of all. */
dsmoe_status wave_gather(const wave *w, dsmoe_status mine, dsmoe_error *error);

int64_t wave_tokens(const wave *w, int unit);
const int32_t *wave_offsets(const wave *w, int unit);      /* as of dispatch */
int64_t wave_rows(const wave *w, int unit, int rank);      /* rows of a unit for a rank's experts */
int64_t wave_sent(const wave *w, int unit, int rank);      /* different tokens among them */
int64_t wave_first_row(const wave *w, int unit, int rank); /* where they begin in the unit */
bool wave_has_more(const wave *w); /* some rank has tokens for another wave */

/* Consecutive units. */
typedef struct unit_range {
    int first, end;
} unit_range;

/* The round after `last`, whose first one follows {0, 0}; false if that was the last. */
bool wave_next_round(const wave *w, unit_range *last);

#endif
