/* model_sizes.h - the sizes of a new model as options, the same in `train`, `init` and `bench train`. */
#ifndef DSMOE_CLI_MODEL_SIZES_H
#define DSMOE_CLI_MODEL_SIZES_H

#include "cli/options.h"
#include "dsmoe.h"

enum { MODEL_SIZES_ROWS = 15 };

#define MODEL_SIZES_HELP                                                                           \
    "      --layers N             num_hidden_layers\n"                                             \
    "      --hidden N             hidden_size\n"                                                   \
    "      --heads N              num_attention_heads\n"                                           \
    "      --kv-heads N           num_key_value_heads (as many as heads)\n"                        \
    "      --moe N                moe_intermediate_size, the width of an expert\n"                 \
    "      --routed N             n_routed_experts; 0: a dense model\n"                            \
    "      --shared N             n_shared_experts\n"                                              \
    "      --k N                  num_experts_per_tok\n"                                           \
    "      --dense-layers N       first_k_dense_replace: layers without experts\n"                 \
    "      --ffn N                intermediate_size, the width of the dense layers\n"              \
    "   latent attention (V2, V3):\n"                                                              \
    "      --kv-rank N            kv_lora_rank, the width of the latent for keys and values\n"     \
    "      --q-rank N             q_lora_rank; 0: queries are not compressed\n"                    \
    "      --nope N, --rope N     qk_nope_head_dim, qk_rope_head_dim: a head's parts\n"            \
    "      --v-dim N              v_head_dim\n"

/* Fills in rows for a table of options; their values go into `sizes`, which already has the defaults. */
void model_sizes_rows(dsmoe_model_sizes *sizes, option_row rows[MODEL_SIZES_ROWS]);
/* The key of config.json that an option sets; NULL if it is not one of these. */
const char *model_sizes_key(const char *option);
/* Applies the sizes to a configuration: -1, or CLI_USAGE after a message that names the options. */
int model_sizes_apply(const char *command, const dsmoe_model_sizes *sizes, dsmoe_config *config);

#endif
