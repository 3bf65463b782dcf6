/* gate.c - which experts a token goes to and with what weight, in three steps that the configuration chooses.
 *
 *   score   s_i = Softmax_i(u·e_i)      "softmax": the paper's, and V2's
 *           s_i = Sigmoid(u·e_i)        "sigmoid": V3's
 *   choose  the K experts with the largest key:
 *           key_i = s_i                 "greedy": the paper's
 *           key_i = s_i, only in the topk_group groups whose best key is largest
 *                                       "group_limited_greedy": V2's
 *           key_i = s_i + bias_i, only in the topk_group groups whose two best keys have the largest sum
 *                                       "noaux_tc": V3's
 *   weigh   g_i = s_i of the chosen experts, without the bias. With norm_topk_prob and K > 1 they are divided
 *           by their sum (plus 1e-20, as published). Then they are multiplied by routed_scaling_factor, for
 *           "noaux_tc" always, for the others only if they were not divided.
 *
 * Of experts or groups with equal keys, the one with the lower index comes first. */
#include "moe/gate.h"

#include <math.h>

#include "base/threads.h"

enum { EXPERTS_PER_TASK = 32, TOKENS_PER_TASK = 64 };

/* What the configuration chooses. */
typedef struct gate_rule {
    int64_t n_experts, k;
    dsmoe_scoring_func scoring_func;
    const float *bias;           /* added to scores to make keys; NULL: none */
    int64_t n_group, topk_group; /* n_group is 1 if any expert may be chosen */
    bool by_two;                 /* groups are compared by their two best experts, not by one */
    bool normalises;
    float scale;      /* gate values are multiplied by it, last */
    int64_t n_masked; /* see dsmoe_layer */
    bool masks_first; /* see dsmoe_layer; only with softmax scores */
} gate_rule;

static gate_rule rule_of(const dsmoe_layer *layer)
{
    const dsmoe_layer_config *c = &layer->config;
    dsmoe_topk_method method = moe_topk_method(c);
    bool corrects = method == DSMOE_TOPK_NOAUX_TC;
    bool normalises = c->norm_topk_prob && c->num_experts_per_tok > 1;
    bool scales = c->routed_scaling_factor != 0.0f && (corrects || !normalises);
    return (gate_rule){
        .n_experts = c->n_routed_experts,
        .k = c->num_experts_per_tok,
        .scoring_func = moe_scoring_func(c),
        .bias = corrects ? layer->weights.e_score_correction_bias : NULL,
        .n_group = method != DSMOE_TOPK_GREEDY && c->n_group > c->topk_group ? c->n_group : 1,
        .topk_group = c->topk_group,
        .by_two = corrects,
        .normalises = normalises,
        .scale = scales ? c->routed_scaling_factor : 1.0f,
        .n_masked = layer->n_masked,
        .masks_first = layer->masks_first && moe_scoring_func(c) == DSMOE_SCORING_SOFTMAX,
    };
}

typedef struct gate_job {
    const dsmoe_layer *layer;
    gate_rule rule;
    const float *x;
    int64_t n_tokens;
    dsmoe_routing routing;
    thread_scratch *threads;
    float *keys; /* see gate_keys_place */
    const float *d_topk_weight, *d_scores;
    int64_t tokens_per_row;
    float *d_logits;
} gate_job;

/* ---- score --------------------------------------------------------------------------------- */

/* Logits of TOKENS_PER_TASK tokens for some of the experts. Only `few` tokens are multiplied at a time, since
 * gemm then always adds in the same order: a token's scores have the same bits alone and in a batch. */
static void logits_task(void *context, int64_t task, int thread)
{
    const gate_job *job = context;
    const dsmoe_layer_config *c = &job->layer->config;
    int64_t hidden = c->hidden_size, n = c->n_routed_experts;
    int64_t parts = moe_parts(n, EXPERTS_PER_TASK), few = job->layer->kernels->few;
    int64_t expert = task % parts * EXPERTS_PER_TASK, count = moe_min(EXPERTS_PER_TASK, n - expert);
    int64_t end = moe_min(job->n_tokens, (task / parts + 1) * TOKENS_PER_TASK);
    matrix router = matrix_from(job->layer->weights.gate, expert);
    gemm *g = &job->threads[thread].gemm;
    for (int64_t t = task / parts * TOKENS_PER_TASK; t < end; t += few) {
        gemm_nt_load(g, (rows){job->x + t * hidden, hidden, NULL}, moe_min(few, end - t), hidden);
        gemm_nt(g, router, count, job->routing.scores + t * n + expert, n);
    }
}

static bool sigmoid(int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
        x[i] = 1.0f / (1.0f + expf(-x[i]));
    }
    return true;
}

/* Turns logits into scores, in place; false if any logit is NaN or infinite. */
static bool score(const gate_job *job, float *x)
{
    if (job->rule.scoring_func == DSMOE_SCORING_SIGMOID) return sigmoid(job->rule.n_experts, x);
    return job->layer->kernels->softmax(job->rule.n_experts, x);
}

/* ---- choose -------------------------------------------------------------------------------- */

/* The k largest keys, largest first. A later equal key never displaces an earlier one, so ties go to the
 * lower index. */
static void choose_topk(const float *keys, int64_t n, int64_t k, int32_t *idx, float *best)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (count == k && !(keys[i] > best[k - 1])) continue;
        int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && keys[i] > best[at - 1]; at--) {
            best[at] = best[at - 1];
            idx[at] = idx[at - 1];
        }
        best[at] = keys[i];
        idx[at] = (int32_t)i;
    }
}

/* Whether i comes after j in the order by falling key; ties are in the order of the index. */
static bool comes_behind(const float *keys, int64_t i, int64_t j)
{
    return keys[i] < keys[j] || (keys[i] == keys[j] && i > j);
}

/* The index that follows `before` in that order, or the first if `before` is -1. There must be one. */
static int64_t next_in_order(const float *keys, int64_t n, int64_t before)
{
    int64_t next = -1;
    for (int64_t i = 0; i < n; i++)
        if ((before < 0 || comes_behind(keys, i, before)) && (next < 0 || keys[i] > keys[next]))
            next = i;
    return next;
}

static const float masked = -INFINITY; /* the key of an expert that may not be chosen */

/* Masks the first n_masked in that order. Only probes use this, so it is simple rather than fast. */
static void mask_first(float *keys, int64_t n, int64_t n_masked)
{
    for (int64_t m = 0; m < n_masked; m++) keys[next_in_order(keys, n, -1)] = masked;
}

/* Makes the scores what softmax would give without the masked experts. 1e-20, as in `weigh`, prevents a
 * division by zero if the masked experts have all of the softmax. */
static void forget_masked(const float *keys, int64_t n, float *scores)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) sum += keys[i] > masked ? scores[i] : 0.0f;
    for (int64_t i = 0; i < n; i++)
        scores[i] = keys[i] > masked ? scores[i] / (sum + 1e-20f) : 0.0f;
}

/* The key of a group: its best expert's key, or the sum of its two best. */
static float group_key(const float *keys, int64_t size, bool by_two)
{
    float best = masked, second = masked;
    for (int64_t i = 0; i < size; i++) {
        if (keys[i] > best) {
            second = best;
            best = keys[i];
        } else if (keys[i] > second) {
            second = keys[i];
        }
    }
    return by_two && second > masked ? best + second : best;
}

static int64_t count_choices(const float *keys, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += keys[i] > masked;
    return count;
}

/* Masks all groups except the first topk_group in order. If a probe has left fewer than k experts in them,
 * more groups are kept. */
static void mask_groups(const gate_rule *rule, float *keys, float *group_keys)
{
    int64_t size = rule->n_experts / rule->n_group, last = -1, n_choices = 0;
    for (int64_t g = 0; g < rule->n_group; g++)
        group_keys[g] = group_key(keys + g * size, size, rule->by_two);
    for (int64_t kept = 0; kept < rule->topk_group || n_choices < rule->k; kept++) {
        last = next_in_order(group_keys, rule->n_group, last);
        n_choices += count_choices(keys + last * size, size);
    }
    for (int64_t g = 0; g < rule->n_group; g++)
        if (comes_behind(group_keys, g, last))
            for (int64_t i = g * size; i < (g + 1) * size; i++) keys[i] = masked;
}

/* Chooses the experts of a token. `keys` has space for the keys of experts and groups. False if a key is NaN
 * or infinite. */
static bool choose(const gate_rule *rule, float *scores, float *keys, int32_t *idx, float *best)
{
    int64_t n = rule->n_experts;
    if (!rule->bias && rule->n_group == 1 && rule->n_masked == 0) { /* as in the paper */
        choose_topk(scores, n, rule->k, idx, best);
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        keys[i] = rule->bias ? scores[i] + rule->bias[i] : scores[i];
        if (!isfinite(keys[i])) return false;
    }
    mask_first(keys, n, rule->n_masked);
    if (rule->masks_first) forget_masked(keys, n, scores);
    if (rule->n_group > 1) mask_groups(rule, keys, keys + n);
    choose_topk(keys, n, rule->k, idx, best);
    return true;
}

/* ---- weigh --------------------------------------------------------------------------------- */

static void weigh(const gate_rule *rule, const float *scores, const int32_t *idx, float *weight)
{
    float sum = 0.0f;
    for (int64_t s = 0; s < rule->k; s++) sum += weight[s] = scores[idx[s]];
    float divisor = rule->normalises ? sum + 1e-20f : 1.0f;
    for (int64_t s = 0; s < rule->k; s++) weight[s] = weight[s] / divisor * rule->scale;
}

/* ---- score, choose and weigh for all tokens ------------------------------------------------ */

static void spoil(const gate_rule *rule, float *scores, int32_t *idx, float *weight)
{
    for (int64_t i = 0; i < rule->n_experts; i++) scores[i] = NAN;
    for (int64_t s = 0; s < rule->k; s++) {
        idx[s] = (int32_t)s;
        weight[s] = NAN;
    }
}

static void tokens_task(void *context, int64_t task, int thread)
{
    const gate_job *job = context;
    const gate_rule *rule = &job->rule;
    float *keys = job->keys + 2 * rule->n_experts * thread;
    int64_t end = moe_min(job->n_tokens, (task + 1) * TOKENS_PER_TASK);
    for (int64_t t = task * TOKENS_PER_TASK; t < end; t++) {
        float *scores = job->routing.scores + t * rule->n_experts;
        float *weight = job->routing.topk_weight + t * rule->k;
        int32_t *idx = job->routing.topk_idx + t * rule->k;
        if (score(job, scores) && choose(rule, scores, keys, idx, weight))
            weigh(rule, scores, idx, weight);
        else
            spoil(rule, scores, idx, weight);
    }
}

float *gate_keys_place(arena *a, const dsmoe_layer *layer, int n_threads)
{
    return arena_take(a, 2 * layer->config.n_routed_experts * n_threads, sizeof(float));
}

void gate_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens, dsmoe_routing routing,
                  thread_scratch *threads, float *keys, int n_threads)
{
    gate_job job = {.layer = layer,
                    .rule = rule_of(layer),
                    .x = x,
                    .n_tokens = n_tokens,
                    .routing = routing,
                    .threads = threads,
                    .keys = keys};
    int64_t parts = moe_parts(layer->config.n_routed_experts, EXPERTS_PER_TASK);
    threads_for(n_threads, moe_parts(n_tokens, TOKENS_PER_TASK) * parts, logits_task, &job);
    threads_for(n_threads, moe_parts(n_tokens, TOKENS_PER_TASK), tokens_task, &job);
}

bool gate_is_spoilt(const dsmoe_layer *layer, dsmoe_routing routing, int64_t token)
{
    return isnan(routing.topk_weight[token * layer->config.num_experts_per_tok]);
}

dsmoe_status gate_check(const dsmoe_layer *layer, int64_t n_tokens, int64_t first,
                        dsmoe_routing routing, dsmoe_error *error)
{
    for (int64_t t = 0; t < n_tokens; t++)
        if (gate_is_spoilt(layer, routing, t))
            return status_fail(error, DSMOE_ERROR_NONFINITE,
                               "token %lld has a NaN or infinite router score: its input or the "
                               "router's weights are not finite numbers",
                               (long long)(first + t));
    return DSMOE_OK;
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Choosing has no gradient, so the bias has none either. Gradients only reach the scores.
 *
 * The balance losses use each score's share p_i = s_i / Σ_j s_j, which differs from s_i where scores do not
 * add up to 1. So ds_i = (dp_i - Σ_j dp_j·p_j) / Σ_j s_j, in place. */
static void share_backward(int64_t n, const float *scores, float *d)
{
    double mean = 0.0, sum = 1e-20;
    for (int64_t i = 0; i < n; i++) {
        mean += (double)d[i] * scores[i];
        sum += scores[i];
    }
    for (int64_t i = 0; i < n; i++) d[i] = (float)((d[i] - mean / sum) / sum);
}

/* Adds the gradient with respect to the chosen scores p_s. The gate values are w_s = scale·p_s, so
 * dp_s = scale·dw_s; normalised they are w_s = scale·p_s / D, so dp_s = (scale·dw_s - Σ_j dw_j·w_j) / D. */
static void weigh_backward(const gate_rule *rule, const int32_t *idx, const float *weight,
                           const float *scores, const float *d_weight, float *d)
{
    double mean = 0.0, sum = 1.0;
    if (rule->normalises) {
        sum = 1e-20;
        for (int64_t s = 0; s < rule->k; s++) {
            mean += (double)d_weight[s] * weight[s];
            sum += scores[idx[s]];
        }
    }
    for (int64_t s = 0; s < rule->k; s++)
        d[idx[s]] += (float)(((double)rule->scale * d_weight[s] - mean) / sum);
}

/* Turns the gradient with respect to the scores into that with respect to the logits, in place. */
static void score_backward(const gate_rule *rule, const float *scores, float *d)
{
    int64_t n = rule->n_experts;
    if (rule->scoring_func == DSMOE_SCORING_SIGMOID) {
        for (int64_t i = 0; i < n; i++) d[i] *= scores[i] * (1.0f - scores[i]);
        return;
    }
    double mean = 0.0; /* softmax: dl_i = s_i·(ds_i - Σ_j ds_j·s_j) */
    for (int64_t i = 0; i < n; i++) mean += (double)d[i] * scores[i];
    for (int64_t i = 0; i < n; i++) d[i] = scores[i] * (float)(d[i] - mean);
}

static void backward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const gate_job *job = context;
    const gate_rule *rule = &job->rule;
    int64_t n = rule->n_experts, k = rule->k;
    int64_t end = moe_min(job->n_tokens, (task + 1) * TOKENS_PER_TASK);
    for (int64_t t = task * TOKENS_PER_TASK; t < end; t++) {
        const float *scores = job->routing.scores + t * n;
        const float *balance = job->d_scores + t / job->tokens_per_row * n;
        float *d = job->d_logits + t * n;
        for (int64_t i = 0; i < n; i++) d[i] = balance[i];
        if (rule->scoring_func == DSMOE_SCORING_SIGMOID) share_backward(n, scores, d);
        weigh_backward(rule, job->routing.topk_idx + t * k, job->routing.topk_weight + t * k,
                       scores, job->d_topk_weight + t * k, d);
        score_backward(rule, scores, d);
    }
}

void gate_backward(const dsmoe_layer *layer, int64_t n_tokens, dsmoe_routing routing,
                   const float *d_topk_weight, const float *d_scores, int64_t tokens_per_row,
                   float *d_logits, int n_threads)
{
    gate_job job = {.layer = layer,
                    .rule = rule_of(layer),
                    .n_tokens = n_tokens,
                    .routing = routing,
                    .d_topk_weight = d_topk_weight,
                    .d_scores = d_scores,
                    .tokens_per_row = tokens_per_row,
                    .d_logits = d_logits};
    threads_for(n_threads, moe_parts(n_tokens, TOKENS_PER_TASK), backward_task, &job);
}
