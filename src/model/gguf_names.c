/* gguf_names.c - names of the public layout and their names in GGUF files. */
#include "model/gguf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"

typedef enum name_form { AS_IS, PERMUTED, OF_HEADS } name_form;

typedef struct name_pair {
    const char *name, *gguf;
    name_form form;
} name_pair;

static const name_pair outer_names[] = {
    {"model.embed_tokens.weight", "token_embd.weight", AS_IS},
    {"model.norm.weight", "output_norm.weight", AS_IS},
    {"lm_head.weight", "output.weight", AS_IS},
    {NULL, NULL, AS_IS},
};

/* The names after "model.layers.N." and "blk.N.". */
static const name_pair layer_names[] = {
    {"input_layernorm.weight", "attn_norm.weight", AS_IS},
    {"self_attn.q_proj.weight", "attn_q.weight", PERMUTED},
    {"self_attn.q_proj.bias", "attn_q.bias", PERMUTED},
    {"self_attn.k_proj.weight", "attn_k.weight", PERMUTED},
    {"self_attn.k_proj.bias", "attn_k.bias", PERMUTED},
    {"self_attn.v_proj.weight", "attn_v.weight", AS_IS},
    {"self_attn.v_proj.bias", "attn_v.bias", AS_IS},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight", AS_IS},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", AS_IS},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight", AS_IS},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", AS_IS},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", AS_IS},
    {"self_attn.kv_b_proj.weight", "attn_kv_b.weight", AS_IS},
    {"self_attn.k_b_proj.weight", "attn_k_b.weight", OF_HEADS},
    {"self_attn.v_b_proj.weight", "attn_v_b.weight", OF_HEADS},
    {"self_attn.o_proj.weight", "attn_output.weight", AS_IS},
    {"self_attn.o_proj.bias", "attn_output.bias", AS_IS},
    {"post_attention_layernorm.weight", "ffn_norm.weight", AS_IS},
    {"mlp.gate_proj.weight", "ffn_gate.weight", AS_IS},
    {"mlp.up_proj.weight", "ffn_up.weight", AS_IS},
    {"mlp.down_proj.weight", "ffn_down.weight", AS_IS},
    {"mlp.gate.weight", "ffn_gate_inp.weight", AS_IS},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", AS_IS},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", AS_IS},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", AS_IS},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", AS_IS},
    {NULL, NULL, AS_IS},
};

/* The names after "model.layers.N.mlp.experts.E." and "blk.N.". */
static const name_pair expert_names[] = {
    {"gate_proj.weight", "ffn_gate_exps.weight", AS_IS},
    {"up_proj.weight", "ffn_up_exps.weight", AS_IS},
    {"down_proj.weight", "ffn_down_exps.weight", AS_IS},
    {NULL, NULL, AS_IS},
};

static const name_pair *find_name(const name_pair *pairs, const char *name)
{
    while (pairs->name && strcmp(pairs->name, name)) pairs++;
    return pairs->name ? pairs : NULL;
}

/* Takes "PREFIX12." off the name; false if it does not begin like that. */
static bool take_number(const char **name, const char *prefix, int64_t *number)
{
    size_t length = strlen(prefix);
    if (strncmp(*name, prefix, length) || (*name)[length] < '0' || (*name)[length] > '9')
        return false;
    char *end;
    *number = strtoll(*name + length, &end, 10);
    if (*end != '.') return false;
    *name = end + 1;
    return true;
}

bool gguf_place_of(const dsmoe_config *config, const char *name, gguf_place *place)
{
    *place = (gguf_place){.expert = -1};
    int64_t layer;
    bool in_layer = take_number(&name, "model.layers.", &layer);
    const name_pair *pairs = in_layer ? layer_names : outer_names;
    if (in_layer && take_number(&name, "mlp.experts.", &place->expert)) pairs = expert_names;
    const name_pair *pair = find_name(pairs, name);
    if (!pair) return false;
    place->of_heads = pair->form == OF_HEADS;
    place->permuted = pair->form == PERMUTED && !config_is_latent(config);
    int length = in_layer ? snprintf(place->name, sizeof place->name, "blk.%lld.%s",
                                     (long long)layer, pair->gguf)
                          : snprintf(place->name, sizeof place->name, "%s", pair->gguf);
    return length < GGUF_PLACE_SIZE;
}
