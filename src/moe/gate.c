/* gate.c - MoEGate of the paper:
 *   s_{i,t} = Softmax_i(u_t · e_i)
 *   g_{i,t} = s_{i,t} if it is among the K largest of token t, else 0
 * and, with norm_topk_prob, g divided by the sum of the chosen (plus 1e-20, as published). */
#include "moe/gate.h"

#include <math.h>

#include "base/threads.h"

enum { EXPERTS_PER_TASK = 32, TOKENS_PER_TASK = 64 };

typedef struct gate_job {
    const dsmoe_layer *layer;
    const float *x;
    int64_t n_tokens;
    dsmoe_routing routing;
    thread_scratch *threads;
    const float *d_topk_weight, *d_scores;
    int64_t tokens_per_row;
    float *d_logits;
} gate_job;

/* Logits of a block of tokens for some of the experts. The tokens go through in groups so small
 * that their sums always run in the same order: a token's scores have the same bits alone or in a
 * batch. */
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

/* The k largest scores by falling value. A later equal score never displaces an earlier one, so
 * ties go to the lower index. */
static void choose_topk(const float *scores, int64_t n, int64_t k, int32_t *idx, float *weight)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (count == k && !(scores[i] > weight[k - 1])) continue;
        int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && scores[i] > weight[at - 1]; at--) {
            weight[at] = weight[at - 1];
            idx[at] = idx[at - 1];
        }
        weight[at] = scores[i];
        idx[at] = (int32_t)i;
    }
}

/* The expert after `before` in the order by falling score, ties by rising index; the first of all
 * after -1. There must be one. */
static int64_t next_in_order(const float *scores, int64_t n, int64_t before)
{
    int64_t next = -1;
    for (int64_t i = 0; i < n; i++) {
        bool comes_behind =
            before < 0 || scores[i] < scores[before] || (scores[i] == scores[before] && i > before);
        if (comes_behind && (next < 0 || scores[i] > scores[next])) next = i;
    }
    return next;
}

/* The k experts of that order after the first n_masked. Only probes come here, so that simplicity
 * counts more than speed. */
static void choose_behind(const float *scores, int64_t n, int64_t n_masked, int64_t k, int32_t *idx,
                          float *weight)
{
    int64_t expert = -1;
    for (int64_t s = 0; s < n_masked; s++) expert = next_in_order(scores, n, expert);
    for (int64_t s = 0; s < k; s++) {
        expert = next_in_order(scores, n, expert);
        idx[s] = (int32_t)expert;
        weight[s] = scores[expert];
    }
}

static void normalise(float *weight, int64_t k)
{
    float sum = 0.0f;
    for (int64_t s = 0; s < k; s++) sum += weight[s];
    for (int64_t s = 0; s < k; s++) weight[s] /= sum + 1e-20f;
}

static void spoil(float *scores, int64_t n, int32_t *idx, float *weight, int64_t k)
{
    for (int64_t i = 0; i < n; i++) scores[i] = NAN;
    for (int64_t s = 0; s < k; s++) {
        idx[s] = (int32_t)s;
        weight[s] = NAN;
    }
}

static void choose_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const gate_job *job = context;
    const dsmoe_layer_config *c = &job->layer->config;
    int64_t n = c->n_routed_experts, k = c->num_experts_per_tok, n_masked = job->layer->n_masked;
    int64_t end = moe_min(job->n_tokens, (task + 1) * TOKENS_PER_TASK);
    for (int64_t t = task * TOKENS_PER_TASK; t < end; t++) {
        float *scores = job->routing.scores + t * n, *weight = job->routing.topk_weight + t * k;
        int32_t *idx = job->routing.topk_idx + t * k;
        if (!job->layer->kernels->softmax(n, scores)) {
            spoil(scores, n, idx, weight, k);
            continue;
        }
        if (n_masked > 0)
            choose_behind(scores, n, n_masked, k, idx, weight);
        else
            choose_topk(scores, n, k, idx, weight);
        if (c->norm_topk_prob && k > 1) normalise(weight, k);
    }
}

void gate_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens, dsmoe_routing routing,
                  thread_scratch *threads, int n_threads)
{
    gate_job job = {
        .layer = layer, .x = x, .n_tokens = n_tokens, .routing = routing, .threads = threads};
    int64_t parts = moe_parts(layer->config.n_routed_experts, EXPERTS_PER_TASK);
    threads_for(n_threads, moe_parts(n_tokens, TOKENS_PER_TASK) * parts, logits_task, &job);
    threads_for(n_threads, moe_parts(n_tokens, TOKENS_PER_TASK), choose_task, &job);
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

/* Gradient by the chosen scores from that by the gate values: the same thing, unless they were
 * normalised: w_s = p_s / D, so dp_s = (dw_s - Σ_j dw_j·w_j) / D. */
static void add_chosen(const dsmoe_layer_config *c, const int32_t *idx, const float *weight,
                       const float *scores, const float *d_weight, float *d_scores)
{
    int64_t k = c->num_experts_per_tok;
    double mean = 0.0, sum = 1.0;
    if (c->norm_topk_prob && k > 1) {
        sum = 1e-20;
        for (int64_t s = 0; s < k; s++) {
            mean += (double)d_weight[s] * weight[s];
            sum += scores[idx[s]];
        }
    }
    for (int64_t s = 0; s < k; s++) d_scores[idx[s]] += (float)((d_weight[s] - mean) / sum);
}

static void backward_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const gate_job *job = context;
    const dsmoe_layer_config *c = &job->layer->config;
    int64_t n = c->n_routed_experts, k = c->num_experts_per_tok;
    int64_t end = moe_min(job->n_tokens, (task + 1) * TOKENS_PER_TASK);
    for (int64_t t = task * TOKENS_PER_TASK; t < end; t++) {
        const float *scores = job->routing.scores + t * n;
        const float *balance = job->d_scores + t / job->tokens_per_row * n;
        float *d = job->d_logits + t * n;
        for (int64_t i = 0; i < n; i++) d[i] = balance[i];
        add_chosen(c, job->routing.topk_idx + t * k, job->routing.topk_weight + t * k, scores,
                   job->d_topk_weight + t * k, d);
        double mean = 0.0; /* softmax: dl_i = s_i·(ds_i - Σ_j ds_j·s_j) */
        for (int64_t i = 0; i < n; i++) mean += (double)d[i] * scores[i];
        for (int64_t i = 0; i < n; i++) d[i] = scores[i] * (float)(d[i] - mean);
    }
}

void gate_backward(const dsmoe_layer *layer, int64_t n_tokens, dsmoe_routing routing,
                   const float *d_topk_weight, const float *d_scores, int64_t tokens_per_row,
                   float *d_logits, int n_threads)
{
    gate_job job = {.layer = layer,
                    .n_tokens = n_tokens,
                    .routing = routing,
                    .d_topk_weight = d_topk_weight,
                    .d_scores = d_scores,
                    .tokens_per_row = tokens_per_row,
                    .d_logits = d_logits};
    threads_for(n_threads, moe_parts(n_tokens, TOKENS_PER_TASK), backward_task, &job);
}
