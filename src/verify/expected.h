/* expected.h - the expected.safetensors of a model: token ids and the model's results for them, computed
 * elsewhere. docs/verify.md describes the file. Opening checks names, types and shapes against the model,
 * so that the code that runs it can rely on them. */
#ifndef DSMOE_VERIFY_EXPECTED_H
#define DSMOE_VERIFY_EXPECTED_H

#include <stdint.h>

#include "dsmoe.h"
#include "formats/safetensors.h"

enum { EXPECTED_PROMPT = 8 }; /* tokens of the first row that `greedy` continues */

typedef struct expected_file {
    safetensors *file;
    int64_t n_sequences, sequence_length, vocab_size;
    const safetensors_tensor *input_ids; /* [n_sequences, sequence_length], integers */
    const safetensors_tensor *logits;    /* [n_sequences, sequence_length, vocab_size] */
    /* NULL if the file has none. */
    const safetensors_tensor *loss, *aux_loss; /* one number each */
    const safetensors_tensor *greedy;          /* [n_greedy], integers: prompt and continuation */
    int64_t n_greedy;
} expected_file;

/* Messages name the file. On failure there is nothing to close. */
dsmoe_status expected_open(expected_file *expected, const char *path, const dsmoe_model *model,
                           dsmoe_error *error);
void expected_close(expected_file *expected);

/* Reads all elements of input_ids or greedy, which must be tokens of the model. The message names the
 * file. */
dsmoe_status expected_read_tokens(const expected_file *expected, const safetensors_tensor *tensor,
                                  int32_t *tokens, dsmoe_error *error);

/* Whether the tensor is one of those above, or a gradient; others are not checked. */
bool expected_is_checked(const expected_file *expected, const safetensors_tensor *tensor);

#endif
