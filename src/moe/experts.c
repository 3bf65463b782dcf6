/* experts.c - FFN_i(u) = down · (silu(gate · u) * (up · u)) for all experts at once, and its backward.
 *
 * Each step is a list of independent tasks. They write different outputs and may run in any order, and no sum
 * is split between tasks. */
#include "moe/experts.h"

#include "base/threads.h"
#include "moe/ints.h"
#include "moe/low_rank.h"
#include "moe/octets.h"

enum { BACKWARD_PART = 1024 }; /* columns of a backward task; wide, as each task packs its rows */

/* ---- groups and slices --------------------------------------------------------------------- */

experts experts_place(arena *a, const kernels *kn, int64_t hidden_size, int64_t n_groups,
                      int64_t n_rows)
{
    /* Each group adds at most one slice to those that its full ones need. */
    return (experts){
        .kernels = kn,
        .hidden_size = hidden_size,
        .groups = arena_take(a, n_groups, sizeof(group)),
        .cuts = arena_take(a, n_groups, sizeof(cut_product)),
        .slices = arena_take(a, n_groups + n_rows / GEMM_ROWS, sizeof(slice)),
    };
}

void experts_begin(experts *e, int64_t n_tokens)
{
    e->n_tokens = n_tokens;
    e->n_groups = e->n_slices = e->widest = e->widest_group = 0;
    e->first_term = NULL;
}

/* Notes whether the last group adds to the same gradients as the group before it. */
static void note_terms(experts *e, group *last)
{
    const float *to = last->gradients.gate_proj;
    bool joins = to && e->first_term && e->first_term->gradients.gate_proj == to;
    last->n_terms = 0;
    if (!joins) e->first_term = last;
    e->first_term->n_terms++;
}

/* Slices of a group are about equal, so that only a group of few rows has a slice of few rows. The order in
 * which a row's sums are added depends on that, and so only on the number of rows of its expert. */
void experts_add(experts *e, group g)
{
    int32_t index = (int32_t)e->n_groups;
    int64_t n = g.only_gradients ? 0 : moe_parts(g.n_rows, GEMM_ROWS);
    e->groups[e->n_groups++] = g;
    note_terms(e, &e->groups[index]);
    for (int64_t i = 0; i < n; i++) {
        int64_t first = g.n_rows * i / n, end = g.n_rows * (i + 1) / n;
        e->slices[e->n_slices++] = (slice){index, (int32_t)first, (int32_t)(end - first)};
    }
    if (g.width > e->widest_group) e->widest_group = g.width;
    if (g.n_rows > 0 && g.width > e->widest) e->widest = g.width;
}

/* Row `first` of an array, or NULL if there is no array. */
static float *row_at(float *array, int64_t first, int64_t width)
{
    return array ? array + first * width : NULL;
}

void experts_add_shared(experts *e, const dsmoe_layer *layer, const expert_rows *a)
{
    if (layer->config.n_shared_experts == 0) return;
    group g = {.weights = layer->weights.shared_experts,
               .width = moe_shared_width(&layer->config),
               .n_rows = e->n_tokens,
               .g = a->g.shared,
               .u = a->u.shared,
               .h = a->h.shared,
               .out = a->out.shared};
    if (a->gradients) g.gradients = a->gradients->shared_experts;
    experts_add(e, g);
}

group experts_routed(const dsmoe_layer *layer, const dispatch *d, int64_t i, const expert_rows *a)
{
    int64_t width = layer->config.moe_intermediate_size, first = d->offsets[i];
    int64_t here = first - d->offsets[layer->held.first]; /* index in the rows of held experts */
    group g = {.weights = layer->weights.experts[i],
               .width = width,
               .n_rows = d->offsets[i + 1] - first,
               .token = d->row_token + first,
               .weight = row_at(a->weight, first, 1),
               .d_weight = row_at(a->d_weight, first, 1),
               .g = row_at(a->g.routed, here, width),
               .u = row_at(a->u.routed, here, width),
               .h = row_at(a->h.routed, here, width),
               .out = row_at(a->out.routed, first, layer->config.hidden_size)};
    if (a->gradients) g.gradients = a->gradients->experts[i];
    return g;
}

void experts_add_routed(experts *e, const dsmoe_layer *layer, const dispatch *d,
                        const expert_rows *arrays)
{
    for (int64_t i = layer->held.first; i < layer->held.end; i++)
        experts_add(e, experts_routed(layer, d, i, arrays));
}

/* ---- tasks --------------------------------------------------------------------------------- */

typedef struct job {
    const experts *e;
    token_source tokens; /* of groups whose `from` is NULL */
    bool accumulate;
    low_rank_work *low; /* in forward */
} job;

static job job_of(const experts *e, const float *x, const float *dy)
{
    return (job){.e = e, .tokens = {.x = x, .dy = dy, .n_tokens = e->n_tokens}};
}

static void run(job *j, int64_t n_tasks, threads_task_fn *task)
{
    threads_for(j->e->n_threads, n_tasks, task, j);
}

/* What one backward task works on: some rows of a group and some columns of its output. */
typedef struct piece {
    const group *group;
    int64_t row, n_rows, column, n_columns;
} piece;

static piece piece_of(const experts *e, int64_t task, int64_t n_parts, int64_t part)
{
    const slice *b = &e->slices[task / n_parts];
    return (piece){&e->groups[b->group], b->first, b->count, task % n_parts * part, part};
}

/* Cuts the piece at the group's last column; false if nothing is left. */
static bool piece_clip(piece *p, int64_t n_columns)
{
    p->n_columns = moe_min(p->n_columns, n_columns - p->column);
    return p->n_columns > 0;
}

static const token_source *source_of(const job *j, const group *g)
{
    return g->from ? g->from : &j->tokens;
}

/* The rows of x or dy for the group's rows, beginning at row `row`. */
static rows x_rows(const job *j, const group *g, int64_t row)
{
    return rows_from((rows){source_of(j, g)->x, j->e->hidden_size, g->token}, row);
}

static rows dy_rows(const job *j, const group *g, int64_t row)
{
    return rows_from((rows){source_of(j, g)->dy, j->e->hidden_size, g->token}, row);
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

/* The low-rank addition to a task's output; `made` is its T. */
static low_rank_part low_part(const job *j, const cut_task *t, matrix weight, const float *made)
{
    return (low_rank_part){.work = j->low,
                           .weight = matrix_from(weight, t->column),
                           .t = made,
                           .token = j->e->groups[t->item].token,
                           .row = t->row,
                           .n_rows = t->n_rows,
                           .n_columns = t->n_columns};
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
    low_rank_part of_gate = low_part(j, &t, g->weights.gate_proj, g->t.gate);
    low_rank_part of_up = low_part(j, &t, g->weights.up_proj, g->t.up);

    low_rank_ask(s, &of_gate);
    low_rank_ask(s, &of_up);
    gemm_nt_load_made(&s->gemm, x_rows(j, g, t.row), &source_of(j, g)->home, t.row, t.n_rows,
                      hidden);
    gemm_nt(&s->gemm, of_gate.weight, t.n_columns, gate, stride);
    gemm_nt(&s->gemm, of_up.weight, t.n_columns, up, stride);
    low_rank_add(s, &of_gate, gate, stride);
    low_rank_add(s, &of_up, up, stride);
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
    thread_scratch *s = &e->threads[thread];
    float *out = g->out + t.row * e->hidden_size + t.column;
    low_rank_part of_down = low_part(j, &t, g->weights.down_proj, g->t.down);
    low_rank_ask(s, &of_down);
    gemm_nt_load_made(&s->gemm, matrix_rows(g->h, g->width, t.row), &g->h_home, t.row, t.n_rows,
                      g->width);
    gemm_nt(&s->gemm, of_down.weight, t.n_columns, out, e->hidden_size);
    low_rank_add(s, &of_down, out, e->hidden_size);
}

/* Converts x to integers, once for all experts. */
static void make_x(job *j)
{
    const experts *e = j->e;
    int_work ints = ints_begin(e->threads, e->n_threads);
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++) {
        if (g->n_rows == 0) continue;
        token_source *from = g->from ? g->from : &j->tokens;
        rows x = {from->x, e->hidden_size, NULL};
        ints_want(&ints, &from->home, x, from->n_tokens, e->hidden_size, g->weights.gate_proj);
        ints_want(&ints, &from->home, x, from->n_tokens, e->hidden_size, g->weights.up_proj);
    }
    ints_end(&ints);
}

/* Converts h to integers, in the memory that x had. */
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

/* Asks for T of the low-rank additions to gate_proj and up_proj. */
static void want_t_of_x(const job *j)
{
    const experts *e = j->e;
    low_rank_begin(j->low, e->threads, e->n_threads);
    for (group *g = e->groups; g < e->groups + e->n_groups; g++) {
        rows x = x_rows(j, g, 0);
        g->t.gate =
            low_rank_want(j->low, g->weights.gate_proj, x, g->n_rows, e->hidden_size, g->token);
        g->t.up = low_rank_want(j->low, g->weights.up_proj, x, g->n_rows, e->hidden_size, g->token);
    }
}

/* Asks for T of the low-rank additions to down_proj, in the same memory. */
static void want_t_of_h(const job *j)
{
    const experts *e = j->e;
    low_rank_begin(j->low, e->threads, e->n_threads);
    for (group *g = e->groups; g < e->groups + e->n_groups; g++)
        g->t.down = low_rank_want(j->low, g->weights.down_proj, matrix_rows(g->h, g->width, 0),
                                  g->n_rows, g->width, g->token);
}

static void show_inputs(const job *j)
{
    const experts *e = j->e;
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++) {
        rows of_tokens = x_rows(j, g, 0);
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

/* Only for experts that have rows. */
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

void experts_hidden(const experts *e, const float *x)
{
    low_rank_work low;
    job j = job_of(e, x, NULL);
    j.low = &low;
    if (e->watch) show_inputs(&j);
    make_x(&j);
    want_t_of_x(&j);
    low_rank_run(&low, experts_cut_hidden(e), hidden_task, &j);
}

void experts_forward(const experts *e, const float *x)
{
    make_octets(e);
    experts_hidden(e, x);
    if (e->watch) show_hidden(e);
    make_h(e);
    low_rank_work low;
    job j = job_of(e, x, NULL);
    j.low = &low;
    want_t_of_h(&j);
    low_rank_run(&low, experts_cut_output(e), output_task, &j);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* dh = dy · down, without the gate value: h·dh is then the gradient of the gate value. */
static void d_hidden_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    piece p = piece_of(e, task, moe_parts(e->widest, BACKWARD_PART), BACKWARD_PART);
    const group *g = p.group;
    if (!piece_clip(&p, g->width)) return;
    int64_t hidden = e->hidden_size;
    gemm_nn_matrix(&e->threads[thread].gemm, dy_rows(j, g, p.row), p.n_rows, g->weights.down_proj,
                   p.column, hidden, p.n_columns, g->h + p.row * g->width + p.column, g->width,
                   false);
}

/* Replaces g, u and dh by dg, du and weight·h, row by row. */
static void activation_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const job *j = context;
    const slice *b = &j->e->slices[task];
    const group *g = &j->e->groups[b->group];
    for (int64_t r = b->first; r < b->first + b->count; r++) {
        int64_t at = r * g->width;
        float d = j->e->kernels->swiglu_backward(g->width, g->weight ? g->weight[r] : 1.0f,
                                                 g->g + at, g->u + at, g->h + at);
        if (g->d_weight) g->d_weight[r] = d;
    }
}

/* dx = dg · gate + du · up for each row. The caller combines the rows of a token. */
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
    gemm_nn_matrix(m, matrix_rows(g->g, g->width, p.row), p.n_rows, g->weights.gate_proj, p.column,
                   g->width, p.n_columns, dx, hidden, false);
    gemm_nn_matrix(m, matrix_rows(g->u, g->width, p.row), p.n_rows, g->weights.up_proj, p.column,
                   g->width, p.n_columns, dx, hidden, true);
}

/* These sums run over all rows of a group, so tasks are cut along the rows of the gradient instead. */
enum { GRADIENT_ROWS = 384 };

int64_t experts_fold_size(int64_t hidden, int64_t width)
{
    return GRADIENT_ROWS * (width > hidden ? width : hidden);
}

/* c [m, n] (+)= Σ_r a_r[i]·b_r[j] over a group's rows. */
static void add_term(const experts *e, int thread, rows a, int64_t m, rows b, int64_t n,
                     int64_t n_rows, float *c, bool add)
{
    const gemm *s = &e->threads[thread].gemm;
    if (!add || !e->fold) {
        gemm_tn(s, a, m, b, n, n_rows, c, n, add);
        return;
    }
    float *term = e->fold + thread * experts_fold_size(e->hidden_size, e->widest_group);
    gemm_tn(s, a, m, b, n, n_rows, term, n, false);
    e->kernels->axpy(m * n, 1.0f, term, c);
}

/* d gate = dgᵀ·x, d up = duᵀ·x */
static void d_in_proj_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    int64_t parts = moe_parts(e->widest_group, GRADIENT_ROWS);
    const group *first = &e->groups[task / parts];
    int64_t hidden = e->hidden_size, width = first->width, row = task % parts * GRADIENT_ROWS;
    int64_t m = moe_min(GRADIENT_ROWS, width - row);
    if (m <= 0 || !first->gradients.gate_proj) return;
    for (const group *g = first; g < first + first->n_terms; g++) {
        bool add = j->accumulate || g > first;
        add_term(e, thread, rows_columns(matrix_rows(g->g, width, 0), row), m, x_rows(j, g, 0),
                 hidden, g->n_rows, g->gradients.gate_proj + row * hidden, add);
        add_term(e, thread, rows_columns(matrix_rows(g->u, width, 0), row), m, x_rows(j, g, 0),
                 hidden, g->n_rows, g->gradients.up_proj + row * hidden, add);
    }
}

/* d down = dyᵀ·(weight·h) */
static void d_down_proj_task(void *context, int64_t task, int thread)
{
    const job *j = context;
    const experts *e = j->e;
    int64_t hidden = e->hidden_size, parts = moe_parts(hidden, GRADIENT_ROWS);
    const group *first = &e->groups[task / parts];
    int64_t row = task % parts * GRADIENT_ROWS, m = moe_min(GRADIENT_ROWS, hidden - row);
    if (!first->gradients.down_proj) return;
    for (const group *g = first; g < first + first->n_terms; g++)
        add_term(e, thread, rows_columns(dy_rows(j, g, 0), row), m, matrix_rows(g->h, g->width, 0),
                 g->width, g->n_rows, g->gradients.down_proj + row * g->width,
                 j->accumulate || g > first);
}

/* The low-rank additions of all groups. First come those to down_proj, whose dy is not weighted. Their x is
 * h, which has been multiplied by the gate value when the gradients of A and B are made. Then those to
 * gate_proj and up_proj. */
typedef struct back_lists {
    low_rank_back *down, *in; /* parts of one array: `in` follows `down` */
    int64_t n_down, n_in;
    float *t; /* where t of the next addition will be */
} back_lists;

int64_t experts_back_floats(int64_t most_rank, int64_t n_rows) { return 6 * most_rank * n_rows; }

static int64_t add_back(const job *j, back_lists *lists, matrix weight, low_rank_back back)
{
    if (!low_rank_find(j->e->low_rank, weight, &back)) return 0;
    back.t = lists->t;
    back.dt = back.t + back.n_rows * back.low.rank;
    lists->t = back.dt + back.n_rows * back.low.rank;
    j->e->backs[lists->n_down + lists->n_in] = back;
    return 1;
}

static back_lists list_backs(const job *j)
{
    const experts *e = j->e;
    back_lists lists = {.down = e->backs, .t = e->backs_t};
    if (!e->low_rank) return lists;
    int64_t hidden = e->hidden_size;
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++)
        lists.n_down += add_back(j, &lists, g->weights.down_proj,
                                 (low_rank_back){.x = matrix_rows(g->h, g->width, 0),
                                                 .dy = dy_rows(j, g, 0),
                                                 .n_rows = g->n_rows,
                                                 .n_in = g->width,
                                                 .n_out = hidden,
                                                 .dx = g->h});
    lists.in = e->backs + lists.n_down;
    for (const group *g = e->groups; g < e->groups + e->n_groups; g++) {
        low_rank_back in = {.x = x_rows(j, g, 0),
                            .dy = matrix_rows(g->g, g->width, 0),
                            .n_rows = g->n_rows,
                            .n_in = hidden,
                            .n_out = g->width,
                            .dx = g->out};
        lists.n_in += add_back(j, &lists, g->weights.gate_proj, in);
        in.dy = matrix_rows(g->u, g->width, 0);
        lists.n_in += add_back(j, &lists, g->weights.up_proj, in);
    }
    return lists;
}

void experts_backward_rows(const experts *e, const float *x, const float *dy)
{
    job j = job_of(e, x, dy);
    back_lists low = list_backs(&j);
    run(&j, e->n_slices * moe_parts(e->widest, BACKWARD_PART), d_hidden_task);
    low_rank_back_dt(low.down, low.n_down, e->threads, e->n_threads);
    low_rank_back_dx(low.down, low.n_down, e->threads, e->n_threads);
    run(&j, e->n_slices, activation_task);
    run(&j, e->n_slices * moe_parts(e->hidden_size, BACKWARD_PART), d_input_task);
    low_rank_back_dt(low.in, low.n_in, e->threads, e->n_threads);
    low_rank_back_dx(low.in, low.n_in, e->threads, e->n_threads);
}

void experts_backward_weights(const experts *e, const float *x, const float *dy, bool accumulate)
{
    job j = job_of(e, x, dy);
    j.accumulate = accumulate;
    run(&j, e->n_groups * moe_parts(e->widest_group, GRADIENT_ROWS), d_in_proj_task);
    run(&j, e->n_groups * moe_parts(e->hidden_size, GRADIENT_ROWS), d_down_proj_task);
    back_lists low = list_backs(&j);
    low_rank_back_weights(low.down, low.n_down + low.n_in, e->threads, e->n_threads);
}

void experts_backward(const experts *e, const float *x, const float *dy, bool accumulate)
{
    experts_backward_rows(e, x, dy);
    experts_backward_weights(e, x, dy, accumulate);
}
