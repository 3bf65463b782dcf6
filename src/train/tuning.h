/* tuning.h - which tensors of a base model are trained, whole or by low-rank additions. The others stay
 * where they are, in their own type. */
#ifndef DSMOE_TRAIN_TUNING_H
#define DSMOE_TRAIN_TUNING_H

#include "train/trainer.h"

/* A tensor of the base in the order of the walk. */
typedef struct base_slot {
    matrix matrix;
    float *vector;
    int64_t shape[2];
} base_slot;

/* Checks the trainer's options, before anything is made. */
dsmoe_status tuning_check(const dsmoe_config *config, const dsmoe_trainer_options *options,
                          dsmoe_error *error);

/* Finds the tensors of the base. */
dsmoe_status tuning_open(dsmoe_trainer *trainer, dsmoe_error *error);
void tuning_close(dsmoe_trainer *trainer);

/* How many parameters of tensor `spec` are trained; fills in their size, shape and part. 0: the tensor is
 * frozen. */
enum { TUNING_PARTS = 2 };
int tuning_parts(const dsmoe_trainer *trainer, const weight_spec *spec,
                 parameter parts[TUNING_PARTS]);
/* The name that PEFT gives a part of a low-rank addition; the caller frees it. NULL if there is no memory. */
char *tuning_name(const char *tensor, parameter_part part);

/* Where the frozen tensor number `index` is. */
base_slot tuning_slot(const dsmoe_trainer *trainer, size_t index);

/* Fill the tables of the adapter and of its gradients. `weights` may still be NULL if only sizes are
 * needed; where(context, parameter) gives the place of a gradient. */
void tuning_place(dsmoe_trainer *trainer);
void tuning_place_gradients(const dsmoe_trainer *trainer, low_rank_gradient *table,
                            float *(*where)(const void *context, const parameter *p),
                            const void *context);

/* Sets the initial numbers of a parameter: A uniform, B zero. */
void tuning_init(const parameter *p, uint64_t seed, float *numbers);

#endif
