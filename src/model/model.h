/* model.h - the internals of a model. Its public interface is dsmoe.h. */
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
    shards *files;             /* of a folder, or NULL */
    gguf *gguf;                /* a GGUF file; both are NULL if the weights have another owner */
    const dsmoe_model *lender; /* the owner of the weights, if that is another model */
    model_weights *weights;    /* matrices point into the mapped files */
    float *vectors;            /* norms and biases as float32 */
    octet_stores octets;
    dsmoe_layer **layers;       /* [num_hidden_layers]; NULL for a dense layer */
    dsmoe_tensor_info *tensors; /* [n_tensors] in the order of the walk */
    size_t *extras;             /* [n_extras] tensors of the files that the walk does not visit */
    size_t n_tensors, n_extras;
    const adapter *adapter;   /* a trainer's, used for every row in an engine; NULL: none */
    const dsmoe_peers *peers; /* hold some of its routed experts (division.h); NULL: none do */
};

/* Fails if a file changed while it was in use: results since then are meaningless. */
dsmoe_status model_intact(const dsmoe_model *model, dsmoe_error *error);

/* Numbers the weights, and creates the MoE layers over them. */
dsmoe_status model_create_layers(dsmoe_model *model, dsmoe_error *error);

/* Makes a model of a (checked) configuration over weights that a trainer or another model owns and keeps.
 * `kn` must be the owner's kernels, since octets of the weights are in the order of one set of kernels.
 * Free with dsmoe_model_free. */
dsmoe_status model_over(const dsmoe_config *config, const dsmoe_generation_config *generation,
                        model_weights *weights, const kernels *kn, dsmoe_model **model,
                        dsmoe_error *error);

/* How many of n routed experts a probe masks: its share, rounded to the nearest integer, halves up. */
int64_t probe_count_masked(const dsmoe_probe *probe, int64_t n);

#endif
