/* balance.c - the paper's balance losses over T tokens, N' routed experts, K' of them active:
 *   f_i = N'/(K'·T) · (tokens that chose i)     how often: no gradient
 *   P_i = 1/T · Σ_t p_{i,t}                     how much: p_i = s_i, or s_i / Σ_j s_j where scores do not add
 *                                               up to 1 (V3's sigmoid)
 *   expert-level   α1 · Σ_i f_i·P_i             over each sequence and averaged, or over the batch
 *   device-level   α2 · Σ_d f'_d·P'_d           f'_d the mean of f, P'_d the sum of P over group d
 * They reach training only through their gradient, with weight 1. */
#include "moe/balance.h"

#include <stdlib.h>

/* What makes a token's scores shares. Those of softmax stay as they are, to the bit. */
static double share_factor(const dsmoe_layer_config *c, const float *scores)
{
    double sum = 1e-20;
    if (moe_scoring_func(c) == DSMOE_SCORING_SOFTMAX) return 1.0;
    for (int64_t i = 0; i < c->n_routed_experts; i++) sum += scores[i];
    return 1.0 / sum;
}

/* f and P over tokens [first, first + n). Sums in double, in order of tokens. */
static void measure(const balance_batch *b, int64_t first, int64_t n, double *f, double *p)
{
    int64_t n_experts = b->config->n_routed_experts, k = b->config->num_experts_per_tok;
    for (int64_t i = 0; i < n_experts; i++) f[i] = p[i] = 0.0;
    for (int64_t t = first; t < first + n; t++) {
        for (int64_t s = 0; s < k; s++) f[b->routing.topk_idx[t * k + s]] += 1.0;
        const float *scores = b->routing.scores + t * n_experts;
        double factor = share_factor(b->config, scores);
        for (int64_t i = 0; i < n_experts; i++) p[i] += factor * scores[i];
    }
    for (int64_t i = 0; i < n_experts; i++) {
        f[i] *= (double)n_experts / ((double)k * (double)n);
        p[i] /= (double)n;
    }
}

static double dot(int64_t n, const double *a, const double *b)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Replaces f by f' of each expert's group: with it, Σ_i f'_i·P_i is the device-level loss. */
static void average_groups(int64_t n_experts, int64_t n_groups, double *f)
{
    int64_t size = n_experts / n_groups;
    for (int64_t d = 0; d < n_groups; d++) {
        double mean = 0.0;
        for (int64_t i = d * size; i < (d + 1) * size; i++) mean += f[i] / (double)size;
        for (int64_t i = d * size; i < (d + 1) * size; i++) f[i] = mean;
    }
}

static int64_t count_tokens(const balance_batch *b) { return b->n_sequences * b->sequence_length; }

/* The stretch of tokens over which the expert-level loss is taken, and how many there are. */
static void stretches(const balance_batch *b, int64_t *n, int64_t *length)
{
    *n = b->config->seq_aux ? b->n_sequences : 1;
    *length = b->config->seq_aux ? b->sequence_length : count_tokens(b);
}

dsmoe_layer_losses balance_losses(const balance_batch *b, double *scratch)
{
    const dsmoe_layer_config *c = b->config;
    int64_t n_experts = c->n_routed_experts, n, length;
    double *f = scratch, *p = scratch + n_experts, aux = 0.0, device = 0.0;
    if (count_tokens(b) == 0) return (dsmoe_layer_losses){0};
    stretches(b, &n, &length);
    if (c->aux_loss_alpha > 0.0f)
        for (int64_t s = 0; s < n; s++) {
            measure(b, s * length, length, f, p);
            aux += dot(n_experts, f, p) / (double)n;
        }
    if (c->n_device_groups > 0 && c->device_loss_alpha > 0.0f) {
        measure(b, 0, count_tokens(b), f, p);
        average_groups(n_experts, c->n_device_groups, f);
        device = dot(n_experts, f, p);
    }
    return (dsmoe_layer_losses){(float)(c->aux_loss_alpha * aux),
                                (float)(c->device_loss_alpha * device)};
}

/* Σ f·P with P the mean over `length` tokens: each share of such a token moves it by f / length. */
static void add_gradient(float *d_scores, int64_t n_experts, const double *f, double factor)
{
    for (int64_t i = 0; i < n_experts; i++) d_scores[i] += (float)(factor * f[i]);
}

void balance_gradient(const balance_batch *b, float *d_scores, double *scratch)
{
    const dsmoe_layer_config *c = b->config;
    int64_t n_experts = c->n_routed_experts, n_tokens = count_tokens(b), n, length;
    double *f = scratch, *p = scratch + n_experts;
    for (int64_t i = 0; i < b->n_sequences * n_experts; i++) d_scores[i] = 0.0f;
    stretches(b, &n, &length);
    if (c->aux_loss_alpha > 0.0f)
        for (int64_t s = 0; s < b->n_sequences; s++) {
            if (s < n) measure(b, s * length, length, f, p);
            add_gradient(d_scores + s * n_experts, n_experts, f,
                         c->aux_loss_alpha / (double)n_tokens);
        }
    if (c->n_device_groups > 0 && c->device_loss_alpha > 0.0f) {
        measure(b, 0, n_tokens, f, p);
        average_groups(n_experts, c->n_device_groups, f);
        for (int64_t s = 0; s < b->n_sequences; s++)
            add_gradient(d_scores + s * n_experts, n_experts, f,
                         c->device_loss_alpha / (double)n_tokens);
    }
}

dsmoe_status dsmoe_device_loss(const dsmoe_layer_config *config, dsmoe_routing routing,
                               int64_t n_tokens, int64_t n_device_groups, double *loss,
                               dsmoe_error *error)
{
    STATUS_TRY(dsmoe_layer_config_check(config, error));
    int64_t n_experts = config->n_routed_experts;
    if (n_tokens < 1 || n_device_groups < 1 || n_experts % n_device_groups != 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%lld device groups do not divide %lld experts over %lld tokens",
                           (long long)n_device_groups, (long long)n_experts, (long long)n_tokens);
    double *f = malloc(2 * (size_t)n_experts * sizeof *f);
    if (!f) return status_fail(error, DSMOE_ERROR_MEMORY, "no memory for a balance loss");
    double *p = f + n_experts;
    balance_batch batch = {config, routing, 1, n_tokens};
    measure(&batch, 0, n_tokens, f, p);
    average_groups(n_experts, n_device_groups, f);
    *loss = dot(n_experts, f, p);
    free(f);
    return DSMOE_OK;
}
