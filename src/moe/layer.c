/* layer.c - the DeepSeekMoE layer, forward:
 *
 *   h_t = Σ_{i ≤ Ks} FFN_i(u_t) + Σ_{i > Ks} g_{i,t}·FFN_i(u_t)  (+ u_t, which the caller adds)
 *
 *   gate      computes the gate values g                                     gate.c
 *   dispatch  sorts rows, which are (token, chosen expert) pairs, by expert  dispatch.c
 *   travel    runs the experts, on other ranks too if they hold some         travel.c
 *   experts   computes FFN_i of each expert's rows; shared experts write h   experts.c
 *   combine   h += Σ g·rows                                                  combine.c */
#include "moe/layer.h"

#include <string.h>

#include "moe/low_rank.h"

/* Whether forward_piece may continue. A spoilt token (see gate.h) is an error, unless the caller handles such
 * tokens itself, in manner->spoilt. */
static dsmoe_status check_piece(const dsmoe_layer *layer, int64_t n_tokens, int64_t first,
                                dsmoe_routing routing, const layer_manner *manner,
                                dsmoe_error *error);

/* The formula for n_tokens tokens. `first` is the number of the first of them within the call. */
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

/* ---- checks after the gate -------------------------------------------------------------------- */

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

/* ---- all tokens, piece by piece --------------------------------------------------------------- */

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
    int64_t piece = layer_piece(layer), hidden = layer->config.hidden_size;
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
    if (n_tokens == 0) x = y = workspace->memory; /* never read, but must not be NULL */
    bool goes_on = n_tokens > 0 || layer->peers;  /* other ranks may send tokens to experts here */
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

/* Copies those arrays of one piece's routing that the caller asked for. */
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
    int64_t piece = layer_piece(layer);
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
