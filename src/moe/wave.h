/* wave.h - what ranks that share the experts of a layer tell each other before rows travel.
 *
 * Each rank holds a range of the routed experts. It brings a unit: its own tokens, or none. The units of all
 * ranks, in the order of the ranks, are a wave. First every rank reports to all others how many rows its unit
 * has for each expert, and whether it has failed. Then all ranks know the size of every message, and all
 * compute the same rounds. A round is as many consecutive units as every rank has space for; their rows
 * travel together. */
#ifndef DSMOE_MOE_WAVE_H
#define DSMOE_MOE_WAVE_H

#include "moe/dispatch.h"

/* The routed experts that a rank holds. They are consecutive, and the numbers of any two ranks differ by at
 * most one. */
expert_range wave_held(int64_t n_routed_experts, int rank, int n_ranks);

typedef struct wave {
    const dsmoe_peers *peers;    /* NULL: no other ranks */
    int64_t n_experts, capacity; /* capacity: the most rows a rank receives in a round */
    int32_t *said;               /* each rank's report, see wave.c; wave_gather fills it in */
    dsmoe_bytes *parts;          /* [n_ranks] scratch */
    int64_t *load;               /* [n_ranks] scratch */
} wave;

/* Bytes of a rank's report. */
size_t wave_said_size(int n_ranks, int64_t n_routed_experts);

/* `said` has a place of its own, since training keeps it for backward. Both take nothing if the layer has no
 * peers. */
int32_t *wave_place_said(arena *a, const dsmoe_layer *layer);
wave wave_place(arena *a, const dsmoe_layer *layer, int64_t capacity);

/* Writes this rank's report: the offsets of its dispatch, and how many different tokens it sends to each
 * rank. */
void wave_say(const wave *w, dsmoe_status status, int64_t n_tokens, bool has_more,
              const int32_t *offsets, const int64_t *n_sent);
/* Exchanges the reports. If a rank has failed, all ranks return its error. */
dsmoe_status wave_gather(const wave *w, dsmoe_status mine, dsmoe_error *error);

int64_t wave_tokens(const wave *w, int unit);
const int32_t *wave_offsets(const wave *w, int unit);      /* dispatch.offsets of the unit */
int64_t wave_rows(const wave *w, int unit, int rank);      /* rows of a unit for a rank's experts */
int64_t wave_sent(const wave *w, int unit, int rank);      /* different tokens among them */
int64_t wave_first_row(const wave *w, int unit, int rank); /* index of the first of these rows */
bool wave_has_more(const wave *w);                         /* some rank has tokens left */

/* Consecutive units. */
typedef struct unit_range {
    int first, end;
} unit_range;

/* Replaces *last by the round after it; the first round follows {0, 0}. False if there are no more. */
bool wave_next_round(const wave *w, unit_range *last);

#endif
