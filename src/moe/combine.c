/* combine.c - Σ_i g_{i,t}·FFN_i(u_t) over the experts of each token.
 *
 * Tasks go through the tokens of y, so one thread adds up each sum, in a fixed order and without atomics. */
#include "moe/combine.h"

#include <string.h>

#include "base/threads.h"

enum { TOKENS_PER_TASK = 16 };

typedef struct combine_job {
    const dsmoe_layer *layer;
    const dispatch *d;
    int64_t n_tokens;
    const float *row_values, *topk_weight;
    float *y;
    bool add;
} combine_job;

static void combine_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const combine_job *j = context;
    int64_t hidden = j->layer->config.hidden_size, k = j->layer->config.num_experts_per_tok;
    int64_t end = moe_min(j->n_tokens, (task + 1) * TOKENS_PER_TASK);
    for (int64_t t = task * TOKENS_PER_TASK; t < end; t++) {
        float *y = j->y + t * hidden;
        if (!j->add) memset(y, 0, (size_t)hidden * sizeof *y);
        for (int64_t slot = t * k; slot < (t + 1) * k; slot++)
            j->layer->kernels->axpy(hidden, j->topk_weight ? j->topk_weight[slot] : 1.0f,
                                    j->row_values + j->d->slot_row[slot] * hidden, y);
    }
}

void combine_rows(const dsmoe_layer *layer, const dispatch *d, int64_t n_tokens,
                  const float *row_values, const float *topk_weight, float *y, bool add,
                  int n_threads)
{
    combine_job j = {layer, d, n_tokens, row_values, topk_weight, y, add};
    threads_for(n_threads, moe_parts(n_tokens, TOKENS_PER_TASK), combine_task, &j);
}
