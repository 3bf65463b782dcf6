/* reference.h - a reference layer file: one MoE layer with its input and expected results, made elsewhere.
 * docs/verify.md describes the file. Opening checks all names, types and shapes, so that the code that
 * runs the layer can rely on them. */
#ifndef DSMOE_VERIFY_REFERENCE_H
#define DSMOE_VERIFY_REFERENCE_H

#include <stdint.h>

#include "dsmoe.h"
#include "formats/safetensors.h"

typedef struct reference_file {
    safetensors *file;
    dsmoe_layer_config config;
    int64_t n_sequences, sequence_length, n_tokens;
    const safetensors_tensor *x; /* [n_sequences, sequence_length, hidden_size] */
    /* NULL if the file has none. */
    const safetensors_tensor *dy, *y, *dx; /* like x */
    const safetensors_tensor *scores;      /* [n_tokens, n_routed_experts] */
    const safetensors_tensor *topk_idx;    /* [n_tokens, num_experts_per_tok], integers */
    const safetensors_tensor *topk_weight; /* [n_tokens, num_experts_per_tok] */
    const safetensors_tensor *aux_loss;    /* one number */
} reference_file;

/* Messages name the file. On failure there is nothing to close. */
dsmoe_status reference_open(reference_file *reference, const char *path, dsmoe_error *error);
void reference_close(reference_file *reference);

/* The layer's parameters are numbered from 0: the router, then gate_proj, up_proj and down_proj of each
 * expert, then those of the shared experts. */
typedef struct reference_parameter {
    char name[64]; /* "experts.7.up_proj.weight" */
    int64_t rows, columns;
} reference_parameter;
int64_t reference_parameter_count(const reference_file *reference);
reference_parameter reference_parameter_at(const reference_file *reference, int64_t index);
/* The matrix of that parameter among our weights or gradients. */
float *reference_matrix(const reference_file *reference, const dsmoe_layer_weights *weights,
                        int64_t index);

/* The expected gradient of that parameter, or NULL, and a name for it. */
const safetensors_tensor *reference_gradient(const reference_file *reference, int64_t index,
                                             char name[80]);
/* The expected device-level loss for that many groups, or NULL, and a name for it. */
const safetensors_tensor *reference_device_loss(const reference_file *reference,
                                                int64_t n_device_groups, char name[80]);

/* Reads all elements of an input as float32; they must be finite. Messages do not name the file. */
dsmoe_status reference_read(const safetensors_tensor *tensor, float *out, dsmoe_error *error);
/* Reads all parameters into the matrices of `weights`. Messages do not name the file. */
dsmoe_status reference_read_weights(const reference_file *reference,
                                    const dsmoe_layer_weights *weights, dsmoe_error *error);

#endif
