/* budget.h - how many tokens of prompts a pass takes along while other texts are being written: as many as make it
 * last about twice as long as it would without them, by what earlier passes took. So nobody who is being
 * answered waits for someone else's long prompt, on any machine and with any model. */
#ifndef DSMOE_SERVE_BUDGET_H
#define DSMOE_SERVE_BUDGET_H

#include <stdint.h>

enum { BUDGET_CLASSES = 16, BUDGET_STEP = 16 };

typedef struct budget {
    double writing
        [BUDGET_CLASSES]; /* seconds of a pass that only writes, by log2 of its texts; 0: unknown */
    double prompt_token;  /* seconds that a token of a prompt adds; 0: unknown */
} budget;

/* Tokens of prompts for a pass with n_writing texts, at least one, and at most `most`: a multiple of BUDGET_STEP. */
int64_t budget_of(const budget *b, int64_t n_writing, int64_t most);
/* A pass took so long. */
void budget_learn(budget *b, int64_t n_writing, int64_t n_prompt, double seconds);

#endif
