/* weights.c - the list of a model's tensors, with the names and shapes of the public layout. */
#include "model/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/memory.h"
#include "model/config.h"

static model_weights *place_weights(arena *a, const dsmoe_config *config)
{
    model_weights *w = arena_take(a, 1, sizeof *w);
    layer_weights *layers = arena_take(a, config->num_hidden_layers, sizeof *layers);
    moe_expert *experts = arena_take(
        a, config_moe_layers(config, config->num_hidden_layers) * config->n_routed_experts,
        sizeof *experts);
    if (!a->base) return w;
    *w = (model_weights){.layers = layers, .experts = experts};
    for (int64_t i = 0; i < config->num_hidden_layers; i++) {
        if (!dsmoe_config_layer_is_moe(config, i)) continue;
        layers[i].moe.experts = experts;
        experts += config->n_routed_experts;
    }
    return w;
}

/* The layout begins with the struct itself, so that its address is the allocation's. */
model_weights *weights_create(const dsmoe_config *config)
{
    arena measure = arena_over(NULL);
    place_weights(&measure, config);
    size_t size = arena_size(&measure);
    void *memory = size ? memory_alloc(size) : NULL;
    if (!memory) return NULL;
    arena place = arena_over(memory);
    return place_weights(&place, config);
}

void weights_free(model_weights *weights) { free(weights); }

/* ---- the walk ------------------------------------------------------------------------------ */

typedef struct walk {
    const dsmoe_config *config;
    bool kv_b_split;
    int64_t layer;
    weight_visit_fn *visit;
    void *context;
    dsmoe_error *error;
} walk;

static dsmoe_status visit_matrix(const walk *w, matrix *slot, weight_role role, int64_t out,
                                 int64_t in, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static dsmoe_status visit_matrix(const walk *w, matrix *slot, weight_role role, int64_t out,
                                 int64_t in, const char *format, ...)
{
    char name[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    weight_spec spec = {.name = name, .role = role, .n_dims = 2, .shape = {out, in}};
    spec.slot.matrix = slot;
    return w->visit(w->context, &spec, w->error);
}

static dsmoe_status visit_vector(const walk *w, float **slot, weight_role role, int64_t n,
                                 const char *name)
{
    weight_spec spec = {.name = name, .role = role, .n_dims = 1, .shape = {n, 1}};
    spec.slot.vector = slot;
    return w->visit(w->context, &spec, w->error);
}

static dsmoe_status visit_norm(const walk *w, float **slot, const char *which)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)w->layer, which);
    return visit_vector(w, slot, WEIGHT_NORM, w->config->hidden_size, name);
}

/* Visits q_proj, k_proj, v_proj or o_proj, which differ only in the letter. */
static dsmoe_status visit_attention(const walk *w, linear *slot, char which, int64_t out)
{
    STATUS_TRY(visit_matrix(w, &slot->weight, WEIGHT_LINEAR, out, w->config->hidden_size,
                            "model.layers.%lld.self_attn.%c_proj.weight", (long long)w->layer,
                            which));
    if (!w->config->attention_bias) return DSMOE_OK;
    char name[128];
    snprintf(name, sizeof name, "model.layers.%lld.self_attn.%c_proj.bias", (long long)w->layer,
             which);
    return visit_vector(w, &slot->bias, WEIGHT_BIAS, out, name);
}

/* Visits a SwiGLU network; `which` is the part of its name after "mlp.", with its last point, or "". */
static dsmoe_status visit_expert(const walk *w, moe_expert *slot, int64_t width, const char *which)
{
    int64_t hidden = w->config->hidden_size;
    long long layer = w->layer;
    STATUS_TRY(visit_matrix(w, &slot->gate_proj, WEIGHT_LINEAR, width, hidden,
                            "model.layers.%lld.mlp.%sgate_proj.weight", layer, which));
    STATUS_TRY(visit_matrix(w, &slot->up_proj, WEIGHT_LINEAR, width, hidden,
                            "model.layers.%lld.mlp.%sup_proj.weight", layer, which));
    return visit_matrix(w, &slot->down_proj, WEIGHT_LINEAR, hidden, width,
                        "model.layers.%lld.mlp.%sdown_proj.weight", layer, which);
}

/* Visits "self_attn.kv_a_layernorm.weight" or the like, or "mlp.gate.e_score_correction_bias". */
static dsmoe_status visit_layer_vector(const walk *w, float **slot, weight_role role, int64_t n,
                                       const char *which)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)w->layer, which);
    return visit_vector(w, slot, role, n, name);
}

static dsmoe_status visit_latent_matrix(const walk *w, matrix *slot, int64_t out, int64_t in,
                                        const char *which)
{
    return visit_matrix(w, slot, WEIGHT_LINEAR, out, in, "model.layers.%lld.self_attn.%s.weight",
                        (long long)w->layer, which);
}

/* Visits the matrices that make keys and values from a latent. */
static dsmoe_status visit_kv_b(const walk *w, layer_weights *b)
{
    const dsmoe_config *c = w->config;
    int64_t heads = c->num_attention_heads, latent = c->kv_lora_rank;
    int64_t nope = c->qk_nope_head_dim, value = c->v_head_dim;
    if (!w->kv_b_split)
        return visit_latent_matrix(w, &b->kv_b_proj, heads * (nope + value), latent, "kv_b_proj");
    STATUS_TRY(visit_latent_matrix(w, &b->k_b_proj, heads * latent, nope, "k_b_proj"));
    return visit_latent_matrix(w, &b->v_b_proj, heads * value, latent, "v_b_proj");
}

static dsmoe_status visit_latent_attention(const walk *w, layer_weights *b)
{
    const dsmoe_config *c = w->config;
    int64_t hidden = c->hidden_size, heads = c->num_attention_heads, latent = c->kv_lora_rank;
    int64_t q_size = heads * config_head_dim(c), rank = c->q_lora_rank;
    if (rank > 0) {
        STATUS_TRY(visit_latent_matrix(w, &b->q_a_proj, rank, hidden, "q_a_proj"));
        STATUS_TRY(visit_layer_vector(w, &b->q_a_layernorm, WEIGHT_NORM, rank,
                                      "self_attn.q_a_layernorm.weight"));
        STATUS_TRY(visit_latent_matrix(w, &b->q_b_proj, q_size, rank, "q_b_proj"));
    } else {
        STATUS_TRY(visit_latent_matrix(w, &b->q_proj.weight, q_size, hidden, "q_proj"));
    }
    STATUS_TRY(visit_latent_matrix(w, &b->kv_a_proj, latent + c->qk_rope_head_dim, hidden,
                                   "kv_a_proj_with_mqa"));
    STATUS_TRY(visit_layer_vector(w, &b->kv_a_layernorm, WEIGHT_NORM, latent,
                                  "self_attn.kv_a_layernorm.weight"));
    STATUS_TRY(visit_kv_b(w, b));
    return visit_latent_matrix(w, &b->o_proj.weight, hidden, heads * c->v_head_dim, "o_proj");
}

static dsmoe_status visit_moe(const walk *w, moe_weights *slot)
{
    const dsmoe_config *c = w->config;
    STATUS_TRY(visit_matrix(w, &slot->gate, WEIGHT_ROUTER, c->n_routed_experts, c->hidden_size,
                            "model.layers.%lld.mlp.gate.weight", (long long)w->layer));
    if (c->topk_method == DSMOE_TOPK_NOAUX_TC)
        STATUS_TRY(visit_layer_vector(w, &slot->e_score_correction_bias, WEIGHT_CORRECTION,
                                      c->n_routed_experts, "mlp.gate.e_score_correction_bias"));
    for (int64_t i = 0; i < c->n_routed_experts; i++) {
        char which[64];
        snprintf(which, sizeof which, "experts.%lld.", (long long)i);
        moe_expert nowhere, *expert = slot->experts ? &slot->experts[i] : &nowhere;
        STATUS_TRY(visit_expert(w, expert, c->moe_intermediate_size, which));
    }
    if (c->n_shared_experts == 0) return DSMOE_OK;
    return visit_expert(w, &slot->shared_experts, c->n_shared_experts * c->moe_intermediate_size,
                        "shared_experts.");
}

static dsmoe_status visit_plain_attention(const walk *w, layer_weights *b)
{
    const dsmoe_config *c = w->config;
    int64_t hidden = c->hidden_size;
    int64_t kv_size = hidden / c->num_attention_heads * c->num_key_value_heads;
    STATUS_TRY(visit_attention(w, &b->q_proj, 'q', hidden));
    STATUS_TRY(visit_attention(w, &b->k_proj, 'k', kv_size));
    STATUS_TRY(visit_attention(w, &b->v_proj, 'v', kv_size));
    return visit_attention(w, &b->o_proj, 'o', hidden);
}

static dsmoe_status visit_layer(const walk *w, layer_weights *b)
{
    const dsmoe_config *c = w->config;
    STATUS_TRY(visit_norm(w, &b->input_layernorm, "input_layernorm"));
    STATUS_TRY(config_is_latent(c) ? visit_latent_attention(w, b) : visit_plain_attention(w, b));
    STATUS_TRY(visit_norm(w, &b->post_attention_layernorm, "post_attention_layernorm"));
    if (dsmoe_config_layer_is_moe(c, w->layer)) return visit_moe(w, &b->moe);
    return visit_expert(w, &b->mlp, c->intermediate_size, "");
}

dsmoe_status weights_each(const dsmoe_config *config, model_weights *weights,
                          weight_visit_fn *visit, void *context, dsmoe_error *error)
{
    walk w = {.config = config, .visit = visit, .context = context, .error = error};
    int64_t vocab = config->vocab_size, hidden = config->hidden_size;
    model_weights nowhere = {0};
    layer_weights no_layer = {0};
    if (!weights) weights = &nowhere;
    w.kv_b_split = weights->kv_b_split;
    STATUS_TRY(visit_matrix(&w, &weights->embed_tokens, WEIGHT_LINEAR, vocab, hidden,
                            "model.embed_tokens.weight"));
    for (; w.layer < config->num_hidden_layers; w.layer++)
        STATUS_TRY(visit_layer(&w, weights->layers ? &weights->layers[w.layer] : &no_layer));
    STATUS_TRY(visit_vector(&w, &weights->norm, WEIGHT_NORM, hidden, "model.norm.weight"));
    if (config->tie_word_embeddings) return DSMOE_OK;
    return visit_matrix(&w, &weights->lm_head, WEIGHT_LINEAR, vocab, hidden, "lm_head.weight");
}

static dsmoe_status number_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    int32_t *n = context;
    ++*n;
    if (spec->n_dims == 2 && spec->slot.matrix->id == 0) spec->slot.matrix->id = *n;
    return DSMOE_OK;
}

void weights_number(const dsmoe_config *config, model_weights *weights)
{
    int32_t n = 0;
    weights_each(config, weights, number_visit, &n, NULL);
}
