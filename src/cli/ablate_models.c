/* ablate_models.c - the architectures that `dsmoe ablate` compares, and the sizes it knows. */
#include "cli/ablate_models.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/replace_file.h"

enum { N_STANDARD = 16 }; /* experts before they are split */

/* Widths can be divided by four. Rates fall with the width, as is usual. */
static const ablate_scale scales[] = {
    {"tiny", 128, 4, 4, 384, 4096, 8, 256, 2000, 2e-3},
    {"small", 256, 6, 4, 688, 8192, 16, 256, 4000, 1.5e-3},
    {"medium", 512, 8, 8, 1408, 8192, 16, 512, 20000, 8e-4},
};

const ablate_model ablate_models[ABLATE_N_MODELS] = {
    {"dense", "Dense", 2.060, 0, 1, 0, 1, false, false, false, false},
    {"switch", "Switch, top-1", 1.881, 1, 1, 0, 1, false, false, false, false},
    {"gshard", "GShard, top-2", 1.867, 2, 1, 0, 1, false, true, true, false},
    {"gshard+shared", "GShard + shared", NAN, 2, 1, 1, 1, false, true, true, false},
    {"fine-m2", "m=2 + shared", NAN, 2, 2, 1, 1, false, true, false, false},
    {"fine-m4", "m=4, none shared", NAN, 2, 4, 0, 1, false, true, false, false},
    {"deepseekmoe", "DeepSeekMoE", 1.808, 2, 4, 1, 1, false, true, true, true},
    {"gshard-x1.5", "GShard x1.5", 1.808, 2, 1, 0, 1.5, true, false, true, false},
};

const ablate_scale *ablate_scale_find(const char *name)
{
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (!strcmp(name, scales[i].name)) return &scales[i];
    return NULL;
}

int ablate_model_find(const char *name)
{
    for (int i = 0; i < ABLATE_N_MODELS; i++)
        if (!strcmp(name, ablate_models[i].name)) return i;
    return -1;
}

static int64_t n_routed(const ablate_model *m) { return m->m_split * N_STANDARD - m->k_shared; }
static int64_t n_chosen(const ablate_model *m) { return m->m_split * m->k_active - m->k_shared; }

const char *ablate_model_experts(const ablate_model *model, char out[ABLATE_EXPERTS])
{
    if (model->k_active == 0) return strcpy(out, "dense");
    int length = 0;
    if (model->k_shared) length = snprintf(out, ABLATE_EXPERTS, "%" PRId64 " + ", model->k_shared);
    snprintf(out + length, (size_t)(ABLATE_EXPERTS - length), "%" PRId64 " of %" PRId64,
             n_chosen(model), n_routed(model));
    return out;
}

dsmoe_config ablate_model_config(const ablate_model *model, const ablate_scale *scale,
                                 const ablate_common *common)
{
    bool is_moe = model->k_active > 0;
    double width = model->width * (double)scale->ffn / (double)model->m_split;
    return (dsmoe_config){
        .vocab_size = common->vocab_size,
        .hidden_size = scale->hidden_size,
        .intermediate_size = scale->ffn,
        .moe_intermediate_size = (int64_t)(width + 0.5),
        .num_hidden_layers = scale->num_hidden_layers,
        .num_attention_heads = scale->num_attention_heads,
        .num_key_value_heads = scale->num_attention_heads,
        .n_shared_experts = is_moe ? model->k_shared : 0,
        .n_routed_experts = is_moe ? n_routed(model) : 0,
        .num_experts_per_tok = is_moe ? n_chosen(model) : 0,
        .moe_layer_freq = 1,
        .max_position_embeddings = common->seq,
        .seq_aux = true,
        .aux_loss_alpha = 0.01,
        .initializer_range = 0.02,
        .rms_norm_eps = 1e-6,
        .rope_theta = 10000,
        .rope_scaling_factor = 1,
        .bos_token_id = common->bos_token_id,
        .eos_token_id = common->eos_token_id,
    };
}

dsmoe_status ablate_model_parameters(const dsmoe_config *config, ablate_parameters *parameters,
                                     dsmoe_error *error)
{
    dsmoe_model_plan plan;
    dsmoe_status status =
        dsmoe_model_plan_make(config, config->max_position_embeddings, &plan, error);
    if (status != DSMOE_OK) return status;
    int64_t always = plan.dense_ffn + plan.shared_experts;
    *parameters = (ablate_parameters){.total = plan.total,
                                      .active = plan.active,
                                      .experts = always + plan.routed_experts,
                                      .active_experts = always + plan.active_routed_experts,
                                      .flops = plan.matmul_flops + plan.attention_flops};
    return DSMOE_OK;
}

static void print_optional(FILE *file, const char *key, int64_t value, bool is_there)
{
    if (is_there)
        fprintf(file, "  \"%s\": %" PRId64 ",\n", key, value);
    else
        fprintf(file, "  \"%s\": null,\n", key);
}

int ablate_config_write(const char *path, const dsmoe_config *c)
{
    replace_file out;
    int exit_code = replace_file_begin("ablate", path, &out);
    if (exit_code != CLI_OK) return exit_code;
    fprintf(out.file,
            "{\n  \"architectures\": [\"DeepseekForCausalLM\"],\n  \"model_type\": \"deepseek\",\n"
            "  \"vocab_size\": %" PRId64 ",\n  \"hidden_size\": %" PRId64
            ",\n  \"intermediate_size\": %" PRId64 ",\n  \"moe_intermediate_size\": %" PRId64
            ",\n  \"num_hidden_layers\": %" PRId64 ",\n  \"num_attention_heads\": %" PRId64
            ",\n  \"num_key_value_heads\": %" PRId64 ",\n",
            c->vocab_size, c->hidden_size, c->intermediate_size, c->moe_intermediate_size,
            c->num_hidden_layers, c->num_attention_heads, c->num_key_value_heads);
    print_optional(out.file, "n_shared_experts", c->n_shared_experts, c->n_shared_experts > 0);
    print_optional(out.file, "n_routed_experts", c->n_routed_experts, c->n_routed_experts > 0);
    print_optional(out.file, "num_experts_per_tok", c->num_experts_per_tok,
                   c->n_routed_experts > 0);
    print_optional(out.file, "bos_token_id", c->bos_token_id, c->bos_token_id >= 0);
    print_optional(out.file, "eos_token_id", c->eos_token_id, c->eos_token_id >= 0);
    fprintf(out.file,
            "  \"moe_layer_freq\": %" PRId64 ",\n  \"first_k_dense_replace\": %" PRId64
            ",\n  \"max_position_embeddings\": %" PRId64 ",\n  \"norm_topk_prob\": false,\n"
            "  \"scoring_func\": \"softmax\",\n  \"seq_aux\": true,\n  \"hidden_act\": \"silu\",\n"
            "  \"attention_bias\": false,\n  \"tie_word_embeddings\": false,\n"
            "  \"aux_loss_alpha\": %g,\n  \"initializer_range\": %g,\n  \"rms_norm_eps\": %g,\n"
            "  \"rope_theta\": %g,\n  \"rope_scaling\": null,\n  \"torch_dtype\": \"float32\"\n}\n",
            c->moe_layer_freq, c->first_k_dense_replace, c->max_position_embeddings,
            c->aux_loss_alpha, c->initializer_range, c->rms_norm_eps, c->rope_theta);
    return replace_file_end("ablate", &out);
}
