/* architectures.c - the architectures that the paper compares, and the sizes that can be trained on CPUs. */
#include "study/architectures.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_STANDARD = 16 }; /* experts before they are split */

/* Widths are divisible by four. Learning rates fall with the width, as is usual. */
static const study_scale scales[] = {
    {"tiny", 128, 4, 4, 384, 4096, 8, 256, 2000, 2e-3},
    {"small", 256, 6, 4, 688, 8192, 16, 256, 4000, 1.5e-3},
    {"medium", 512, 8, 8, 1408, 8192, 16, 512, 20000, 8e-4},
};

const architecture architectures[N_ARCHITECTURES] = {
    {.name = "dense", .label = "Dense", .paper_loss = 2.060, .m_split = 1, .width = 1},
    {.name = "switch",
     .label = "Switch, top-1",
     .paper_loss = 1.881,
     .k_active = 1,
     .m_split = 1,
     .width = 1},
    {.name = "gshard",
     .label = "GShard, top-2",
     .paper_loss = 1.867,
     .k_active = 2,
     .m_split = 1,
     .width = 1,
     .is_equal = true,
     .is_masked = true},
    {.name = "gshard+shared",
     .label = "GShard + shared",
     .paper_loss = NAN,
     .k_active = 2,
     .m_split = 1,
     .k_shared = 1,
     .width = 1,
     .is_equal = true,
     .is_masked = true},
    {.name = "fine-m2",
     .label = "m=2 + shared",
     .paper_loss = NAN,
     .k_active = 2,
     .m_split = 2,
     .k_shared = 1,
     .width = 1,
     .is_equal = true},
    {.name = "fine-m4",
     .label = "m=4, none shared",
     .paper_loss = NAN,
     .k_active = 2,
     .m_split = 4,
     .width = 1,
     .is_equal = true},
    {.name = "deepseekmoe",
     .label = "DeepSeekMoE",
     .paper_loss = 1.808,
     .k_active = 2,
     .m_split = 4,
     .k_shared = 1,
     .width = 1,
     .is_equal = true,
     .is_masked = true,
     .is_fewer = true},
    {.name = "shared-2",
     .label = "DeepSeekMoE, 2 shared",
     .paper_loss = 1.806,
     .k_active = 2,
     .m_split = 4,
     .k_shared = 2,
     .width = 1,
     .is_extra = true,
     .is_equal = true},
    {.name = "shared-4",
     .label = "DeepSeekMoE, 4 shared",
     .paper_loss = 1.811,
     .k_active = 2,
     .m_split = 4,
     .k_shared = 4,
     .width = 1,
     .is_extra = true,
     .is_equal = true},
    {.name = "half-active",
     .label = "DeepSeekMoE, half active",
     .paper_loss = NAN,
     .k_active = 1,
     .m_split = 4,
     .k_shared = 1,
     .width = 1,
     .is_extra = true},
    {.name = "gshard-x1.5",
     .label = "GShard x1.5",
     .paper_loss = 1.808,
     .k_active = 2,
     .m_split = 1,
     .width = 1.5,
     .is_extra = true,
     .is_masked = true},
    {.name = "dense-x16",
     .label = "Dense x16",
     .paper_loss = 1.806,
     .m_split = 1,
     .width = N_STANDARD,
     .is_extra = true},
};

const study_scale *study_scale_find(const char *name)
{
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (!strcmp(name, scales[i].name)) return &scales[i];
    return NULL;
}

int architecture_find(const char *name)
{
    for (int i = 0; i < N_ARCHITECTURES; i++)
        if (!strcmp(name, architectures[i].name)) return i;
    return -1;
}

static int64_t n_routed(const architecture *a) { return a->m_split * N_STANDARD - a->k_shared; }

int64_t architecture_routed(const architecture *a)
{
    return a->k_active ? a->m_split * a->k_active - a->k_shared : 0;
}

const char *architecture_experts(const architecture *a, char out[ARCHITECTURE_EXPERTS])
{
    int length = 0;
    if (a->k_active == 0) {
        snprintf(out, ARCHITECTURE_EXPERTS, a->width == 1 ? "dense" : "dense x%g", a->width);
        return out;
    }
    if (a->k_shared) length = snprintf(out, ARCHITECTURE_EXPERTS, "%" PRId64 " + ", a->k_shared);
    snprintf(out + length, (size_t)(ARCHITECTURE_EXPERTS - length), "%" PRId64 " of %" PRId64,
             architecture_routed(a), n_routed(a));
    return out;
}

dsmoe_config architecture_config(const architecture *a, const study_scale *scale,
                                 const architecture_common *common, const study_choice *choice)
{
    bool is_moe = a->k_active > 0;
    double width = a->width * (double)scale->ffn / (double)a->m_split;
    return (dsmoe_config){
        .vocab_size = common->vocab_size,
        .hidden_size = scale->hidden_size,
        .intermediate_size = is_moe ? scale->ffn : (int64_t)(width + 0.5),
        .moe_intermediate_size = (int64_t)(width + 0.5),
        .num_hidden_layers = scale->num_hidden_layers,
        .num_attention_heads = scale->num_attention_heads,
        .num_key_value_heads = scale->num_attention_heads,
        .n_shared_experts = is_moe ? a->k_shared : 0,
        .n_routed_experts = is_moe ? n_routed(a) : 0,
        .num_experts_per_tok = architecture_routed(a),
        .moe_layer_freq = 1,
        .max_position_embeddings = common->seq,
        .norm_topk_prob = choice->norm_topk_prob,
        .seq_aux = choice->seq_aux,
        .aux_loss_alpha = choice->aux_loss_alpha,
        .routed_scaling_factor = choice->routed_scaling_factor,
        .initializer_range = choice->initializer_range,
        .rms_norm_eps = 1e-6,
        .rope_theta = 10000,
        .rope_scaling_factor = 1,
        .bos_token_id = common->bos_token_id,
        .eos_token_id = common->eos_token_id,
    };
}

dsmoe_status architecture_count(const dsmoe_config *config, architecture_parameters *parameters,
                                dsmoe_error *error)
{
    dsmoe_model_plan plan;
    dsmoe_status status =
        dsmoe_model_plan_make(config, config->max_position_embeddings, &plan, error);
    if (status != DSMOE_OK) return status;
    int64_t always = plan.dense_ffn + plan.shared_experts;
    *parameters = (architecture_parameters){.total = plan.total,
                                            .active = plan.active,
                                            .experts = always + plan.routed_experts,
                                            .active_experts = always + plan.active_routed_experts,
                                            .flops = plan.matmul_flops + plan.attention_flops};
    return DSMOE_OK;
}
