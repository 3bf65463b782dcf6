/* layer.c - the DeepSeekMoE layer, forward:
 *
 *   h_t = Σ_{i ≤ Ks} FFN_i(u_t) + Σ_{i > Ks} g_{i,t}·FFN_i(u_t)  (+ u_t, which is the caller's)
 *
 *   gate      g from the router                                  gate.c
 *   dispatch  rows sorted by expert                              dispatch.c
 *   experts   FFN_i of its rows; the shared ones write h         experts.c
 *   travel    the same where other ranks hold some experts       travel.c
 *   combine   h += Σ g·rows                                      combine.c */
#include "moe/layer.h"

#include <stdlib.h>
#include <string.h>

#include "moe/ints.h"
#include "moe/low_rank.h"
#include "peers/peers.h"

/* Inference goes through long inputs in pieces of this many tokens, which bounds its workspace. At
 * that length each expert's weights are reused often enough for arithmetic to be the limit. */
enum { PIECE = 2048 };

/* ---- creating ------------------------------------------------------------------------------ */

static bool expert_is_complete(const dsmoe_expert_weights *e)
{
    return e->gate_proj && e->up_proj && e->down_proj;
}

static dsmoe_status check_weights(const dsmoe_layer_config *c, const dsmoe_layer_weights *w,
                                  dsmoe_error *error)
{
    if (!w || !w->gate || !w->experts)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "weights, router or experts are missing");
    if (moe_topk_method(c) == DSMOE_TOPK_NOAUX_TC && !w->e_score_correction_bias)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "e_score_correction_bias is missing, which \"noaux_tc\" chooses by");
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        if (!expert_is_complete(&w->experts[i]))
            return status_fail(error, DSMOE_ERROR_ARGUMENT, "expert %lld lacks a matrix",
                               (long long)i);
    if (c->n_shared_experts > 0 && !expert_is_complete(&w->shared_experts))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "the shared experts lack a matrix");
    return DSMOE_OK;
}

static unsigned weights_forms(const dsmoe_layer_config *c, const moe_weights *w)
{
    const kernels *kn = kernels_get();
    unsigned forms = c->n_shared_experts > 0 ? ints_forms_of_expert(kn, &w->shared_experts) : 0;
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        forms |= ints_forms_of_expert(kn, &w->experts[i]);
    return forms;
}

dsmoe_status layer_create(const dsmoe_layer_config *config, const moe_weights *weights,
                          const kernels *kn, dsmoe_layer **layer, dsmoe_error *error)
{
    size_t size = (size_t)config->n_routed_experts * sizeof *weights->experts;
    dsmoe_layer *made = malloc(sizeof *made);
    moe_expert *table = malloc(size);
    if (!made || !table) {
        free(made);
        free(table);
        return status_fail(error, DSMOE_ERROR_MEMORY, "no memory for a layer");
    }
    memcpy(table, weights->experts, size);
    *made = (dsmoe_layer){.config = moe_config_own(config),
                          .kernels = kn,
                          .weights = *weights,
                          .x_forms = weights_forms(config, weights),
                          .held = {0, config->n_routed_experts}};
    made->weights.experts = table;
    *layer = made;
    return DSMOE_OK;
}

static moe_expert expert_f32(const dsmoe_expert_weights *e, int64_t hidden, int64_t width)
{
    return (moe_expert){matrix_f32(e->gate_proj, hidden), matrix_f32(e->up_proj, hidden),
                        matrix_f32(e->down_proj, width)};
}

dsmoe_status dsmoe_layer_create(const dsmoe_layer_config *config,
                                const dsmoe_layer_weights *weights, dsmoe_layer **layer,
                                dsmoe_error *error)
{
    if (!layer) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no place for the layer given");
    *layer = NULL;
    STATUS_TRY(dsmoe_layer_config_check(config, error));
    STATUS_TRY(check_weights(config, weights, error));
    int64_t n = config->n_routed_experts;
    moe_expert *table = malloc((size_t)n * sizeof *table);
    if (!table) return status_fail(error, DSMOE_ERROR_MEMORY, "no memory for a layer");
    for (int64_t i = 0; i < n; i++)
        table[i] =
            expert_f32(&weights->experts[i], config->hidden_size, config->moe_intermediate_size);
    moe_weights typed = {.gate = matrix_f32(weights->gate, config->hidden_size),
                         .e_score_correction_bias = weights->e_score_correction_bias,
                         .experts = table,
                         .shared_experts = expert_f32(&weights->shared_experts, config->hidden_size,
                                                      moe_shared_width(config))};
    dsmoe_status status = layer_create(config, &typed, kernels_get(), layer, error);
    free(table);
    return status;
}

void layer_join(dsmoe_layer *layer, const dsmoe_peers *peers, int64_t most_tokens)
{
    layer->peers = peers;
    layer->most_tokens = most_tokens;
    layer->held = wave_held(layer->config.n_routed_experts, peers_rank(peers), peers_size(peers));
}

void dsmoe_layer_free(dsmoe_layer *layer)
{
    if (!layer) return;
    free(layer->weights.experts);
    free(layer);
}

/* ---- memory -------------------------------------------------------------------------------- */

thread_scratch *scratch_place(arena *a, const kernels *kn, int64_t longest, size_t ints_size,
                              int n_threads)
{
    thread_scratch *threads = arena_take(a, n_threads, sizeof *threads);
    char *ints = arena_take(a, 1, ints_size);
    for (int i = 0; i < n_threads; i++) {
        void *panels = arena_take(a, 1, gemm_scratch_size(kn, longest));
        float *gate = arena_take(a, GEMM_ROWS * CUT_WIDEST, sizeof(float));
        float *up = arena_take(a, GEMM_ROWS * CUT_WIDEST, sizeof(float));
        if (a->base)
            threads[i] =
                (thread_scratch){gemm_init(kn, longest, panels), gate, up, ints, ints_size, NULL};
    }
    return threads;
}

size_t layer_ints_size(const dsmoe_layer *layer, int64_t n_tokens, int64_t n_guests)
{
    const dsmoe_layer_config *c = &layer->config;
    unsigned forms = layer->x_forms;
    int64_t hidden = c->hidden_size, width = c->moe_intermediate_size;
    size_t sizes[] = {ints_size(forms, n_tokens, hidden),
                      ints_size(forms, n_tokens * c->num_experts_per_tok, width) +
                          ints_size(forms, n_tokens, moe_shared_width(c)),
                      ints_size(forms, n_guests, hidden), ints_size(forms, n_guests, width)};
    size_t largest = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] > largest) largest = sizes[i];
    return largest;
}

row_array row_array_place(arena *a, int64_t routed, int64_t shared)
{
    return (row_array){.routed = arena_take(a, routed, sizeof(float)),
                       .shared = arena_take(a, shared, sizeof(float))};
}

experts layer_experts_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens)
{
    const dsmoe_layer_config *c = &layer->config;
    return experts_place(a, layer->kernels, c->hidden_size, c->n_routed_experts + 1,
                         n_tokens * (c->num_experts_per_tok + 1));
}

dsmoe_routing routing_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens)
{
    int64_t n_rows = n_tokens * layer->config.num_experts_per_tok;
    return (dsmoe_routing){
        .scores = arena_take(a, n_tokens * layer->config.n_routed_experts, sizeof(float)),
        .topk_idx = arena_take(a, n_rows, sizeof(int32_t)),
        .topk_weight = arena_take(a, n_rows, sizeof(float)),
    };
}

float *layer_t_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens)
{
    int64_t n_rows = n_tokens * (layer->config.num_experts_per_tok + 1);
    return arena_take(a, 2 * n_rows * layer->low_rank_width, sizeof(float));
}

typedef struct infer_space {
    dsmoe_routing routing;
    dispatch dispatch;
    experts experts;
    travel travel;
    thread_scratch *threads;
    float *keys; /* of the gate */
    row_array h;
    float *out; /* routed rows; shared ones go straight to y */
    float *t;   /* of low-rank additions */
} infer_space;

/* Tokens that go through the layer at once; ranks that share its experts agree on it. */
static int64_t piece_size(const dsmoe_layer *layer)
{
    return layer->peers ? moe_min(layer->most_tokens, PIECE) : PIECE;
}

static infer_space infer_space_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens,
                                     int n_threads)
{
    const dsmoe_layer_config *c = &layer->config;
    int64_t n_rows = n_tokens * c->num_experts_per_tok;
    int64_t n_guests = layer->peers ? travel_capacity(layer, piece_size(layer)) : 0;
    infer_space s = {
        .routing = routing_place(a, layer, n_tokens),
        .dispatch = dispatch_place(a, c, n_tokens),
        .experts = layer_experts_place(a, layer, n_tokens),
        .travel = travel_place(a, layer, n_tokens, piece_size(layer), TRAVEL_INFER, n_threads),
        .threads = scratch_place(a, layer->kernels, layer_longest(c),
                                 layer_ints_size(layer, n_tokens, n_guests), n_threads),
        .keys = gate_keys_place(a, layer, n_threads),
        .h = row_array_place(a, n_rows * c->moe_intermediate_size, n_tokens * moe_shared_width(c)),
        .out = arena_take(a, n_rows * c->hidden_size, sizeof(float)),
        .t = layer_t_place(a, layer, n_tokens),
    };
    s.travel.wave.said = wave_place_said(a, layer);
    return s;
}

bool layer_batch_fits(const dsmoe_layer *layer, int64_t n_tokens)
{
    if (!layer || n_tokens < 0) return false;
    int64_t most = INT32_MAX / (2 * layer->config.num_experts_per_tok);
    if (layer->peers &&
        (layer->most_tokens < 1 || layer->most_tokens > most || n_tokens > layer->most_tokens))
        return false;
    return n_tokens <= INT32_MAX / (layer->config.num_experts_per_tok + 1);
}

size_t dsmoe_layer_workspace_size(const dsmoe_layer *layer, int64_t n_tokens, int n_threads)
{
    int64_t piece = layer ? moe_min(n_tokens, piece_size(layer)) : 0;
    if (!layer_batch_fits(layer, piece) || n_threads < 1) return 0;
    arena measure = arena_over(NULL);
    infer_space_place(&measure, layer, piece, n_threads);
    return arena_size(&measure);
}

dsmoe_status layer_check_call(const dsmoe_layer *layer, int64_t n_tokens, const void *x,
                              const void *y, const dsmoe_workspace *workspace, size_t needed,
                              dsmoe_error *error)
{
    if (!layer || n_tokens < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no layer, or a negative number of tokens");
    if (n_tokens > 0 && (!x || !y))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no input or no output given");
    if (!workspace || workspace->n_threads < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no workspace, or no threads in it");
    if (needed == 0)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%lld tokens are too many for one call",
                           (long long)n_tokens);
    if (!workspace->memory || workspace->size < needed)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "the workspace has %zu bytes; %lld tokens on %d threads take %zu",
                           workspace->memory ? workspace->size : 0, (long long)n_tokens,
                           workspace->n_threads, needed);
    return DSMOE_OK;
}

/* ---- inference ----------------------------------------------------------------------------- */

/* Whether the piece can go on. Somebody looks after tokens that are spoilt, or they are an error. */
static dsmoe_status check_piece(const dsmoe_layer *layer, int64_t n_tokens, int64_t first,
                                dsmoe_routing routing, const layer_manner *manner,
                                dsmoe_error *error)
{
    if (manner && manner->is_stopped)
        return status_fail(error, DSMOE_ERROR_STOPPED, "it was told to stop");
    if (!manner || !manner->spoilt) return gate_check(layer, n_tokens, first, routing, error);
    for (int64_t t = 0; t < n_tokens; t++)
        if (gate_is_spoilt(layer, routing, t)) manner->spoilt(manner->context, first + t);
    return DSMOE_OK;
}

static dsmoe_status forward_piece(const dsmoe_layer *layer, const float *x, int64_t n_tokens,
                                  int64_t first, float *y, infer_space *s,
                                  const layer_manner *manner, bool has_more, dsmoe_error *error)
{
    const dsmoe_layer_config *c = &layer->config;
    int n_threads = s->experts.n_threads;
    gate_forward(layer, x, n_tokens, s->routing, s->threads, s->keys, n_threads);
    dsmoe_status status = check_piece(layer, n_tokens, first, s->routing, manner, error);
    dispatch_sort(&s->dispatch, c, s->routing.topk_idx, n_tokens);
    STATUS_TRY(travel_agree(&s->travel, layer, &s->dispatch, n_tokens, has_more, status, error));
    if (manner && manner->routing && n_tokens > 0)
        manner->routing(manner->context, first, n_tokens, &s->routing);
    expert_rows arrays = {.h = s->h, .out = {s->out, y}};
    unit_pass pass = {.layer = layer,
                      .dispatch = &s->dispatch,
                      .n_tokens = n_tokens,
                      .x = x,
                      .rows = &arrays,
                      .experts = &s->experts};
    STATUS_TRY(travel_forward(&s->travel, &pass, error));
    combine_rows(layer, &s->dispatch, n_tokens, s->out, s->routing.topk_weight, y,
                 c->n_shared_experts > 0, n_threads);
    return DSMOE_OK;
}

dsmoe_status dsmoe_layer_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens,
                                 float *y, const dsmoe_workspace *workspace, dsmoe_error *error)
{
    return layer_forward(layer, x, n_tokens, y, workspace, NULL, error);
}

dsmoe_status layer_forward(const dsmoe_layer *layer, const float *x, int64_t n_tokens, float *y,
                           const dsmoe_workspace *workspace, const layer_manner *manner,
                           dsmoe_error *error)
{
    int n_threads = workspace ? workspace->n_threads : 0;
    size_t needed = dsmoe_layer_workspace_size(layer, n_tokens, n_threads);
    STATUS_TRY(layer_check_call(layer, n_tokens, x, y, workspace, needed, error));
    arena a = arena_over(workspace->memory);
    int64_t piece = piece_size(layer), hidden = layer->config.hidden_size;
    infer_space s = infer_space_place(&a, layer, moe_min(n_tokens, piece), n_threads);
    s.experts.threads = s.threads;
    s.experts.n_threads = n_threads;
    s.experts.watch = manner ? manner->inputs : NULL;
    scratch_same_bits(s.threads, n_threads, manner && manner->same_bits);
    adapter_ranges adapters = {0};
    if (manner && manner->adapters) {
        adapters = *manner->adapters;
        if (!adapters.t) adapters.t = s.t;
        scratch_adapt(s.threads, n_threads, &adapters);
    }
    int64_t first_adapted = adapters.first;
    if (n_tokens == 0) x = y = workspace->memory; /* not read, but counted from: no NULL */
    bool goes_on = n_tokens > 0 || layer->peers;  /* others may have tokens for experts here */
    for (int64_t t = 0, n; goes_on; t += n) {
        n = moe_min(piece, n_tokens - t);
        adapters.first = first_adapted + t;
        goes_on = t + n < n_tokens;
        STATUS_TRY(
            forward_piece(layer, x + t * hidden, n, t, y + t * hidden, &s, manner, goes_on, error));
        if (layer->peers) goes_on = wave_has_more(&s.travel.wave);
    }
    return DSMOE_OK;
}

/* Copies what the caller asked for of one piece's routing. */
static void copy_routing(const dsmoe_layer_config *c, const dsmoe_routing *from, int64_t first,
                         int64_t n, dsmoe_routing *to)
{
    int64_t n_experts = c->n_routed_experts, k = c->num_experts_per_tok;
    if (to->scores)
        memcpy(to->scores + first * n_experts, from->scores,
               (size_t)(n * n_experts) * sizeof *to->scores);
    if (to->topk_idx)
        memcpy(to->topk_idx + first * k, from->topk_idx, (size_t)(n * k) * sizeof *to->topk_idx);
    if (to->topk_weight)
        memcpy(to->topk_weight + first * k, from->topk_weight,
               (size_t)(n * k) * sizeof *to->topk_weight);
}

dsmoe_status dsmoe_layer_route(const dsmoe_layer *layer, const float *x, int64_t n_tokens,
                               dsmoe_routing routing, const dsmoe_workspace *workspace,
                               dsmoe_error *error)
{
    int n_threads = workspace ? workspace->n_threads : 0;
    size_t needed = dsmoe_layer_workspace_size(layer, n_tokens, n_threads);
    STATUS_TRY(layer_check_call(layer, n_tokens, x, x, workspace, needed, error));
    arena a = arena_over(workspace->memory);
    int64_t piece = piece_size(layer);
    infer_space s = infer_space_place(&a, layer, moe_min(n_tokens, piece), n_threads);
    for (int64_t t = 0; t < n_tokens; t += piece) {
        int64_t n = moe_min(piece, n_tokens - t);
        gate_forward(layer, x + t * layer->config.hidden_size, n, s.routing, s.threads, s.keys,
                     n_threads);
        STATUS_TRY(gate_check(layer, n, t, s.routing, error));
        copy_routing(&layer->config, &s.routing, t, n, &routing);
    }
    return DSMOE_OK;
}
