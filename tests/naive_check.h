/* naive_check.h - a made model in the library against the same model in plain arithmetic: in one call, in
 * pieces, and together with other sequences. */
#ifndef DSMOE_TESTS_NAIVE_CHECK_H
#define DSMOE_TESTS_NAIVE_CHECK_H

#include "naive_model.h"

typedef struct naive_case {
    const char *name;
    const dsmoe_config *config;
    const char *dtype;
    bool odd; /* as in made_model_write */
    uint64_t seed;
    int64_t n_tokens, n_batch;
    double tolerance; /* 0: 1e-5 of the largest number */
} naive_case;

/* Checks every logit, and the losses, of a model that is written to `folder`. */
void naive_check(const naive_case *c, const char *folder);

/* Runs all tokens in one call, and checks the losses of the last half of them. */
void naive_check_whole(dsmoe_sequence *sequence, const naive_case *c, const int32_t *tokens,
                       const naive_result *expected);

#endif
