/* train.c - the DeepSeekMoE layer in training: forward, which keeps what backward needs.
 *
 *   y  = Σ_s w_s·FFN_{i_s}(x) + FFN_shared(x),  w from the router's scores
 *   dx = Σ_s dFFN_{i_s} + dFFN_shared + d router;  the balance losses add to the gradient of the scores
 */
#include "base/clock.h"
#include "base/threads.h"
#include "moe/layer.h"

/* ---- memory -------------------------------------------------------------------------------- */

/* Everything except g and u, which come last. */
static saved place_head(arena *a, const dsmoe_layer *layer, int64_t n_tokens)
{
    return (saved){
        .header = arena_take(a, 1, sizeof(struct saved_header)),
        .routing = routing_place(a, layer, n_tokens),
        .dispatch = dispatch_place(a, &layer->config, n_tokens),
        .said = wave_place_said(a, layer),
    };
}

saved saved_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens)
{
    const dsmoe_layer_config *c = &layer->config;
    int64_t width = c->moe_intermediate_size, shared = moe_shared_width(c);
    int64_t n_rows = layer->peers ? travel_kept_rows(layer) : n_tokens * c->num_experts_per_tok;
    saved s = place_head(a, layer, n_tokens);
    s.g = row_array_place(a, n_rows * width, n_tokens * shared);
    s.u = row_array_place(a, n_rows * width, n_tokens * shared);
    return s;
}

size_t layer_saved_head(const dsmoe_layer *layer, int64_t n_tokens)
{
    arena measure = arena_over(NULL);
    place_head(&measure, layer, n_tokens);
    return measure.used;
}

static void place_low_rank(arena *a, const dsmoe_layer *layer, int64_t n_tokens, train_space *s)
{
    const dsmoe_layer_config *c = &layer->config;
    int64_t n_rows = n_tokens * (c->num_experts_per_tok + 1), rank = layer->low_rank_width;
    s->experts.low_rank = layer->low_rank;
    s->experts.backs = arena_take(a, 3 * (c->n_routed_experts + 1), sizeof *s->experts.backs);
    s->experts.backs_t = arena_take(a, experts_back_floats(rank, n_rows), sizeof(float));
    s->ranges = low_rank_ranges(layer->low_rank, layer_t_place(a, layer, n_tokens));
}

train_space train_space_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int n_threads)
{
    const dsmoe_layer_config *c = &layer->config;
    int64_t n_rows = n_tokens * c->num_experts_per_tok, n_experts = c->n_routed_experts;
    train_space s = {
        .experts = layer_experts_place(a, layer, n_tokens),
        .travel = travel_place(a, layer, n_tokens, layer->most_tokens, TRAVEL_TRAIN, n_threads),
        .threads = scratch_place(a, layer->kernels, layer_longest(c),
                                 layer_ints_size(layer, n_tokens, 0), n_threads),
        .keys = gate_keys_place(a, layer, n_threads),
        .h = row_array_place(a, n_rows * c->moe_intermediate_size, n_tokens * moe_shared_width(c)),
        .out = arena_take(a, n_rows * c->hidden_size, sizeof(float)),
        .weight = arena_take(a, n_rows, sizeof(float)),
        .d_weight = arena_take(a, n_rows, sizeof(float)),
        .d_topk_weight = arena_take(a, n_rows, sizeof(float)),
        .d_scores = arena_take(a, n_tokens * n_experts, sizeof(float)),
        .d_logits = arena_take(a, n_tokens * n_experts, sizeof(float)),
        .balance = arena_take(a, 2 * n_experts, sizeof(double)),
    };
    s.experts.threads = s.threads;
    s.experts.n_threads = n_threads;
    if (layer->low_rank) place_low_rank(a, layer, n_tokens, &s);
    return s;
}

/* Call it when *s has its final address, since the scratch will point into it. */
static void use_low_rank(const dsmoe_layer *layer, train_space *s)
{
    if (layer->low_rank) scratch_adapt(s->threads, s->experts.n_threads, &s->ranges);
}

size_t dsmoe_layer_train_workspace_size(const dsmoe_layer *layer, int64_t n_tokens, int n_threads)
{
    if (!layer_batch_fits(layer, n_tokens) || n_threads < 1) return 0;
    arena measure = arena_over(NULL);
    train_space_place(&measure, layer, n_tokens, n_threads);
    return arena_size(&measure);
}

size_t dsmoe_layer_saved_size(const dsmoe_layer *layer, int64_t n_tokens)
{
    if (!layer_batch_fits(layer, n_tokens)) return 0;
    arena measure = arena_over(NULL);
    saved_place(&measure, layer, n_tokens);
    return arena_size(&measure);
}

/* Finds the arrays in memory that an earlier forward filled. */
static saved saved_open(const dsmoe_layer *layer, void *memory)
{
    arena a = arena_over(memory);
    const struct saved_header *header = (const struct saved_header *)a.base;
    return saved_place(&a, layer, header->batch.n_sequences * header->batch.sequence_length);
}

dsmoe_routing dsmoe_layer_saved_routing(const dsmoe_layer *layer, const void *memory)
{
    return saved_open(layer, (void *)memory).routing;
}

/* ---- forward ------------------------------------------------------------------------------- */

static dsmoe_status check_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens,
                                  const float *y, const void *saved_memory, size_t saved_size,
                                  const dsmoe_workspace *workspace, dsmoe_error *error)
{
    int n_threads = workspace ? workspace->n_threads : 0;
    size_t needed = dsmoe_layer_train_workspace_size(layer, n_tokens, n_threads);
    STATUS_TRY(layer_check_call(layer, n_tokens, x, y, workspace, needed, error));
    size_t kept = dsmoe_layer_saved_size(layer, n_tokens);
    if (!saved_memory || saved_size < kept)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the memory for kept activations has %zu bytes; %lld tokens need %zu",
                           saved_memory ? saved_size : 0, (long long)n_tokens, kept);
    return DSMOE_OK;
}

/* Scores, choice, sorting and balance losses. Fails if a score is not a finite number. */
static dsmoe_status forward_router(const dsmoe_layer *layer, const float *x, const saved *kept,
                                   const train_space *s, dsmoe_layer_losses *losses,
                                   dsmoe_error *error)
{
    const dsmoe_layer_config *c = &layer->config;
    const layer_batch *of = &kept->header->batch;
    int64_t n_tokens = of->n_sequences * of->sequence_length;
    gate_forward(layer, x, n_tokens, kept->routing, s->threads, s->keys, s->experts.n_threads);
    dispatch_sort(&kept->dispatch, c, kept->routing.topk_idx, n_tokens);
    STATUS_TRY(gate_check(layer, n_tokens, 0, kept->routing, error));
    balance_batch batch = {c, kept->routing, *of};
    if (losses) *losses = balance_losses(&batch, s->balance);
    return DSMOE_OK;
}

static void add_travel(layer_times *times, const travel *t)
{
    times->sending += t->sending;
    times->waiting += t->waiting;
}

dsmoe_status layer_forward_train(const dsmoe_layer *layer, const float *x, const layer_batch *batch,
                                 float *y, void *saved_memory, size_t saved_size,
                                 dsmoe_layer_losses *losses, const dsmoe_workspace *workspace,
                                 bool again, layer_times *times, dsmoe_error *error)
{
    int64_t n_tokens;
    if (batch->n_sequences < 0 || batch->sequence_length < 0 ||
        __builtin_mul_overflow(batch->n_sequences, batch->sequence_length, &n_tokens))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a batch of %lld x %lld tokens is impossible",
                           (long long)batch->n_sequences, (long long)batch->sequence_length);
    STATUS_TRY(check_forward(layer, x, n_tokens, y, saved_memory, saved_size, workspace, error));

    arena a = arena_over(workspace->memory), b = arena_over(saved_memory);
    train_space s = train_space_place(&a, layer, n_tokens, workspace->n_threads);
    use_low_rank(layer, &s);
    saved kept = saved_place(&b, layer, n_tokens);
    *kept.header = (struct saved_header){.state = SAVED_USED};
    if (n_tokens > 0) kept.header->batch = *batch; /* without tokens the sizes stay 0 */

    double start = clock_seconds();
    dsmoe_status status = forward_router(layer, x, &kept, &s, losses, error);
    times->router += clock_seconds() - start;
    s.travel.wave.said = kept.said;
    STATUS_TRY(travel_agree(&s.travel, layer, &kept.dispatch, n_tokens, false, status, error));
    expert_rows arrays = {.g = kept.g, .u = kept.u, .h = s.h, .out = {s.out, y}};
    unit_pass pass = {.layer = layer,
                      .dispatch = &kept.dispatch,
                      .n_tokens = n_tokens,
                      .x = x,
                      .rows = &arrays,
                      .experts = &s.experts,
                      .again = again};
    STATUS_TRY(travel_forward(&s.travel, &pass, error));
    add_travel(times, &s.travel);
    if (!again)
        combine_rows(layer, &kept.dispatch, n_tokens, s.out, kept.routing.topk_weight, y,
                     layer->config.n_shared_experts > 0, workspace->n_threads);
    kept.header->state = SAVED_READY;
    return DSMOE_OK;
}

dsmoe_status dsmoe_layer_forward_train(const dsmoe_layer *layer, const float *x,
                                       int64_t n_sequences, int64_t sequence_length, float *y,
                                       void *saved_memory, size_t saved_size,
                                       dsmoe_layer_losses *losses, const dsmoe_workspace *workspace,
                                       dsmoe_error *error)
{
    layer_times times = {0};
    const layer_batch batch = {n_sequences, sequence_length, NULL, 0};
    return layer_forward_train(layer, x, &batch, y, saved_memory, saved_size, losses, workspace,
                               false, &times, error);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Backward of logits = x · gateᵀ: writes or adds d_gate, and adds to dx. */
typedef struct router_job {
    const dsmoe_layer *layer;
    const float *x, *d_logits;
    int64_t n_tokens;
    float *d_gate, *dx; /* d_gate may be NULL: not needed */
    bool accumulate;
    thread_scratch *threads;
} router_job;

enum { ROUTER_PART = 704 }; /* columns of a task */

static void d_router_task(void *context, int64_t task, int thread)
{
    const router_job *j = context;
    int64_t hidden = j->layer->config.hidden_size, n = j->layer->config.n_routed_experts;
    int64_t column = task * ROUTER_PART, columns = moe_min(ROUTER_PART, hidden - column);
    gemm_tn(&j->threads[thread].gemm, (rows){j->d_logits, n, NULL}, n,
            (rows){j->x + column, hidden, NULL}, columns, j->n_tokens, j->d_gate + column, hidden,
            j->accumulate);
}

static void d_tokens_task(void *context, int64_t task, int thread)
{
    const router_job *j = context;
    int64_t hidden = j->layer->config.hidden_size, n = j->layer->config.n_routed_experts;
    int64_t token = task * GEMM_ROWS;
    gemm_nn_matrix(&j->threads[thread].gemm, (rows){j->d_logits + token * n, n, NULL},
                   moe_min(GEMM_ROWS, j->n_tokens - token), j->layer->weights.gate, 0, n, hidden,
                   j->dx + token * hidden, hidden, true);
}

static void router_backward(const router_job *j, int n_threads)
{
    int64_t hidden = j->layer->config.hidden_size;
    if (j->d_gate) threads_for(n_threads, moe_parts(hidden, ROUTER_PART), d_router_task, (void *)j);
    threads_for(n_threads, moe_parts(j->n_tokens, GEMM_ROWS), d_tokens_task, (void *)j);
}

/* The router's part of backward. It needs the gradients of the gate values. */
static void backward_router(const dsmoe_layer *layer, const float *x, const saved *kept,
                            const train_space *s, float *d_gate, float *dx, bool accumulate)
{
    const layer_batch *of = &kept->header->batch;
    int64_t n_tokens = of->n_sequences * of->sequence_length;
    int64_t n_rows = n_tokens * layer->config.num_experts_per_tok;
    int n_threads = s->experts.n_threads;
    for (int64_t r = 0; r < n_rows; r++)
        s->d_topk_weight[kept->dispatch.row_slot[r]] = s->d_weight[r];
    balance_batch batch = {&layer->config, kept->routing, *of};
    balance_gradient(&batch, s->d_scores, s->balance);
    gate_backward(layer, n_tokens, kept->routing, s->d_topk_weight, s->d_scores,
                  balance_tokens_per_row(of), s->d_logits, n_threads);
    router_job router = {layer, x, s->d_logits, n_tokens, d_gate, dx, accumulate, s->threads};
    router_backward(&router, n_threads);
}

dsmoe_status layer_backward(const dsmoe_layer *layer, const float *x, const float *dy,
                            void *saved_memory, float *dx, dsmoe_layer_weights *gradients,
                            bool accumulate, const dsmoe_workspace *workspace, layer_times *times,
                            dsmoe_error *error)
{
    if (!layer || !saved_memory || !gradients)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no layer, no kept activations or no gradients given");
    saved kept = saved_open(layer, saved_memory);
    if (kept.header->state != SAVED_READY)
        return status_fail(
            error, DSMOE_ERROR_ARGUMENT,
            "backward needs the activations of a forward pass that it has not used yet");
    int64_t n_tokens = kept.header->batch.n_sequences * kept.header->batch.sequence_length;
    int n_threads = workspace ? workspace->n_threads : 0;
    size_t needed = dsmoe_layer_train_workspace_size(layer, n_tokens, n_threads);
    STATUS_TRY(layer_check_call(layer, n_tokens, x, dx, workspace, needed, error));
    if (n_tokens > 0 && !dy) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no dy given");
    if (n_tokens == 0) x = dy = dx = workspace->memory; /* never read, but must not be NULL */
    kept.header->state = SAVED_USED;

    arena a = arena_over(workspace->memory);
    train_space s = train_space_place(&a, layer, n_tokens, n_threads);
    for (int64_t r = 0; r < n_tokens * layer->config.num_experts_per_tok; r++)
        s.weight[r] = kept.routing.topk_weight[kept.dispatch.row_slot[r]];
    expert_rows arrays = {.g = kept.g,
                          .u = kept.u,
                          .h = s.h,
                          .out = {s.out, dx},
                          .weight = s.weight,
                          .d_weight = s.d_weight,
                          .gradients = gradients};
    unit_pass pass = {.layer = layer,
                      .dispatch = &kept.dispatch,
                      .n_tokens = n_tokens,
                      .x = x,
                      .dy = dy,
                      .rows = &arrays,
                      .experts = &s.experts};
    s.travel.wave.said = kept.said;
    STATUS_TRY(travel_backward(&s.travel, &pass, accumulate, error));
    add_travel(times, &s.travel);
    combine_rows(layer, &kept.dispatch, n_tokens, s.out, NULL, dx,
                 layer->config.n_shared_experts > 0, n_threads);

    double start = clock_seconds();
    backward_router(layer, x, &kept, &s, gradients->gate, dx, accumulate && !layer->peers);
    times->router += clock_seconds() - start;
    return DSMOE_OK;
}

dsmoe_status dsmoe_layer_backward(const dsmoe_layer *layer, const float *x, const float *dy,
                                  void *saved_memory, float *dx, dsmoe_layer_weights *gradients,
                                  bool accumulate, const dsmoe_workspace *workspace,
                                  dsmoe_error *error)
{
    layer_times times = {0};
    return layer_backward(layer, x, dy, saved_memory, dx, gradients, accumulate, workspace, &times,
                          error);
}
