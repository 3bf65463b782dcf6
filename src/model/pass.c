/* pass.c - the layers of the model over the rows of a pass:
 *
 *   x += Attention(norm(x))
 *   x += FFN(norm(x))         FFN: one SwiGLU network, or the MoE layer */
#include "model/pass.h"

#include <string.h>

#include "base/threads.h"
#include "model/attention.h"
#include "model/config.h"
#include "model/linear.h"
#include "model/rope.h"
#include "model/serve_experts.h"
#include "moe/experts.h"
#include "moe/ints.h"

/* ---- memory -------------------------------------------------------------------------------- */

typedef struct dense_space {
    experts experts; /* the network as the only expert */
    thread_scratch *threads;
    float *h; /* [n_rows, intermediate_size] */
} dense_space;

/* The most memory that x, and later h, of a dense layer take as integers. */
static size_t dense_ints_size(const dsmoe_model *model, int64_t n_rows)
{
    const dsmoe_config *c = &model->config;
    unsigned forms = 0;
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        if (!model->layers[i])
            forms |= ints_forms_of_expert(model->kernels, &model->weights->layers[i].mlp);
    size_t x = ints_size(forms, n_rows, c->hidden_size);
    size_t h = ints_size(forms, n_rows, c->intermediate_size);
    return x > h ? x : h;
}

static dense_space dense_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    const dsmoe_config *c = &model->config;
    int64_t hidden = c->hidden_size, width = c->intermediate_size;
    dense_space s = {
        .experts = experts_place(a, model->kernels, hidden, 1, n_rows),
        .threads = scratch_place(a, model->kernels, width > hidden ? width : hidden,
                                 dense_ints_size(model, n_rows), n_threads),
        .h = arena_take(a, n_rows * width, sizeof(float)),
    };
    s.experts.threads = s.threads;
    s.experts.n_threads = n_threads;
    return s;
}

static thread_scratch *head_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    int64_t hidden = model->config.hidden_size;
    unsigned forms = ints_forms(model->kernels, model->weights->lm_head);
    return scratch_place(a, model->kernels, hidden, ints_size(forms, n_rows, hidden), n_threads);
}

/* The memory of the largest step; 0 if it is too large. */
static size_t phase_size(const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    arena head = arena_over(NULL);
    head_place(&head, model, moe_min(n_rows, PASS_HEAD_ROWS), n_threads);
    size_t largest = attention_size(model, n_rows, n_threads);
    if (largest && arena_size(&head) > largest) largest = arena_size(&head);
    for (int64_t i = 0; i < model->config.num_hidden_layers && largest; i++) {
        arena dense = arena_over(NULL);
        dense_place(&dense, model, n_rows, n_threads);
        size_t size = model->layers[i]
                          ? dsmoe_layer_workspace_size(model->layers[i], n_rows, n_threads)
                          : arena_size(&dense);
        if (size == 0 || size > largest) largest = size;
    }
    return largest;
}

pass pass_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    const dsmoe_config *c = &model->config;
    int64_t half = config_rope_dim(c) / 2;
    size_t phase = phase_size(model, n_rows, n_threads);
    pass p = {
        .model = model,
        .n_threads = n_threads,
        .x = arena_take(a, n_rows * c->hidden_size, sizeof(float)),
        .normed = arena_take(a, n_rows * c->hidden_size, sizeof(float)),
        .y = arena_take(a, n_rows * c->hidden_size, sizeof(float)),
        .cos = arena_take(a, n_rows * half, sizeof(float)),
        .sin = arena_take(a, n_rows * half, sizeof(float)),
        .spoilt = arena_take(a, n_rows, sizeof(int32_t)),
        .number = arena_take(a, n_rows, sizeof(int32_t)),
        .narrow = arena_take(a, n_rows, sizeof(span)),
        .phase = arena_take(a, 1, phase),
        .phase_size = phase,
    };
    a->overflow = a->overflow || phase == 0;
    return p;
}

/* The widest steps are gate_proj and up_proj of all experts of a token, or four products of attention. */
void pass_place_adapters(arena *a, pass *p, int64_t n_rows, const adapter *const *adapters,
                         int64_t n_adapters)
{
    const dsmoe_config *c = &p->model->config;
    int64_t width = 0, products = 2 * (c->num_experts_per_tok + 1);
    for (int64_t i = 0; i < n_adapters; i++) width += adapters[i]->most_rank;
    p->adapters = adapters;
    p->n_adapters = n_adapters;
    p->ranges = arena_take(a, n_rows * n_adapters, sizeof *p->ranges);
    p->adapted = (adapter_ranges){
        .list = p->ranges,
        .width = width,
        .t = arena_take(a, n_rows * width * (products > 4 ? products : 4), sizeof(float))};
}

/* ---- adapters ------------------------------------------------------------------------------ */

static bool same_scales(const pass *p, const span *a, const span *b)
{
    return !memcmp(a->scales, b->scales, (size_t)p->n_adapters * sizeof *a->scales);
}

/* Consecutive spans with the same scales are one range of rows. */
static void find_ranges(pass *p)
{
    p->adapted.n = 0;
    for (int64_t i = 0, next; p->n_adapters > 0 && i < p->n_spans; i = next) {
        const span *first = &p->spans[i], *last = first;
        for (next = i + 1; next < p->n_spans && same_scales(p, first, &p->spans[next]); next++)
            last = &p->spans[next];
        int64_t end = last->row + last->n_rows;
        for (int64_t j = 0; j < p->n_adapters; j++)
            if (first->scales[j] != 0 && p->adapters[j]->most_rank > 0 && end > first->row)
                p->ranges[p->adapted.n++] =
                    (adapter_range){p->adapters[j], first->scales[j], first->row, end};
    }
}

/* ---- into the model ------------------------------------------------------------------------ */

typedef struct row_job {
    const pass *pass;
    const float *norm;
    const int32_t *rows; /* the rows to process; NULL: all of them */
    bool add;
} row_job;

static void embed_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const pass *p = ((const row_job *)context)->pass;
    const dsmoe_config *c = &p->model->config;
    matrix table = p->model->weights->embed_tokens;
    int64_t half = config_rope_dim(c) / 2;
    const span *s = pass_span(p, row);
    int64_t i = row - s->row;
    p->model->kernels->dtypes[table.type].widen(c->hidden_size, matrix_at(table, s->tokens[i], 0),
                                                p->x + row * c->hidden_size);
    p->spoilt[row] = 0;
    p->number[row] = (int32_t)row;
    rope_angles(c, s->position + i, p->cos + row * half, p->sin + row * half);
}

void pass_begin(pass *p)
{
    row_job job = {.pass = p};
    find_ranges(p);
    threads_for(p->n_threads, p->n_rows, embed_task, &job);
}

/* ---- the layers ---------------------------------------------------------------------------- */

static void norm_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const row_job *job = context;
    const pass *p = job->pass;
    const kernels *kn = p->model->kernels;
    int64_t hidden = p->model->config.hidden_size;
    int64_t at = (job->rows ? job->rows[task] : task) * hidden;
    if (job->add) kn->axpy(hidden, 1.0f, p->y + at, p->x + at);
    kn->rms_norm(hidden, p->x + at, job->norm, (float)p->model->config.rms_norm_eps,
                 p->normed + task * hidden);
}

/* x += y, if `add` is true; normed = norm(x). */
static void add_and_norm(pass *p, bool add, const float *norm)
{
    row_job job = {.pass = p, .norm = norm, .add = add};
    threads_for(p->n_threads, p->n_rows, norm_task, &job);
}

static void dense_forward(pass *p, const moe_expert *mlp)
{
    arena a = arena_over(p->phase);
    dense_space s = dense_place(&a, p->model, p->n_rows, p->n_threads);
    experts_begin(&s.experts, p->n_rows);
    experts_add(&s.experts, (group){.weights = *mlp,
                                    .width = p->model->config.intermediate_size,
                                    .n_rows = p->n_rows,
                                    .h = s.h,
                                    .out = p->y});
    s.experts.watch = p->inputs;
    scratch_same_bits(s.threads, p->n_threads, p->same_bits);
    scratch_adapt(s.threads, p->n_threads, pass_adapters(p));
    experts_forward(&s.experts, p->normed);
}

typedef struct watch_job {
    const pass *pass;
    int64_t layer;
} watch_job;

/* Shows the routing of rows [first, end) of the pass; `routing` begins at row `from`. */
static void show_rows(const watch_job *job, const span *s, int64_t first, int64_t end, int64_t from,
                      const dsmoe_routing *routing)
{
    const dsmoe_config *c = &job->pass->model->config;
    int64_t skip = first - from, k = c->num_experts_per_tok;
    const dsmoe_routing part = {.scores = routing->scores + skip * c->n_routed_experts,
                                .topk_idx = routing->topk_idx + skip * k,
                                .topk_weight = routing->topk_weight + skip * k};
    s->watch(s->watch_context, job->layer, s->position + first - s->row, end - first, &part);
}

/* Shows each watched span the routing of its own rows. */
static void show_routing(void *context, int64_t first, int64_t n_tokens,
                         const dsmoe_routing *routing)
{
    const watch_job *job = context;
    for (int64_t i = 0; i < job->pass->n_spans; i++) {
        const span *s = &job->pass->spans[i];
        int64_t from = s->row > first ? s->row : first;
        int64_t end = moe_min(s->row + s->n_rows, first + n_tokens);
        if (s->watch && from < end) show_rows(job, s, from, end, first, routing);
    }
}

static void mark_spoilt(void *context, int64_t row)
{
    const watch_job *job = context;
    int32_t *spoilt = &job->pass->spoilt[job->pass->number[row]];
    if (*spoilt == 0) *spoilt = (int32_t)(1 + job->layer);
}

static bool is_watched(const pass *p)
{
    for (int64_t i = 0; i < p->n_spans; i++)
        if (p->spans[i].watch) return true;
    return false;
}

static dsmoe_status moe_forward(pass *p, int64_t layer, dsmoe_error *error)
{
    watch_job job = {p, layer};
    layer_manner manner = {.routing = is_watched(p) ? show_routing : NULL,
                           .spoilt = mark_spoilt,
                           .context = &job,
                           .inputs = p->inputs,
                           .adapters = pass_adapters(p),
                           .same_bits = p->same_bits};
    dsmoe_workspace workspace = {p->phase, p->phase_size, p->n_threads};
    dsmoe_error reason;
    STATUS_TRY(serve_experts_announce(p->model, layer, p->same_bits, error));
    dsmoe_status status = layer_forward(p->model->layers[layer], p->normed, p->n_rows, p->y,
                                        &workspace, &manner, &reason);
    if (status == DSMOE_OK) return status;
    return status_fail(error, status, "layer %lld: %s", (long long)layer, reason.message);
}

/* How many rows of a span, its last ones, are needed to the end. */
static int64_t rows_needed(const span *s) { return s->watch ? s->n_rows : s->n_wanted; }

bool pass_may_narrow(const pass *p, int64_t layer)
{
    if (layer + 1 < p->model->config.num_hidden_layers || p->inputs) return false;
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_spans; i++) n += rows_needed(&p->spans[i]);
    return n < p->n_rows;
}

static void move_row(pass *p, int64_t from, int64_t to)
{
    int64_t hidden = p->model->config.hidden_size, half = config_rope_dim(&p->model->config) / 2;
    memcpy(p->x + to * hidden, p->x + from * hidden, (size_t)hidden * sizeof *p->x);
    memcpy(p->normed + to * hidden, p->normed + from * hidden, (size_t)hidden * sizeof *p->normed);
    memcpy(p->cos + to * half, p->cos + from * half, (size_t)half * sizeof *p->cos);
    memcpy(p->sin + to * half, p->sin + from * half, (size_t)half * sizeof *p->sin);
    p->number[to] = p->number[from];
}

void pass_narrow(pass *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_spans; i++) {
        span s = p->spans[i];
        int64_t needed = rows_needed(&s), skipped = s.n_rows - needed;
        for (int64_t r = 0; r < needed; r++)
            if (n + r < s.row + skipped + r) move_row(p, s.row + skipped + r, n + r);
        s.tokens += skipped;
        s.position += skipped;
        s.row = n;
        s.n_rows = needed;
        p->narrow[i] = s;
        n += needed;
    }
    p->spans = p->narrow;
    p->n_rows = n;
    find_ranges(p);
}

dsmoe_status pass_layer(pass *p, int64_t layer, dsmoe_error *error)
{
    const layer_weights *w = &p->model->weights->layers[layer];
    add_and_norm(p, layer > 0, w->input_layernorm);
    attention_forward(p, layer);
    if (p->n_rows == 0) return DSMOE_OK; /* only the keys and values of these tokens were wanted */
    add_and_norm(p, true, w->post_attention_layernorm);
    if (p->model->layers[layer]) return moe_forward(p, layer, error);
    dense_forward(p, &w->mlp);
    return DSMOE_OK;
}

/* ---- out of the model ---------------------------------------------------------------------- */

void pass_hidden(pass *p, const int32_t *rows_wanted, int64_t n)
{
    row_job job = {.pass = p, .norm = p->model->weights->norm, .rows = rows_wanted, .add = true};
    threads_for(p->n_threads, n, norm_task, &job);
}

void pass_head(pass *p, const int32_t *rows_wanted, int64_t n, float *logits)
{
    const dsmoe_config *c = &p->model->config;
    const model_weights *w = p->model->weights;
    pass_hidden(p, rows_wanted, n);
    arena a = arena_over(p->phase);
    thread_scratch *threads = head_place(&a, p->model, n, p->n_threads);
    scratch_same_bits(threads, p->n_threads, p->same_bits);
    const product head = {{p->normed, c->hidden_size, NULL},
                          n,
                          c->hidden_size,
                          w->lm_head,
                          NULL,
                          c->vocab_size,
                          logits};
    linear_show(&head, 1, p->inputs);
    linear_run(&head, 1, threads, p->n_threads);
}
