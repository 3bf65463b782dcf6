/* config.c - reads config.json of a DeepSeekMoE model, V2 and V3 included, with the public defaults.
 * config_check.c checks the values. */
#include "model/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "formats/gguf_magic.h"
#include "formats/json.h"
#include "model/config_keys.h"
#include "model/gguf_config.h"

enum {
    CONFIG_MAX_SIZE = 1 << 20, /* bytes of a config.json; the released one has about a thousand */
    EOS_MAX = sizeof((dsmoe_generation_config *)0)->eos_token_id / sizeof(int64_t),
};

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

/* Checks that a string, if it is there, is `wanted`. */
static dsmoe_status check_word(const json_node *root, const char *key, const char *wanted,
                               dsmoe_error *error)
{
    const char *value;
    STATUS_TRY(read_string(root, key, &value, error));
    if (!value || !strcmp(value, wanted)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s \"%.64s\" is not supported, only \"%s\"", key,
                       value, wanted);
}

/* Reads the type of the model: the paper's, unless model_type names another. */
static dsmoe_status read_model_type(const json_node *root, dsmoe_model_type *type,
                                    dsmoe_error *error)
{
    const char *name;
    STATUS_TRY(read_string(root, "model_type", &name, error));
    *type = DSMOE_DEEPSEEK;
    for (int i = 0; name && i < CONFIG_FAMILIES; i++)
        if (!strcmp(name, config_families[i].model_type)) {
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
    const config_family *f = &config_families[config->model_type];
    const char *value;
    STATUS_TRY(read_string(root, "topk_method", &value, error));
    config->topk_method = f->topk_method;
    if (value && !strcmp(value, "gready")) value = "greedy"; /* as the public default spells it */
    for (int i = 0; value && i < CONFIG_TOPK_METHODS; i++)
        if (f->has_topk_method[i] && !strcmp(value, config_topk_methods[i])) {
            config->topk_method = (dsmoe_topk_method)i;
            return DSMOE_OK;
        }
    if (!value) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "topk_method \"%.64s\" is not supported with model_type \"%s\"", value,
                       f->model_type);
}

static dsmoe_status read_latent(const json_node *root, dsmoe_config *config, dsmoe_error *error)
{
    const config_table *own = &config_families[config->model_type].defaults;
    STATUS_TRY(keys_read(config_latent_keys.keys, config_latent_keys.n_keys, root, config, error));
    for (int i = 0; i < own->n_keys; i++)
        if (!json_node_member(root, own->keys[i].name)) keys_default(&own->keys[i], 1, config);
    if (config->topk_method == DSMOE_TOPK_GREEDY || config->n_group <= 1)
        config->n_group = config->topk_group = 0; /* all experts are one group */
    return DSMOE_OK;
}

/* Reads the keys that differ between types of models. */
static dsmoe_status read_family(const json_node *root, dsmoe_config *config, dsmoe_error *error)
{
    STATUS_TRY(check_word(root, "hidden_act", "silu", error));
    config->scoring_func = config_families[config->model_type].scoring_func;
    STATUS_TRY(check_word(root, "scoring_func", config_scoring_func(config), error));
    STATUS_TRY(read_topk_method(root, config, error));
    if (config->model_type != DSMOE_DEEPSEEK) return read_latent(root, config, error);
    return keys_read(config_first_keys.keys, config_first_keys.n_keys, root, config, error);
}

/* A list that may hold more than one name; one of them must be the causal language model. */
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

/* Reads "type" of rope_scaling, or "rope_type" as newer files spell it; *type is NULL if there is neither. */
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

/* Refuses keys of YaRN that ask for something that is not computed here. */
static dsmoe_status check_yarn(const json_node *scaling, dsmoe_error *error)
{
    const json_node *factor = json_node_member(scaling, "attention_factor");
    if (factor && json_node_kind(factor) != JSON_KIND_NULL)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling attention_factor is not supported, only mscale and"
                           " mscale_all_dim");
    const json_node *truncate = json_node_member(scaling, "truncate");
    if (truncate && json_node_kind(truncate) == JSON_KIND_BOOL && !json_node_bool(truncate))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling truncate false is not supported");
    return DSMOE_OK;
}

/* Finds the object rope_scaling, or rope_parameters, where newer files have rope_theta as well. *scaling is
 * NULL if there is none. */
static dsmoe_status find_rope_scaling(const json_node *root, const json_node **scaling,
                                      dsmoe_config *config, dsmoe_error *error)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    static const config_key theta = {
        "rope_theta", offsetof(dsmoe_config, rope_theta), KEY_NUMBER, KEY_OPTIONAL, 1, 1e12, 0};
    *scaling = NULL;
    for (int i = 0; i < 2; i++) {
        const json_node *node = json_node_member(root, names[i]);
        json_kind kind = node ? json_node_kind(node) : JSON_KIND_NULL;
        if (kind == JSON_KIND_NULL) continue;
        if (kind != JSON_KIND_OBJECT)
            return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be null or an object, not %s",
                               names[i], json_kind_name(kind));
        if (*scaling)
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "rope_scaling and rope_parameters are both given");
        if (i == 1 && json_node_member(node, "rope_theta"))
            STATUS_TRY(keys_read(&theta, 1, node, config, error));
        *scaling = node;
    }
    return DSMOE_OK;
}

/* Reads null, {"type": "linear", "factor": f} or {"type": "dynamic", "factor": f}; for V2 and V3 null or
 * {"type": "yarn", …}. */
static dsmoe_status read_rope_scaling(const json_node *root, dsmoe_config *config,
                                      dsmoe_error *error)
{
    config->rope_scaling = DSMOE_ROPE_NONE;
    config->rope_scaling_factor = 1;
    const json_node *scaling;
    STATUS_TRY(find_rope_scaling(root, &scaling, config, error));
    if (!scaling) return DSMOE_OK;
    const char *type;
    STATUS_TRY(read_rope_type(scaling, &type, error));
    if (!type && json_node_member(root, "rope_parameters") == scaling)
        return config_check_bare_rope(scaling, error);
    if (!type) return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling has no type");
    if (!strcmp(type, "default")) return DSMOE_OK; /* a newer way to say null */
    STATUS_TRY(find_rope_type(type, config, error));
    if (config->rope_scaling == DSMOE_ROPE_YARN) {
        STATUS_TRY(check_yarn(scaling, error));
        STATUS_TRY(
            keys_read(config_yarn_keys.keys, config_yarn_keys.n_keys, scaling, config, error));
    }
    const json_node *factor = json_node_member(scaling, "factor");
    if (!factor) return status_fail(error, DSMOE_ERROR_CONFIG, "rope_scaling has no factor");
    json_kind kind = json_node_kind(factor);
    if (kind != JSON_KIND_INTEGER && kind != JSON_KIND_REAL)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_scaling factor must be a number, not %s", json_kind_name(kind));
    config->rope_scaling_factor = json_node_number(factor);
    return DSMOE_OK; /* config_check() checks its range */
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
    /* The type comes first: for another type of model, the other keys mean other things. */
    STATUS_TRY(read_model_type(root, &config->model_type, error));
    STATUS_TRY(check_architectures(root, config_families[config->model_type].architecture, error));
    STATUS_TRY(keys_read(config_keys.keys, config_keys.n_keys, root, config, error));
    STATUS_TRY(read_family(root, config, error));
    STATUS_TRY(read_rope_scaling(root, config, error));
    STATUS_TRY(read_token_ids(root, config, error));

    if (!config->num_key_value_heads) config->num_key_value_heads = config->num_attention_heads;
    if (!config->n_routed_experts) config->n_shared_experts = config->num_experts_per_tok = 0;
    STATUS_TRY(config_read_layer_types(root, config, error));
    STATUS_TRY(config_check(config, error));
    return config_check_beyond(root, config, error);
}

/* Frees `root`. */
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
