/* trainer.h - a model being trained, as its own files see it. The public face is dsmoe.h. */
#ifndef DSMOE_TRAIN_TRAINER_H
#define DSMOE_TRAIN_TRAINER_H

#include "base/memory.h"
#include "model/model.h"
#include "moe/low_rank_backward.h"
#include "peers/peers.h"
#include "peers/timed.h"
#include "train/fold.h"
#include "train/shares.h"

/* What of a tensor a parameter is. */
typedef enum parameter_part { PART_WHOLE, PART_LORA_A, PART_LORA_B } parameter_part;

/* One tensor in the rows of all parameters. */
typedef struct parameter {
    const char *name; /* the model's, or that of a part (tuning_name) */
    size_t tensor;    /* of the walk, that it is or belongs to */
    parameter_part part;
    int n_dims;
    int64_t shape[2];
    int64_t begin, n;    /* numbers; begin -1: another rank has it */
    int64_t section;     /* see shares.h */
    int64_t expert;      /* the routed expert of its layer that it belongs to; -1: none */
    int64_t first_chunk; /* and as many after it as it has */
    bool decays;         /* a matrix */
    weight_role role;
} parameter;

typedef struct step_space step_space; /* activations and workspace: step.h */

struct dsmoe_trainer {
    dsmoe_config config;
    dsmoe_trainer_options options; /* with what was left open filled in */
    const kernels *kernels;
    dsmoe_model *model; /* over `weights` */
    parameter *parameters;
    size_t n_parameters;
    int64_t n_numbers; /* of all parameters that are here, gaps between them included */
    shares shares;
    float *weights;                                  /* [n_numbers] */
    float *gradients, *first_moment, *second_moment; /* [shares.n_own]; gaps are zero everywhere */
    model_weights *weight_slots; /* where each tensor lies: in the weights, or in the base */
    /* With tuning: */
    size_t n_tensors;             /* of the walk */
    struct base_slot *base_slots; /* [n_tensors] where they lie in the base */
    float *kv_b;                  /* that of the base, if it lies there in halves */
    low_rank *low_of;             /* [n_tensors + 1] the adapter's */
    low_rank_training low;
    unsigned x_forms; /* that weights want of x: see ints.h */
    bool in_halves;   /* what layers keep: there are weights in blocks, see halves.h */
    int64_t lowest;   /* layer of which something is trained */
    int64_t
        n_sharing; /* first layers that have one place for what they keep: all but the last of them (in halves: all but
                          the model's last one) are run once more in backward, if it comes so far */
    fold fold;
    int64_t n_arrived; /* sections whose new weights are here: see arrival.h; */
    bool is_arriving;  /* the next one is on its way */
    int64_t n_updates; /* AdamW's t: updates that were not skipped */
    int64_t n_batches; /* since the last update, of all ranks */
    bool poisoned;     /* one of them was not finite */
    void *memory;      /* of the two below */
    step_space *space;
    void *norms; /* workspace of the optimizer */
    int64_t n_moe_layers;
    int64_t *expert_load; /* [n_moe_layers, n_routed_experts] */
    int64_t *step_load;   /* the same since the last update */
    void *reports;        /* [n_ranks] of the last wave: units.h */
    dsmoe_trainer_times times;
    timed_peers timed; /* what options.peers leads to, if there are any */
};

/* What is adapted; NULL: nothing. */
static inline const low_rank_training *trainer_low_rank(const dsmoe_trainer *t)
{
    return t->options.tuning && t->options.tuning->train == DSMOE_TRAIN_LORA ? &t->low : NULL;
}

static inline bool trainer_divides_experts(const dsmoe_trainer *t)
{
    return t->options.peers && t->options.parallel == DSMOE_PARALLEL_EXPERTS;
}

/* The parameter that is tensor number `index` of the walk; NULL: it is frozen. */
const parameter *trainer_whole(const dsmoe_trainer *trainer, size_t index);

/* dsmoe_trainer_update that leaves new weights on their way: see arrival.h. */
dsmoe_status trainer_update(dsmoe_trainer *trainer, double lr, dsmoe_update *update,
                            dsmoe_error *error);

/* A trainer without its large memory: enough to ask for sizes. */
dsmoe_status trainer_open_small(const dsmoe_config *config, const dsmoe_trainer_options *options,
                                dsmoe_trainer **trainer, dsmoe_error *error);

/* Whether so much memory is available; the message has the figures. */
dsmoe_status trainer_check_memory(const dsmoe_trainer_memory *memory, dsmoe_error *error);

/* The time now, from which on a part of a step is measured. What was spent on other ranks before counts as sending. */
double trainer_start_lap(dsmoe_trainer *trainer);

#endif
