/* config_keys.h - the keys of config.json as tables, and the differences between types of models: for
 * reading, checking and naming configurations. */
#ifndef DSMOE_MODEL_CONFIG_KEYS_H
#define DSMOE_MODEL_CONFIG_KEYS_H

#include "model/config.h"
#include "model/keys.h"

enum {
    CONFIG_DIMENSION_MAX = 1 << 24, /* far above any model, far below where products overflow */
    CONFIG_LAYERS_MAX = 1 << 16,
};

typedef struct config_table {
    const config_key *keys;
    int n_keys;
} config_table;

extern const config_table config_keys;        /* of all models */
extern const config_table config_latent_keys; /* of V2 and V3, with their common defaults */
extern const config_table config_first_keys;  /* of the paper's model alone */
extern const config_table config_yarn_keys;   /* of rope_scaling with the type yarn */

enum { CONFIG_TOPK_METHODS = 3 };

/* A type of models, and its defaults. */
typedef struct config_family {
    const char *model_type, *architecture;
    dsmoe_scoring_func scoring_func;           /* the only one */
    bool has_topk_method[CONFIG_TOPK_METHODS]; /* by dsmoe_topk_method */
    dsmoe_topk_method topk_method;
    config_table defaults; /* of keys that have other defaults in other types */
} config_family;

enum { CONFIG_FAMILIES = 3 };
extern const config_family config_families[CONFIG_FAMILIES]; /* by dsmoe_model_type */

/* Reads mlp_layer_types of newer files. It gives first_k_dense_replace if that is absent; otherwise both must
 * agree. */
dsmoe_status config_read_layer_types(const json_node *root, dsmoe_config *config,
                                     dsmoe_error *error);
/* Refuses keys that ask for something that is not computed here. The configuration must have been checked. */
dsmoe_status config_check_beyond(const json_node *root, const dsmoe_config *config,
                                 dsmoe_error *error);
/* Checks rope_parameters without a type: newer files have rope_theta there even without scaling. */
dsmoe_status config_check_bare_rope(const json_node *parameters, dsmoe_error *error);

extern const char *const config_topk_methods[CONFIG_TOPK_METHODS];
extern const char *const config_scoring_funcs[2]; /* by dsmoe_scoring_func */

#endif
