/* team.h - rank 0 conducts: it alone has the files and decides what comes next, and tells the others, which follow.
 *
 * Rank 0 calls the functions below, which send an order and then do their part; without ranks they only do that part.
 * The other ranks are in team_follow all the time. A walk over a row of numbers, once begun, is walked to its end by
 * all, also if rank 0 has no more use for it: so a full disk stops no other rank in the middle. */
#ifndef DSMOE_TRAIN_TEAM_H
#define DSMOE_TRAIN_TEAM_H

#include "train/spread.h"

/* The numbers of a seed everywhere. */
dsmoe_status team_init(dsmoe_trainer *trainer, uint64_t seed, dsmoe_error *error);

/* Tells `use` all numbers of a row, tensor after tensor, in pieces. What `use` returns is returned at the end. */
typedef dsmoe_status team_read_fn(void *context, size_t parameter, const float *numbers, int64_t n,
                                  dsmoe_error *error);
dsmoe_status team_read(dsmoe_trainer *trainer, trainer_row row, team_read_fn *use, void *context,
                       dsmoe_error *error);
/* Fills a row with the float32 numbers that `give` leads to: those of a parameter, all of them. */
typedef const void *team_fill_fn(void *context, size_t parameter);
dsmoe_status team_fill(dsmoe_trainer *trainer, trainer_row row, team_fill_fn *give, void *context,
                       dsmoe_error *error);

/* n_units batches, at most one for each rank, their arrays one after the other. */
dsmoe_status team_backward(dsmoe_trainer *trainer, int n_units, const dsmoe_batch *batches,
                           dsmoe_error *error);
/* An update; if a rank that follows wants to stop, *stop is DSMOE_ERROR_STOPPED and names it, otherwise DSMOE_OK. */
dsmoe_status team_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update, dsmoe_error *stop,
                         dsmoe_error *error);

/* From one to the other rank 0 runs the model for itself, and the others their experts for it. */
dsmoe_status team_begin_serving(dsmoe_trainer *trainer, dsmoe_error *error);
dsmoe_status team_end_serving(const dsmoe_trainer *trainer, dsmoe_error *error);

/* Nothing comes after it. How the work ended is what team_follow returns on the other ranks. */
dsmoe_status team_end(const dsmoe_peers *peers, dsmoe_status status, const dsmoe_error *reason);

/* The other ranks. */
typedef struct team_follower {
    dsmoe_trainer *trainer;
    int32_t *tokens, *targets, *positions; /* room for a unit */
    bool (*stop)(void *context);           /* asked after each update; may be NULL */
    void *context;
} team_follower;
dsmoe_status team_follow(const team_follower *follower, dsmoe_error *error);

#endif
