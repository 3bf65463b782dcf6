/* spread.h - moves a trainer's numbers between rank 0, which has the files, and the ranks that keep them.
 *
 * All ranks walk through the tensors together; rank 0 reads or supplies the numbers. */
#ifndef DSMOE_TRAIN_SPREAD_H
#define DSMOE_TRAIN_SPREAD_H

#include "train/trainer.h"

typedef enum trainer_row { ROW_FIRST_MOMENT, ROW_SECOND_MOMENT, ROW_WEIGHTS, N_ROWS } trainer_row;

/* The most numbers that are moved at a time. */
enum { SPREAD_PIECE = 1 << 18 };

/* On rank 0, *numbers then points to numbers first … first + n - 1 of a parameter: either where they are
 * stored, or in `room`, which has space for one piece. */
dsmoe_status spread_read(const dsmoe_trainer *trainer, trainer_row row, size_t parameter,
                         int64_t first, int64_t n, float *room, const float **numbers,
                         dsmoe_error *error);
/* Sends rank 0's `numbers` to all ranks that keep them. */
dsmoe_status spread_write(dsmoe_trainer *trainer, trainer_row row, size_t parameter, int64_t first,
                          int64_t n, const void *numbers, dsmoe_error *error);

#endif
