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

/* Keys with one value that this library implements, which is also the public default. */
static const struct {
    const char *name, *value;
} config_words[] = {
    {"model_type", "deepseek"},
    {"hidden_act", "silu"},
    {"scoring_func", "softmax"},
};
enum { N_CONFIG_WORDS = sizeof config_words / sizeof *config_words };

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
        .scoring_func = "softmax",
        .aux_loss_alpha = (float)config->aux_loss_alpha,
        .seq_aux = config->seq_aux,
    };
}

static dsmoe_status check_attention(const dsmoe_config *config, dsmoe_error *error)
{
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
    double layer = hidden * (4 * (hidden + 1) + 2 + 3 * width);
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

static dsmoe_status check_words(const json_node *root, dsmoe_error *error)
{
    for (int i = 0; i < N_CONFIG_WORDS; i++) {
        const char *value;
        STATUS_TRY(read_string(root, config_words[i].name, &value, error));
        if (value && strcmp(value, config_words[i].value))
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "%s \"%.64s\" is not supported, only \"%s\"", config_words[i].name,
                               value, config_words[i].value);
    }
    return DSMOE_OK;
}

/* A list that may hold more than one name; any of them must be the causal language model. */
static dsmoe_status check_architectures(const json_node *root, dsmoe_error *error)
{
    static const char wanted[] = "DeepseekForCausalLM";
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

/* null, {"type": "linear", "factor": f} or {"type": "dynamic", "factor": f}. */
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
    if (strcmp(type, "linear") && strcmp(type, "dynamic"))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling type \"%.64s\" is not supported, only \"linear\" and"
                           " \"dynamic\"",
                           type);
    config->rope_scaling = type[0] == 'l' ? DSMOE_ROPE_LINEAR : DSMOE_ROPE_DYNAMIC;
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
    STATUS_TRY(check_architectures(root, error));
    STATUS_TRY(check_words(root, error));
    STATUS_TRY(read_rope_scaling(root, config, error));
    STATUS_TRY(keys_read(config_keys, N_CONFIG_KEYS, root, config, error));
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
