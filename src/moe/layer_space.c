/* layer_space.c - the memory of a pass: how much it needs, and where its arrays are. */
#include "moe/ints.h"
#include "moe/layer.h"

/* Inference cuts long inputs into pieces of this many tokens, which bounds its workspace. That is enough
 * tokens for each expert's weights to be reused so often that arithmetic is the limit, not reading. */
enum { PIECE = 2048 };

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

int64_t layer_piece(const dsmoe_layer *layer)
{
    return layer->peers ? moe_min(layer->most_tokens, PIECE) : PIECE;
}

infer_space infer_space_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int n_threads)
{
    const dsmoe_layer_config *c = &layer->config;
    int64_t n_rows = n_tokens * c->num_experts_per_tok;
    int64_t n_guests = layer->peers ? travel_capacity(layer, layer_piece(layer)) : 0;
    infer_space s = {
        .routing = routing_place(a, layer, n_tokens),
        .dispatch = dispatch_place(a, c, n_tokens),
        .experts = layer_experts_place(a, layer, n_tokens),
        .travel = travel_place(a, layer, n_tokens, layer_piece(layer), TRAVEL_INFER, n_threads),
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
    int64_t piece = layer ? moe_min(n_tokens, layer_piece(layer)) : 0;
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
                           "the workspace has %zu bytes; %lld tokens on %d threads need %zu",
                           workspace->memory ? workspace->size : 0, (long long)n_tokens,
                           workspace->n_threads, needed);
    return DSMOE_OK;
}
