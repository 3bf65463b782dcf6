/* weights.h - the parameters of a model: what there is, under which name, in which shape.
 *
 * One walk (weights_each) lists every tensor of a configuration in the order of the computation.
 * Loading fills the slots it passes, initialising writes a file along it: names and shapes stand in
 * weights.c and nowhere else. k_b_proj and v_b_proj have no name in the public layout: theirs are made
 * after kv_b_proj's. */
#ifndef DSMOE_MODEL_WEIGHTS_H
#define DSMOE_MODEL_WEIGHTS_H

#include "base/status.h"
#include "kernels/kernels.h"
#include "moe/moe.h"

/* W·x + b; the bias may be NULL. */
typedef struct linear {
    matrix weight;
    float *bias;
} linear;

typedef struct layer_weights {
    float *input_layernorm, *post_attention_layernorm; /* [hidden_size] */
    linear q_proj, k_proj, v_proj, o_proj;
    /* Of latent attention in the place of k_proj and v_proj; with compressed queries also of q_proj. */
    matrix q_a_proj, q_b_proj; /* [q_lora_rank, hidden_size], [heads·(nope + rope), q_lora_rank] */
    matrix kv_a_proj,
        kv_b_proj; /* [kv_lora_rank + rope, hidden_size], [heads·(nope + v), kv_lora_rank] */
    float *q_a_layernorm, *kv_a_layernorm; /* [q_lora_rank], [kv_lora_rank] */
    /* In the place of kv_b_proj where it is split (see model_weights): of each head the half that makes
     * keys, transposed, and the half that makes values. Both are what the absorbed form multiplies
     * with: k_b_proj takes q_nope to the latent's space, v_b_proj the mean of latents to a value. */
    matrix k_b_proj, v_b_proj; /* [heads·kv_lora_rank, nope], [heads·v, kv_lora_rank] */
    moe_expert mlp;            /* of a dense layer */
    moe_weights moe;           /* of an MoE layer; `experts` points into model_weights.experts */
} layer_weights;

typedef struct model_weights {
    matrix embed_tokens; /* [vocab_size, hidden_size] */
    layer_weights *layers;
    float *norm;         /* [hidden_size] */
    matrix lm_head;      /* [vocab_size, hidden_size]; embed_tokens if those are tied */
    moe_expert *experts; /* of all MoE layers */
    bool rope_pairs;     /* rows of q and k lie as in GGUF files: see rope_turn_pairs */
    bool kv_b_split;     /* k_b_proj and v_b_proj are there, as in new GGUF files, not kv_b_proj */
} model_weights;

typedef enum weight_role {
    WEIGHT_LINEAR,     /* matrix; also the embedding and the head */
    WEIGHT_ROUTER,     /* matrix */
    WEIGHT_NORM,       /* vector */
    WEIGHT_BIAS,       /* vector */
    WEIGHT_CORRECTION, /* vector, which follows the load of the experts and no gradient */
} weight_role;

/* What such a tensor is stored as in a folder whose weights are of `dtype`. The correction is a sum of small steps, few
 * of which would be left in 16 bits. */
static inline dsmoe_dtype weight_dtype(weight_role role, dsmoe_dtype dtype)
{
    return role == WEIGHT_CORRECTION ? DSMOE_F32 : dtype;
}

typedef struct weight_spec {
    const char *name; /* as in a checkpoint; valid during the visit */
    weight_role role;
    int n_dims; /* 2: matrix [out, in], 1: vector */
    int64_t shape[2];
    union {
        matrix *matrix; /* n_dims 2 */
        float **vector; /* n_dims 1 */
    } slot;             /* where it lies in the model_weights of the walk; valid during the visit */
} weight_spec;

typedef dsmoe_status weight_visit_fn(void *context, const weight_spec *spec, dsmoe_error *error);

/* Empty slots for a (checked) configuration; NULL without memory. */
model_weights *weights_create(const dsmoe_config *config);
void weights_free(model_weights *weights);

/* Visits every tensor until `visit` fails. A tied head is not a tensor of its own. Without `weights`
 * (NULL) slots lead nowhere, and kv_b_proj is whole: for whom names and shapes are enough. A
 * model_weights without layers leads nowhere as well, and says whether kv_b_proj is split. */
dsmoe_status weights_each(const dsmoe_config *config, model_weights *weights,
                          weight_visit_fn *visit, void *context, dsmoe_error *error);

/* Numbers the matrices, from 1 on in the order of the walk: see matrix.id. Vectors count too, so that matrix m is
 * tensor m.id - 1 of the walk. Numbers that are there stay: a probe has the weights of another model. */
void weights_number(const dsmoe_config *config, model_weights *weights);

#endif
