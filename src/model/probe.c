/* probe.c - the paper's probes of what experts know (section 4.5): a second model over the same
 * weights whose tokens are kept from their favourite experts, lose the shared ones, or get fewer. */
#include <math.h>
#include <string.h>

#include "model/config.h"
#include "model/model.h"

int64_t probe_count_masked(const dsmoe_probe *probe, int64_t n)
{
    return (int64_t)floor(probe->mask_top * (double)n + 0.5);
}

/* Changes `c` as the probe says. *n_masked receives the number of experts that each token loses. */
static dsmoe_status apply(const dsmoe_probe *probe, dsmoe_config *c, int64_t *n_masked,
                          dsmoe_error *error)
{
    int64_t n = c->n_routed_experts;
    if (config_moe_layers(c, c->num_hidden_layers) == 0)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "the model is dense: there are no experts to probe");
    if (!(probe->mask_top >= 0 && probe->mask_top < 1))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "mask_top is %g; it must be a share from 0 to below 1", probe->mask_top);
    if (probe->num_experts_per_tok < 0 || probe->num_experts_per_tok > n)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "num_experts_per_tok is %lld, but there are %lld routed experts",
                           (long long)probe->num_experts_per_tok, (long long)n);
    if (probe->replace_shared && c->n_shared_experts == 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the model has no shared experts that could be replaced");
    *n_masked = probe_count_masked(probe, n);
    if (probe->num_experts_per_tok) c->num_experts_per_tok = probe->num_experts_per_tok;
    if (probe->replace_shared) {
        c->num_experts_per_tok += c->n_shared_experts;
        c->n_shared_experts = 0;
    }
    if (c->num_experts_per_tok > n - *n_masked)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a token would use %lld routed experts, but only %lld of %lld are left"
                           " to it",
                           (long long)c->num_experts_per_tok, (long long)(n - *n_masked),
                           (long long)n);
    return DSMOE_OK;
}

/* Norms and biases are float32 in memory, whatever their type in the files; the lists of both models
 * should show the type in the files. Both have the same order; the probed model may lack some tensors. */
static void copy_types(const dsmoe_model *model, dsmoe_model *probed)
{
    for (size_t i = 0, j = 0; i < probed->n_tensors; i++) {
        while (strcmp(model->tensors[j].name, probed->tensors[i].name) != 0) j++;
        probed->tensors[i].dtype = model->tensors[j].dtype;
        probed->tensors[i].size = model->tensors[j].size;
    }
}

dsmoe_status dsmoe_model_probe(const dsmoe_model *model, const dsmoe_probe *probe,
                               dsmoe_model **probed, dsmoe_error *error)
{
    if (!model || !probe || !probed)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no model, no probe or no place for the probed model given");
    *probed = NULL;
    dsmoe_config config = model->config;
    int64_t n_masked = 0;
    STATUS_TRY(apply(probe, &config, &n_masked, error));
    STATUS_TRY(
        model_over(&config, &model->generation, model->weights, model->kernels, probed, error));
    (*probed)->lender = model;
    copy_types(model, *probed);
    for (int64_t i = 0; i < config.num_hidden_layers; i++)
        if ((*probed)->layers[i]) {
            (*probed)->layers[i]->n_masked = n_masked;
            (*probed)->layers[i]->masks_first = probe->mask_before_softmax;
        }
    return DSMOE_OK;
}
