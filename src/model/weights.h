/* weights.h - the parameters of a model, with their names and shapes.
 *
 * One walk (weights_each) lists every tensor of a configuration in the order of the computation.
 * Loading fills the slots that it visits, and initialising writes a file in its order, so names and
 * shapes are only in weights.c. k_b_proj and v_b_proj have no names in the public layout; theirs are
 * modelled on kv_b_proj's. */
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
    /* Of latent attention, instead of k_proj and v_proj; with compressed queries also instead of q_proj. */
    matrix q_a_proj, q_b_proj; /* [q_lora_rank, hidden_size], [heads·(nope + rope), q_lora_rank] */
    matrix kv_a_proj,
        kv_b_proj; /* [kv_lora_rank + rope, hidden_size], [heads·(nope + v), kv_lora_rank] */
    float *q_a_layernorm, *kv_a_layernorm; /* [q_lora_rank], [kv_lora_rank] */
    /* Instead of kv_b_proj if it is split (see model_weights): for each head the half that makes keys,
     * transposed, and the half that makes values. The absorbed form multiplies by both: k_b_proj takes
     * q_nope to the latents' space, and v_b_proj takes the mean of latents to a value. */
    matrix k_b_proj, v_b_proj; /* [heads·kv_lora_rank, nope], [heads·v, kv_lora_rank] */
    moe_expert mlp;            /* of a dense layer */
    moe_weights moe;           /* of an MoE layer; `experts` points into model_weights.experts */
} layer_weights;

typedef struct model_weights {
    matrix embed_tokens; /* [vocab_size, hidden_size] */
    layer_weights *layers;
    float *norm;         /* [hidden_size] */
    matrix lm_head;      /* [vocab_size, hidden_size]; embed_tokens if they are tied */
    moe_expert *experts; /* of all MoE layers */
    bool rope_pairs;     /* rows of q and k are ordered as in GGUF files: see rope_turn_pairs */
    bool kv_b_split;     /* k_b_proj and v_b_proj instead of kv_b_proj, as in new GGUF files */
} model_weights;

typedef enum weight_role {
    WEIGHT_LINEAR,     /* matrix; also the embedding and the head */
    WEIGHT_ROUTER,     /* matrix */
    WEIGHT_NORM,       /* vector */
    WEIGHT_BIAS,       /* vector */
    WEIGHT_CORRECTION, /* vector; follows the load of the experts, not a gradient */
} weight_role;

/* The type in which a tensor is stored in a folder whose weights are of `dtype`. The correction is a sum
 * of small steps, most of which would be lost in 16 bits. */
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
    } slot;             /* its place in the model_weights of the walk; valid during the visit */
} weight_spec;

typedef dsmoe_status weight_visit_fn(void *context, const weight_spec *spec, dsmoe_error *error);

/* Empty slots for a (checked) configuration; NULL if out of memory. */
model_weights *weights_create(const dsmoe_config *config);
void weights_free(model_weights *weights);

/* Visits every tensor until `visit` fails. A tied head is not a separate tensor. `weights` may be NULL if
 * names and shapes are enough: then slots are meaningless, and kv_b_proj is whole. Slots are meaningless
 * too for a model_weights without layers, but it tells whether kv_b_proj is split. */
dsmoe_status weights_each(const dsmoe_config *config, model_weights *weights,
                          weight_visit_fn *visit, void *context, dsmoe_error *error);

/* Numbers the matrices, from 1 in the order of the walk: see matrix.id. Vectors count too, so that matrix
 * m is tensor m.id - 1 of the walk. A matrix that has a number keeps it: a probe has the weights of
 * another model. */
void weights_number(const dsmoe_config *config, model_weights *weights);

#endif
