/* config.c - what a layer's configuration must satisfy. */
#include <math.h>
#include <string.h>

#include "moe/moe.h"

dsmoe_layer_config dsmoe_layer_config_default(void)
{
    return (dsmoe_layer_config){
        .scoring_func = "softmax",
        .aux_loss_alpha = 0.001f,
        .seq_aux = true,
    };
}

static dsmoe_status check_range(const char *key, int64_t value, int64_t min, dsmoe_error *error)
{
    const int64_t max = 1 << 24; /* beyond any model; keeps every product of two within int64 */
    if (value >= min && value <= max) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s is %lld; it must be from %lld to %lld", key,
                       (long long)value, (long long)min, (long long)max);
}

static dsmoe_status check_factor(const char *key, float value, dsmoe_error *error)
{
    if (isfinite(value) && value >= 0.0f) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s is %g; it must be a finite number from 0 up",
                       key, (double)value);
}

dsmoe_status dsmoe_layer_config_check(const dsmoe_layer_config *c, dsmoe_error *error)
{
    if (!c) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no configuration given");
    STATUS_TRY(check_range("hidden_size", c->hidden_size, 1, error));
    STATUS_TRY(check_range("moe_intermediate_size", c->moe_intermediate_size, 1, error));
    STATUS_TRY(check_range("n_routed_experts", c->n_routed_experts, 1, error));
    STATUS_TRY(check_range("n_shared_experts", c->n_shared_experts, 0, error));
    STATUS_TRY(check_range("n_shared_experts * moe_intermediate_size",
                           c->n_shared_experts * c->moe_intermediate_size, 0, error));
    STATUS_TRY(check_range("num_experts_per_tok", c->num_experts_per_tok, 1, error));
    STATUS_TRY(check_range("n_device_groups", c->n_device_groups, 0, error));
    if (c->num_experts_per_tok > c->n_routed_experts)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "num_experts_per_tok is %lld, more than n_routed_experts (%lld)",
                           (long long)c->num_experts_per_tok, (long long)c->n_routed_experts);
    if (c->scoring_func && strcmp(c->scoring_func, "softmax") != 0)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "scoring_func is \"%s\"; only \"softmax\" is supported",
                           c->scoring_func);
    STATUS_TRY(check_factor("aux_loss_alpha", c->aux_loss_alpha, error));
    STATUS_TRY(check_factor("device_loss_alpha", c->device_loss_alpha, error));
    if (c->n_device_groups > 0 && c->n_routed_experts % c->n_device_groups != 0)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_device_groups is %lld, which does not divide n_routed_experts (%lld)",
                           (long long)c->n_device_groups, (long long)c->n_routed_experts);
    return DSMOE_OK;
}
