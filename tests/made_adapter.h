/* made_adapter.h - LoRA adapters with random numbers: as PEFT's folder, written byte by byte here, faults included where a
 * test wants them; and merged into a made model in double arithmetic. */
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

/* Of each matrix whose name has one of the words in it; all of a rank, with B random or zeros. */
made_adapter made_adapter_create(const made_model *model, const char *const *words, int n_words,
                                 int64_t rank, double scale, bool zeros, uint64_t seed);
void made_adapter_free(made_adapter *adapter);

/* The folder, which must be there: adapter_config.json with this text, or what fits all of it if that is NULL, and
 * adapter_model.safetensors. */
void made_adapter_write(const made_adapter *adapter, const char *folder, const char *config);
/* W + factor·scale·B·A, rounded once to float. */
void made_adapter_merge(const made_adapter *adapter, made_model *model, double factor);

#endif
