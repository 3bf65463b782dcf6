/* trainer.h - a model being trained, as its own files see it. The public face is dsmoe.h. */
#ifndef DSMOE_TRAIN_TRAINER_H
#define DSMOE_TRAIN_TRAINER_H

#include "base/memory.h"
#include "model/model.h"

/* One tensor in the flat arrays of all parameters. */
typedef struct parameter {
    const char *name; /* the model's */
    int64_t begin, n; /* numbers */
    bool decays;      /* a matrix */
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
    int64_t n_numbers; /* of all parameters, gaps between them included */
    /* [n_numbers] each. Gaps are zero everywhere. */
    float *weights, *gradients, *first_moment, *second_moment;
    model_weights *weight_slots, *gradient_slots; /* where each tensor lies in them */
    int64_t n_updates;                            /* AdamW's t: updates that were not skipped */
    int64_t n_batches;                            /* since the last update */
    bool poisoned;                                /* one of them was not finite */
    void *memory;                                 /* of the two below */
    step_space *space;
    double *norms; /* workspace of the optimizer */
    int64_t n_moe_layers;
    int64_t *expert_load;             /* [n_moe_layers, n_routed_experts] */
    dsmoe_layer_losses *layer_losses; /* [n_moe_layers] */
    dsmoe_trainer_times times;
};

/* Whether so much memory can be had; the message has the figures. */
dsmoe_status trainer_check_memory(const dsmoe_trainer_memory *memory, dsmoe_error *error);

#endif
