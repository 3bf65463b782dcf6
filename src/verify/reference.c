/* reference.c - opens a reference layer file and checks that everything in it belongs together. */
#include "verify/reference.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/json.h"
#include "verify/tensors.h"

/* ---- configuration ------------------------------------------------------------------------ */

/* A member of `kind`; NULL if it is absent. */
static dsmoe_status config_member(const json_node *root, const char *key, json_kind kind,
                                  const json_node **member, dsmoe_error *error)
{
    *member = json_node_member(root, key);
    if (*member && json_node_kind(*member) != kind)
        return status_fail(error, DSMOE_ERROR_CONFIG, "config: %s must be %s, not %s", key,
                           json_kind_name(kind), json_kind_name(json_node_kind(*member)));
    return DSMOE_OK;
}

static dsmoe_status config_size(const json_node *root, const char *key, int64_t *value,
                                dsmoe_error *error)
{
    const json_node *member = NULL;
    STATUS_TRY(config_member(root, key, JSON_KIND_INTEGER, &member, error));
    if (!member) return status_fail(error, DSMOE_ERROR_CONFIG, "config: %s is missing", key);
    *value = json_node_integer(member);
    return DSMOE_OK;
}

static dsmoe_status config_flag(const json_node *root, const char *key, bool *value,
                                dsmoe_error *error)
{
    const json_node *member = NULL;
    STATUS_TRY(config_member(root, key, JSON_KIND_BOOL, &member, error));
    if (member) *value = json_node_bool(member);
    return DSMOE_OK;
}

static dsmoe_status config_alpha(const json_node *root, float *value, dsmoe_error *error)
{
    const char *key = "aux_loss_alpha";
    const json_node *member = json_node_member(root, key);
    if (!member) return DSMOE_OK;
    json_kind kind = json_node_kind(member);
    if (kind != JSON_KIND_INTEGER && kind != JSON_KIND_REAL)
        return status_fail(error, DSMOE_ERROR_CONFIG, "config: %s must be a number, not %s", key,
                           json_kind_name(kind));
    if (fabs(json_node_number(member)) > FLT_MAX)
        return status_fail(error, DSMOE_ERROR_CONFIG, "config: %s is %g, which is too large", key,
                           json_node_number(member));
    *value = (float)json_node_number(member);
    return DSMOE_OK;
}

/* For keys of which the layer implements only one value. */
static dsmoe_status config_word(const json_node *root, const char *key, const char *only,
                                dsmoe_error *error)
{
    const json_node *member = NULL;
    STATUS_TRY(config_member(root, key, JSON_KIND_STRING, &member, error));
    if (member && strcmp(json_node_string(member, NULL), only) != 0)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "config: %s \"%.64s\" is not supported, only \"%s\"", key,
                           json_node_string(member, NULL), only);
    return DSMOE_OK;
}

/* Reads the keys of the MoE layer; other keys of a config.json do not matter here. */
static dsmoe_status config_read_keys(const json_node *root, dsmoe_layer_config *config,
                                     dsmoe_error *error)
{
    if (json_node_kind(root) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "config must be an object, not %s",
                           json_kind_name(json_node_kind(root)));
    STATUS_TRY(config_size(root, "hidden_size", &config->hidden_size, error));
    STATUS_TRY(config_size(root, "moe_intermediate_size", &config->moe_intermediate_size, error));
    STATUS_TRY(config_size(root, "n_routed_experts", &config->n_routed_experts, error));
    STATUS_TRY(config_size(root, "num_experts_per_tok", &config->num_experts_per_tok, error));
    const json_node *shared = json_node_member(root, "n_shared_experts");
    config->n_shared_experts = 0;
    if (shared && json_node_kind(shared) != JSON_KIND_NULL)
        STATUS_TRY(config_size(root, "n_shared_experts", &config->n_shared_experts, error));
    STATUS_TRY(config_flag(root, "norm_topk_prob", &config->norm_topk_prob, error));
    STATUS_TRY(config_flag(root, "seq_aux", &config->seq_aux, error));
    STATUS_TRY(config_alpha(root, &config->aux_loss_alpha, error));
    STATUS_TRY(config_word(root, "scoring_func", "softmax", error));
    return config_word(root, "hidden_act", "silu", error);
}

static dsmoe_status read_config(reference_file *reference, dsmoe_error *error)
{
    const char *text = safetensors_metadata(reference->file, "config");
    if (!text)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "no 'config' in '__metadata__': not a reference layer file");
    json_node *root;
    STATUS_TRY(json_node_parse(text, strlen(text), "config", &root, error));
    reference->config = dsmoe_layer_config_default();
    dsmoe_status status = config_read_keys(root, &reference->config, error);
    json_node_free(root);
    STATUS_TRY(status);

    dsmoe_error why = {0};
    status = dsmoe_layer_config_check(&reference->config, &why);
    if (status != DSMOE_OK) return status_fail(error, status, "config: %s", why.message);
    /* Each expert has three tensors, so this bounds all further work by the size of the file. */
    if ((uint64_t)reference->config.n_routed_experts > safetensors_count(reference->file))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "config: n_routed_experts is %" PRId64
                           ", but the file has only %zu tensors",
                           reference->config.n_routed_experts, safetensors_count(reference->file));
    return DSMOE_OK;
}

/* ---- parameters --------------------------------------------------------------------------- */

int64_t reference_parameter_count(const reference_file *reference)
{
    const dsmoe_layer_config *config = &reference->config;
    return 1 + 3 * (config->n_routed_experts + (config->n_shared_experts > 0));
}

reference_parameter reference_parameter_at(const reference_file *reference, int64_t index)
{
    static const char *const projections[] = {"gate_proj", "up_proj", "down_proj"};
    const dsmoe_layer_config *config = &reference->config;
    int64_t hidden_size = config->hidden_size, width = config->moe_intermediate_size;
    if (index == 0)
        return (reference_parameter){"gate.weight", config->n_routed_experts, hidden_size};

    int64_t expert = (index - 1) / 3;
    int projection = (int)((index - 1) % 3);
    reference_parameter parameter;
    if (expert < config->n_routed_experts) {
        snprintf(parameter.name, sizeof parameter.name, "experts.%" PRId64 ".%s.weight", expert,
                 projections[projection]);
    } else {
        snprintf(parameter.name, sizeof parameter.name, "shared_experts.%s.weight",
                 projections[projection]);
        width *= config->n_shared_experts;
    }
    parameter.rows = projection == 2 ? hidden_size : width;
    parameter.columns = projection == 2 ? width : hidden_size;
    return parameter;
}

float *reference_matrix(const reference_file *reference, const dsmoe_layer_weights *weights,
                        int64_t index)
{
    if (index == 0) return weights->gate;
    int64_t expert = (index - 1) / 3;
    const dsmoe_expert_weights *matrices = expert < reference->config.n_routed_experts
                                               ? &weights->experts[expert]
                                               : &weights->shared_experts;
    switch ((index - 1) % 3) {
    case 0: return matrices->gate_proj;
    case 1: return matrices->up_proj;
    default: return matrices->down_proj;
    }
}

const safetensors_tensor *reference_gradient(const reference_file *reference, int64_t index,
                                             char name[80])
{
    reference_parameter parameter = reference_parameter_at(reference, index);
    snprintf(name, 80, "grad.%s", parameter.name);
    return safetensors_find(reference->file, name);
}

const safetensors_tensor *reference_device_loss(const reference_file *reference,
                                                int64_t n_device_groups, char name[80])
{
    snprintf(name, 80, "device_loss.%" PRId64, n_device_groups);
    return safetensors_find(reference->file, name);
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* Finds a tensor that may be absent, with a row for each token. */
static dsmoe_status find_rows(const reference_file *reference, const char *name, int64_t columns,
                              const safetensors_tensor **tensor, dsmoe_error *error)
{
    *tensor = safetensors_find(reference->file, name);
    if (!*tensor) return DSMOE_OK;
    STATUS_TRY(tensor_check_float(*tensor, error));
    return tensor_check_shape(*tensor, reference->n_tokens, columns, error);
}

static dsmoe_status find_x(reference_file *reference, dsmoe_error *error)
{
    const safetensors_tensor *x = reference->x = safetensors_find(reference->file, "x");
    if (!x) return status_fail(error, DSMOE_ERROR_FORMAT, "tensor 'x' is missing");
    STATUS_TRY(tensor_check_float(x, error));
    if (x->n_dims != 3 || x->n_elements == 0 || x->shape[2] != reference->config.hidden_size) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "[sequences,tokens,%" PRId64 "]",
                 reference->config.hidden_size);
        return tensor_fail_shape(x, wanted, error);
    }
    reference->n_sequences = x->shape[0];
    reference->sequence_length = x->shape[1];
    reference->n_tokens = x->shape[0] * x->shape[1]; /* cannot overflow: x is in the file */
    return DSMOE_OK;
}

static dsmoe_status find_topk_idx(reference_file *reference, dsmoe_error *error)
{
    const safetensors_tensor *topk_idx = safetensors_find(reference->file, "topk_idx");
    reference->topk_idx = topk_idx;
    if (!topk_idx && reference->topk_weight)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "tensor 'topk_weight' needs 'topk_idx', which is missing");
    if (!topk_idx) return DSMOE_OK;
    STATUS_TRY(tensor_check_integer(topk_idx, error));
    return tensor_check_shape(topk_idx, reference->n_tokens, reference->config.num_experts_per_tok,
                              error);
}

static dsmoe_status find_tensors(reference_file *reference, dsmoe_error *error)
{
    const dsmoe_layer_config *config = &reference->config;
    int64_t hidden_size = config->hidden_size;
    STATUS_TRY(find_x(reference, error));
    STATUS_TRY(find_rows(reference, "dy", hidden_size, &reference->dy, error));
    STATUS_TRY(find_rows(reference, "y", hidden_size, &reference->y, error));
    STATUS_TRY(find_rows(reference, "dx", hidden_size, &reference->dx, error));
    STATUS_TRY(find_rows(reference, "scores", config->n_routed_experts, &reference->scores, error));
    STATUS_TRY(find_rows(reference, "topk_weight", config->num_experts_per_tok,
                         &reference->topk_weight, error));
    STATUS_TRY(find_topk_idx(reference, error));
    reference->aux_loss = safetensors_find(reference->file, "aux_loss");
    return reference->aux_loss ? tensor_check_scalar(reference->aux_loss, error) : DSMOE_OK;
}

static dsmoe_status check_parameters(const reference_file *reference, dsmoe_error *error)
{
    for (int64_t i = 0; i < reference_parameter_count(reference); i++) {
        reference_parameter parameter = reference_parameter_at(reference, i);
        const safetensors_tensor *weight = safetensors_find(reference->file, parameter.name);
        if (!weight)
            return status_fail(error, DSMOE_ERROR_FORMAT, "tensor '%.128s' is missing",
                               parameter.name);
        STATUS_TRY(tensor_check_float(weight, error));
        STATUS_TRY(tensor_check_shape(weight, parameter.rows, parameter.columns, error));
        char name[80];
        const safetensors_tensor *gradient = reference_gradient(reference, i, name);
        if (!gradient) continue;
        STATUS_TRY(tensor_check_float(gradient, error));
        STATUS_TRY(tensor_check_shape(gradient, parameter.rows, parameter.columns, error));
    }
    return DSMOE_OK;
}

/* ---- unknown tensors ----------------------------------------------------------------------- */

static bool is_parameter(const reference_file *reference, const char *name)
{
    int64_t expert = reference->config.n_routed_experts; /* that of the shared experts */
    const char *number = tensor_name_behind(name, "experts.");
    if (strcmp(name, "gate.weight") == 0) return true;
    if (number) {
        expert = strtoll(number, NULL, 10);
        if (expert < 0 || expert >= reference->config.n_routed_experts) return false;
    } else if (!tensor_name_behind(name, "shared_experts.") ||
               reference->config.n_shared_experts == 0) {
        return false;
    }
    for (int projection = 0; projection < 3; projection++) {
        int64_t index = 1 + 3 * expert + projection;
        if (strcmp(name, reference_parameter_at(reference, index).name) == 0) return true;
    }
    return false;
}

static dsmoe_status check_device_loss(const reference_file *reference,
                                      const safetensors_tensor *tensor, const char *number,
                                      dsmoe_error *error)
{
    char name[80];
    int64_t n_groups = strtoll(number, NULL, 10);
    if (n_groups < 1 || reference->config.n_routed_experts % n_groups != 0 ||
        reference_device_loss(reference, n_groups, name) != tensor)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "tensor '%.128s': %" PRId64
                           " routed experts cannot be divided into that many equal groups",
                           tensor->name, reference->config.n_routed_experts);
    return tensor_check_scalar(tensor, error);
}

/* An unknown name that looks like a known one would be a check that is silently left out, so it is an
 * error. */
static dsmoe_status check_strangers(const reference_file *reference, dsmoe_error *error)
{
    for (size_t i = 0; i < safetensors_count(reference->file); i++) {
        const safetensors_tensor *tensor = safetensors_at(reference->file, i);
        const char *name = tensor->name, *number = tensor_name_behind(name, "device_loss.");
        if (number) STATUS_TRY(check_device_loss(reference, tensor, number, error));
        const char *parameter = tensor_name_behind(name, "grad.");
        bool claims = parameter || tensor_name_behind(name, "experts.") ||
                      tensor_name_behind(name, "shared_experts.");
        if (claims && !is_parameter(reference, parameter ? parameter : name))
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "tensor '%.128s' belongs to no parameter of the layer in 'config'",
                               name);
    }
    return DSMOE_OK;
}

/* ---- the file ------------------------------------------------------------------------------ */

static dsmoe_status check_all(reference_file *reference, dsmoe_error *error)
{
    STATUS_TRY(read_config(reference, error));
    int64_t width;
    if (!checked_mul_i64(reference->config.n_shared_experts,
                         reference->config.moe_intermediate_size, &width))
        return status_fail(error, DSMOE_ERROR_CONFIG, "config: n_shared_experts is too large");
    STATUS_TRY(find_tensors(reference, error));
    STATUS_TRY(check_parameters(reference, error));
    return check_strangers(reference, error);
}

dsmoe_status reference_open(reference_file *reference, const char *path, dsmoe_error *error)
{
    memset(reference, 0, sizeof *reference);
    STATUS_TRY(safetensors_open(path, &reference->file, error));
    dsmoe_error why = {0};
    dsmoe_status status = check_all(reference, &why);
    if (status == DSMOE_OK) return DSMOE_OK;
    reference_close(reference);
    return status_fail(error, status, "%s: %s", path, why.message);
}

void reference_close(reference_file *reference)
{
    safetensors_close(reference->file);
    memset(reference, 0, sizeof *reference);
}

dsmoe_status reference_read(const safetensors_tensor *tensor, float *out, dsmoe_error *error)
{
    safetensors_tensor_read_f32(tensor, 0, tensor->n_elements, out);
    for (size_t i = 0; i < tensor->n_elements; i++)
        if (!isfinite(out[i]))
            return status_fail(error, DSMOE_ERROR_NONFINITE,
                               "tensor '%.128s': element %zu is %g, not a finite number",
                               tensor->name, i, out[i]);
    return DSMOE_OK;
}

dsmoe_status reference_read_weights(const reference_file *reference,
                                    const dsmoe_layer_weights *weights, dsmoe_error *error)
{
    for (int64_t i = 0; i < reference_parameter_count(reference); i++) {
        reference_parameter parameter = reference_parameter_at(reference, i);
        const safetensors_tensor *tensor = safetensors_find(reference->file, parameter.name);
        STATUS_TRY(reference_read(tensor, reference_matrix(reference, weights, i), error));
    }
    return DSMOE_OK;
}
