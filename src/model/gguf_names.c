/* gguf_names.c - names of the public layout and of GGUF files, side by side. */
#include "model/gguf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct name_pair {
    const char *name, *gguf;
    bool permuted;
} name_pair;

static const name_pair outer_names[] = {
    {"model.embed_tokens.weight", "token_embd.weight", false},
    {"model.norm.weight", "output_norm.weight", false},
    {"lm_head.weight", "output.weight", false},
    {NULL, NULL, false},
};

/* Behind "model.layers.N." and "blk.N.". */
static const name_pair layer_names[] = {
    {"input_layernorm.weight", "attn_norm.weight", false},
    {"self_attn.q_proj.weight", "attn_q.weight", true},
    {"self_attn.q_proj.bias", "attn_q.bias", true},
    {"self_attn.k_proj.weight", "attn_k.weight", true},
    {"self_attn.k_proj.bias", "attn_k.bias", true},
    {"self_attn.v_proj.weight", "attn_v.weight", false},
    {"self_attn.v_proj.bias", "attn_v.bias", false},
    {"self_attn.o_proj.weight", "attn_output.weight", false},
    {"self_attn.o_proj.bias", "attn_output.bias", false},
    {"post_attention_layernorm.weight", "ffn_norm.weight", false},
    {"mlp.gate_proj.weight", "ffn_gate.weight", false},
    {"mlp.up_proj.weight", "ffn_up.weight", false},
    {"mlp.down_proj.weight", "ffn_down.weight", false},
    {"mlp.gate.weight", "ffn_gate_inp.weight", false},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", false},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", false},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", false},
    {NULL, NULL, false},
};

/* Behind "model.layers.N.mlp.experts.E." and "blk.N.". */
static const name_pair expert_names[] = {
    {"gate_proj.weight", "ffn_gate_exps.weight", false},
    {"up_proj.weight", "ffn_up_exps.weight", false},
    {"down_proj.weight", "ffn_down_exps.weight", false},
    {NULL, NULL, false},
};

static const name_pair *find_name(const name_pair *pairs, const char *name)
{
    while (pairs->name && strcmp(pairs->name, name)) pairs++;
    return pairs->name ? pairs : NULL;
}

/* "PREFIX12." is taken off the name; false if it begins otherwise. */
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

bool gguf_place_of(const char *name, gguf_place *place)
{
    *place = (gguf_place){.expert = -1};
    int64_t layer;
    bool in_layer = take_number(&name, "model.layers.", &layer);
    const name_pair *pairs = in_layer ? layer_names : outer_names;
    if (in_layer && take_number(&name, "mlp.experts.", &place->expert)) pairs = expert_names;
    const name_pair *pair = find_name(pairs, name);
    if (!pair) return false;
    place->permuted = pair->permuted;
    int length = in_layer ? snprintf(place->name, sizeof place->name, "blk.%lld.%s",
                                     (long long)layer, pair->gguf)
                          : snprintf(place->name, sizeof place->name, "%s", pair->gguf);
    return length < GGUF_PLACE_SIZE;
}
