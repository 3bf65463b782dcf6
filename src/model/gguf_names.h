/* gguf_names.h - finds a tensor of the public layout in a GGUF file of the architectures deepseek and
 * deepseek2.
 *
 * Names are translated only here: loading and writing both walk weights_each and call gguf_place_of.
 * The routed experts of a layer are stacked: three tensors [expert, out, in]. So are the heads of
 * k_b_proj and v_b_proj. */
#ifndef DSMOE_MODEL_GGUF_NAMES_H
#define DSMOE_MODEL_GGUF_NAMES_H

#include "dsmoe.h"

enum { GGUF_PLACE_SIZE = 64 };

typedef struct gguf_place {
    char name[GGUF_PLACE_SIZE]; /* of the tensor in the file */
    int64_t expert;             /* the slice of that tensor; -1: the whole tensor */
    bool of_heads;              /* the tensor is one matrix for each head, [head, out, in] */
    bool permuted;              /* q and k: row i of the file is row gguf_source_row(…, i) here */
} gguf_place;

/* `name` is one of weights_each; returns false for any other. */
bool gguf_place_of(const dsmoe_config *config, const char *name, gguf_place *place);

/* The number of slices in the whole tensor. */
static inline int64_t gguf_place_slices(const dsmoe_config *config, const gguf_place *place)
{
    return place->expert >= 0 ? config->n_routed_experts
           : place->of_heads  ? config->num_attention_heads
                              : 1;
}

/* The row of the public layout that is row `row` of a permuted tensor. Programs that read GGUF files
 * rotate neighbours (2i, 2i + 1) of a head, but the public layout rotates pairs (i, i + d/2). So the rows
 * of each head of q and k (and the numbers of their biases) are in the order 0, d/2, 1, d/2 + 1, … in the
 * file. Latent attention rotates neighbours in the public layout as well, so its rows are not permuted. */
static inline int64_t gguf_source_row(int64_t head_dim, int64_t row)
{
    int64_t within = row % head_dim;
    return row - within + within % 2 * (head_dim / 2) + within / 2;
}

#endif
