/* step.c - the layers of the model over a batch, forward and backward:
 *
 *   middle = x + Attention(norm(x))
 *   next   = middle + FFN(norm(middle))     FFN: one SwiGLU network, or the MoE layer
 *
 * Backward runs through the same steps in reverse. The norms are cheap and computed again rather than
 * kept. With `recompute` so is the whole layer, of which only the input is kept. */
#include "train/step.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "model/config.h"
#include "model/rope.h"
#include "moe/ints.h"
#include "train/arrival.h"
#include "train/correction.h"
#include "train/head.h"
#include "train/units.h"

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct dense_space {
    experts experts; /* the network as the only expert */
    float *h;        /* [n_tokens, intermediate_size] */
    adapter_ranges ranges;
} dense_space;

static dense_space dense_place(arena *a, const dsmoe_trainer *t, int64_t n_tokens)
{
    const dsmoe_config *c = &t->config;
    int64_t hidden = c->hidden_size, width = c->intermediate_size;
    int64_t longest = width > hidden ? width : hidden;
    dense_space s = {.experts = experts_place(a, t->kernels, hidden, 1, n_tokens),
                     .h = arena_take(a, n_tokens * width, sizeof(float))};
    s.experts.threads = scratch_place(
        a, t->kernels, longest, ints_size(t->x_forms, n_tokens, longest), t->options.n_threads);
    s.experts.n_threads = t->options.n_threads;
    const low_rank_training *low = trainer_low_rank(t);
    if (!low) return s;
    int64_t rank = low->adapter.most_rank;
    s.experts.low_rank = low;
    s.experts.backs = arena_take(a, 3, sizeof *s.experts.backs);
    s.experts.backs_t = arena_take(a, experts_back_floats(rank, n_tokens), sizeof(float));
    s.ranges = low_rank_ranges(low, arena_take(a, 2 * rank * n_tokens, sizeof(float)));
    return s;
}

static head_job head_of(const dsmoe_trainer *t)
{
    return (head_job){.kernels = t->kernels,
                      .n_tokens = t->options.n_sequences * t->options.sequence_length,
                      .hidden_size = t->config.hidden_size,
                      .vocab_size = t->config.vocab_size,
                      .weight = t->weight_slots->lm_head,
                      .n_threads = t->options.n_threads};
}

/* Memory for the largest part of the work; 0 if it cannot fit. */
static size_t phase_size(const dsmoe_trainer *t, const attention_batch *batch, int64_t n_tokens)
{
    head_job head = head_of(t);
    size_t attention = attention_train_size(batch), largest = head_size(&head);
    if (!attention || !largest) return 0;
    if (attention > largest) largest = attention;
    for (int64_t i = 0; i < t->config.num_hidden_layers; i++) {
        arena dense = arena_over(NULL);
        dense_place(&dense, t, n_tokens);
        const dsmoe_layer *moe = t->model->layers[i];
        size_t size = moe ? dsmoe_layer_train_workspace_size(moe, n_tokens, t->options.n_threads)
                          : arena_size(&dense);
        if (!size) return 0;
        if (size > largest) largest = size;
    }
    return largest;
}

static void layer_place(arena *a, const dsmoe_trainer *t, const attention_batch *batch,
                        int64_t layer, int64_t n_tokens, layer_saved *out)
{
    const dsmoe_config *c = &t->config;
    const dsmoe_layer *moe = t->model->layers[layer];
    size_t begin = a->used, head = 0;
    out->middle = arena_take(a, n_tokens * c->hidden_size, sizeof(float));
    size_t attention = a->used;
    out->attention = attention_saved_place(a, batch);
    size_t ffn = a->used;
    if (moe) {
        out->moe_size = dsmoe_layer_saved_size(moe, n_tokens);
        head = layer_saved_head(moe, n_tokens);
        a->overflow = a->overflow || out->moe_size == 0;
        out->moe = arena_take(a, 1, out->moe_size);
    } else {
        out->g = arena_take(a, n_tokens * c->intermediate_size, sizeof(float));
        out->u = arena_take(a, n_tokens * c->intermediate_size, sizeof(float));
    }
    const size_t at[KEPT_PIECES + 1] = {begin, attention, ffn, ffn + head, a->used};
    for (int i = 0; i < KEPT_PIECES; i++)
        out->pieces[i] =
            (kept_piece){a->base ? a->base + at[i] : NULL, at[i + 1] - at[i], i == 1 || i == 3};
}

/* How many layers have lost their memory to another layer, and have nothing in a store, when backward
 * reaches them: they are run again. In halves, the last layer still has its values then, otherwise the
 * last of the layers that share memory. */
static int64_t n_gone(const dsmoe_trainer *t)
{
    return t->in_halves ? moe_min(t->n_sharing, t->config.num_hidden_layers - 1) : t->n_sharing - 1;
}

static bool is_gone(const dsmoe_trainer *t, int64_t layer) { return layer < n_gone(t); }

/* Places the memory of the layers one after the other, except that layers which share memory are in the
 * same place. */
static void layers_place(arena *a, const dsmoe_trainer *t, const attention_batch *batch,
                         int64_t n_tokens, layer_saved *layers)
{
    int64_t n_layers = t->config.num_hidden_layers;
    arena start = *a, furthest = *a;
    for (int64_t i = 0; i < n_layers; i++) {
        layer_saved nowhere = {0}, *layer = layers ? &layers[i] : &nowhere;
        *a = t->in_halves || i < t->n_sharing ? start : furthest;
        layer_place(a, t, batch, i, n_tokens, layer);
        if (a->used > furthest.used || a->overflow) furthest = *a;
    }
    *a = furthest;
    for (int64_t i = 0; i < n_layers; i++) {
        bool is_kept = i == 0 || i >= t->lowest; /* backward does not reach the others */
        float *x = is_kept ? arena_take(a, n_tokens * t->config.hidden_size, sizeof(float)) : NULL;
        if (layers) layers[i].x = is_kept ? x : layers[0].x;
    }
    for (int64_t i = n_gone(t); t->in_halves && i + 1 < n_layers; i++) {
        arena measure = arena_over(NULL);
        layer_saved sizes = {0};
        layer_place(&measure, t, batch, i, n_tokens, &sizes);
        void *store = arena_take(a, 1, halves_size(sizes.pieces));
        if (layers) layers[i].store = store;
    }
}

step_space *step_place(arena *a, const dsmoe_trainer *t, size_t *activations)
{
    const dsmoe_config *c = &t->config;
    int64_t length = t->options.sequence_length, n = t->options.n_sequences * length;
    int64_t hidden = c->hidden_size, half = config_rope_dim(c) / 2, layers = c->num_hidden_layers;
    step_space *placed = arena_take(a, 1, sizeof *placed), s = {.n_tokens = n};
    s.attention = (attention_batch){.config = c,
                                    .kernels = t->kernels,
                                    .n_sequences = t->options.n_sequences,
                                    .sequence_length = length,
                                    .n_threads = t->options.n_threads,
                                    .rope_pairs = t->weight_slots->rope_pairs,
                                    .x_forms = t->x_forms,
                                    .low_rank = trainer_low_rank(t)};
    s.layers = arena_take(a, layers, sizeof *s.layers);
    size_t before = a->used;
    layers_place(a, t, &s.attention, n, s.layers);
    *activations = a->used - before;
    s.norm = norm_place(a, t->kernels, n, hidden, (float)c->rms_norm_eps, t->options.n_threads);
    float **rows_of_hidden[] = {&s.x_last, &s.normed, &s.y, &s.dx, &s.d_normed};
    for (size_t i = 0; i < sizeof rows_of_hidden / sizeof *rows_of_hidden; i++)
        *rows_of_hidden[i] = arena_take(a, n * hidden, sizeof(float));
    float **angles[] = {&s.cos, &s.sin, &s.sin_back};
    for (int i = 0; i < 3; i++) *angles[i] = arena_take(a, length * half, sizeof(float));
    if (trainer_low_rank(t)) {
        s.reference = arena_take(a, n / 2 + 1, sizeof *s.reference);
        s.margins = arena_take(a, n / 2 + 1, sizeof *s.margins);
        s.shares = arena_take(a, n, sizeof *s.shares);
    }
    s.phase_size = phase_size(t, &s.attention, n);
    s.phase = arena_take(a, 1, s.phase_size);
    a->overflow = a->overflow || s.phase_size == 0;
    s.attention.cos = s.cos;
    s.attention.sin = s.sin;
    s.attention.sin_back = s.sin_back;
    if (placed) *placed = s;
    return placed;
}

void step_begin(dsmoe_trainer *t)
{
    const dsmoe_config *c = &t->config;
    step_space *s = t->space;
    int64_t half = config_rope_dim(c) / 2, length = t->options.sequence_length;
    for (int64_t i = 0; i < length; i++) rope_angles(c, i, s->cos + i * half, s->sin + i * half);
    for (int64_t i = 0; i < length * half; i++) s->sin_back[i] = -s->sin[i];
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Adds the time since *last to a part, except what was spent on other ranks. */
static void lap(dsmoe_trainer *t, double *part, double *last)
{
    double now = clock_seconds(), sent = timed_peers_take(&t->timed);
    *part += now - *last - sent;
    t->times.sending += sent;
    *last = now;
}

/* Times that a layer has counted itself do not count as the experts' time as well. */
static void add_times(dsmoe_trainer *t, const layer_times *times)
{
    t->times.router += times->router;
    t->times.experts -= times->router;
    t->times.waiting += times->waiting;
    t->times.sending -= times->waiting; /* lap counts waiting as sending */
}

/* ---- the FFN --------------------------------------------------------------------------------- */

static dsmoe_expert_weights expert_pointers(const moe_expert *e)
{
    return (dsmoe_expert_weights){(float *)e->gate_proj.data, (float *)e->up_proj.data,
                                  (float *)e->down_proj.data};
}

/* Treats the dense network as an expert that gets every token. */
static dense_space dense_experts(dsmoe_trainer *t, int64_t layer, const layer_saved *kept,
                                 float *out)
{
    arena a = arena_over(t->space->phase);
    dense_space s = dense_place(&a, t, t->space->n_tokens);
    experts_begin(&s.experts, t->space->n_tokens);
    experts_add(&s.experts,
                (group){.weights = t->weight_slots->layers[layer].mlp,
                        .gradients = expert_pointers(&t->fold.into->slots->layers[layer].mlp),
                        .width = t->config.intermediate_size,
                        .n_rows = t->space->n_tokens,
                        .g = kept->g,
                        .u = kept->u,
                        .h = s.h,
                        .out = out});
    return s;
}

static dsmoe_status name_layer(dsmoe_status status, int64_t layer, const dsmoe_error *why,
                               dsmoe_error *error)
{
    if (status == DSMOE_OK) return status;
    return status_fail(error, status, "layer %lld: %s", (long long)layer, why->message);
}

static dsmoe_status moe_forward(dsmoe_trainer *t, int64_t layer, bool again,
                                dsmoe_layer_losses *losses, dsmoe_error *error)
{
    step_space *s = t->space;
    layer_saved *kept = &s->layers[layer];
    dsmoe_workspace workspace = {s->phase, s->phase_size, t->options.n_threads};
    dsmoe_error why;
    layer_times times = {0};
    dsmoe_status status =
        layer_forward_train(t->model->layers[layer], s->normed, &s->experts, s->y, kept->moe,
                            kept->moe_size, losses, &workspace, again, &times, &why);
    add_times(t, &times);
    return name_layer(status, layer, &why, error);
}

static dsmoe_status ffn_forward(dsmoe_trainer *t, int64_t layer, bool again,
                                dsmoe_layer_losses *losses, dsmoe_error *error)
{
    step_space *s = t->space;
    if (t->model->layers[layer]) return moe_forward(t, layer, again, losses, error);
    dense_space dense = dense_experts(t, layer, &s->layers[layer], s->y);
    if (trainer_low_rank(t))
        scratch_adapt(dense.experts.threads, t->options.n_threads, &dense.ranges);
    (again ? experts_hidden : experts_forward)(&dense.experts, s->normed);
    return DSMOE_OK;
}

static dsmoe_status ffn_backward(dsmoe_trainer *t, int64_t layer, dsmoe_error *error)
{
    step_space *s = t->space;
    layer_saved *kept = &s->layers[layer];
    const dsmoe_layer *moe = t->model->layers[layer];
    if (!moe) {
        dense_space dense = dense_experts(t, layer, kept, s->d_normed);
        experts_backward(&dense.experts, s->normed, s->dx, false);
        return DSMOE_OK;
    }
    correction_clear(t, layer, t->fold.into->slots);
    dsmoe_workspace workspace = {s->phase, s->phase_size, t->options.n_threads};
    bool accumulate = trainer_divides_experts(t) && t->n_batches > 0; /* added up in place */
    dsmoe_error why;
    layer_times times = {0};
    dsmoe_status status =
        layer_backward(moe, s->normed, s->dx, kept->moe, s->d_normed, &t->fold.into->moe[layer],
                       accumulate, &workspace, &times, &why);
    add_times(t, &times);
    return name_layer(status, layer, &why, error);
}

/* ---- one layer ------------------------------------------------------------------------------- */

/* Computes the layer's input from the previous layer's output, unless it is there already, and its norm. */
static void take_over(dsmoe_trainer *t, int64_t layer, bool again)
{
    step_space *s = t->space;
    const float *weight = t->weight_slots->layers[layer].input_layernorm;
    float *x = s->layers[layer].x;
    if (layer == 0 || again)
        norm_forward(&s->norm, x, weight, s->normed);
    else
        norm_add_forward(&s->norm, s->layers[layer - 1].middle, s->y, x, weight, s->normed);
}

/* Leaves what the FFN adds to `middle` in s->y. `again`: for backward, when the input is known. */
static dsmoe_status layer_run(dsmoe_trainer *t, int64_t layer, bool again,
                              dsmoe_layer_losses *losses, dsmoe_error *error)
{
    step_space *s = t->space;
    layer_saved *kept = &s->layers[layer];
    const layer_weights *w = &t->weight_slots->layers[layer];
    double last = trainer_start_lap(t);
    STATUS_TRY(arrival_await(t, layer + 1, error));
    take_over(t, layer, again);
    lap(t, &t->times.rest, &last);
    attention_train_forward(&s->attention, w, s->normed, kept->attention, s->y, s->phase);
    lap(t, &t->times.attention, &last);
    norm_add_forward(&s->norm, kept->x, s->y, kept->middle, w->post_attention_layernorm, s->normed);
    lap(t, &t->times.rest, &last);
    STATUS_TRY(ffn_forward(t, layer, again, losses, error));
    lap(t, &t->times.experts, &last);
    return DSMOE_OK;
}

/* Rounds what forward leaves for backward, and stores it before the next layer runs. */
static void put_away(dsmoe_trainer *t, int64_t layer)
{
    const layer_saved *kept = &t->space->layers[layer];
    double last = trainer_start_lap(t);
    if (t->in_halves) halves_keep(t->kernels, kept->pieces, kept->store, t->options.n_threads);
    lap(t, &t->times.rest, &last);
}

/* Restores what backward needs of a layer, or computes it again. */
static dsmoe_status fetch(dsmoe_trainer *t, int64_t layer, dsmoe_error *error)
{
    const layer_saved *kept = &t->space->layers[layer];
    double last = trainer_start_lap(t);
    if (kept->store) halves_take(t->kernels, kept->pieces, kept->store, t->options.n_threads);
    lap(t, &t->times.rest, &last);
    if (!is_gone(t, layer)) return DSMOE_OK;
    STATUS_TRY(layer_run(t, layer, true, NULL, error));
    put_away(t, layer);
    return DSMOE_OK;
}

/* From the gradient by the layer's output to that by its input, both in s->dx. */
static dsmoe_status layer_run_back(dsmoe_trainer *t, int64_t layer, dsmoe_error *error)
{
    step_space *s = t->space;
    layer_saved *kept = &s->layers[layer];
    const layer_weights *w = &t->weight_slots->layers[layer],
                        *g = &t->fold.into->slots->layers[layer];
    STATUS_TRY(fetch(t, layer, error));
    double last = trainer_start_lap(t);
    norm_forward(&s->norm, kept->middle, w->post_attention_layernorm, s->normed);
    lap(t, &t->times.rest, &last);
    STATUS_TRY(ffn_backward(t, layer, error));
    lap(t, &t->times.experts, &last);
    norm_backward(&s->norm, kept->middle, w->post_attention_layernorm, s->d_normed, s->dx,
                  g->post_attention_layernorm);
    norm_forward(&s->norm, kept->x, w->input_layernorm, s->normed);
    lap(t, &t->times.rest, &last);
    attention_train_backward(&s->attention, w, s->normed, kept->attention, s->dx, s->d_normed, g,
                             s->phase);
    lap(t, &t->times.attention, &last);
    norm_backward(&s->norm, kept->x, w->input_layernorm, s->d_normed, s->dx, g->input_layernorm);
    lap(t, &t->times.rest, &last);
    return DSMOE_OK;
}

/* ---- the ends of the model --------------------------------------------------------------------- */

static void embed(dsmoe_trainer *t, const int32_t *tokens)
{
    int64_t hidden = t->config.hidden_size;
    float *x = t->space->layers[0].x;
    matrix table = t->weight_slots->embed_tokens;
    for (int64_t i = 0; i < t->space->n_tokens; i++)
        t->kernels->dtypes[table.type].widen(hidden, matrix_at(table, tokens[i], 0),
                                             x + i * hidden);
}

/* A token's row collects the gradients of all its positions, in order. A tied head has written its own
 * part there already. */
static void embed_back(dsmoe_trainer *t, const int32_t *tokens)
{
    int64_t hidden = t->config.hidden_size;
    float *gradient = (float *)t->fold.into->slots->embed_tokens.data;
    if (!gradient) return;
    if (!t->config.tie_word_embeddings)
        memset(gradient, 0, (size_t)(t->config.vocab_size * hidden) * sizeof *gradient);
    for (int64_t i = 0; i < t->space->n_tokens; i++)
        t->kernels->axpy(hidden, 1.0f, t->space->dx + i * hidden, gradient + tokens[i] * hidden);
}

/* Computes the head's input. */
static void finish_layers(dsmoe_trainer *t)
{
    step_space *s = t->space;
    norm_add_forward(&s->norm, s->layers[t->config.num_hidden_layers - 1].middle, s->y, s->x_last,
                     t->weight_slots->norm, s->normed);
}

static preference_places places_of(const dsmoe_trainer *t, const dsmoe_batch *batch)
{
    return (preference_places){batch->positions, t->options.n_sequences,
                               t->options.sequence_length};
}

/* Computes the margins of a batch of preferences from the head's input. */
static void find_margins(dsmoe_trainer *t, const dsmoe_batch *batch, double *margins)
{
    const head_job head = head_of(t);
    const preference_places places = places_of(t, batch);
    preference_margins(
        &places, head_losses(&head, t->space->normed, batch->targets, t->space->phase), margins);
}

/* Computes the losses of a batch of preferences; leaves each token's factor in s->shares. */
static preference_sums compare(dsmoe_trainer *t, const dsmoe_batch *batch)
{
    step_space *s = t->space;
    const preference_places places = places_of(t, batch);
    double n = batch->n_targets > 0 ? batch->n_targets : (double)preference_count(&places);
    find_margins(t, batch, s->margins);
    return preference_learn(&places, batch->beta, n > 0 ? n : 1, s->margins, s->reference,
                            s->shares);
}

preference_sums step_predict(dsmoe_trainer *t, const dsmoe_batch *batch)
{
    step_space *s = t->space;
    const model_weights *gradients = t->fold.into->slots;
    head_job head = head_of(t);
    preference_sums sums = {0};
    bool compares = batch->beta > 0;
    double last = trainer_start_lap(t);
    finish_layers(t);
    lap(t, &t->times.rest, &last);
    if (compares) sums = compare(t, batch);
    head.n_targets = batch->n_targets;
    head.shares = compares ? s->shares : NULL;
    double loss = head_loss(&head, s->normed, batch->targets, s->d_normed,
                            (float *)gradients->lm_head.data, s->phase);
    if (!compares) sums.loss = loss;
    lap(t, &t->times.head, &last);
    memset(s->dx, 0, (size_t)(s->n_tokens * t->config.hidden_size) * sizeof *s->dx);
    norm_backward(&s->norm, s->x_last, t->weight_slots->norm, s->d_normed, s->dx, gradients->norm);
    lap(t, &t->times.rest, &last);
    return sums;
}

/* ---- the whole model ------------------------------------------------------------------------- */

static void count_load(dsmoe_trainer *t, int64_t layer, int32_t *load)
{
    const dsmoe_config *c = &t->config;
    dsmoe_routing routing =
        dsmoe_layer_saved_routing(t->model->layers[layer], t->space->layers[layer].moe);
    const int32_t *positions = t->space->experts.positions;
    int64_t k = c->num_experts_per_tok;
    for (int64_t i = 0; i < t->space->n_tokens * k; i++)
        load[routing.topk_idx[i]] += !positions || positions[i / k] >= 0;
}

/* A rank without a batch: its experts still work for others. */
static dsmoe_status serve_forward(dsmoe_trainer *t, dsmoe_error *error)
{
    STATUS_TRY(arrival_finish(t, error));
    double last = trainer_start_lap(t);
    for (int64_t i = 0; trainer_divides_experts(t) && i < t->config.num_hidden_layers; i++)
        if (t->model->layers[i]) STATUS_TRY(moe_forward(t, i, false, NULL, error));
    lap(t, &t->times.experts, &last);
    return DSMOE_OK;
}

/* Describes the batch to attention and experts. A rank without a batch has no sequences. */
static void take_batch(dsmoe_trainer *t, const dsmoe_batch *batch)
{
    step_space *s = t->space;
    s->attention.positions = batch ? batch->positions : NULL;
    s->experts = (layer_batch){.n_sequences = batch ? t->options.n_sequences : 0,
                               .sequence_length = t->options.sequence_length,
                               .positions = s->attention.positions,
                               .n_tokens = batch ? batch->n_tokens : 0};
}

dsmoe_status step_forward(dsmoe_trainer *t, const dsmoe_batch *batch, dsmoe_error *error)
{
    take_batch(t, batch);
    if (!batch) return serve_forward(t, error);
    int rank = peers_rank(t->options.peers);
    dsmoe_layer_losses *losses = units_layers(t, rank);
    int32_t *load = units_load(t, rank);
    double last = trainer_start_lap(t);
    STATUS_TRY(arrival_await(t, 0, error));
    embed(t, batch->tokens);
    lap(t, &t->times.rest, &last);
    for (int64_t i = 0; i < t->config.num_hidden_layers; i++) {
        bool is_moe = t->model->layers[i] != NULL;
        STATUS_TRY(layer_run(t, i, false, is_moe ? losses++ : NULL, error));
        if (i >= t->lowest && !is_gone(t, i)) put_away(t, i);
        if (!is_moe) continue;
        count_load(t, i, load);
        load += t->config.n_routed_experts;
    }
    return arrival_finish(t, error); /* the head needs its weights */
}

dsmoe_status step_refer(dsmoe_trainer *t, const dsmoe_batch *batch, dsmoe_error *error)
{
    t->low.range.scale = 0.0f;
    dsmoe_status status = step_forward(t, batch, error);
    t->low.range.scale = 1.0f;
    if (status != DSMOE_OK) return status;
    double last = trainer_start_lap(t);
    finish_layers(t);
    lap(t, &t->times.rest, &last);
    find_margins(t, batch, t->space->reference);
    lap(t, &t->times.head, &last);
    return DSMOE_OK;
}

/* The same for backward. What forward kept of a layer may have to be computed again. */
static dsmoe_status serve_backward(dsmoe_trainer *t, int64_t layer, dsmoe_error *error)
{
    if (!trainer_divides_experts(t) || !t->model->layers[layer]) return DSMOE_OK;
    double last = trainer_start_lap(t);
    if (is_gone(t, layer)) STATUS_TRY(moe_forward(t, layer, true, NULL, error));
    STATUS_TRY(ffn_backward(t, layer, error));
    lap(t, &t->times.experts, &last);
    return DSMOE_OK;
}

dsmoe_status step_backward(dsmoe_trainer *t, const dsmoe_batch *batch, dsmoe_error *error)
{
    int64_t n_layers = t->config.num_hidden_layers;
    STATUS_TRY(fold_section(t, n_layers + 1, error));
    for (int64_t i = n_layers - 1; i >= 0; i--) {
        if (i >= t->lowest)
            STATUS_TRY(batch ? layer_run_back(t, i, error) : serve_backward(t, i, error));
        STATUS_TRY(fold_section(t, i + 1, error));
    }
    double last = trainer_start_lap(t);
    if (batch) embed_back(t, batch->tokens);
    lap(t, &t->times.rest, &last);
    STATUS_TRY(fold_section(t, 0, error));
    return fold_end(t, error);
}
