/* model.h - a model as its own files see it. The public face is dsmoe.h. */
#ifndef DSMOE_MODEL_MODEL_H
#define DSMOE_MODEL_MODEL_H

#include "formats/gguf.h"
#include "formats/shards.h"
#include "model/octet_stores.h"
#include "model/weights.h"
#include "moe/low_rank.h"

struct dsmoe_model {
    dsmoe_config config;
    dsmoe_generation_config generation;
    const kernels *kernels;
    shards *files;             /* of a folder; or */
    gguf *gguf;                /* a GGUF file; both NULL if the weights are someone else's */
    const dsmoe_model *lender; /* the model that they are then from, if it is one */
    model_weights *weights;    /* matrices lie in the mapped files */
    float *vectors;            /* norms and biases as float32 */
    octet_stores octets;
    dsmoe_layer **layers;       /* [num_hidden_layers]; NULL where a layer is dense */
    dsmoe_tensor_info *tensors; /* [n_tensors] in the order of the walk */
    size_t *extras;             /* [n_extras] what of the files the walk did not come by */
    size_t n_tensors, n_extras;
    const adapter *adapter; /* that every row meets in an engine: a trainer's; NULL: none */
    const dsmoe_peers
        *peers; /* that hold some of its routed experts (see division.h); NULL: none do */
};

/* Fails once a file changed while it was in use: what was computed since means nothing. */
dsmoe_status model_intact(const dsmoe_model *model, dsmoe_error *error);

/* The MoE layers over the weights, which are numbered first. */
dsmoe_status model_create_layers(dsmoe_model *model, dsmoe_error *error);

/* A model of a (checked) configuration over weights that someone else owns and keeps: a trainer, or
 * another model. With the kernels that their owner uses: octets of the weights lie in the order of one
 * set. Free with dsmoe_model_free. */
dsmoe_status model_over(const dsmoe_config *config, const dsmoe_generation_config *generation,
                        model_weights *weights, const kernels *kn, dsmoe_model **model,
                        dsmoe_error *error);

#endif
