/* model_sizes.c - the sizes of a new model as options. */
#include "cli/model_sizes.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define KEY(name) #name, offsetof(dsmoe_model_sizes, name)
static const struct {
    const char *option, *key;
    size_t offset;
    int min, max;
} table[MODEL_SIZES_ROWS] = {
    {"--layers", KEY(num_hidden_layers), 1, 1 << 16},
    {"--hidden", KEY(hidden_size), 1, 1 << 24},
    {"--heads", KEY(num_attention_heads), 1, 1 << 24},
    {"--kv-heads", KEY(num_key_value_heads), 1, 1 << 24},
    {"--moe", KEY(moe_intermediate_size), 1, 1 << 24},
    {"--routed", KEY(n_routed_experts), 0, 1 << 24},
    {"--shared", KEY(n_shared_experts), 0, 1 << 24},
    {"--k", KEY(num_experts_per_tok), 1, 1 << 24},
    {"--dense-layers", KEY(first_k_dense_replace), 0, 1 << 16},
    {"--ffn", KEY(intermediate_size), 1, 1 << 24},
    {"--kv-rank", KEY(kv_lora_rank), 1, 1 << 24},
    {"--q-rank", KEY(q_lora_rank), 0, 1 << 24},
    {"--nope", KEY(qk_nope_head_dim), 1, 1 << 24},
    {"--rope", KEY(qk_rope_head_dim), 2, 1 << 24},
    {"--v-dim", KEY(v_head_dim), 1, 1 << 24},
};

void model_sizes_rows(dsmoe_model_sizes *sizes, option_row rows[MODEL_SIZES_ROWS])
{
    for (int i = 0; i < MODEL_SIZES_ROWS; i++)
        rows[i] = (option_row){table[i].option, NULL,
                               OPTION_INTEGER,  (char *)sizes + table[i].offset,
                               table[i].min,    table[i].max};
}

const char *model_sizes_key(const char *option)
{
    for (int i = 0; i < MODEL_SIZES_ROWS; i++)
        if (!strcmp(option, table[i].option)) return table[i].key;
    return NULL;
}

int model_sizes_apply(const char *command, const dsmoe_model_sizes *sizes, dsmoe_config *config)
{
    dsmoe_error error;
    if (dsmoe_config_resize(config, sizes, &error) == DSMOE_OK) return -1;
    char list[256] = "";
    for (int i = 0, used = 0; i < MODEL_SIZES_ROWS && used < (int)sizeof list; i++) {
        int64_t size = *(const int64_t *)((const char *)sizes + table[i].offset);
        if (size >= 0)
            used += snprintf(list + used, sizeof list - (size_t)used, "%s%s %" PRId64,
                             used ? ", " : " (", table[i].option, size);
    }
    return cli_usage(command, "%s%s%s", error.message, list, *list ? ")" : "");
}
