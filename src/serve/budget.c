/* budget.c - how many prompt tokens a pass reads. */
#include "serve/budget.h"

#include <math.h>

/* Averages passes, as another process may have slowed down a single one. */
static void blend(double *mean, double value)
{
    *mean = *mean > 0 ? 0.8 * *mean + 0.2 * value : value;
}

static int class_of(int64_t n_writing)
{
    int c = (int)ceil(log2((double)n_writing));
    return c < BUDGET_CLASSES ? c : BUDGET_CLASSES - 1;
}

/* Seconds of a pass with about n_writing texts, or with the most below that are known; 0: unknown. */
static double writing_seconds(const budget *b, int64_t n_writing)
{
    for (int c = class_of(n_writing); c >= 0; c--)
        if (b->writing[c] > 0) return b->writing[c];
    return 0;
}

int64_t budget_of(const budget *b, int64_t n_writing, int64_t most)
{
    double alone = writing_seconds(b, n_writing), n = 2 * BUDGET_STEP;
    if (alone > 0 && b->prompt_token > 0) n = alone / b->prompt_token;
    if (n > (double)most) n = (double)most;
    int64_t steps = (int64_t)n / BUDGET_STEP;
    return steps > 0 ? steps * BUDGET_STEP : most < BUDGET_STEP ? most : BUDGET_STEP;
}

void budget_learn(budget *b, int64_t n_writing, int64_t n_prompt, double seconds)
{
    if (n_writing == 0) return;
    if (n_prompt == 0) {
        blend(&b->writing[class_of(n_writing)], seconds);
        return;
    }
    double alone = writing_seconds(b, n_writing);
    if (alone > 0 && seconds > alone) blend(&b->prompt_token, (seconds - alone) / (double)n_prompt);
}
