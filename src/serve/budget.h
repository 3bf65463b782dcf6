/* budget.h - how many prompt tokens a pass reads while other texts are being written: as many as make the
 * pass last about twice as long as without them, judging by earlier passes. So a long prompt never holds up
 * the answers of other clients, on any machine and with any model. */
#ifndef DSMOE_SERVE_BUDGET_H
#define DSMOE_SERVE_BUDGET_H

#include <stdint.h>

enum { BUDGET_CLASSES = 16, BUDGET_STEP = 16 };

typedef struct budget {
    double writing
        [BUDGET_CLASSES]; /* seconds of a pass that only writes, by log2 of its texts; 0: unknown */
    double prompt_token;  /* seconds that a prompt token adds; 0: unknown */
} budget;

/* Prompt tokens for a pass with n_writing >= 1 texts: a multiple of BUDGET_STEP, or `most` if less. */
int64_t budget_of(const budget *b, int64_t n_writing, int64_t most);
/* Records the duration of a pass. */
void budget_learn(budget *b, int64_t n_writing, int64_t n_prompt, double seconds);

#endif
