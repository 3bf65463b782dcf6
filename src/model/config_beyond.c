/* config_beyond.c - keys of config.json that newer files have, or that ask for something that is not computed
 * here: each is honoured, or refused by its name. Keys that no public code of these types computes with
 * (ep_size, attention_dropout, num_nextn_predict_layers, …) may have any value. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "formats/json.h"
#include "model/config_keys.h"

/* A member of an object; NULL if it is missing or null. */
static const json_node *member(const json_node *object, const char *key)
{
    const json_node *node = json_node_member(object, key);
    return node && json_node_kind(node) != JSON_KIND_NULL ? node : NULL;
}

/* ---- lists of layers --------------------------------------------------------------------------- */

/* Reads a list with a word for each layer; *list is NULL if there is none. */
static dsmoe_status read_list(const json_node *root, const char *key, const dsmoe_config *config,
                              const json_node **list, dsmoe_error *error)
{
    *list = member(root, key);
    if (!*list) return DSMOE_OK;
    if (json_node_kind(*list) != JSON_KIND_ARRAY)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be an array, not %s", key,
                           json_kind_name(json_node_kind(*list)));
    int64_t n = (int64_t)json_node_count(*list);
    if (n != config->num_hidden_layers)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s has %" PRId64 " items, and num_hidden_layers is %" PRId64, key, n,
                           config->num_hidden_layers);
    return DSMOE_OK;
}

static bool item_is(const json_node *list, int64_t i, const char *word)
{
    const json_node *item = json_node_item(list, (size_t)i);
    return json_node_kind(item) == JSON_KIND_STRING && !strcmp(json_node_string(item, NULL), word);
}

dsmoe_status config_read_layer_types(const json_node *root, dsmoe_config *config,
                                     dsmoe_error *error)
{
    const json_node *list;
    STATUS_TRY(read_list(root, "mlp_layer_types", config, &list, error));
    if (!list) return DSMOE_OK;
    int64_t n_layers = config->num_hidden_layers, n_dense = 0;
    while (n_dense < n_layers && item_is(list, n_dense, "dense")) n_dense++;
    if (!json_node_member(root, "first_k_dense_replace")) config->first_k_dense_replace = n_dense;
    for (int64_t i = 0; i < n_layers; i++) {
        const char *is = dsmoe_config_layer_is_moe(config, i) ? "sparse" : "dense";
        if (!item_is(list, i, "dense") && !item_is(list, i, "sparse"))
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "mlp_layer_types may hold \"dense\" and \"sparse\" only");
        if (!item_is(list, i, is))
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "mlp_layer_types differs from first_k_dense_replace %" PRId64
                               " and moe_layer_freq %" PRId64 " at layer %" PRId64
                               ", which they make %s",
                               config->first_k_dense_replace, config->moe_layer_freq, i, is);
    }
    return DSMOE_OK;
}

static dsmoe_status check_attention_types(const json_node *root, const dsmoe_config *config,
                                          dsmoe_error *error)
{
    const json_node *list;
    STATUS_TRY(read_list(root, "layer_types", config, &list, error));
    for (int64_t i = 0; list && i < config->num_hidden_layers; i++)
        if (!item_is(list, i, "full_attention"))
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "layer_types other than \"full_attention\" are not supported");
    return DSMOE_OK;
}

/* ---- single keys ------------------------------------------------------------------------------- */

/* A number under this key, if there is one, must be 1. */
static dsmoe_status check_one(const json_node *object, const char *key, dsmoe_error *error)
{
    const json_node *node = member(object, key);
    if (!node) return DSMOE_OK;
    json_kind kind = json_node_kind(node);
    if ((kind == JSON_KIND_INTEGER || kind == JSON_KIND_REAL) && json_node_number(node) == 1)
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s is not supported, only 1", key);
}

static dsmoe_status check_flag(const json_node *root, const char *key, bool wanted,
                               dsmoe_error *error)
{
    const json_node *node = member(root, key);
    if (!node) return DSMOE_OK;
    if (json_node_kind(node) != JSON_KIND_BOOL)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be true or false, not %s", key,
                           json_kind_name(json_node_kind(node)));
    if (json_node_bool(node) == wanted) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s %s is not supported", key,
                       wanted ? "false" : "true");
}

static dsmoe_status check_absent(const json_node *root, dsmoe_error *error)
{
    static const char *const keys[][2] = {
        {"quantization_config", "use weights in bf16, or a GGUF file"},
        {"compression_config", "use weights in bf16, or a GGUF file"},
        {"index_topk", "attention here is always to all earlier tokens"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (member(root, keys[i][0]))
            return status_fail(error, DSMOE_ERROR_CONFIG, "%s is not supported: %s", keys[i][0],
                               keys[i][1]);
    return DSMOE_OK;
}

/* The width of a head follows from other keys. With latent attention head_dim can mean several widths, so
 * only qk_head_dim is checked. */
static dsmoe_status check_head_dim(const json_node *root, const dsmoe_config *config,
                                   dsmoe_error *error)
{
    bool is_latent = config_is_latent(config);
    const char *key = is_latent ? "qk_head_dim" : "head_dim";
    const json_node *head_dim = member(root, key);
    if (!head_dim) return DSMOE_OK;
    if (json_node_kind(head_dim) != JSON_KIND_INTEGER)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be an integer, not %s", key,
                           json_kind_name(json_node_kind(head_dim)));
    int64_t expected = config_head_dim(config);
    if (json_node_integer(head_dim) == expected) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s is %" PRId64 ", but %s is %" PRId64, key,
                       json_node_integer(head_dim),
                       is_latent ? "qk_nope_head_dim plus qk_rope_head_dim"
                                 : "hidden_size over num_attention_heads",
                       expected);
}

dsmoe_status config_check_bare_rope(const json_node *parameters, dsmoe_error *error)
{
    if (!json_node_member(parameters, "rope_theta"))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "rope_parameters has no type and no rope_theta");
    if (member(parameters, "factor"))
        return status_fail(error, DSMOE_ERROR_CONFIG, "rope_parameters has a factor, but no type");
    return DSMOE_OK;
}

dsmoe_status config_check_beyond(const json_node *root, const dsmoe_config *config,
                                 dsmoe_error *error)
{
    STATUS_TRY(check_absent(root, error));
    STATUS_TRY(check_attention_types(root, config, error));
    STATUS_TRY(check_flag(root, "mlp_bias", false, error));
    STATUS_TRY(check_one(root, "partial_rotary_factor", error));
    const json_node *rope = member(root, "rope_parameters"); /* an object, if it is there */
    if (rope) STATUS_TRY(check_one(rope, "partial_rotary_factor", error));
    if (config_is_latent(config)) STATUS_TRY(check_flag(root, "rope_interleave", true, error));
    const json_node *dtype = member(root, "torch_dtype");
    if (dtype && json_node_kind(dtype) != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_CONFIG, "torch_dtype must be a string, not %s",
                           json_kind_name(json_node_kind(dtype)));
    return check_head_dim(root, config, error);
}
