/* weights.c - the parameters of a layer: memory and initial values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/threads.h"
#include "moe/moe.h"

static dsmoe_expert_weights place_expert(arena *a, int64_t hidden, int64_t width)
{
    dsmoe_expert_weights e = {0};
    if (width == 0) return e;
    e.gate_proj = arena_take(a, width * hidden, sizeof(float));
    e.up_proj = arena_take(a, width * hidden, sizeof(float));
    e.down_proj = arena_take(a, hidden * width, sizeof(float));
    return e;
}

static dsmoe_layer_weights *place_weights(arena *a, const dsmoe_layer_config *c)
{
    dsmoe_layer_weights *w = arena_take(a, 1, sizeof *w);
    dsmoe_expert_weights *experts = arena_take(a, c->n_routed_experts, sizeof *experts);
    float *gate = arena_take(a, c->n_routed_experts * c->hidden_size, sizeof(float));
    float *bias = moe_topk_method(c) == DSMOE_TOPK_NOAUX_TC
                      ? arena_take(a, c->n_routed_experts, sizeof(float))
                      : NULL;
    for (int64_t e = 0; e < c->n_routed_experts; e++) {
        dsmoe_expert_weights expert = place_expert(a, c->hidden_size, c->moe_intermediate_size);
        if (a->base) experts[e] = expert;
    }
    dsmoe_expert_weights shared = place_expert(a, c->hidden_size, moe_shared_width(c));
    if (a->base)
        *w = (dsmoe_layer_weights){.gate = gate,
                                   .e_score_correction_bias = bias,
                                   .experts = experts,
                                   .shared_experts = shared};
    return w;
}

/* The struct comes first in the layout, so its address is that of the allocation. */
dsmoe_status dsmoe_layer_weights_create(const dsmoe_layer_config *config,
                                        dsmoe_layer_weights **weights, dsmoe_error *error)
{
    if (!weights) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no place for the weights given");
    *weights = NULL;
    STATUS_TRY(dsmoe_layer_config_check(config, error));
    arena measure = arena_over(NULL);
    place_weights(&measure, config);
    size_t size = arena_size(&measure);
    void *memory = size ? memory_alloc(size) : NULL;
    if (!memory)
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "not enough memory for a layer's weights (%.1f GB)", (double)size / 1e9);
    arena place = arena_over(memory);
    *weights = place_weights(&place, config);
    return DSMOE_OK;
}

void dsmoe_layer_weights_free(dsmoe_layer_weights *weights) { free(weights); }

/* ---- initial values ------------------------------------------------------------------------ */

enum { INIT_PIECE = 1 << 16 }; /* floats that one task makes */

typedef struct init_job {
    float *out;
    int64_t n;
    uint64_t seed, stream;
    float deviation; /* of a normal distribution; 0: uniform in ±bound instead */
    float bound;
} init_job;

static void init_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const init_job *job = context;
    int64_t first = task * INIT_PIECE, n = moe_min(INIT_PIECE, job->n - first);
    if (job->deviation > 0.0f)
        rng_normal(job->out + first, n, job->seed, job->stream, (uint64_t)first, job->deviation);
    else
        rng_uniform(job->out + first, n, job->seed, job->stream, (uint64_t)first, -job->bound,
                    job->bound);
}

static void init_matrix(float *out, int64_t n, float deviation, float bound, uint64_t seed,
                        uint64_t stream, int n_threads)
{
    init_job job = {out, n, seed, stream, deviation, bound};
    threads_for(n_threads, moe_parts(n, INIT_PIECE), init_task, &job);
}

static void init_expert(const dsmoe_expert_weights *e, int64_t n, float deviation, uint64_t seed,
                        uint64_t stream, int n_threads)
{
    float *part[] = {e->gate_proj, e->up_proj, e->down_proj};
    for (int i = 0; i < 3; i++)
        init_matrix(part[i], n, deviation, 0.0f, seed, stream + (uint64_t)i, n_threads);
}

dsmoe_status dsmoe_layer_weights_init(const dsmoe_layer_config *config,
                                      dsmoe_layer_weights *weights, float initializer_range,
                                      uint64_t seed, int n_threads, dsmoe_error *error)
{
    STATUS_TRY(dsmoe_layer_config_check(config, error));
    if (!weights || n_threads < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no weights or no threads given");
    if (!(initializer_range >= 0.0f) || !isfinite(initializer_range))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "initializer_range is %g; it must be a finite number, 0 or more",
                           (double)initializer_range);
    int64_t hidden = config->hidden_size, n_experts = config->n_routed_experts;
    float bound = (float)(1.0 / sqrt((double)hidden));
    init_matrix(weights->gate, n_experts * hidden, 0.0f, bound, seed, 0, n_threads);
    if (weights->e_score_correction_bias)
        memset(weights->e_score_correction_bias, 0, (size_t)n_experts * sizeof(float));
    /* Stream numbers depend on the expert only, so adding experts does not change the others. */
    int64_t size = hidden * config->moe_intermediate_size;
    for (int64_t e = 0; e < n_experts; e++)
        init_expert(&weights->experts[e], size, initializer_range, seed, 4 + 3 * (uint64_t)e,
                    n_threads);
    if (config->n_shared_experts > 0)
        init_expert(&weights->shared_experts, hidden * moe_shared_width(config), initializer_range,
                    seed, 1, n_threads);
    return DSMOE_OK;
}
