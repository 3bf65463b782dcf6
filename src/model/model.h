/* model.h - a model as its own files see it. The public face is dsmoe.h. */
#ifndef DSMOE_MODEL_MODEL_H
#define DSMOE_MODEL_MODEL_H

#include "formats/shards.h"
#include "model/weights.h"

struct dsmoe_model {
    dsmoe_config config;
    dsmoe_generation_config generation;
    const kernels *kernels;
    shards *files;
    model_weights *weights; /* matrices lie in the mapped files */
    float *vectors;         /* norms and biases as float32 */
    dsmoe_layer **layers;   /* [num_hidden_layers]; NULL where a layer is dense */
    size_t *tensors;        /* [n_tensors] places in `files`, in the order of the walk */
    size_t *extras;         /* [n_extras] what the walk did not come by */
    size_t n_tensors, n_extras;
};

#endif
