/* naive_model.h - a whole model in plain double arithmetic: no cache, every token attends to all tokens
 * before it again, one loop for each sum of a formula. */
#ifndef DSMOE_TESTS_NAIVE_MODEL_H
#define DSMOE_TESTS_NAIVE_MODEL_H

#include "made_model.h"

typedef struct naive_result {
    double *logits; /* [n_tokens, vocab_size] */
    /* For the MoE layers, each [n_tokens, num_experts_per_tok] by falling score. */
    int64_t *topk_idx;
    double margin;   /* smallest distance between the last chosen score and the next one, also of
                        those that are masked */
    double aux_loss; /* of all layers, with the tokens as one sequence */
    /* For the MoE layers, each [n_routed_experts]: how many tokens chose an expert, and the sum of its
     * scores. */
    double *load, *scores;
} naive_result;

naive_result naive_model_run(const made_model *model, const int32_t *tokens, int64_t n_tokens);
/* Excludes each token's n_masked best experts; with `masks_first` the softmax leaves them out too. */
naive_result naive_model_run_masked(const made_model *model, int64_t n_masked, bool masks_first,
                                    const int32_t *tokens, int64_t n_tokens);
/* Uses a known routing, so that small changes of the weights make only small changes in the result. */
naive_result naive_model_run_routed(const made_model *model, const int64_t *topk_idx,
                                    const int32_t *tokens, int64_t n_tokens);
void naive_result_free(naive_result *result);

#endif
