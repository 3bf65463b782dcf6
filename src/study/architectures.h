/* architectures.h - the architectures that the paper compares, and the sizes that can be trained on CPUs. */
#ifndef DSMOE_STUDY_ARCHITECTURES_H
#define DSMOE_STUDY_ARCHITECTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

typedef struct study_scale {
    const char *name;
    int64_t hidden_size, num_hidden_layers, num_attention_heads;
    int64_t ffn; /* width of a standard expert, and of the dense network */
    /* The defaults of a comparison. */
    int64_t vocab_size, batch, seq, steps;
    double lr;
} study_scale;

/* The scale of that name; NULL if there is none. */
const study_scale *study_scale_find(const char *name);

/* An architecture begins with 16 standard experts, of which a token takes `k_active`. Each is split into
 * `m_split` parts, and `k_shared` of the parts are always active. */
typedef struct architecture {
    const char *name, *label;
    double paper_loss; /* on the Pile after 100B tokens; NAN: the paper has no number */
    int64_t k_active;  /* 0: a dense model */
    int64_t m_split, k_shared;
    double width;             /* of a standard expert, in widths of the dense network */
    bool is_extra;            /* trained only if it is named */
    bool is_equal;            /* has as many expert parameters, total and active, as gshard */
    bool is_masked, is_fewer; /* the probes it goes through; if it has shared experts, they are
                                 replaced as well */
} architecture;

enum { N_ARCHITECTURES = 12 };
extern const architecture architectures[N_ARCHITECTURES];

/* The index of the architecture of that name; -1 if there is none. */
int architecture_find(const char *name);
/* The number of routed experts that a token takes; 0 for a dense model. */
int64_t architecture_routed(const architecture *a);

/* "1 + 7 of 63", "2 of 16", "dense"; returns `out`. */
enum { ARCHITECTURE_EXPERTS = 32 };
const char *architecture_experts(const architecture *a, char out[ARCHITECTURE_EXPERTS]);

/* What all models of a comparison have in common. */
typedef struct architecture_common {
    int64_t vocab_size, bos_token_id, eos_token_id, seq;
} architecture_common;

/* Settings that may differ between the models, so that each is at its best. */
typedef struct study_choice {
    double lr;
    double aux_loss_alpha;        /* of the balance loss */
    double routed_scaling_factor; /* 0: none */
    double initializer_range;
    bool norm_topk_prob;
    bool seq_aux; /* balance over each sequence, otherwise over the batch */
} study_choice;

dsmoe_config architecture_config(const architecture *a, const study_scale *scale,
                                 const architecture_common *common, const study_choice *choice);

/* Parameters as a comparison counts them. Apart from experts and router, all models have the same
 * parameters. The dense network counts as one expert that is always active. */
typedef struct architecture_parameters {
    int64_t total, active;           /* of the whole model */
    int64_t experts, active_experts; /* in all layers, without the router */
    double flops;                    /* of one step over a sequence, forward and backward */
} architecture_parameters;
dsmoe_status architecture_count(const dsmoe_config *config, architecture_parameters *parameters,
                                dsmoe_error *error);

#endif
