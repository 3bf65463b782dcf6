/* correction.c - balance without a loss (arXiv 2408.15664): experts are chosen by score plus bias. After each
 * step the bias rises by a fixed amount for experts with a load below the mean, and falls for those with a
 * load above it.
 *
 * Loads are whole numbers, and every rank has those of all ranks. So each rank moves its own copy of the
 * biases, to the same bits. */
#include "train/correction.h"

#include <math.h>
#include <string.h>

bool correction_is_used(const dsmoe_trainer *t)
{
    return !t->options.tuning && t->n_moe_layers > 0 &&
           t->config.topk_method == DSMOE_TOPK_NOAUX_TC;
}

void correction_clear(const dsmoe_trainer *t, int64_t layer, model_weights *gradients)
{
    float *d_bias = gradients->layers[layer].moe.e_score_correction_bias;
    if (d_bias) memset(d_bias, 0, (size_t)t->config.n_routed_experts * sizeof *d_bias);
}

/* +1 where the load is below the mean, -1 above. */
static int direction(int64_t load, int64_t all, int64_t n)
{
    return (load * n < all) - (load * n > all);
}

static void move(const dsmoe_trainer *t, const int64_t *load, float *bias)
{
    int64_t n = t->config.n_routed_experts, all = 0;
    for (int64_t i = 0; i < n; i++) all += load[i];
    for (int64_t i = 0; i < n; i++)
        bias[i] += (float)direction(load[i], all, n) * (float)t->options.bias_speed;
}

/* The biases of the MoE layers one after the other; NULL after the last. */
static float *next_bias(const dsmoe_trainer *t, int64_t *layer)
{
    while (*layer < t->config.num_hidden_layers) {
        float *bias = t->weight_slots->layers[(*layer)++].moe.e_score_correction_bias;
        if (bias) return bias;
    }
    return NULL;
}

void correction_update(dsmoe_trainer *t, bool skipped)
{
    int64_t n = t->config.n_routed_experts, layer = 0;
    const int64_t *load = t->step_load;
    if (!correction_is_used(t)) skipped = true; /* a frozen bias does not move */
    for (float *bias; !skipped && (bias = next_bias(t, &layer)); load += n) move(t, load, bias);
    memset(t->step_load, 0, (size_t)(t->n_moe_layers * n) * sizeof *t->step_load);
}

void correction_ranges(const dsmoe_trainer *t, metrics_range *ranges)
{
    int64_t layer = 0;
    for (const float *bias; (bias = next_bias(t, &layer)); ranges++) {
        *ranges = (metrics_range){bias[0], bias[0]};
        for (int64_t i = 1; i < t->config.n_routed_experts; i++) {
            ranges->low = fminf(ranges->low, bias[i]);
            ranges->high = fmaxf(ranges->high, bias[i]);
        }
    }
}
