/* naive_model.c - a whole model in plain double arithmetic. */
#include "naive_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* The current pass: a row of hidden_size numbers for each token. */
typedef struct pass {
    const made_model *model;
    const dsmoe_config *config;
    int64_t n_tokens, n_masked;
    bool masks_first;
    const int64_t *known;  /* the routing, or NULL */
    int layer, first, end; /* of the layer: its number, and its tensors */
    size_t prefix;         /* length of "model.layers.N." in their names */
    double *x;             /* the residual stream */
    double *h;             /* after normalisation */
    double *q;             /* [n_tokens, heads · key size], rotated */
    double *k, *v;         /* [n_tokens, key heads · key size], and for values */
    double *out;           /* what attention or the feed-forward network adds to x */
    double *inner;         /* of one token, in the widest network */
    double *scores;        /* of one token: over tokens, or over experts */
    double *keys;          /* of one token: the numbers that experts are chosen by */
    int n_moe;             /* MoE layers so far */
    double *f, *p;         /* for the balance loss: pointers into the result, this layer's part */
    naive_result result;
} pass;

static double *doubles(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

/* Finds the tensors of the current layer, which are next to each other. */
static void find_layer(pass *p)
{
    const made_model *m = p->model;
    char prefix[64];
    p->prefix = (size_t)snprintf(prefix, sizeof prefix, "model.layers.%d.", p->layer);
    for (p->first = 0; strncmp(m->tensors[p->first].name, prefix, p->prefix) != 0; p->first++) {
    }
    for (p->end = p->first; strncmp(m->tensors[p->end].name, prefix, p->prefix) == 0; p->end++) {
    }
}

/* A tensor of the current layer, or NULL if the layer has none of that name. */
static const float *weight(const pass *p, const char *name)
{
    for (int i = p->first; i < p->end; i++)
        if (!strcmp(p->model->tensors[i].name + p->prefix, name)) return p->model->tensors[i].data;
    return NULL;
}

/* y = W·x + b */
static void multiply(const float *w, const float *b, int64_t rows, int64_t columns, const double *x,
                     double *y)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = b ? b[i] : 0;
        for (int64_t j = 0; j < columns; j++) sum += w[i * columns + j] * x[j];
        y[i] = sum;
    }
}

static void norm(const float *w, int64_t n, double eps, const double *x, double *y)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    double scale = 1 / sqrt(sum / (double)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
}

static void softmax(double *values, int64_t n)
{
    double max = values[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = fmax(max, values[i]);
    for (int64_t i = 0; i < n; i++) sum += values[i] = exp(values[i] - max);
    for (int64_t i = 0; i < n; i++) values[i] /= sum;
}

/* ---- attention ----------------------------------------------------------------------------- */

static bool is_latent(const dsmoe_config *c) { return c->kv_lora_rank > 0; }

static int64_t key_size(const dsmoe_config *c)
{
    return is_latent(c) ? c->qk_nope_head_dim + c->qk_rope_head_dim
                        : c->hidden_size / c->num_attention_heads;
}

static int64_t value_size(const dsmoe_config *c)
{
    return is_latent(c) ? c->v_head_dim : key_size(c);
}

/* With YaRN: 0.1·m·ln(factor) + 1. */
static double growth(const dsmoe_config *c, double m)
{
    return c->rope_scaling == DSMOE_ROPE_YARN ? 0.1 * m * log(c->rope_scaling_factor) + 1 : 1;
}

/* How far YaRN slows down pair i of d numbers: not at all (0), by the factor (1), or in between. */
static double slowed(const dsmoe_config *c, int64_t d, int64_t i)
{
    const double pi = acos(-1), length = (double)c->original_max_position_embeddings;
    double fast = (double)d * log(length / (2 * pi * c->beta_fast)) / (2 * log(c->rope_theta));
    double slow = (double)d * log(length / (2 * pi * c->beta_slow)) / (2 * log(c->rope_theta));
    double low = fmax(floor(fast), 0), high = fmin(ceil(slow), (double)d - 1);
    return fmin(fmax(((double)i - low) / (low == high ? 0.001 : high - low), 0), 1);
}

/* The angle of pair i of d numbers: position · base^(-2i/d). Only this is float32, as in the public model:
 * after hundreds of positions its rounding changes the fifth digit. */
static float angle_of(const dsmoe_config *c, int64_t d, int64_t i, int64_t position)
{
    float where = (float)position;
    double base = c->rope_theta;
    double most = (double)c->max_position_embeddings, n = (double)position + 1;
    if (c->rope_scaling == DSMOE_ROPE_LINEAR) where /= (float)c->rope_scaling_factor;
    if (c->rope_scaling == DSMOE_ROPE_DYNAMIC && n > most) {
        double stretch = c->rope_scaling_factor * n / most - (c->rope_scaling_factor - 1);
        base *= pow(stretch, (double)d / (double)(d - 2));
    }
    float frequency = 1 / (float)pow(base, (float)(2 * i) / (float)d);
    if (c->rope_scaling == DSMOE_ROPE_YARN) {
        float part = (float)slowed(c, d, i);
        frequency = frequency / (float)c->rope_scaling_factor * part + frequency * (1 - part);
    }
    return where * frequency;
}

/* Rotates pairs of d numbers: (i, i + d/2), or neighbours if attention is latent. */
static void turn(const dsmoe_config *c, double *x, int64_t d, int64_t position)
{
    double size = growth(c, c->mscale) / growth(c, c->mscale_all_dim);
    for (int64_t i = 0; i < d / 2; i++) {
        double angle = angle_of(c, d, i, position);
        double *a = is_latent(c) ? &x[2 * i] : &x[i], old = *a;
        double *b = is_latent(c) ? &x[2 * i + 1] : &x[i + d / 2];
        *a = size * (old * cos(angle) - *b * sin(angle));
        *b = size * (*b * cos(angle) + old * sin(angle));
    }
}

static void turn_heads(const dsmoe_config *c, double *heads, int64_t n_heads, int64_t position)
{
    int64_t d = key_size(c), rope = is_latent(c) ? c->qk_rope_head_dim : d;
    for (int64_t h = 0; h < n_heads; h++) turn(c, heads + (h + 1) * d - rope, rope, position);
}

static void look_back(pass *p, int64_t token, double *mixed)
{
    const dsmoe_config *c = p->config;
    int64_t d = key_size(c), dv = value_size(c), n_heads = c->num_attention_heads;
    int64_t kv_heads = c->num_key_value_heads, group = n_heads / kv_heads;
    double scale = pow(growth(c, c->mscale_all_dim), 2) / sqrt((double)d);
    for (int64_t h = 0; h < n_heads; h++) {
        const double *q = p->q + (token * n_heads + h) * d;
        const double *k = p->k + h / group * d, *v = p->v + h / group * dv;
        for (int64_t t = 0; t <= token; t++) {
            p->scores[t] = 0;
            for (int64_t i = 0; i < d; i++) p->scores[t] += q[i] * k[t * kv_heads * d + i];
            p->scores[t] *= scale;
        }
        softmax(p->scores, token + 1);
        for (int64_t i = 0; i < dv; i++) {
            mixed[h * dv + i] = 0;
            for (int64_t t = 0; t <= token; t++)
                mixed[h * dv + i] += p->scores[t] * v[t * kv_heads * dv + i];
        }
    }
}

static void project(pass *p, int64_t token)
{
    const dsmoe_config *c = p->config;
    int64_t hidden = c->hidden_size, kv = key_size(c) * c->num_key_value_heads;
    const double *h = p->h + token * hidden;
    double *q = p->q + token * hidden, *k = p->k + token * kv;
    multiply(weight(p, "self_attn.q_proj.weight"), weight(p, "self_attn.q_proj.bias"), hidden,
             hidden, h, q);
    multiply(weight(p, "self_attn.k_proj.weight"), weight(p, "self_attn.k_proj.bias"), kv, hidden,
             h, k);
    multiply(weight(p, "self_attn.v_proj.weight"), weight(p, "self_attn.v_proj.bias"), kv, hidden,
             h, p->v + token * kv);
    turn_heads(c, q, c->num_attention_heads, token);
    turn_heads(c, k, c->num_key_value_heads, token);
}

/* The norms inside latent attention have their own eps. */
static void project_latent(pass *p, int64_t token)
{
    const dsmoe_config *c = p->config;
    int64_t hidden = c->hidden_size, n_heads = c->num_attention_heads, latent = c->kv_lora_rank;
    int64_t nope = c->qk_nope_head_dim, rope = c->qk_rope_head_dim, dv = c->v_head_dim;
    int64_t d = nope + rope, rank = c->q_lora_rank;
    const double *h = p->h + token * hidden;
    double *q = p->q + token * n_heads * d, *q_a = doubles(rank), *c_kv = doubles(latent + rope);
    double *kv = doubles(n_heads * (nope + dv));
    if (rank > 0) {
        multiply(weight(p, "self_attn.q_a_proj.weight"), NULL, rank, hidden, h, q_a);
        norm(weight(p, "self_attn.q_a_layernorm.weight"), rank, 1e-6, q_a, q_a);
        multiply(weight(p, "self_attn.q_b_proj.weight"), NULL, n_heads * d, rank, q_a, q);
    } else {
        multiply(weight(p, "self_attn.q_proj.weight"), NULL, n_heads * d, hidden, h, q);
    }
    multiply(weight(p, "self_attn.kv_a_proj_with_mqa.weight"), NULL, latent + rope, hidden, h,
             c_kv);
    norm(weight(p, "self_attn.kv_a_layernorm.weight"), latent, 1e-6, c_kv, c_kv);
    multiply(weight(p, "self_attn.kv_b_proj.weight"), NULL, n_heads * (nope + dv), latent, c_kv,
             kv);
    for (int64_t i = 0; i < n_heads; i++) {
        const double *from = kv + i * (nope + dv);
        double *k = p->k + (token * n_heads + i) * d, *v = p->v + (token * n_heads + i) * dv;
        memcpy(k, from, (size_t)nope * sizeof *k);
        memcpy(k + nope, c_kv + latent, (size_t)rope * sizeof *k);
        memcpy(v, from + nope, (size_t)dv * sizeof *v);
    }
    turn_heads(c, q, n_heads, token);
    turn_heads(c, p->k + token * n_heads * d, n_heads, token);
    free(q_a);
    free(c_kv);
    free(kv);
}

static void attention(pass *p)
{
    const dsmoe_config *c = p->config;
    int64_t hidden = c->hidden_size, n_mixed = c->num_attention_heads * value_size(c);
    double *mixed = doubles(n_mixed);
    for (int64_t t = 0; t < p->n_tokens; t++)
        if (is_latent(c))
            project_latent(p, t);
        else
            project(p, t);
    for (int64_t t = 0; t < p->n_tokens; t++) {
        look_back(p, t, mixed);
        multiply(weight(p, "self_attn.o_proj.weight"), weight(p, "self_attn.o_proj.bias"), hidden,
                 n_mixed, mixed, p->out + t * hidden);
    }
    free(mixed);
}

/* ---- feed-forward networks ------------------------------------------------------------------ */

/* y += factor · down · (silu(gate · x) * (up · x)); `which` is the part of the name between "mlp." and
 * "gate_proj". */
static void swiglu(pass *p, const char *which, int64_t width, double factor, const double *x,
                   double *y)
{
    char gate[64], up[64], down[64];
    int64_t hidden = p->config->hidden_size;
    double *b = p->inner + width;
    snprintf(gate, sizeof gate, "mlp.%sgate_proj.weight", which);
    snprintf(up, sizeof up, "mlp.%sup_proj.weight", which);
    snprintf(down, sizeof down, "mlp.%sdown_proj.weight", which);
    multiply(weight(p, gate), NULL, width, hidden, x, p->inner);
    multiply(weight(p, up), NULL, width, hidden, x, b);
    for (int64_t i = 0; i < width; i++) b[i] *= p->inner[i] / (1 + exp(-p->inner[i]));
    const float *w = weight(p, down);
    for (int64_t i = 0; i < hidden; i++)
        for (int64_t j = 0; j < width; j++) y[i] += factor * w[i * width + j] * b[j];
}

/* The best that is not among the first `count` chosen, the lower index for ties; -1 if none is left. */
static int64_t next_best(const double *scores, int64_t n, const int64_t *chosen, int64_t count)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        bool taken = false;
        for (int64_t s = 0; s < count; s++) taken = taken || chosen[s] == i;
        if (!taken && (best < 0 || scores[i] > scores[best])) best = i;
    }
    return best;
}

/* The indices of the n best keys by falling value. The distance from the last of them to the next key
 * counts for the margin: in float their order could be reversed. */
static void order(pass *p, const double *keys, int64_t n_keys, int64_t *best, int64_t n)
{
    for (int64_t s = 0; s < n; s++) best[s] = next_best(keys, n_keys, best, s);
    int64_t next = n > 0 ? next_best(keys, n_keys, best, n) : -1;
    if (next >= 0) p->result.margin = fmin(p->result.margin, keys[best[n - 1]] - keys[next]);
}

/* The value of a group: its best key, or with noaux_tc the sum of its two best. */
static double group_worth(const dsmoe_config *c, const double *keys, int64_t size)
{
    int64_t best[2];
    best[0] = next_best(keys, size, best, 0);
    best[1] = next_best(keys, size, best, 1);
    return keys[best[0]] + (c->topk_method == DSMOE_TOPK_NOAUX_TC ? keys[best[1]] : 0);
}

/* Makes experts outside the best groups impossible to choose. */
static void leave_out_groups(pass *p)
{
    const dsmoe_config *c = p->config;
    int64_t n = c->n_group, best[64];
    if (c->topk_method == DSMOE_TOPK_GREEDY || n <= c->topk_group) return;
    int64_t size = c->n_routed_experts / n;
    double worth[64];
    assert_true(n <= (int64_t)COUNT(best) && p->n_masked == 0);
    for (int64_t g = 0; g < n; g++) worth[g] = group_worth(c, p->keys + g * size, size);
    order(p, worth, n, best, c->topk_group);
    for (int64_t i = 0; i < c->n_routed_experts; i++) {
        bool stays = false;
        for (int64_t s = 0; s < c->topk_group; s++) stays = stays || best[s] == i / size;
        if (!stays) p->keys[i] = -INFINITY;
    }
}

/* Sets the scores of masked experts to 0 and normalises the rest: softmax over the other experts. */
static void forget_masked(pass *p, const int64_t *masked)
{
    double sum = 0;
    for (int64_t m = 0; m < p->n_masked; m++) p->scores[masked[m]] = 0;
    for (int64_t i = 0; i < p->config->n_routed_experts; i++) sum += p->scores[i];
    for (int64_t i = 0; i < p->config->n_routed_experts; i++) p->scores[i] /= sum;
}

/* Chooses the experts of a token by their keys, or copies the known routing. */
static int64_t *choose(pass *p, int64_t token)
{
    int64_t k = p->config->num_experts_per_tok, best[64];
    int64_t at = ((int64_t)p->n_moe * p->n_tokens + token) * k, *chosen = p->result.topk_idx + at;
    assert_true(p->n_masked + k <= (int64_t)COUNT(best));
    if (p->known) {
        memcpy(chosen, p->known + at, (size_t)k * sizeof *chosen);
        return chosen;
    }
    const float *bias = weight(p, "mlp.gate.e_score_correction_bias");
    int64_t n = p->config->n_routed_experts;
    for (int64_t i = 0; i < n; i++) p->keys[i] = p->scores[i] + (bias ? bias[i] : 0);
    leave_out_groups(p);
    order(p, p->keys, n, best, p->n_masked);
    order(p, p->keys, n, best, p->n_masked + k);
    memcpy(chosen, best + p->n_masked, (size_t)k * sizeof *chosen);
    if (p->masks_first) forget_masked(p, best);
    return chosen;
}

/* Computes the scores of the experts for a token; returns their sum. */
static double score(pass *p, const double *x)
{
    int64_t n = p->config->n_routed_experts;
    double sum = 0;
    multiply(weight(p, "mlp.gate.weight"), NULL, n, p->config->hidden_size, x, p->scores);
    if (p->config->scoring_func == DSMOE_SCORING_SOFTMAX)
        softmax(p->scores, n);
    else
        for (int64_t i = 0; i < n; i++) p->scores[i] = 1 / (1 + exp(-p->scores[i]));
    for (int64_t i = 0; i < n; i++) sum += p->scores[i];
    return sum;
}

/* The factor of the gate values; `sum` is that of the chosen experts' scores. */
static double gate_factor(const dsmoe_config *c, double sum)
{
    bool normalises = c->norm_topk_prob && c->num_experts_per_tok > 1;
    double scale = c->routed_scaling_factor > 0 ? c->routed_scaling_factor : 1;
    if (!normalises) return scale;
    return c->topk_method == DSMOE_TOPK_NOAUX_TC ? scale / sum : 1 / sum;
}

static void experts(pass *p, int64_t token, const double *x, double *y)
{
    const dsmoe_config *c = p->config;
    int64_t n = c->n_routed_experts, k = c->num_experts_per_tok;
    double all = score(p, x), sum = 0;
    const int64_t *chosen = choose(p, token);
    for (int64_t s = 0; s < k; s++) {
        sum += p->scores[chosen[s]];
        p->f[chosen[s]] += 1;
    }
    for (int64_t i = 0; i < n; i++) p->p[i] += p->scores[i] / all;
    for (int64_t s = 0; s < k; s++) {
        char which[32];
        snprintf(which, sizeof which, "experts.%d.", (int)chosen[s]);
        double gate = p->scores[chosen[s]] * gate_factor(c, sum);
        swiglu(p, which, c->moe_intermediate_size, gate, x, y);
    }
    if (c->n_shared_experts > 0)
        swiglu(p, "shared_experts.", c->n_shared_experts * c->moe_intermediate_size, 1, x, y);
}

static void feed_forward(pass *p)
{
    const dsmoe_config *c = p->config;
    int64_t hidden = c->hidden_size, n = c->n_routed_experts;
    bool moe = weight(p, "mlp.gate.weight") != NULL;
    p->f = p->result.load + p->n_moe * n;
    p->p = p->result.scores + p->n_moe * n;
    for (int64_t t = 0; t < p->n_tokens; t++) {
        double *y = p->out + t * hidden;
        for (int64_t i = 0; i < hidden; i++) y[i] = 0;
        if (moe)
            experts(p, t, p->h + t * hidden, y);
        else
            swiglu(p, "", c->intermediate_size, 1, p->h + t * hidden, y);
    }
    if (!moe) return;
    p->n_moe++;
    double tokens = (double)p->n_tokens, sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += p->f[i] * (double)n / ((double)c->num_experts_per_tok * tokens) * p->p[i] / tokens;
    p->result.aux_loss += c->aux_loss_alpha * sum;
}

/* ---- the model ------------------------------------------------------------------------------ */

static void norm_all(pass *p, const float *w)
{
    int64_t hidden = p->config->hidden_size;
    for (int64_t t = 0; t < p->n_tokens; t++)
        norm(w, hidden, p->config->rms_norm_eps, p->x + t * hidden, p->h + t * hidden);
}

static void add_out(pass *p)
{
    for (int64_t i = 0; i < p->n_tokens * p->config->hidden_size; i++) p->x[i] += p->out[i];
}

static pass start(const made_model *model, int64_t n_masked, const int32_t *tokens,
                  int64_t n_tokens)
{
    const dsmoe_config *c = &model->config;
    int64_t hidden = c->hidden_size, rows = n_tokens * hidden;
    int64_t shared = c->n_shared_experts * c->moe_intermediate_size;
    int64_t widest = c->intermediate_size + c->moe_intermediate_size + shared;
    pass p = {.model = model, .config = c, .n_tokens = n_tokens, .n_masked = n_masked};
    double **const all[] = {&p.x, &p.h, &p.out};
    for (size_t i = 0; i < COUNT(all); i++) *all[i] = doubles(rows);
    p.q = doubles(n_tokens * c->num_attention_heads * key_size(c));
    p.k = doubles(n_tokens * c->num_key_value_heads * key_size(c));
    p.v = doubles(n_tokens * c->num_key_value_heads * value_size(c));
    p.inner = doubles(2 * widest);
    p.scores = doubles(n_tokens + c->n_routed_experts);
    p.keys = doubles(c->n_routed_experts);
    p.result.load = doubles(c->num_hidden_layers * c->n_routed_experts);
    p.result.scores = doubles(c->num_hidden_layers * c->n_routed_experts);
    p.result.logits = doubles(n_tokens * c->vocab_size);
    p.result.margin = INFINITY;
    size_t n_chosen = (size_t)(c->num_hidden_layers * n_tokens * c->num_experts_per_tok) + 1;
    p.result.topk_idx = calloc(n_chosen, sizeof *p.result.topk_idx);
    assert_non_null(p.result.topk_idx);
    const float *embedding = made_model_find(model, "model.embed_tokens.weight")->data;
    for (int64_t i = 0; i < rows; i++) p.x[i] = embedding[tokens[i / hidden] * hidden + i % hidden];
    return p;
}

static naive_result run(pass p)
{
    const dsmoe_config *c = p.config;
    const made_model *model = p.model;
    for (; p.layer < c->num_hidden_layers; p.layer++) {
        find_layer(&p);
        norm_all(&p, weight(&p, "input_layernorm.weight"));
        attention(&p);
        add_out(&p);
        norm_all(&p, weight(&p, "post_attention_layernorm.weight"));
        feed_forward(&p);
        add_out(&p);
    }
    norm_all(&p, made_model_find(model, "model.norm.weight")->data);
    const char *head = c->tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    for (int64_t t = 0; t < p.n_tokens; t++)
        multiply(made_model_find(model, head)->data, NULL, c->vocab_size, c->hidden_size,
                 p.h + t * c->hidden_size, p.result.logits + t * c->vocab_size);
    double *const all[] = {p.x, p.h, p.q, p.k, p.v, p.out, p.inner, p.scores, p.keys};
    for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
    return p.result;
}

naive_result naive_model_run(const made_model *model, const int32_t *tokens, int64_t n_tokens)
{
    return naive_model_run_masked(model, 0, false, tokens, n_tokens);
}

naive_result naive_model_run_masked(const made_model *model, int64_t n_masked, bool masks_first,
                                    const int32_t *tokens, int64_t n_tokens)
{
    pass p = start(model, n_masked, tokens, n_tokens);
    p.masks_first = masks_first;
    return run(p);
}

naive_result naive_model_run_routed(const made_model *model, const int64_t *topk_idx,
                                    const int32_t *tokens, int64_t n_tokens)
{
    pass p = start(model, 0, tokens, n_tokens);
    p.known = topk_idx;
    return run(p);
}

void naive_result_free(naive_result *result)
{
    free(result->load);
    free(result->scores);
    free(result->logits);
    free(result->topk_idx);
    *result = (naive_result){0};
}
