/* balance.c - the paper's balance losses over T tokens, N' routed experts, K' of them active:
 *   f_i = N'/(K'·T) · (tokens that chose i)     how often expert i is chosen; it has no gradient
 *   P_i = 1/T · Σ_t p_{i,t}                     mean share of expert i: p_i = s_i, or s_i / Σ_j s_j if
 *                                               scores do not add up to 1 (V3's sigmoid)
 *   expert-level   α1 · Σ_i f_i·P_i             per conversation, weighted by its tokens; or per batch
 *   device-level   α2 · Σ_d f'_d·P'_d           f'_d is the mean of f, P'_d the sum of P over group d
 * Training uses only their gradient, with weight 1. */
#include "moe/balance.h"

#include <stdlib.h>

/* The factor that turns a token's scores into shares. For softmax it is exactly 1. */
static double share_factor(const dsmoe_layer_config *c, const float *scores)
{
    double sum = 1e-20;
    if (moe_scoring_func(c) == DSMOE_SCORING_SOFTMAX) return 1.0;
    for (int64_t i = 0; i < c->n_routed_experts; i++) sum += scores[i];
    return 1.0 / sum;
}

/* Tokens [first, end), of which n are not padding. */
typedef struct stretch {
    int64_t first, end, n;
} stretch;

static bool is_padding(const layer_batch *of, int64_t token)
{
    return of->positions && of->positions[token] < 0;
}

/* f and P over a stretch of at least one token. Sums are in double, in the order of tokens. */
static void measure(const balance_batch *b, stretch s, double *f, double *p)
{
    int64_t n_experts = b->config->n_routed_experts, k = b->config->num_experts_per_tok;
    for (int64_t i = 0; i < n_experts; i++) f[i] = p[i] = 0.0;
    for (int64_t t = s.first; t < s.end; t++) {
        if (is_padding(&b->of, t)) continue;
        for (int64_t j = 0; j < k; j++) f[b->routing.topk_idx[t * k + j]] += 1.0;
        const float *scores = b->routing.scores + t * n_experts;
        double factor = share_factor(b->config, scores);
        for (int64_t i = 0; i < n_experts; i++) p[i] += factor * scores[i];
    }
    for (int64_t i = 0; i < n_experts; i++) {
        f[i] *= (double)n_experts / ((double)k * (double)s.n);
        p[i] /= (double)s.n;
    }
}

static double dot(int64_t n, const double *a, const double *b)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Replaces each f_i by f' of its group. Σ_i f_i·P_i is then the device-level loss. */
static void average_groups(int64_t n_experts, int64_t n_groups, double *f)
{
    int64_t size = n_experts / n_groups;
    for (int64_t d = 0; d < n_groups; d++) {
        double mean = 0.0;
        for (int64_t i = d * size; i < (d + 1) * size; i++) mean += f[i] / (double)size;
        for (int64_t i = d * size; i < (d + 1) * size; i++) f[i] = mean;
    }
}

static int64_t count_places(const layer_batch *of) { return of->n_sequences * of->sequence_length; }

static stretch whole_batch(const layer_batch *of)
{
    stretch all = {0, count_places(of), 0};
    for (int64_t t = 0; t < all.end; t++) all.n += !is_padding(of, t);
    return all;
}

/* What sums over tokens are divided by; 0 if there are no tokens. */
static double divisor(const layer_batch *of, stretch all)
{
    return all.n > 0 && of->positions && of->n_tokens > 0 ? of->n_tokens : (double)all.n;
}

/* The next stretch at or after token `from` that has an expert-level loss: a conversation, or the whole
 * batch. Its n is 0 after the last one. */
static stretch next_stretch(const balance_batch *b, int64_t from)
{
    const layer_batch *of = &b->of;
    int64_t n_places = count_places(of), first = from, end;
    if (from >= n_places) return (stretch){0};
    if (!b->config->seq_aux) return whole_batch(of);
    if (!of->positions) return (stretch){from, from + of->sequence_length, of->sequence_length};
    while (first < n_places && is_padding(of, first)) first++;
    for (end = first; end < n_places && of->positions[end] == end - first;) end++;
    return (stretch){first, end, end - first};
}

dsmoe_layer_losses balance_losses(const balance_batch *b, double *scratch)
{
    const dsmoe_layer_config *c = b->config;
    int64_t n_experts = c->n_routed_experts;
    double *f = scratch, *p = scratch + n_experts, aux = 0.0, device = 0.0;
    stretch all = whole_batch(&b->of);
    double n_tokens = divisor(&b->of, all);
    if (all.n == 0) return (dsmoe_layer_losses){0};
    if (c->aux_loss_alpha > 0.0f)
        for (stretch s = next_stretch(b, 0); s.n > 0; s = next_stretch(b, s.end)) {
            measure(b, s, f, p);
            aux += dot(n_experts, f, p) / (n_tokens / (double)s.n);
        }
    if (c->n_device_groups > 0 && c->device_loss_alpha > 0.0f) {
        measure(b, all, f, p);
        average_groups(n_experts, c->n_device_groups, f);
        device = dot(n_experts, f, p) / (n_tokens / (double)all.n);
    }
    return (dsmoe_layer_losses){(float)(c->aux_loss_alpha * aux),
                                (float)(c->device_loss_alpha * device)};
}

/* The gradient of Σ f·P. P is a mean over tokens, so the gradient by a token's share p_i is f_i times the
 * weight of the token, `factor`. */
static void add_gradient(const balance_batch *b, stretch s, const double *f, double factor,
                         float *d_scores)
{
    int64_t n_experts = b->config->n_routed_experts, step = balance_tokens_per_row(&b->of);
    for (int64_t t = s.first; t < s.end; t += step) {
        float *row = d_scores + t / step * n_experts;
        if (is_padding(&b->of, t)) continue;
        for (int64_t i = 0; i < n_experts; i++) row[i] += (float)(factor * f[i]);
    }
}

void balance_gradient(const balance_batch *b, float *d_scores, double *scratch)
{
    const dsmoe_layer_config *c = b->config;
    int64_t n_experts = c->n_routed_experts;
    double *f = scratch, *p = scratch + n_experts;
    stretch all = whole_batch(&b->of);
    double n_tokens = divisor(&b->of, all);
    if (all.end == 0) return;
    for (int64_t i = 0; i < all.end / balance_tokens_per_row(&b->of) * n_experts; i++)
        d_scores[i] = 0.0f;
    if (all.n == 0) return;
    if (c->aux_loss_alpha > 0.0f)
        for (stretch s = next_stretch(b, 0); s.n > 0; s = next_stretch(b, s.end)) {
            measure(b, s, f, p);
            add_gradient(b, s, f, c->aux_loss_alpha / n_tokens, d_scores);
        }
    if (c->n_device_groups > 0 && c->device_loss_alpha > 0.0f) {
        measure(b, all, f, p);
        average_groups(n_experts, c->n_device_groups, f);
        add_gradient(b, all, f, c->device_loss_alpha / n_tokens, d_scores);
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
    if (!f) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a balance loss");
    double *p = f + n_experts;
    balance_batch batch = {config, routing, {1, n_tokens, NULL, 0}};
    measure(&batch, (stretch){0, n_tokens, n_tokens}, f, p);
    average_groups(n_experts, n_device_groups, f);
    *loss = dot(n_experts, f, p);
    free(f);
    return DSMOE_OK;
}
