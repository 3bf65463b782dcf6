/* team.h - rank 0 leads: only rank 0 has the files and decides what is done next. It tells the other ranks,
 * which follow.
 *
 * Rank 0 calls the functions below, which send an order and then do rank 0's part; without other ranks
 * they only do that part. The other ranks are in team_follow all the time. Once all ranks have begun a
 * walk over weights or moments, they walk to its end, even if rank 0 no longer needs the numbers. So a
 * full disk does not stop another rank in the middle. */
#ifndef DSMOE_TRAIN_TEAM_H
#define DSMOE_TRAIN_TEAM_H

#include "train/spread.h"

/* Sets the initial weights of a seed on all ranks. */
dsmoe_status team_init(dsmoe_trainer *trainer, uint64_t seed, dsmoe_error *error);

/* Passes all weights, or one of the moments, to `use`, tensor after tensor, in pieces. What `use` returns
 * is returned at the end. */
typedef dsmoe_status team_read_fn(void *context, size_t parameter, const float *numbers, int64_t n,
                                  dsmoe_error *error);
dsmoe_status team_read(dsmoe_trainer *trainer, trainer_row row, team_read_fn *use, void *context,
                       dsmoe_error *error);
/* Fills the weights or a moment. `give` returns a pointer to all float32 numbers of a parameter. */
typedef const void *team_fill_fn(void *context, size_t parameter);
dsmoe_status team_fill(dsmoe_trainer *trainer, trainer_row row, team_fill_fn *give, void *context,
                       dsmoe_error *error);

/* Runs n_units batches, at most one for each rank; their arrays follow one another. */
dsmoe_status team_backward(dsmoe_trainer *trainer, int n_units, const dsmoe_batch *batches,
                           dsmoe_error *error);
/* Makes an update. If a rank that follows wants to stop, *stop is DSMOE_ERROR_STOPPED and names it,
 * otherwise DSMOE_OK. */
dsmoe_status team_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update, dsmoe_error *stop,
                         dsmoe_error *error);

/* Between these two calls rank 0 runs the model itself, and the others run their experts for it. */
dsmoe_status team_begin_serving(dsmoe_trainer *trainer, dsmoe_error *error);
dsmoe_status team_end_serving(const dsmoe_trainer *trainer, dsmoe_error *error);

/* The last call. team_follow returns `status` and `reason` on the other ranks. */
dsmoe_status team_end(const dsmoe_peers *peers, dsmoe_status status, const dsmoe_error *reason);

/* For the other ranks. */
typedef struct team_follower {
    dsmoe_trainer *trainer;
    int32_t *tokens, *targets, *positions; /* room for a unit */
    bool (*stop)(void *context);           /* asked after each update; may be NULL */
    void *context;
} team_follower;
dsmoe_status team_follow(const team_follower *follower, dsmoe_error *error);

#endif
