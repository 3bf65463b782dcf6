/* experts.c - FFN_i(u) = down · (silu(gate · u) * (up · u)) for all experts at once, and its
 * backward.
 *
 * Everything here is a list of independent tasks that write different outputs: threads take them as
 * they come, and no sum ever crosses a task. */
#include "moe/experts.h"

#include "base/threads.h"
#include "moe/ints.h"
#include "moe/octets.h"

enum { BACKWARD_PART = 1024 }; /* columns of a task of backward, where packing rows costs more */

/* ---- groups and blocks --------------------------------------------------------------------- */

experts experts_place(arena *a, const kernels *kn, int64_t hidden_size, int64_t n_groups,
                      int64_t n_rows)
{
    /* Each group wastes at most one incomplete block. */
    return (experts){
        .kernels = kn,
        .hidden_size = hidden_size,
        .groups = arena_take(a, n_groups, sizeof(group)),
        .cuts = arena_take(a, n_groups, sizeof(cut_product)),
        .blocks = arena_take(a, n_groups + n_rows / GEMM_ROWS, sizeof(block)),
    };
}

void experts_begin(experts *e, int64_t n_tokens)
{
    e->n_tokens = n_tokens;
    e->n_groups = e->n_blocks = e->widest = e->widest_group = 0;
}

/* Blocks of a group are about equal, so that only a group of few rows has a block of few rows:
 * which order of summation a row meets is then a matter of its expert's rows alone. */
void experts_add(experts *e, group g)
{
    int32_t index = (int32_t)e->n_groups;
    int64_t n = moe_parts(g.n_rows, GEMM_ROWS);
    e->groups[e->n_groups++] = g;
    for (int64_t i = 0; i < n; i++) {
        int64_t first = g.n_rows * i / n, end = g.n_rows * (i + 1) / n;
        e->blocks[e->n_blocks++] = (block){index, (int32_t)first, (int32_t)(end - first)};
    }
    if (g.width > e->widest_group) e->widest_group = g.width;
    if (g.n_rows > 0 && g.width > e->widest) e->widest = g.width;
}

/* Row `first` of an array that may not be there. */
static float *row_at(float *array, int64_t first, int64_t width)
{
    return array ? array + first * width : NULL;
}

static group shared_group(const dsmoe_layer *layer, int64_t n_tokens, const expert_rows *a)
{
    group g = {.weights = layer->weights.shared_experts,
               .width = moe_shared_width(&layer->config),
               .n_rows = n_tokens,
               .g = a->g.shared,
               .u = a->u.shared,
               .h = a->h.shared,
               .out = a->out.shared};
    if (a->gradients) g.gradients = a->gradients->shared_experts;
    return g;
}

static group routed_group(const dsmoe_layer *layer, const dispatch *d, int64_t i,
                          const expert_rows *a)
{
    int64_t width = layer->config.moe_intermediate_size, first = d->offsets[i];
    group g = {.weights = layer->weights.experts[i],
               .width = width,
               .n_rows = d->offsets[i + 1] - first,
               .token = d->row_token + first,
               .weight = row_at(a->weight, first, 1),
               .d_weight = row_at(a->d_weight, first, 1),
               .g = row_at(a->g.routed, first, width),
               .u = row_at(a->u.routed, first, width),
               .h = row_at(a->h.routed, first, width),
               .out = row_at(a->out.routed, first, layer->config.hidden_size)};
    if (a->gradients) g.gradients = a->gradients->experts[i];
    return g;
}

void experts_assign(experts *e, const dsmoe_layer *layer, const dispatch *d, int64_t n_tokens,
                    const expert_rows *arrays)
{
    const dsmoe_layer_config *c = &layer->config;
    experts_begin(e, n_tokens);
    if (c->n_shared_experts > 0) experts_add(e, shared_group(layer, n_tokens, arrays));
    for (int64_t i = 0; i < c->n_routed_experts; i++)
        experts_add(e, routed_group(layer, d, i, arrays));
}

/* ---- tasks --------------------------------------------------------------------------------- */

typedef struct job {
    const experts *e;
    const float *x, *dy;
    x_home x_home; /* x in integers, as far as gate_proj and up_proj want them */
    bool accumulate;
} job;

/* What one task works on: some rows of a group, some columns of its output. */
typedef struct piece {
    const group *group;
    int64_t row, n_rows, column, n_columns;
} piece;

static piece piece_of(const experts *e, int64_t task, int64_t n_parts, int64_t part)
{
    const block *b = &e->blocks[task / n_parts];
    return (piece){&e->groups[b->group], b->first, b->count, task % n_parts * part, part};
}

/* False if the group is narrower than that piece. */
static bool piece_clip(piece *p, int64_t n_columns)
{
    p->n_columns = moe_min(p->n_columns, n_columns - p->column);
    return p->n_columns > 0;
}

/* The rows of x (or dy) that the group's rows from `row` on belong to. */
static rows token_rows(const float *x, int64_t hidden, const group *g, int64_t row)
{
    return rows_from((rows){x, hidden, g->token}, row);
}

static rows matrix_rows(const float *data, int64_t width, int64_t row)
{
    return (rows){data + row * width, width, NULL};
}

/* ---- forward ------------------------------------------------------------------------------- */

int64_t experts_cut_hidden(const experts *e)
{
    for (int64_t i = 0; i < e->n_groups; i++) {
        const group *g = &e->groups[i];
        e->cuts[i] = (cut_product){.n_rows = g->n_rows,
                                   .n_columns = g->width,
                                   .k = e->hidden_size,
                                   .type = g->weights.gate_proj.type};
    }
    return cut_tasks(e->cuts, e->n_groups, e->n_threads);
}

int64_t experts_cut_output(const experts *e)
{
    for (int64_t i = 0; i < e->n_groups; i++) {
        const group *g = &e->groups[i];
        e->cuts[i] = (cut_product){.n_rows = g->n_rows,
                                   .n_columns = e->hidden_size,
                                   .k = g->width,
                                   .type = g->weights.down_proj.type};
    }
    return cut_tasks(e->cuts, e->n_groups, e->n_threads);
}

/* h = silu(gate · x) * (up · x) */
static void hidden_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    cut_task t = cut_task_at(e->cuts, e->n_groups, task);
    const group *g = &e->groups[t.item];
    int64_t hidden = e->hidden_size, at = t.row * g->width + t.column;
    thread_scratch *s = &e->threads[thread];
    bool keep = g->g != NULL;
    float *gate = keep ? g->g + at : s->gate, *up = keep ? g->u + at : s->up;
    int64_t stride = keep ? g->width : t.n_columns;

    gemm_nt_load_made(&s->gemm, token_rows(j->x, hidden, g, t.row), &j->x_home, t.row, t.n_rows,
                      hidden);
    gemm_nt(&s->gemm, matrix_from(g->weights.gate_proj, t.column), t.n_columns, gate, stride);
    gemm_nt(&s->gemm, matrix_from(g->weights.up_proj, t.column), t.n_columns, up, stride);
    for (int64_t r = 0; r < t.n_rows; r++)
        e->kernels->swiglu(t.n_columns, gate + r * stride, up + r * stride,
                           g->h + at + r * g->width);
}

/* out = down · h */
static void output_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    cut_task t = cut_task_at(e->cuts, e->n_groups, task);
    const group *g = &e->groups[t.item];
    int64_t hidden = e->hidden_size;
    gemm *m = &e->threads[thread].gemm;
    gemm_nt_load_made(m, matrix_rows(g->h, g->width, t.row), &g->h_home, t.row, t.n_rows, g->width);
    gemm_nt(m, matrix_from(g->weights.down_proj, t.column), t.n_columns,
            g->out + t.row * hidden + t.column, hidden);
}

/* x in integers, once for all experts. */
static void make_x(job *j)
{
    const experts *e = j->e;
    int_work ints = ints_begin(e->threads, e->n_threads);
    rows x = {j->x, e->hidden_size, NULL};
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++) {
        if (g->n_rows == 0) continue;
        ints_want(&ints, &j->x_home, x, e->n_tokens, e->hidden_size, g->weights.gate_proj);
        ints_want(&ints, &j->x_home, x, e->n_tokens, e->hidden_size, g->weights.up_proj);
    }
    ints_end(&ints);
}

/* The same for h, in the same memory. */
static void make_h(const experts *e)
{
    int_work ints = ints_begin(e->threads, e->n_threads);
    for (group *g = e->groups; g < e->groups + e->n_groups; g++) {
        g->h_home = (x_home){0};
        ints_want(&ints, &g->h_home, matrix_rows(g->h, g->width, 0), g->n_rows, g->width,
                  g->weights.down_proj);
    }
    ints_end(&ints);
}

static void show_inputs(const experts *e, const float *x)
{
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++) {
        rows of_tokens = token_rows(x, e->hidden_size, g, 0);
        e->watch->see(e->watch->context, g->weights.gate_proj, of_tokens, g->n_rows,
                      e->hidden_size);
        e->watch->see(e->watch->context, g->weights.up_proj, of_tokens, g->n_rows, e->hidden_size);
    }
}

static void show_hidden(const experts *e)
{
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++)
        e->watch->see(e->watch->context, g->weights.down_proj, matrix_rows(g->h, g->width, 0),
                      g->n_rows, g->width);
}

/* The experts that have rows. */
static void make_octets(const experts *e)
{
    octet_work octets = octets_begin(e->kernels, e->n_threads);
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++) {
        if (g->n_rows == 0) continue;
        octets_want(&octets, g->weights.gate_proj);
        octets_want(&octets, g->weights.up_proj);
        octets_want(&octets, g->weights.down_proj);
    }
    octets_end(&octets);
}

void experts_forward(const experts *e, const float *x)
{
    job j = {.e = e, .x = x};
    make_octets(e);
    if (e->watch) show_inputs(e, x);
    make_x(&j);
    threads_for(e->n_threads, experts_cut_hidden(e), hidden_task, &j);
    if (e->watch) show_hidden(e);
    make_h(e);
    threads_for(e->n_threads, experts_cut_output(e), output_task, &j);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* dh = dy · down, the gate value left out: h·dh is the gate value's gradient. */
static void d_hidden_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    piece p = piece_of(e, task, moe_parts(e->widest, BACKWARD_PART), BACKWARD_PART);
    const group *g = p.group;
    if (!piece_clip(&p, g->width)) return;
    int64_t hidden = e->hidden_size;
    rows down = rows_columns(matrix_rows(g->weights.down_proj.data, g->width, 0), p.column);
    gemm_nn(&e->threads[thread].gemm, token_rows(j->dy, hidden, g, p.row), p.n_rows, down, hidden,
            p.n_columns, g->h + p.row * g->width + p.column, g->width, false);
}

/* g, u, dh become dg, du and weight·h, row by row. */
static void activation_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const job *j = context;
    const block *b = &j->e->blocks[task];
    const group *g = &j->e->groups[b->group];
    for (int64_t r = b->first; r < b->first + b->count; r++) {
        int64_t at = r * g->width;
        float d = j->e->kernels->swiglu_backward(g->width, g->weight ? g->weight[r] : 1.0f,
                                                 g->g + at, g->u + at, g->h + at);
        if (g->d_weight) g->d_weight[r] = d;
    }
}

/* dx = dg · gate + du · up, for each row; combining the rows of a token is the caller's. */
static void d_input_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    int64_t hidden = e->hidden_size;
    piece p = piece_of(e, task, moe_parts(hidden, BACKWARD_PART), BACKWARD_PART);
    const group *g = p.group;
    gemm *m = &e->threads[thread].gemm;
    piece_clip(&p, hidden);
    float *dx = g->out + p.row * hidden + p.column;
    rows gate = rows_columns(matrix_rows(g->weights.gate_proj.data, hidden, 0), p.column);
    rows up = rows_columns(matrix_rows(g->weights.up_proj.data, hidden, 0), p.column);
    gemm_nn(m, matrix_rows(g->g, g->width, p.row), p.n_rows, gate, g->width, p.n_columns, dx,
            hidden, false);
    gemm_nn(m, matrix_rows(g->u, g->width, p.row), p.n_rows, up, g->width, p.n_columns, dx, hidden,
            true);
}

/* The sum over a group's rows is not cut, so these tasks are (group, rows of a gradient). */
enum { GRADIENT_ROWS = 384 };

/* d gate = dgᵀ·x, d up = duᵀ·x */
static void d_in_proj_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    int64_t parts = moe_parts(e->widest_group, GRADIENT_ROWS);
    const group *g = &e->groups[task / parts];
    int64_t hidden = e->hidden_size, first = task % parts * GRADIENT_ROWS;
    int64_t m = moe_min(GRADIENT_ROWS, g->width - first);
    if (m <= 0) return;
    gemm *s = &e->threads[thread].gemm;
    rows x = token_rows(j->x, hidden, g, 0);
    gemm_tn(s, rows_columns(matrix_rows(g->g, g->width, 0), first), m, x, hidden, g->n_rows,
            g->gradients.gate_proj + first * hidden, hidden, j->accumulate);
    gemm_tn(s, rows_columns(matrix_rows(g->u, g->width, 0), first), m, x, hidden, g->n_rows,
            g->gradients.up_proj + first * hidden, hidden, j->accumulate);
}

/* d down = dyᵀ·(weight·h) */
static void d_down_proj_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    int64_t hidden = e->hidden_size, parts = moe_parts(hidden, GRADIENT_ROWS);
    const group *g = &e->groups[task / parts];
    int64_t first = task % parts * GRADIENT_ROWS, m = moe_min(GRADIENT_ROWS, hidden - first);
    gemm_tn(&e->threads[thread].gemm, rows_columns(token_rows(j->dy, hidden, g, 0), first), m,
            matrix_rows(g->h, g->width, 0), g->width, g->n_rows,
            g->gradients.down_proj + first * g->width, g->width, j->accumulate);
}

void experts_backward(const experts *e, const float *x, const float *dy, bool accumulate)
{
    job j = {.e = e, .x = x, .dy = dy, .accumulate = accumulate};
    int64_t hidden = e->hidden_size;
    int64_t in_rows = moe_parts(e->widest_group, GRADIENT_ROWS),
            down_rows = moe_parts(hidden, GRADIENT_ROWS);
    int64_t width_parts = moe_parts(e->widest, BACKWARD_PART);
    int64_t hidden_parts = moe_parts(hidden, BACKWARD_PART);
    threads_for(e->n_threads, e->n_blocks * width_parts, d_hidden_task, &j);
    threads_for(e->n_threads, e->n_blocks, activation_task, &j);
    threads_for(e->n_threads, e->n_blocks * hidden_parts, d_input_task, &j);
    threads_for(e->n_threads, e->n_groups * in_rows, d_in_proj_task, &j);
    threads_for(e->n_threads, e->n_groups * down_rows, d_down_proj_task, &j);
}
