/* gguf_names.h - where a tensor of the public layout lies in a GGUF file of the architecture
 * deepseek.
 *
 * Names of one form become names of the other here and nowhere else: loading and writing both walk
 * weights_each and ask. The routed experts of a layer are stacked: three tensors [expert, out,
 * in]. */
#ifndef DSMOE_MODEL_GGUF_NAMES_H
#define DSMOE_MODEL_GGUF_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum { GGUF_PLACE_SIZE = 64 };

typedef struct gguf_place {
    char name[GGUF_PLACE_SIZE]; /* of the tensor in the file */
    int64_t expert;             /* the slice of it; -1: the whole tensor */
    bool permuted;              /* q and k: row i of the file is row gguf_source_row(…, i) here */
} gguf_place;

/* `name` is one of weights_each; false for any other. */
bool gguf_place_of(const char *name, gguf_place *place);

/* Programs that read GGUF files rotate neighbours (2i, 2i + 1) of a head, the public layout pairs
 * (i, i + d/2): so the rows of each head of q and k (and the numbers of their biases) lie in the
 * order 0, d/2, 1, d/2 + 1, … . The row of the public layout that is row `row` of such a tensor. */
static inline int64_t gguf_source_row(int64_t head_dim, int64_t row)
{
    int64_t within = row % head_dim;
    return row - within + within % 2 * (head_dim / 2) + within / 2;
}

#endif
