/* ablate_models.h - the architectures that `dsmoe ablate` compares, and the sizes it knows. */
#ifndef DSMOE_CLI_ABLATE_MODELS_H
#define DSMOE_CLI_ABLATE_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

typedef struct ablate_scale {
    const char *name;
    int64_t hidden_size, num_hidden_layers, num_attention_heads;
    int64_t ffn; /* width of a standard expert, and of the dense network */
    /* What the command does unless told otherwise. */
    int64_t vocab_size, batch, seq, steps;
    double lr;
} ablate_scale;

/* NULL if there is none of that name. */
const ablate_scale *ablate_scale_find(const char *name);

/* One of 16 standard experts, of which a token takes `k_active`, each split in `m_split`, and `k_shared`
 * of the parts always at work. */
typedef struct ablate_model {
    const char *name, *label;
    double paper_loss; /* on the Pile after 100B tokens; NAN: the paper has no number */
    int64_t k_active;  /* 0: a dense model */
    int64_t m_split, k_shared;
    double width;  /* of a standard expert, in widths of the dense network */
    bool is_extra; /* trained only if it is named */
    bool is_equal; /* one of those with equal parameters, all of them and for a token */
    bool is_masked,
        is_fewer; /* which probes it goes through; where there are shared experts they are
                                 replaced as well */
} ablate_model;

enum { ABLATE_N_MODELS = 8 };
extern const ablate_model ablate_models[ABLATE_N_MODELS];

/* The place of a model of that name; -1 if there is none. */
int ablate_model_find(const char *name);

/* "1 + 7 of 63", "2 of 16", "dense"; returns `out`. */
enum { ABLATE_EXPERTS = 32 };
const char *ablate_model_experts(const ablate_model *model, char out[ABLATE_EXPERTS]);

/* What the comparison gives all models alike. */
typedef struct ablate_common {
    int64_t vocab_size, bos_token_id, eos_token_id, seq;
} ablate_common;
dsmoe_config ablate_model_config(const ablate_model *model, const ablate_scale *scale,
                                 const ablate_common *common);

/* Parameters as the comparison counts them: what is not expert is the same in all models, but for the
 * router. The dense network counts as one expert that is always at work. */
typedef struct ablate_parameters {
    int64_t total, active;           /* of the whole model */
    int64_t experts, active_experts; /* in all layers, without the router */
    double flops;                    /* of one step over a sequence, forward and backward */
} ablate_parameters;
dsmoe_status ablate_model_parameters(const dsmoe_config *config, ablate_parameters *parameters,
                                     dsmoe_error *error);

/* Writes the configuration as a config.json. Prints its message and returns the exit code, or CLI_OK. */
int ablate_config_write(const char *path, const dsmoe_config *config);

#endif
