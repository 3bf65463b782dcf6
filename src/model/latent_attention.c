/* latent_attention.c - the common part of both forms of latent attention: queries, the rows of the cache, and
 * the choice between the forms. */
#include "model/latent_attention.h"

#include "base/clock.h"
#include "base/threads.h"
#include "model/latent.h"
#include "model/linear.h"
#include "model/rope.h"
#include "moe/ints.h"

typedef struct latent_space {
    thread_scratch *products;
    float *rows;       /* [n_rows, width] to be stored in the cache */
    float *compressed; /* [n_rows, q_lora_rank] */
    float *q, *answers;
    absorbed_space *absorbed;
    expanded_space *expanded;
} latent_space;

/* ---- memory -------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* The most memory that the rows of a product take as integers, in any layer. */
static size_t ints_of_rows(const dsmoe_model *model, latent_shape s, int64_t n_rows)
{
    const dsmoe_config *c = &model->config;
    const kernels *kn = model->kernels;
    size_t size = 0;
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const layer_weights *w = &model->weights->layers[i];
        matrix q = c->q_lora_rank > 0 ? w->q_a_proj : w->q_proj.weight;
        unsigned x = ints_forms(kn, q) | ints_forms(kn, w->kv_a_proj);
        size = larger(size, ints_size(x, n_rows, c->hidden_size));
        matrix values = model->weights->kv_b_split ? w->v_b_proj : w->kv_b_proj;
        size = larger(size, ints_size(ints_forms(kn, values), EXPANDED_KEYS, s.rank));
        size = larger(size, ints_size(ints_forms(kn, w->o_proj.weight), n_rows, s.heads * s.value));
        if (c->q_lora_rank > 0)
            size = larger(size, ints_size(ints_forms(kn, w->q_b_proj), n_rows, c->q_lora_rank));
    }
    return size;
}

static int64_t longest_row(const dsmoe_config *c, latent_shape s)
{
    const int64_t all[] = {c->hidden_size, c->q_lora_rank, s.rank, s.heads * s.value};
    int64_t longest = 0;
    for (int i = 0; i < 4; i++) longest = all[i] > longest ? all[i] : longest;
    return longest;
}

static latent_space latent_place(arena *a, const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    const dsmoe_config *c = &model->config;
    latent_shape s = latent_shape_of(c);
    return (latent_space){
        .products = scratch_place(a, model->kernels, longest_row(c, s),
                                  ints_of_rows(model, s, n_rows), n_threads),
        .rows = arena_take(a, n_rows * s.width, sizeof(float)),
        .compressed = arena_take(a, n_rows * c->q_lora_rank, sizeof(float)),
        .q = arena_take(a, n_rows * s.heads * s.head, sizeof(float)),
        .answers = arena_take(a, n_rows * s.heads * s.value, sizeof(float)),
        .absorbed = absorbed_place(a, model, n_threads),
        .expanded = expanded_place(a, model, n_rows, n_threads),
    };
}

size_t latent_attention_size(const dsmoe_model *model, int64_t n_rows, int n_threads)
{
    arena measure = arena_over(NULL);
    latent_place(&measure, model, n_rows, n_threads);
    return arena_size(&measure);
}

/* ---- the choice ---------------------------------------------------------------------------- */

/* Compares the multiplications of the whole span. Both forms multiply by kv_b_proj: the expanded form all
 * rows that are seen, the absorbed form only those of the span, but then its keys and values are wider.
 * So the first tokens of a text are expanded, a single token is absorbed, and a piece of a prompt is
 * expanded if it is long enough to pay for the tokens before it: 171 tokens for the shape of V2-Lite. The
 * two forms do not sum in the same order, and tokens may come in any pieces, so with same_bits only the
 * absorbed form is used. */
bool latent_is_expanded(const latent_job *job, const span *s)
{
    latent_shape shape = job->shape;
    double before = (double)s->position, n = (double)s->n_rows;
    double pairs = n * (before + (n + 1) / 2), rank = (double)shape.rank;
    double narrow = (double)(shape.head + shape.value), wide = (double)shape.width + rank;
    if (job->pass->same_bits || s->n_rows == 1) return false;
    return before * rank * (double)(shape.nope + shape.value) + pairs * narrow < pairs * wide;
}

/* ---- rows ---------------------------------------------------------------------------------- */

typedef struct row_job {
    latent_job *job;
    const layer_weights *weights;
    const latent_space *space;
} row_job;

/* Norms the latent, rotates the rest of the row, and stores the row in the cache. */
static void remember_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const row_job *r = context;
    const pass *p = r->job->pass;
    const kernels *kn = p->model->kernels;
    latent_shape s = r->job->shape;
    const span *of = pass_span(p, row);
    float *c = r->space->rows + row * s.width;
    int64_t half = s.rope / 2;
    kn->rms_norm(s.rank, c, r->weights->kv_a_layernorm, CONFIG_LATENT_EPS, c);
    rope_turn_pairs(s.rope, p->cos + row * half, p->sin + row * half, c + s.rank);
    kn->caches[of->cache.pages->type].narrow(
        s.width, c, latent_row_at(r->job, &of->cache, of->position + row - of->row));
}

static void norm_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const row_job *r = context;
    const dsmoe_model *model = r->job->pass->model;
    int64_t rank = model->config.q_lora_rank;
    float *x = r->space->compressed + row * rank;
    model->kernels->rms_norm(rank, x, r->weights->q_a_layernorm, CONFIG_LATENT_EPS, x);
}

static void turn_task(void *context, int64_t row, int thread)
{
    (void)thread;
    const latent_job *job = ((const row_job *)context)->job;
    const pass *p = job->pass;
    latent_shape s = job->shape;
    float *q = job->q + row * s.heads * s.head;
    int64_t half = s.rope / 2;
    for (int64_t h = 0; h < s.heads; h++)
        rope_turn_pairs(s.rope, p->cos + row * half, p->sin + row * half, q + h * s.head + s.nope);
    p->model->kernels->scale(s.heads * s.head, (float)rope_score_scale(&p->model->config), q);
}

/* ---- all steps ----------------------------------------------------------------------------- */

/* The first product for the queries. */
static product query_product(const latent_job *job, const layer_weights *w, const latent_space *s)
{
    const pass *p = job->pass;
    const dsmoe_config *c = &p->model->config;
    rows x = {p->normed, c->hidden_size, NULL};
    if (c->q_lora_rank > 0)
        return (product){x,    p->n_rows,      c->hidden_size, w->q_a_proj,
                         NULL, c->q_lora_rank, s->compressed};
    return (product){
        x,   p->n_rows, c->hidden_size, w->q_proj.weight, NULL, job->shape.heads * job->shape.head,
        s->q};
}

/* Shows the inputs of both parts of kv_b_proj to a watcher, head by head: the queries that the absorbed form
 * brings into the latents' space, and the latents. */
static void show_heads(const row_job *r)
{
    const latent_job *job = r->job;
    const pass *p = job->pass;
    latent_shape s = job->shape;
    for (int64_t h = 0; p->inputs && h < s.heads; h++) {
        matrix keys = latent_is_split(job)
                          ? matrix_from(r->weights->k_b_proj, h * s.rank)
                          : matrix_from(r->weights->kv_b_proj, h * (s.nope + s.value));
        rows q = {job->q + h * s.head, s.heads * s.head, NULL};
        rows latents = {r->space->rows, s.width, NULL};
        p->inputs->see(p->inputs->context, keys, q, p->n_rows, s.nope);
        p->inputs->see(p->inputs->context, latent_values_of(job, h), latents, p->n_rows, s.rank);
    }
}

/* Expands compressed queries to all heads; then rotates and scales the queries. */
static void finish_queries(const row_job *r)
{
    const pass *p = r->job->pass;
    int64_t rank = p->model->config.q_lora_rank;
    const product up = {
        {r->space->compressed, rank, NULL},       p->n_rows,  rank, r->weights->q_b_proj, NULL,
        r->job->shape.heads * r->job->shape.head, r->space->q};
    if (rank > 0) {
        threads_for(p->n_threads, p->n_rows, norm_task, (void *)r);
        linear_show(&up, 1, p->inputs);
        linear_run(&up, 1, r->space->products, p->n_threads);
    }
    show_heads(r);
    threads_for(p->n_threads, p->n_rows, turn_task, (void *)r);
}

void latent_attention_forward(pass *p, int64_t layer)
{
    const dsmoe_config *c = &p->model->config;
    const layer_weights *w = &p->model->weights->layers[layer];
    arena a = arena_over(p->phase);
    latent_space s = latent_place(&a, p->model, p->n_rows, p->n_threads);
    latent_job job = {.pass = p,
                      .shape = latent_shape_of(c),
                      .layer = layer,
                      .products = s.products,
                      .q = s.q,
                      .answers = s.answers};
    row_job r = {&job, w, &s};
    scratch_same_bits(s.products, p->n_threads, p->same_bits);
    scratch_adapt(s.products, p->n_threads, pass_adapters(p));
    bool all = !pass_may_narrow(p, layer); /* otherwise some rows are only stored in the cache */

    rows x = {p->normed, c->hidden_size, NULL};
    product in[] = {
        {x, p->n_rows, c->hidden_size, w->kv_a_proj, NULL, job.shape.width, s.rows},
        query_product(&job, w, &s),
    };
    linear_show(in, 2, p->inputs);
    linear_run(in, all ? 2 : 1, s.products, p->n_threads);
    threads_for(p->n_threads, p->n_rows, remember_task, &r);
    if (!all) {
        pass_narrow(p);
        if (p->n_rows == 0) return;
        in[1].n_rows = p->n_rows;
        linear_run(&in[1], 1, s.products, p->n_threads);
    }
    finish_queries(&r);
    double start = clock_seconds();
    absorbed_forward(&job, s.absorbed);
    expanded_forward(&job, s.expanded);
    p->attention_seconds += clock_seconds() - start;
    int64_t out_size = job.shape.heads * job.shape.value;
    const product out = {{s.answers, out_size, NULL},
                         p->n_rows,
                         out_size,
                         w->o_proj.weight,
                         NULL,
                         c->hidden_size,
                         p->y};
    linear_show(&out, 1, p->inputs);
    linear_run(&out, 1, s.products, p->n_threads);
}
