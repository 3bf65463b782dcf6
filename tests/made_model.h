/* made_model.h - small models with random weights: in memory, for plain arithmetic, and as a folder in the
 * public layout, with faults where a test wants them. Names and shapes are written down here a second
 * time, independently of the library. */
#ifndef DSMOE_TESTS_MADE_MODEL_H
#define DSMOE_TESTS_MADE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

typedef struct made_tensor {
    char name[96];
    int n_dims;
    int64_t shape[2], n;
    float *data;
    const char *dtype; /* the type in the file, also I32 and F64 */
    bool left_out;     /* out of the file */
} made_tensor;

typedef struct made_model {
    dsmoe_config config;
    made_tensor *tensors;
    int n_tensors;
} made_model;

/* Sizes that no vector width divides; two MoE layers after a dense one. */
dsmoe_config made_config(void);
/* made_config with latent attention, compressed queries and YaRN. */
dsmoe_config made_latent_config(void);
/* made_latent_config with a bias-corrected gate over 12 experts in 4 groups, as in DeepSeek-V3. */
dsmoe_config made_v3_config(void);

/* Random weights of that size, norms around 1. All are of `dtype` ("F32", "F16" or "BF16") and rounded to
 * it. */
made_model made_model_create(const dsmoe_config *config, const char *dtype, uint64_t seed);
/* A model with the weights of a folder. */
made_model made_model_read(const char *folder);
void made_model_free(made_model *model);

/* Fails the test if there is no such tensor. */
made_tensor *made_model_find(const made_model *model, const char *name);

/* Writes config.json and model.safetensors, whose data begins at an odd or even address. */
void made_model_write(const made_model *model, const char *folder, bool odd);
void made_model_remove(const char *folder);

/* Each fails the test on an error. */
void must(dsmoe_status status, const dsmoe_error *error, const char *what);
dsmoe_model *open_model(const char *folder);
/* A sequence with an engine of its own, which free_sequence frees too. */
dsmoe_sequence *make_sequence(const dsmoe_model *model, int64_t n_ctx, int64_t n_batch,
                              int n_threads);
void free_sequence(dsmoe_sequence *sequence);
void prefill(dsmoe_sequence *sequence, const int32_t *tokens, int64_t n, float *logits);
void decode(dsmoe_sequence *sequence, int32_t token, float *logits);
void rewind_to(dsmoe_sequence *sequence, int64_t length);
void assert_same_bits(const float *a, const float *b, size_t n, const char *what);

/* Tokens below vocab_size. */
void made_tokens(const made_model *model, int32_t *tokens, int64_t n, uint64_t seed);

#endif
