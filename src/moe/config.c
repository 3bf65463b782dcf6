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

/* ---- the strings of a configuration -------------------------------------------------------- */

static const char *const scoring_funcs[] = {
    [DSMOE_SCORING_SOFTMAX] = "softmax",
    [DSMOE_SCORING_SIGMOID] = "sigmoid",
};
static const char *const topk_methods[] = {
    [DSMOE_TOPK_GREEDY] = "greedy",
    [DSMOE_TOPK_GROUP_LIMITED_GREEDY] = "group_limited_greedy",
    [DSMOE_TOPK_NOAUX_TC] = "noaux_tc",
};
enum {
    N_SCORING_FUNCS = sizeof scoring_funcs / sizeof *scoring_funcs,
    N_TOPK_METHODS = sizeof topk_methods / sizeof *topk_methods,
};

/* The index of the word, n if it is not in the list. No word (NULL) means the first. */
static int find_word(const char *const *words, int n, const char *word)
{
    int i = 0;
    while (word && i < n && strcmp(words[i], word) != 0) i++;
    return i;
}

dsmoe_scoring_func moe_scoring_func(const dsmoe_layer_config *c)
{
    return (dsmoe_scoring_func)find_word(scoring_funcs, N_SCORING_FUNCS, c->scoring_func);
}

dsmoe_topk_method moe_topk_method(const dsmoe_layer_config *c)
{
    return (dsmoe_topk_method)find_word(topk_methods, N_TOPK_METHODS, c->topk_method);
}

dsmoe_layer_config moe_config_own(const dsmoe_layer_config *c)
{
    dsmoe_layer_config own = *c;
    own.scoring_func = scoring_funcs[moe_scoring_func(c)];
    own.topk_method = topk_methods[moe_topk_method(c)];
    return own;
}

/* ---- checking ------------------------------------------------------------------------------ */

static dsmoe_status check_range(const char *key, int64_t value, int64_t min, dsmoe_error *error)
{
    const int64_t max = 1 << 24; /* larger than in any model; any product of two fits in int64 */
    if (value >= min && value <= max) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s is %lld; it must be from %lld to %lld", key,
                       (long long)value, (long long)min, (long long)max);
}

static dsmoe_status check_factor(const char *key, float value, dsmoe_error *error)
{
    if (isfinite(value) && value >= 0.0f) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s is %g; it must be a finite number, 0 or more",
                       key, (double)value);
}

static dsmoe_status check_words(const dsmoe_layer_config *c, dsmoe_error *error)
{
    if (find_word(scoring_funcs, N_SCORING_FUNCS, c->scoring_func) == N_SCORING_FUNCS)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "scoring_func is \"%s\"; only \"softmax\" and \"sigmoid\" are supported",
                           c->scoring_func);
    if (find_word(topk_methods, N_TOPK_METHODS, c->topk_method) == N_TOPK_METHODS)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "topk_method is \"%s\"; only \"greedy\", \"group_limited_greedy\" and "
                           "\"noaux_tc\" are supported",
                           c->topk_method);
    return DSMOE_OK;
}

/* The groups that a token's choice is limited to. The greedy gate has none. */
static dsmoe_status check_groups(const dsmoe_layer_config *c, dsmoe_error *error)
{
    STATUS_TRY(check_range("n_group", c->n_group, 0, error));
    STATUS_TRY(check_range("topk_group", c->topk_group, 0, error));
    if (moe_topk_method(c) == DSMOE_TOPK_GREEDY || c->n_group <= 1) return DSMOE_OK;
    if (c->n_routed_experts % c->n_group != 0)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_group is %lld, which does not divide n_routed_experts (%lld)",
                           (long long)c->n_group, (long long)c->n_routed_experts);
    int64_t size = c->n_routed_experts / c->n_group;
    if (c->topk_group < 1 || c->topk_group > c->n_group)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "topk_group is %lld; it must be from 1 to n_group (%lld)",
                           (long long)c->topk_group, (long long)c->n_group);
    if (c->topk_group * size < c->num_experts_per_tok)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "topk_group is %lld; that many groups of %lld experts are too few to "
                           "choose %lld experts from (num_experts_per_tok)",
                           (long long)c->topk_group, (long long)size,
                           (long long)c->num_experts_per_tok);
    if (moe_topk_method(c) == DSMOE_TOPK_NOAUX_TC && size < 2)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_group is %lld, which leaves groups of one expert, but \"noaux_tc\" "
                           "compares groups by their two best experts",
                           (long long)c->n_group);
    return DSMOE_OK;
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
    STATUS_TRY(check_words(c, error));
    STATUS_TRY(check_groups(c, error));
    STATUS_TRY(check_factor("routed_scaling_factor", c->routed_scaling_factor, error));
    STATUS_TRY(check_factor("aux_loss_alpha", c->aux_loss_alpha, error));
    STATUS_TRY(check_factor("device_loss_alpha", c->device_loss_alpha, error));
    if (c->n_device_groups > 0 && c->n_routed_experts % c->n_device_groups != 0)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "n_device_groups is %lld, which does not divide n_routed_experts (%lld)",
                           (long long)c->n_device_groups, (long long)c->n_routed_experts);
    return DSMOE_OK;
}
