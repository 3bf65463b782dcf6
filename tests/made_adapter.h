/* made_adapter.h - LoRA adapters with random numbers: written byte by byte as PEFT's folder, with faults
 * where a test wants them; and merged into a made model in double arithmetic. */
#ifndef DSMOE_TESTS_MADE_ADAPTER_H
#define DSMOE_TESTS_MADE_ADAPTER_H

#include "made_model.h"

typedef struct made_pair {
    char module[96]; /* "model.layers.0.self_attn.q_proj" */
    int64_t rank, n_in, n_out;
    double scale;
    float *a, *b;
} made_pair;

typedef struct made_adapter {
    made_pair *pairs;
    int n_pairs;
} made_adapter;

/* A pair for each matrix whose name contains one of the words, all of the same rank, with B random or
 * zeros. */
made_adapter made_adapter_create(const made_model *model, const char *const *words, int n_words,
                                 int64_t rank, double scale, bool zeros, uint64_t seed);
void made_adapter_free(made_adapter *adapter);

/* Writes adapter_model.safetensors and adapter_config.json into a folder that must exist.
 * adapter_config.json gets the text `config`; if that is NULL, a text that fits all the pairs. */
void made_adapter_write(const made_adapter *adapter, const char *folder, const char *config);
/* Adds factor·scale·B·A to W and rounds once to float. */
void made_adapter_merge(const made_adapter *adapter, made_model *model, double factor);

#endif
