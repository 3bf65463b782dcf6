/* config.c - config.json of a DeepSeekMoE model: read with the public defaults, then checked. */
#include "model/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "formats/gguf_magic.h"
#include "formats/json.h"
#include "model/gguf_config.h"
#include "model/keys.h"

enum {
    CONFIG_MAX_SIZE = 1 << 20, /* bytes of a config.json; the released one has about a thousand */
    DIMENSION_MAX = 1 << 24,   /* far above any model, far below where products overflow */
    LAYERS_MAX = 1 << 16,
    EOS_MAX = sizeof((dsmoe_generation_config *)0)->eos_token_id / sizeof(int64_t),
};

#define KEY(name) #name, offsetof(dsmoe_config, name)
static const config_key config_keys[] = {
    {KEY(vocab_size), KEY_INTEGER, KEY_REQUIRED, 1, DIMENSION_MAX, 0},
    {KEY(hidden_size), KEY_INTEGER, KEY_REQUIRED, 1, DIMENSION_MAX, 0},
    {KEY(intermediate_size), KEY_INTEGER, KEY_OPTIONAL, 1, DIMENSION_MAX, 0},
    {KEY(moe_intermediate_size), KEY_INTEGER, KEY_OPTIONAL, 1, DIMENSION_MAX, 0},
    {KEY(num_hidden_layers), KEY_INTEGER, KEY_REQUIRED, 1, LAYERS_MAX, 0},
    {KEY(num_attention_heads), KEY_INTEGER, KEY_REQUIRED, 1, DIMENSION_MAX, 0},
    {KEY(num_key_value_heads), KEY_INTEGER, KEY_NULLABLE, 1, DIMENSION_MAX, 0},
    {KEY(n_shared_experts), KEY_INTEGER, KEY_NULLABLE, 0, DIMENSION_MAX, 0},
    {KEY(n_routed_experts), KEY_INTEGER, KEY_NULLABLE, 1, DIMENSION_MAX, 0},
    {KEY(num_experts_per_tok), KEY_INTEGER, KEY_NULLABLE, 1, DIMENSION_MAX, 0},
    {KEY(moe_layer_freq), KEY_INTEGER, KEY_OPTIONAL, 1, DIMENSION_MAX, 1},
    {KEY(first_k_dense_replace), KEY_INTEGER, KEY_OPTIONAL, 0, DIMENSION_MAX, 0},
    {KEY(max_position_embeddings), KEY_INTEGER, KEY_OPTIONAL, 1, 1 << 30, 2048},
    {KEY(norm_topk_prob), KEY_FLAG, KEY_OPTIONAL, 0, 1, false},
    {KEY(seq_aux), KEY_FLAG, KEY_OPTIONAL, 0, 1, true},
    {KEY(attention_bias), KEY_FLAG, KEY_OPTIONAL, 0, 1, false},
    {KEY(tie_word_embeddings), KEY_FLAG, KEY_OPTIONAL, 0, 1, false},
    {KEY(aux_loss_alpha), KEY_NUMBER, KEY_OPTIONAL, 0, 1e6, 0.001},
    {KEY(initializer_range), KEY_NUMBER, KEY_OPTIONAL, 0, 1e3, 0.02},
    {KEY(rms_norm_eps), KEY_NUMBER, KEY_OPTIONAL, 0, 1, 1e-6},
    {KEY(rope_theta), KEY_NUMBER, KEY_OPTIONAL, 1, 1e12, 10000},
};
#undef KEY
enum { N_CONFIG_KEYS = sizeof config_keys / sizeof *config_keys };

/* Those of V2 and V3, with the defaults that both have in common; others are set by type. */
#define KEY(name) #name, offsetof(dsmoe_config, name)
static const config_key latent_keys[] = {
    {KEY(kv_lora_rank), KEY_INTEGER, KEY_OPTIONAL, 1, DIMENSION_MAX, 512},
    {KEY(qk_nope_head_dim), KEY_INTEGER, KEY_OPTIONAL, 1, DIMENSION_MAX, 128},
    {KEY(qk_rope_head_dim), KEY_INTEGER, KEY_OPTIONAL, 2, DIMENSION_MAX, 64},
    {KEY(v_head_dim), KEY_INTEGER, KEY_OPTIONAL, 1, DIMENSION_MAX, 128},
    {KEY(q_lora_rank), KEY_INTEGER, KEY_NULLABLE, 1, DIMENSION_MAX, 0},
    {KEY(n_group), KEY_INTEGER, KEY_NULLABLE, 1, DIMENSION_MAX, 0},
    {KEY(topk_group), KEY_INTEGER, KEY_NULLABLE, 1, DIMENSION_MAX, 0},
    {KEY(routed_scaling_factor), KEY_NUMBER, KEY_OPTIONAL, 1e-6, 1e6, 1},
};
/* Of rope_scaling with the type yarn. */
static const config_key yarn_keys[] = {
    {KEY(original_max_position_embeddings), KEY_INTEGER, KEY_OPTIONAL, 1, 1 << 30, 4096},
    {KEY(beta_fast), KEY_NUMBER, KEY_OPTIONAL, 1e-6, 1e6, 32},
    {KEY(beta_slow), KEY_NUMBER, KEY_OPTIONAL, 1e-6, 1e6, 1},
    {KEY(mscale), KEY_NUMBER, KEY_OPTIONAL, 0, 1e3, 1},
    {KEY(mscale_all_dim), KEY_NUMBER, KEY_OPTIONAL, 0, 1e3, 0},
};
#undef KEY
enum {
    N_LATENT_KEYS = sizeof latent_keys / sizeof *latent_keys,
    N_YARN_KEYS = sizeof yarn_keys / sizeof *yarn_keys,
};

/* A type of models, and the words of its gate: the first of each is the public default. */
static const struct model_family {
    const char *model_type, *architecture;
    const char *scoring_func;
    const char *topk_methods[3]; /* as of dsmoe_topk_method; NULL: not of this type */
    dsmoe_topk_method topk_method;
    int64_t q_lora_rank; /* if the key is absent */
    bool norm_topk_prob; /* the same */
} families[] = {
    [DSMOE_DEEPSEEK] = {"deepseek",
                        "DeepseekForCausalLM",
                        "softmax",
                        {"greedy", NULL, NULL},
                        DSMOE_TOPK_GREEDY,
                        0,
                        false},
    [DSMOE_DEEPSEEK_V2] = {"deepseek_v2",
                           "DeepseekV2ForCausalLM",
                           "softmax",
                           {"greedy", "group_limited_greedy", NULL},
                           DSMOE_TOPK_GREEDY,
                           1536,
                           false},
    [DSMOE_DEEPSEEK_V3] = {"deepseek_v3",
                           "DeepseekV3ForCausalLM",
                           "sigmoid",
                           {NULL, NULL, "noaux_tc"},
                           DSMOE_TOPK_NOAUX_TC,
                           1536,
                           true},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

const char *config_model_type(const dsmoe_config *c) { return families[c->model_type].model_type; }

const char *config_architecture(const dsmoe_config *c)
{
    return families[c->model_type].architecture;
}

const char *config_scoring_func(const dsmoe_config *c)
{
    return c->scoring_func == DSMOE_SCORING_SIGMOID ? "sigmoid" : "softmax";
}

const char *config_topk_method(const dsmoe_config *c)
{
    static const char *const names[] = {"greedy", "group_limited_greedy", "noaux_tc"};
    return names[c->topk_method];
}

dsmoe_config config_default(void)
{
    dsmoe_config config = {.rope_scaling_factor = 1, .bos_token_id = -1, .eos_token_id = -1};
    keys_default(config_keys, N_CONFIG_KEYS, &config);
    return config;
}

/* ---- what a configuration must be, wherever it comes from ---------------------------------- */

bool dsmoe_config_layer_is_moe(const dsmoe_config *config, int64_t layer)
{
    return config->n_routed_experts > 0 && layer >= config->first_k_dense_replace &&
           config->moe_layer_freq > 0 && layer % config->moe_layer_freq == 0;
}

dsmoe_layer_config dsmoe_config_layer(const dsmoe_config *config)
{
    return (dsmoe_layer_config){
        .hidden_size = config->hidden_size,
        .moe_intermediate_size = config->moe_intermediate_size,
        .n_routed_experts = config->n_routed_experts,
        .n_shared_experts = config->n_shared_experts,
        .num_experts_per_tok = config->num_experts_per_tok,
        .norm_topk_prob = config->norm_topk_prob,
        .scoring_func = config_scoring_func(config),
        .aux_loss_alpha = (float)config->aux_loss_alpha,
        .seq_aux = config->seq_aux,
        .topk_method = config_topk_method(config),
        .n_group = config->n_group,
        .topk_group = config->topk_group,
        .routed_scaling_factor = (float)config->routed_scaling_factor,
    };
}

/* Latent attention has as many keys as queries, and no biases. */
static dsmoe_status check_latent(const dsmoe_config *config, dsmoe_error *error)
{
    STATUS_TRY(keys_check(latent_keys, N_LATENT_KEYS, config, error));
    if (config->num_key_value_heads != config->num_attention_heads)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "num_key_value_heads %" PRId64 " is not num_attention_heads %" PRId64
                           ", as latent attention wants it",
                           config->num_key_value_heads, config->num_attention_heads);
    if (config->qk_rope_head_dim % 2)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "qk_rope_head_dim %" PRId64 " is odd, and rotary embeddings turn pairs",
                           config->qk_rope_head_dim);
    if (config->attention_bias)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "attention_bias is not supported with latent attention");
    return DSMOE_OK;
}

static dsmoe_status check_groups(const dsmoe_config *c, dsmoe_error *error)
{
    bool in_groups = c->topk_method != DSMOE_TOPK_GREEDY && c->n_group > 1;
    if (!in_groups || c->n_routed_experts == 0) return DSMOE_OK;
    if (c->n_routed_experts % c->n_group)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_group %" PRId64 " does not divide n_routed_experts %" PRId64,
                           c->n_group, c->n_routed_experts);
    int64_t size = c->n_routed_experts / c->n_group;
    if (c->topk_group < 1 || c->topk_group > c->n_group ||
        c->topk_group * size < c->num_experts_per_tok)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "topk_group %" PRId64 " of %" PRId64 " groups of %" PRId64
                           " experts leave no %" PRId64 " to choose",
                           c->topk_group, c->n_group, size, c->num_experts_per_tok);
    if (c->topk_method == DSMOE_TOPK_NOAUX_TC && size < 2)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_group %" PRId64 " leaves groups of one expert, and noaux_tc compares"
                           " their two best",
                           c->n_group);
    return DSMOE_OK;
}

static dsmoe_status check_attention(const dsmoe_config *config, dsmoe_error *error)
{
    if (config_is_latent(config)) return check_latent(config, error);
    int64_t hidden = config->hidden_size, heads = config->num_attention_heads;
    int64_t kv_heads = config->num_key_value_heads;
    if (hidden % heads)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "hidden_size %" PRId64
                           " is not divisible by num_attention_heads %" PRId64,
                           hidden, heads);
    if (hidden / heads % 2)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "hidden_size %" PRId64 " over num_attention_heads %" PRId64
                           " is odd, and rotary embeddings turn pairs",
                           hidden, heads);
    if (kv_heads < 1 || heads % kv_heads)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "num_attention_heads %" PRId64
                           " is not divisible by num_key_value_heads %" PRId64,
                           heads, kv_heads);
    return DSMOE_OK;
}

static dsmoe_status check_rope_scaling(const dsmoe_config *config, dsmoe_error *error)
{
    double factor = config->rope_scaling_factor;
    switch (config->rope_scaling) {
    case DSMOE_ROPE_NONE: return DSMOE_OK;
    case DSMOE_ROPE_DYNAMIC: /* the base grows with the power d/(d-2) */
        if (config_head_dim(config) == 2)
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "rope_scaling type \"dynamic\" needs heads wider than 2");
        break;
    case DSMOE_ROPE_LINEAR: break;
    case DSMOE_ROPE_YARN: STATUS_TRY(keys_check(yarn_keys, N_YARN_KEYS, config, error)); break;
    default:
        return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling is %d, which is no kind of it",
                           (int)config->rope_scaling);
    }
    if (factor >= 1 && factor <= 1e6) return DSMOE_OK; /* not so for a NaN */
    return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling factor is %g, outside 1 to 1e6",
                       factor);
}

static dsmoe_status check_token_id(const char *key, int64_t id, const dsmoe_config *config,
                                   dsmoe_error *error)
{
    if (id >= -1 && id < config->vocab_size) return DSMOE_OK; /* -1: none */
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "%s is %" PRId64 ", no token of a vocab_size of %" PRId64, key, id,
                       config->vocab_size);
}

/* The sizes that a model needs if it has dense layers, or MoE layers. What passes here and in the
 * ranges above passes dsmoe_layer_config_check. */
static dsmoe_status check_layers(const dsmoe_config *config, dsmoe_error *error)
{
    bool dense = false, moe = false;
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++)
        *(dsmoe_config_layer_is_moe(config, layer) ? &moe : &dense) = true;
    const char *missing = NULL;
    if (dense && !config->intermediate_size) missing = "intermediate_size";
    if (moe && !config->moe_intermediate_size) missing = "moe_intermediate_size";
    if (moe && !config->num_experts_per_tok) missing = "num_experts_per_tok";
    if (missing)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s is missing, and there are %s layers",
                           missing, !strcmp(missing, "intermediate_size") ? "dense" : "MoE");
    if (config->num_experts_per_tok > config->n_routed_experts)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "num_experts_per_tok %" PRId64 " is more than n_routed_experts %" PRId64,
                           config->num_experts_per_tok, config->n_routed_experts);
    int64_t shared_width = config->n_shared_experts * config->moe_intermediate_size;
    if (shared_width > DIMENSION_MAX)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_shared_experts times moe_intermediate_size is %" PRId64
                           ", more than %d",
                           shared_width, DIMENSION_MAX);
    return DSMOE_OK;
}

/* As if every layer were dense and MoE at once: too much, but the limit is far above any model. */
static dsmoe_status check_parameters(const dsmoe_config *config, dsmoe_error *error)
{
    double hidden = (double)config->hidden_size;
    double n_experts = (double)config->n_routed_experts + (double)config->n_shared_experts;
    double width = (double)config->intermediate_size + 1 +
                   n_experts * ((double)config->moe_intermediate_size + 1);
    double heads = (double)config->num_attention_heads;
    double latent = (double)config->kv_lora_rank + (double)config->q_lora_rank + 1;
    double per_head = (double)config->qk_nope_head_dim + (double)config->qk_rope_head_dim +
                      (double)config->v_head_dim;
    double layer = hidden * (4 * (hidden + 1) + 2 + 3 * width) +
                   (hidden + latent) * (2 * heads * per_head + latent);
    double parameters =
        layer * (double)config->num_hidden_layers + hidden * (2 * (double)config->vocab_size + 1);
    if (parameters < 0x1p58) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "num_hidden_layers, hidden_size and the experts together make a model of"
                       " more than 2^58 parameters");
}

dsmoe_status config_check(const dsmoe_config *config, dsmoe_error *error)
{
    STATUS_TRY(keys_check(config_keys, N_CONFIG_KEYS, config, error));
    STATUS_TRY(check_attention(config, error));
    STATUS_TRY(check_rope_scaling(config, error));
    STATUS_TRY(check_groups(config, error));
    STATUS_TRY(check_token_id("bos_token_id", config->bos_token_id, config, error));
    STATUS_TRY(check_token_id("eos_token_id", config->eos_token_id, config, error));
    STATUS_TRY(check_layers(config, error));
    return check_parameters(config, error);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The string under `key`, NULL if it is not there; anything else is an error. */
static dsmoe_status read_string(const json_node *object, const char *key, const char **string,
                                dsmoe_error *error)
{
    *string = NULL;
    const json_node *node = json_node_member(object, key);
    if (!node) return DSMOE_OK;
    if (json_node_kind(node) != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be a string, not %s", key,
                           json_kind_name(json_node_kind(node)));
    size_t length;
    *string = json_node_string(node, &length);
    return DSMOE_OK;
}

/* A word that must be this one, if it is there; `also` may be NULL. */
static dsmoe_status check_word(const json_node *root, const char *key, const char *wanted,
                               const char *also, dsmoe_error *error)
{
    const char *value;
    STATUS_TRY(read_string(root, key, &value, error));
    if (!value || !strcmp(value, wanted) || (also && !strcmp(value, also))) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s \"%.64s\" is not supported, only \"%s\"", key,
                       value, wanted);
}

/* Whose configuration it is: the paper's, unless it says something else. */
static dsmoe_status read_model_type(const json_node *root, dsmoe_model_type *type,
                                    dsmoe_error *error)
{
    const char *name;
    STATUS_TRY(read_string(root, "model_type", &name, error));
    *type = DSMOE_DEEPSEEK;
    for (int i = 0; name && i < N_FAMILIES; i++)
        if (!strcmp(name, families[i].model_type)) {
            *type = (dsmoe_model_type)i;
            return DSMOE_OK;
        }
    if (!name) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "model_type \"%.64s\" is not supported, only \"deepseek\","
                       " \"deepseek_v2\" and \"deepseek_v3\"",
                       name);
}

static dsmoe_status read_topk_method(const json_node *root, dsmoe_config *config,
                                     dsmoe_error *error)
{
    const struct model_family *f = &families[config->model_type];
    const char *value;
    STATUS_TRY(read_string(root, "topk_method", &value, error));
    config->topk_method = f->topk_method;
    if (value && !strcmp(value, "gready")) value = "greedy"; /* as the public default spells it */
    for (int i = 0; value && i < 3; i++)
        if (f->topk_methods[i] && !strcmp(value, f->topk_methods[i])) {
            config->topk_method = (dsmoe_topk_method)i;
            return DSMOE_OK;
        }
    if (!value) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "topk_method \"%.64s\" is not supported with model_type \"%s\"", value,
                       f->model_type);
}

/* Keys that V2 and V3 may have and that would say something else than is computed here. */
static dsmoe_status check_beyond(const json_node *root, dsmoe_error *error)
{
    const json_node *interleave = json_node_member(root, "rope_interleave");
    if (interleave && json_node_kind(interleave) == JSON_KIND_BOOL && !json_node_bool(interleave))
        return status_fail(error, DSMOE_ERROR_CONFIG, "rope_interleave false is not supported");
    const json_node *quantised = json_node_member(root, "quantization_config");
    if (quantised && json_node_kind(quantised) != JSON_KIND_NULL)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "quantization_config is not supported: take weights in bf16, or a GGUF"
                           " file");
    return DSMOE_OK;
}

static dsmoe_status read_latent(const json_node *root, dsmoe_config *config, dsmoe_error *error)
{
    const struct model_family *f = &families[config->model_type];
    STATUS_TRY(check_beyond(root, error));
    STATUS_TRY(keys_read(latent_keys, N_LATENT_KEYS, root, config, error));
    if (!json_node_member(root, "q_lora_rank")) config->q_lora_rank = f->q_lora_rank;
    if (!json_node_member(root, "norm_topk_prob")) config->norm_topk_prob = f->norm_topk_prob;
    if (config->topk_method == DSMOE_TOPK_GREEDY || config->n_group <= 1)
        config->n_group = config->topk_group = 0; /* all experts are one group */
    return DSMOE_OK;
}

/* The words and keys that differ from type to type. */
static dsmoe_status read_family(const json_node *root, dsmoe_config *config, dsmoe_error *error)
{
    const struct model_family *f = &families[config->model_type];
    STATUS_TRY(check_word(root, "hidden_act", "silu", NULL, error));
    STATUS_TRY(check_word(root, "scoring_func", f->scoring_func, NULL, error));
    config->scoring_func =
        !strcmp(f->scoring_func, "sigmoid") ? DSMOE_SCORING_SIGMOID : DSMOE_SCORING_SOFTMAX;
    STATUS_TRY(read_topk_method(root, config, error));
    return config->model_type == DSMOE_DEEPSEEK ? DSMOE_OK : read_latent(root, config, error);
}

/* A list that may hold more than one name; any of them must be the causal language model. */
static dsmoe_status check_architectures(const json_node *root, const char *wanted,
                                        dsmoe_error *error)
{
    const json_node *list = json_node_member(root, "architectures");
    if (!list || json_node_kind(list) == JSON_KIND_NULL) return DSMOE_OK;
    if (json_node_kind(list) != JSON_KIND_ARRAY)
        return status_fail(error, DSMOE_ERROR_CONFIG, "architectures must be an array, not %s",
                           json_kind_name(json_node_kind(list)));
    const char *other = "";
    for (size_t i = 0; i < json_node_count(list); i++) {
        const json_node *item = json_node_item(list, i);
        size_t length;
        if (json_node_kind(item) != JSON_KIND_STRING)
            return status_fail(error, DSMOE_ERROR_CONFIG, "architectures must hold strings, not %s",
                               json_kind_name(json_node_kind(item)));
        other = json_node_string(item, &length);
        if (!strcmp(other, wanted)) return DSMOE_OK;
    }
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "architectures \"%.64s\" is not supported, only \"%s\"", other, wanted);
}

/* Of rope_scaling: "type", or "rope_type" as newer files spell it; NULL for neither. */
static dsmoe_status read_rope_type(const json_node *scaling, const char **type, dsmoe_error *error)
{
    const char *newer;
    if (read_string(scaling, "type", type, error) != DSMOE_OK ||
        read_string(scaling, "rope_type", &newer, error) != DSMOE_OK)
        return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling type must be a string");
    if (*type && newer && strcmp(*type, newer))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling has type \"%.64s\" and rope_type \"%.64s\"", *type, newer);
    if (!*type) *type = newer;
    return DSMOE_OK;
}

static dsmoe_status find_rope_type(const char *type, dsmoe_config *config, dsmoe_error *error)
{
    bool is_first = config->model_type == DSMOE_DEEPSEEK;
    config->rope_scaling = is_first && !strcmp(type, "linear")    ? DSMOE_ROPE_LINEAR
                           : is_first && !strcmp(type, "dynamic") ? DSMOE_ROPE_DYNAMIC
                           : !is_first && !strcmp(type, "yarn")   ? DSMOE_ROPE_YARN
                                                                  : DSMOE_ROPE_NONE;
    if (config->rope_scaling != DSMOE_ROPE_NONE) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "rope_scaling type \"%.64s\" is not supported, only %s", type,
                       is_first ? "\"linear\" and \"dynamic\"" : "\"yarn\"");
}

/* null, {"type": "linear", "factor": f} or {"type": "dynamic", "factor": f}; of V2 and V3 null or
 * {"type": "yarn", …}. */
static dsmoe_status read_rope_scaling(const json_node *root, dsmoe_config *config,
                                      dsmoe_error *error)
{
    config->rope_scaling = DSMOE_ROPE_NONE;
    config->rope_scaling_factor = 1;
    const json_node *scaling = json_node_member(root, "rope_scaling");
    if (!scaling || json_node_kind(scaling) == JSON_KIND_NULL) return DSMOE_OK;
    if (json_node_kind(scaling) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling must be null or an object, not %s",
                           json_kind_name(json_node_kind(scaling)));
    const char *type;
    STATUS_TRY(read_rope_type(scaling, &type, error));
    if (!type) return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling has no type");
    if (!strcmp(type, "default")) return DSMOE_OK; /* a newer way to say null */
    STATUS_TRY(find_rope_type(type, config, error));
    if (config->rope_scaling == DSMOE_ROPE_YARN)
        STATUS_TRY(keys_read(yarn_keys, N_YARN_KEYS, scaling, config, error));
    const json_node *factor = json_node_member(scaling, "factor");
    if (!factor) return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling has no factor");
    json_kind kind = json_node_kind(factor);
    if (kind != JSON_KIND_INTEGER && kind != JSON_KIND_REAL)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling factor must be a number, not %s", json_kind_name(kind));
    config->rope_scaling_factor = json_node_number(factor);
    return DSMOE_OK; /* config_check looks at its range */
}

/* Keys that this library does not need, but that would say something else than it computes. */
static dsmoe_status check_unused(const json_node *root, const dsmoe_config *config,
                                 dsmoe_error *error)
{
    const json_node *dtype = json_node_member(root, "torch_dtype");
    json_kind kind = dtype ? json_node_kind(dtype) : JSON_KIND_NULL;
    if (kind != JSON_KIND_NULL && kind != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_CONFIG, "torch_dtype must be a string, not %s",
                           json_kind_name(kind));
    if (config_is_latent(config)) return DSMOE_OK; /* its heads have several widths */
    const json_node *head_dim = json_node_member(root, "head_dim");
    kind = head_dim ? json_node_kind(head_dim) : JSON_KIND_NULL;
    if (kind == JSON_KIND_NULL) return DSMOE_OK;
    if (kind != JSON_KIND_INTEGER)
        return status_fail(error, DSMOE_ERROR_CONFIG, "head_dim must be an integer, not %s",
                           json_kind_name(kind));
    int64_t expected = config_head_dim(config);
    if (json_node_integer(head_dim) != expected)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "head_dim is %" PRId64 ", but hidden_size over num_attention_heads is"
                           " %" PRId64,
                           json_node_integer(head_dim), expected);
    return DSMOE_OK;
}

static dsmoe_status read_token_ids(const json_node *root, dsmoe_config *config, dsmoe_error *error)
{
    int64_t vocab_size = config->vocab_size, bos[1], eos[EOS_MAX];
    int n_bos, n_eos;
    STATUS_TRY(keys_read_ids(root, "bos_token_id", vocab_size, bos, 1, &n_bos, error));
    STATUS_TRY(keys_read_ids(root, "eos_token_id", vocab_size, eos, EOS_MAX, &n_eos, error));
    config->bos_token_id = n_bos ? bos[0] : -1;
    config->eos_token_id = n_eos ? eos[0] : -1;
    return DSMOE_OK;
}

static dsmoe_status read_root(const json_node *root, dsmoe_config *config, dsmoe_error *error)
{
    if (json_node_kind(root) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "the top level must be an object, not %s",
                           json_kind_name(json_node_kind(root)));
    /* Whose configuration it is comes first: of another model, the other keys mean other things. */
    STATUS_TRY(read_model_type(root, &config->model_type, error));
    STATUS_TRY(check_architectures(root, families[config->model_type].architecture, error));
    STATUS_TRY(keys_read(config_keys, N_CONFIG_KEYS, root, config, error));
    STATUS_TRY(read_family(root, config, error));
    STATUS_TRY(read_rope_scaling(root, config, error));
    STATUS_TRY(read_token_ids(root, config, error));

    if (!config->num_key_value_heads) config->num_key_value_heads = config->num_attention_heads;
    if (!config->n_routed_experts) config->n_shared_experts = config->num_experts_per_tok = 0;
    STATUS_TRY(config_check(config, error));
    return check_unused(root, config, error);
}

/* Uses up the tree. */
static dsmoe_status read_tree(json_node *root, const char *source, dsmoe_config *config,
                              dsmoe_error *error)
{
    dsmoe_error reason;
    dsmoe_config read = {0};
    dsmoe_status status = read_root(root, &read, &reason);
    json_node_free(root);
    if (status != DSMOE_OK) return status_fail(error, status, "%s: %s", source, reason.message);
    *config = read;
    return DSMOE_OK;
}

dsmoe_status config_parse(const char *text, size_t length, const char *source, dsmoe_config *config,
                          dsmoe_error *error)
{
    json_node *root;
    STATUS_TRY(json_node_parse(text, length, source, &root, error));
    return read_tree(root, source, config, error);
}

dsmoe_status dsmoe_config_read(const char *path, dsmoe_config *config, dsmoe_error *error)
{
    if (!path || !config)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no path or no place for the configuration given");
    if (gguf_magic_at(path)) return gguf_config_open(path, config, error);
    json_node *root;
    STATUS_TRY(json_node_read(path, CONFIG_MAX_SIZE, &root, error));
    return read_tree(root, path, config, error);
}
