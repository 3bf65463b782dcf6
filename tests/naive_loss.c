/* naive_loss.c - the losses of a batch, one sum of the paper's formulas after another. */
#include "naive_loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

void naive_batch_route(naive_batch *batch, const made_model *model)
{
    batch->topk_idx = calloc((size_t)batch->n_sequences, sizeof *batch->topk_idx);
    assert_non_null(batch->topk_idx);
    batch->margin = INFINITY;
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        const int32_t *tokens = batch->tokens + s * batch->sequence_length;
        naive_result r = naive_model_run(model, tokens, batch->sequence_length);
        batch->topk_idx[s] = r.topk_idx;
        batch->margin = fmin(batch->margin, r.margin);
        r.topk_idx = NULL;
        naive_result_free(&r);
    }
}

void naive_batch_free(naive_batch *batch)
{
    for (int64_t s = 0; batch->topk_idx && s < batch->n_sequences; s++) free(batch->topk_idx[s]);
    free(batch->topk_idx);
    batch->topk_idx = NULL;
}

static double cross_entropy(const double *logits, int64_t n, int32_t target)
{
    double max = logits[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = fmax(max, logits[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - max);
    return max + log(sum) - logits[target];
}

/* Σ f_i·P_i over T tokens: f_i = N/(K·T)·(tokens that chose i), P_i the mean score of i. */
static double expert_level(const dsmoe_config *c, const double *load, const double *scores,
                           double n_tokens)
{
    double n = (double)c->n_routed_experts, k = (double)c->num_experts_per_tok, sum = 0;
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        sum += n / (k * n_tokens) * load[i] * scores[i] / n_tokens;
    return sum;
}

/* Σ f'_d·P'_d: f'_d the mean of the group's f, P'_d the sum of its P. */
static double device_level(const dsmoe_config *c, const double *load, const double *scores,
                           double n_tokens, int64_t n_groups)
{
    double n = (double)c->n_routed_experts, k = (double)c->num_experts_per_tok, sum = 0;
    int64_t size = c->n_routed_experts / n_groups;
    for (int64_t d = 0; d < n_groups; d++) {
        double f = 0, p = 0;
        for (int64_t i = d * size; i < (d + 1) * size; i++) {
            f += n / (k * n_tokens) * load[i] / (double)size;
            p += scores[i] / n_tokens;
        }
        sum += f * p;
    }
    return sum;
}

/* Loads and scores of all sequences, sequence after sequence: [n_sequences, n_layers, n_experts]. */
typedef struct balance {
    double *load, *scores;
    int64_t row; /* n_layers · n_experts */
} balance;

static void add_balance(naive_losses *sum, const naive_batch *b, const dsmoe_config *c,
                        const balance *all, int64_t layer)
{
    int64_t n = c->n_routed_experts, at = layer * n;
    double load[64] = {0}, scores[64] = {0}, length = (double)b->sequence_length;
    double n_sequences = (double)b->n_sequences, each = 0;
    assert_true(n <= 64 && layer < NAIVE_LAYERS);
    for (int64_t s = 0; s < b->n_sequences; s++) {
        const double *l = all->load + s * all->row + at, *p = all->scores + s * all->row + at;
        each += expert_level(c, l, p, length) / n_sequences;
        for (int64_t i = 0; i < n; i++) {
            load[i] += l[i];
            scores[i] += p[i];
        }
    }
    double n_tokens = length * n_sequences;
    double over_all = expert_level(c, load, scores, n_tokens);
    sum->layer_aux[layer] = c->aux_loss_alpha * (c->seq_aux ? each : over_all);
    sum->aux_loss += sum->layer_aux[layer];
    if (b->n_device_groups == 0) return;
    sum->layer_device[layer] =
        b->device_loss_alpha * device_level(c, load, scores, n_tokens, b->n_device_groups);
    sum->device_loss += sum->layer_device[layer];
}

naive_losses naive_batch_losses(const naive_batch *b, const made_model *model)
{
    const dsmoe_config *c = &model->config;
    naive_losses sum = {0};
    balance all = {.row = c->num_hidden_layers * c->n_routed_experts};
    size_t size = (size_t)(b->n_sequences * all.row + 1) * sizeof(double), n_targets = 0;
    all.load = malloc(size);
    all.scores = malloc(size);
    assert_true(all.load && all.scores);
    for (int64_t s = 0; s < b->n_sequences; s++) {
        int64_t first = s * b->sequence_length;
        naive_result r =
            naive_model_run_routed(model, b->topk_idx[s], b->tokens + first, b->sequence_length);
        for (int64_t t = 0; t < b->sequence_length; t++) {
            int32_t target = b->targets[first + t];
            if (target < 0) continue;
            sum.loss += cross_entropy(r.logits + t * c->vocab_size, c->vocab_size, target);
            n_targets++;
        }
        memcpy(all.load + s * all.row, r.load, (size_t)all.row * sizeof(double));
        memcpy(all.scores + s * all.row, r.scores, (size_t)all.row * sizeof(double));
        naive_result_free(&r);
    }
    if (n_targets > 0) sum.loss /= (double)n_targets;
    for (int64_t i = 0, place = 0; i < c->num_hidden_layers; i++)
        if (dsmoe_config_layer_is_moe(c, i)) add_balance(&sum, b, c, &all, place++);
    sum.total = sum.loss + sum.aux_loss + sum.device_loss;
    free(all.load);
    free(all.scores);
    return sum;
}
