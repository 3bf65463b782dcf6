/* trainer.h - a model being trained, for the files of the trainer. The public interface is dsmoe.h. */
#ifndef DSMOE_TRAIN_TRAINER_H
#define DSMOE_TRAIN_TRAINER_H

#include "base/memory.h"
#include "model/model.h"
#include "moe/low_rank_backward.h"
#include "peers/peers.h"
#include "peers/timed.h"
#include "train/fold.h"
#include "train/shares.h"

/* Which part of a tensor a parameter is. */
typedef enum parameter_part { PART_WHOLE, PART_LORA_A, PART_LORA_B } parameter_part;

/* One tensor of those trained. */
typedef struct parameter {
    const char *name; /* the tensor's name in the model, or a part's (tuning_name) */
    size_t tensor;    /* number in the walk of the tensor that it is or belongs to */
    parameter_part part;
    int n_dims;
    int64_t shape[2];
    int64_t begin, n;    /* numbers; begin -1: another rank has it */
    int64_t section;     /* see shares.h */
    int64_t expert;      /* the routed expert that it belongs to; -1: none */
    int64_t first_chunk; /* the first of its chunks */
    bool decays;         /* it is a matrix */
    weight_role role;
} parameter;

typedef struct step_space step_space; /* activations and workspace: step.h */

struct dsmoe_trainer {
    dsmoe_config config;
    dsmoe_trainer_options options; /* with defaults filled in */
    const kernels *kernels;
    dsmoe_model *model; /* a model that uses `weights` */
    parameter *parameters;
    size_t n_parameters;
    int64_t n_numbers; /* of all parameters on this rank, with the gaps between them */
    shares shares;
    float *weights;                                  /* [n_numbers] */
    float *gradients, *first_moment, *second_moment; /* [shares.n_own]; gaps are zero everywhere */
    model_weights *weight_slots; /* where each tensor is: in `weights`, or in the base */
    /* With tuning: */
    size_t n_tensors;             /* tensors of the walk */
    struct base_slot *base_slots; /* [n_tensors] where they are in the base */
    float *kv_b;                  /* the base's kv_b_proj, if it is in two halves there */
    low_rank *low_of;             /* [n_tensors + 1] the adapter's table */
    low_rank_training low;
    unsigned x_forms; /* forms of x that the weights need: see ints.h */
    bool in_halves;   /* layers keep halves, because weights are quantised: see halves.h */
    int64_t lowest;   /* the lowest layer with trained weights */
    /* How many of the first layers share the memory for what they keep. All except the last of them (in
     * halves: except the model's last layer) are run again in backward, if backward reaches them. */
    int64_t n_sharing;
    fold fold;
    int64_t n_arrived; /* sections whose new weights are here: see arrival.h */
    bool is_arriving;  /* the next section is being received */
    int64_t n_updates; /* AdamW's t: updates that were not skipped */
    int64_t n_batches; /* since the last update, on all ranks */
    bool poisoned;     /* one of these batches was not finite */
    void *memory;      /* memory for the next two */
    step_space *space;
    void *norms; /* workspace of the optimizer */
    int64_t n_moe_layers;
    int64_t *expert_load; /* [n_moe_layers, n_routed_experts] */
    int64_t *step_load;   /* the same since the last update */
    void *reports;        /* [n_ranks] reports of the last wave: units.h */
    dsmoe_trainer_times times;
    timed_peers timed; /* options.peers points to its table, if there are ranks */
};

/* The low-rank additions; NULL: none. */
static inline const low_rank_training *trainer_low_rank(const dsmoe_trainer *t)
{
    return t->options.tuning && t->options.tuning->train == DSMOE_TRAIN_LORA ? &t->low : NULL;
}

static inline bool trainer_divides_experts(const dsmoe_trainer *t)
{
    return t->options.peers && t->options.parallel == DSMOE_PARALLEL_EXPERTS;
}

/* The parameter that is tensor number `index` of the walk; NULL: the tensor is frozen. */
const parameter *trainer_whole(const dsmoe_trainer *trainer, size_t index);

/* Like dsmoe_trainer_update, but new weights are still to be sent: see arrival.h. */
dsmoe_status trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                            dsmoe_error *error);

/* A trainer without its large memory: enough to ask for sizes. */
dsmoe_status trainer_open_small(const dsmoe_config *config, const dsmoe_trainer_options *options,
                                dsmoe_trainer **trainer, dsmoe_error *error);

/* Checks whether so much memory is available; the message has the figures. */
dsmoe_status trainer_check_memory(const dsmoe_trainer_memory *memory, dsmoe_error *error);

/* The current time, to measure a part of a step from. Time spent on other ranks before is counted as
 * sending. */
double trainer_start_lap(dsmoe_trainer *trainer);

#endif
