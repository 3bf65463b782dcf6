/* test_train_gradients.c - every gradient of a trainer against finite differences of
 *   L = loss + balance losses
 * computed in double by the plain model of naive_model.c, which shares no code with the library. The choice
 * of experts stays fixed: it is a step function, and steps have no gradient. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_trainer.h"
#include "naive_loss.h"

/* Members that are 0 have the default of case_config. */
typedef struct gradient_case {
    const char *name;
    int64_t n_sequences, length;
    int64_t hidden, heads, kv_heads, layers, vocab, width; /* width: moe_intermediate_size */
    int64_t routed, k, shared, n_device_groups;            /* shared -1: none; routed -1: dense */
    int64_t first_dense, moe_layer_freq;
    bool tied, bias, norm_topk_prob, batch_aux, recompute;
    dsmoe_rope_scaling rope_scaling;
    int64_t max_position;
    int64_t latent, q_rank, nope, rope, v; /* latent: kv_lora_rank, or 0 */
    dsmoe_topk_method topk_method;         /* noaux_tc: with sigmoid scores */
    int64_t n_group, topk_group;
    double scale;
} gradient_case;

/* A block of queries has at most 72 tokens, a part of the head 504, and a part of a gradient 128 rows, or
 * 384 if there are 1024 or more. Longer cases have several of them. */
static const gradient_case cases[] = {
    {"plain", 2, 7, .layers = 2},
    {"one token", 1, 1, .layers = 2},
    {"sequences of one token", 5, 1, .layers = 1},
    {"tied head", 2, 7, .layers = 2, .tied = true},
    {"biases", 2, 7, .layers = 2, .bias = true},
    {"two heads to a key head", 3, 5, .heads = 4, .kv_heads = 2},
    {"one key head, biases", 2, 9, .heads = 4, .kv_heads = 1, .bias = true},
    {"first layer dense", 2, 7, .layers = 2, .first_dense = 1},
    {"every other layer MoE", 2, 6, .hidden = 8, .heads = 2, .layers = 4, .moe_layer_freq = 2},
    {"all dense", 2, 7, .layers = 3, .routed = -1},
    {"all dense, tied, biases", 3, 4, .layers = 2, .routed = -1, .tied = true, .bias = true},
    {"no shared experts", 2, 7, .shared = -1},
    {"two shared experts", 2, 7, .shared = 2},
    {"top-1", 2, 7, .k = 1},
    {"top-1 with norm_topk_prob", 2, 7, .k = 1, .norm_topk_prob = true},
    {"norm_topk_prob", 2, 7, .k = 3, .norm_topk_prob = true},
    {"all experts", 2, 5, .routed = 4, .k = 4, .norm_topk_prob = true},
    {"balance over the batch", 3, 7, .layers = 2, .routed = 4, .batch_aux = true},
    {"device groups", 3, 7, .layers = 2, .routed = 4, .n_device_groups = 2},
    {"device groups, balance over the batch", 2, 7, .n_device_groups = 3, .batch_aux = true},
    {"one device group", 2, 7, .n_device_groups = 1},
    {"experts without tokens", 1, 5, .routed = 16, .k = 1},
    {"heads of 6", 2, 7, .hidden = 18, .heads = 3},
    {"heads of 2", 2, 7, .hidden = 10, .heads = 5},
    {"a wide head, a large vocabulary", 1, 6, .hidden = 34, .heads = 1, .vocab = 1100},
    {"wide experts", 2, 6, .hidden = 12, .width = 150, .vocab = 140},
    {"positions scaled", 2, 8, .rope_scaling = DSMOE_ROPE_LINEAR},
    {"longer than max_position_embeddings", 1, 9, .rope_scaling = DSMOE_ROPE_DYNAMIC,
     .max_position = 4},
    {"two blocks of queries", 2, 75, .hidden = 8, .heads = 1, .routed = 3, .tied = true},
    {"three blocks of queries", 1, 150, .hidden = 12, .heads = 2, .kv_heads = 1, .routed = 3,
     .bias = true},
    {"two parts of the head", 10, 55, .hidden = 4, .heads = 1, .routed = -1},
    {"latent", 2, 7, .layers = 2, .latent = 9, .nope = 5, .rope = 4, .v = 3},
    {"latent, compressed queries", 2, 7, .layers = 2, .latent = 8, .q_rank = 7, .nope = 4,
     .rope = 2, .v = 6},
    {"latent, YaRN", 2, 19, .latent = 10, .q_rank = 11, .nope = 6, .rope = 8, .v = 5,
     .rope_scaling = DSMOE_ROPE_YARN},
    {"latent, one token", 1, 1, .latent = 3, .nope = 1, .rope = 2, .v = 1, .tied = true},
    {"latent, wider than the model", 2, 5, .hidden = 6, .heads = 5, .latent = 70, .q_rank = 80,
     .nope = 33, .rope = 34, .v = 40},
    {"latent, two blocks of queries", 2, 75, .hidden = 8, .heads = 2, .routed = 3, .latent = 6,
     .q_rank = 5, .nope = 3, .rope = 2, .v = 4},
    {"V2's gate", 2, 9, .layers = 2, .latent = 9, .nope = 5, .rope = 4, .v = 3, .routed = 12,
     .k = 3, .topk_method = DSMOE_TOPK_GROUP_LIMITED_GREEDY, .n_group = 4, .topk_group = 2,
     .scale = 16},
    {"V3's gate", 2, 9, .layers = 2, .latent = 9, .q_rank = 7, .nope = 5, .rope = 4, .v = 3,
     .routed = 12, .k = 3, .norm_topk_prob = true, .topk_method = DSMOE_TOPK_NOAUX_TC, .n_group = 4,
     .topk_group = 2, .scale = 2.5},
    {"Moonlight's gate, balance over the batch", 3, 6, .latent = 9, .nope = 5, .rope = 4, .v = 3,
     .routed = 8, .k = 2, .norm_topk_prob = true, .batch_aux = true, .n_device_groups = 2,
     .topk_method = DSMOE_TOPK_NOAUX_TC, .n_group = 1, .topk_group = 1, .scale = 2.446},
    {"latent, made again", 2, 7, .layers = 3, .first_dense = 1, .routed = 4, .recompute = true,
     .latent = 9, .q_rank = 6, .nope = 5, .rope = 4, .v = 3},
    {"made again", 2, 7, .layers = 3, .first_dense = 1, .routed = 4, .recompute = true},
};

static int64_t or_else(int64_t value, int64_t base) { return value ? value : base; }

static void make_latent(const gradient_case *g, dsmoe_config *c)
{
    c->model_type = DSMOE_DEEPSEEK_V2;
    c->kv_lora_rank = g->latent;
    c->q_lora_rank = g->q_rank;
    c->qk_nope_head_dim = g->nope;
    c->qk_rope_head_dim = g->rope;
    c->v_head_dim = g->v;
    c->routed_scaling_factor = g->scale > 0 ? g->scale : 1;
    c->topk_method = g->topk_method;
    c->n_group = g->n_group;
    c->topk_group = g->topk_group;
    if (g->topk_method == DSMOE_TOPK_NOAUX_TC) {
        c->model_type = DSMOE_DEEPSEEK_V3;
        c->scoring_func = DSMOE_SCORING_SIGMOID;
    }
    if (g->rope_scaling != DSMOE_ROPE_YARN) return;
    c->rope_scaling_factor = 40;
    c->original_max_position_embeddings = 16;
    c->beta_fast = 32;
    c->beta_slow = 1;
    c->mscale = 1.1;
    c->mscale_all_dim = 0.707;
}

static dsmoe_config case_config(const gradient_case *g)
{
    dsmoe_config c = made_config();
    c.vocab_size = or_else(g->vocab, 31);
    c.hidden_size = or_else(g->hidden, 24);
    c.intermediate_size = 19;
    c.moe_intermediate_size = or_else(g->width, 10);
    c.num_hidden_layers = or_else(g->layers, 1);
    c.num_attention_heads = or_else(g->heads, 3);
    c.num_key_value_heads = or_else(g->kv_heads, c.num_attention_heads);
    c.n_routed_experts = g->routed < 0 ? 0 : or_else(g->routed, 6);
    c.num_experts_per_tok = g->routed < 0 ? 0 : or_else(g->k, 2);
    c.n_shared_experts = g->routed < 0 || g->shared < 0 ? 0 : or_else(g->shared, 1);
    c.first_k_dense_replace = g->first_dense;
    c.moe_layer_freq = or_else(g->moe_layer_freq, 1);
    c.tie_word_embeddings = g->tied;
    c.attention_bias = g->bias;
    c.norm_topk_prob = g->norm_topk_prob;
    c.seq_aux = !g->batch_aux;
    c.aux_loss_alpha = 0.1;
    c.rope_scaling = g->rope_scaling;
    c.rope_scaling_factor = g->rope_scaling ? 3 : 1;
    c.max_position_embeddings = or_else(g->max_position, 512);
    if (g->latent) make_latent(g, &c);
    return c;
}

/* ---- one case ------------------------------------------------------------------------------- */

typedef struct gradient_test {
    const gradient_case *what;
    made_model model;
    naive_batch batch;
    made_batch tokens;
    dsmoe_trainer *trainer;
    double largest; /* the largest gradient of all */
    uint64_t random;
} gradient_test;

static double next_random(gradient_test *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(t->random >> 11) * 0x1p-53;
}

/* Finds weights for which no choice of experts is so close that float32 could choose differently. */
static void make_model(gradient_test *t, const dsmoe_config *config, uint64_t seed)
{
    for (int attempt = 0; attempt < 20; attempt++) {
        t->model = made_model_create(config, "F32", seed + 100 * (uint64_t)attempt);
        naive_batch_route(&t->batch, &t->model);
        if (t->batch.margin > 1e-4) return;
        naive_batch_free(&t->batch);
        made_model_free(&t->model);
    }
    fail_msg("%s: ties are too near with any seed", t->what->name);
}

static gradient_test make_test(const gradient_case *g, uint64_t seed)
{
    gradient_test t = {.what = g, .random = seed};
    dsmoe_config config = case_config(g);
    dsmoe_trainer_options options = made_options(g->n_sequences, g->length);
    options.n_device_groups = g->n_device_groups;
    options.device_loss_alpha = g->n_device_groups ? 0.05 : 0;
    options.recompute = g->recompute;
    options.n_threads = 2;
    t.tokens = made_batch_create(&config, &options, seed);
    for (int64_t i = 0; i < t.tokens.n; i++) { /* random targets, some missing */
        bool none = t.tokens.n > 1 && i % 5 == 3;
        t.tokens.targets[i] = none ? -1 : (int32_t)(next_random(&t) * (double)config.vocab_size);
    }
    t.batch = (naive_batch){.tokens = t.tokens.tokens,
                            .targets = t.tokens.targets,
                            .n_sequences = g->n_sequences,
                            .sequence_length = g->length,
                            .n_device_groups = options.n_device_groups,
                            .device_loss_alpha = options.device_loss_alpha};
    make_model(&t, &config, seed);
    t.trainer = made_trainer(&t.model, &options);
    return t;
}

static void free_test(gradient_test *t)
{
    dsmoe_trainer_free(t->trainer);
    naive_batch_free(&t->batch);
    made_batch_free(&t->tokens);
    made_model_free(&t->model);
}

static void check_number(const gradient_test *t, const char *what, double ours, double expected)
{
    if (!(fabs(ours - expected) <= 2e-6 * fabs(expected)))
        fail_msg("%s: %s is %.9g, where %.9g is expected", t->what->name, what, ours, expected);
}

static void check_losses(const gradient_test *t, const dsmoe_batch_losses *ours)
{
    naive_losses expected = naive_batch_losses(&t->batch, &t->model);
    int64_t place = 0;
    check_number(t, "the loss", ours->loss, expected.loss);
    check_number(t, "aux_loss", ours->aux_loss, expected.aux_loss);
    check_number(t, "device_loss", ours->device_loss, expected.device_loss);
    for (int64_t i = 0; i < t->model.config.num_hidden_layers; i++) {
        if (!dsmoe_config_layer_is_moe(&t->model.config, i)) continue;
        check_number(t, "a layer's aux_loss", ours->layers[place].aux_loss,
                     expected.layer_aux[place]);
        check_number(t, "a layer's device_loss", ours->layers[place].device_loss,
                     expected.layer_device[place]);
        place++;
    }
}

/* ---- differences ----------------------------------------------------------------------------- */

/* Moves a tensor from `from` by `step` along `direction` and returns the loss there. `moved` receives how
 * far each number really moved in float32. */
static double loss_at(const gradient_test *t, made_tensor *w, const float *from,
                      const double *direction, double step, double *moved)
{
    for (int64_t i = 0; i < w->n; i++) {
        w->data[i] = (float)(from[i] + step * direction[i]);
        moved[i] = (double)w->data[i] - from[i];
    }
    double loss = naive_batch_losses(&t->batch, &t->model).total;
    memcpy(w->data, from, (size_t)w->n * sizeof *from);
    return loss;
}

/* The difference between the slope along a direction and the gradient's prediction. */
static double slope_error(const gradient_test *t, made_tensor *w, const float *from,
                          const float *gradient, const double *direction, double step,
                          double *scratch)
{
    double *forth = scratch, *back = scratch + w->n, expected = 0;
    double above = loss_at(t, w, from, direction, step, forth);
    double below = loss_at(t, w, from, direction, -step, back);
    for (int64_t i = 0; i < w->n; i++) expected += gradient[i] * (forth[i] - back[i]);
    return fabs(above - below - expected) / (2 * step);
}

static double norm_of(const float *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)values[i] * values[i];
    return sqrt(sum);
}

static int64_t largest_of(const float *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (fabsf(values[i]) > fabsf(values[best])) best = i;
    return best;
}

/* A random direction includes every element, so an element shows if its error is a fraction of the whole
 * gradient. After that the largest element is checked alone, and any other one. */
static void check_tensor(gradient_test *t, made_tensor *w)
{
    enum { DIRECTION, LARGEST, ANY };
    int64_t n = w->n, any = (int64_t)(next_random(t) * (double)n);
    const float *g = dsmoe_trainer_gradient(t->trainer, trainer_find(t->trainer, w->name));
    float *from = malloc((size_t)n * sizeof *from);
    double *direction = calloc((size_t)(3 * n), sizeof *direction);
    assert_true(from && direction);
    memcpy(from, w->data, (size_t)n * sizeof *from);
    int64_t largest = largest_of(g, n);
    int last = strstr(w->name, ".experts.") ? DIRECTION : any == largest ? LARGEST : ANY;
    for (int way = DIRECTION; way <= last; way++) {
        double root = way == DIRECTION ? sqrt((double)n) : 1;
        for (int64_t i = 0; i < n; i++)
            direction[i] = way == DIRECTION ? (next_random(t) < 0.5 ? -1 : 1)
                                            : i == (way == LARGEST ? largest : any);
        double size = way == DIRECTION ? norm_of(g, n) : fabsf(g[largest]);
        double off = slope_error(t, w, from, g, direction, 0x1p-14 / root, direction + n);
        double cancelled = 2e-7 * t->largest * root; /* float32 error of sums that cancel */
        if (!(off <= 1e-5 * size + cancelled))
            fail_msg("%s: %s, %s: off by %g, where %g is the size", t->what->name, w->name,
                     way == DIRECTION ? "all of it" : "one element", off, size);
    }
    free(from);
    free(direction);
}

static void check_case(const gradient_case *g, uint64_t seed)
{
    gradient_test t = make_test(g, seed);
    dsmoe_batch_losses losses = run_batch(t.trainer, &t.tokens);
    check_losses(&t, &losses);
    for (int i = 0; i < t.model.n_tensors; i++) {
        made_tensor *w = &t.model.tensors[i];
        size_t index = trainer_find(t.trainer, w->name);
        const float *gradient = dsmoe_trainer_gradient(t.trainer, index);
        t.largest = fmax(t.largest, fabsf(gradient[largest_of(gradient, w->n)]));
    }
    assert_true(t.largest > 1e-3);
    for (int i = 0; i < t.model.n_tensors; i++) check_tensor(&t, &t.model.tensors[i]);
    free_test(&t);
}

static void test_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) check_case(&cases[i], 4100 + i);
}

static int64_t pick(uint64_t *random, int64_t least, int64_t most)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)(*random >> 33) % (most - least + 1);
}

/* A random combination of options. */
static gradient_case random_case(uint64_t *random)
{
    gradient_case g = {.heads = pick(random, 1, 4)};
    g.n_sequences = pick(random, 1, 3);
    g.length = pick(random, 1, 11);
    g.hidden = g.heads * 2 * pick(random, 1, 3);
    g.kv_heads = g.heads % 2 ? g.heads : g.heads / pick(random, 1, 2);
    g.layers = pick(random, 1, 3);
    g.width = pick(random, 1, 9);
    g.n_device_groups = pick(random, 0, 2);
    g.routed = g.n_device_groups ? g.n_device_groups * pick(random, 1, 3) : 5;
    g.k = pick(random, 1, g.routed);
    g.shared = pick(random, 0, 2) - 1;
    g.first_dense = pick(random, 0, 1);
    g.moe_layer_freq = pick(random, 1, 2);
    g.tied = pick(random, 0, 1);
    g.bias = pick(random, 0, 1);
    g.norm_topk_prob = pick(random, 0, 1);
    g.batch_aux = pick(random, 0, 1);
    g.recompute = pick(random, 0, 1);
    return g;
}

static void test_random_cases(void **state)
{
    (void)state;
    uint64_t random = 65;
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "random case %d", i);
        gradient_case g = random_case(&random);
        g.name = name;
        check_case(&g, random);
    }
}

static void test_random_latent_cases(void **state)
{
    (void)state;
    uint64_t random = 66;
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "random latent case %d", i);
        gradient_case g = random_case(&random);
        g.name = name;
        g.hidden = pick(&random, 9, 20); /* any size: heads have their own widths */
        g.kv_heads = g.heads;
        g.bias = false;
        g.latent = pick(&random, 2, 12);
        g.q_rank = pick(&random, 0, 1) * pick(&random, 2, 12);
        g.nope = pick(&random, 1, 8);
        g.rope = 2 * pick(&random, 1, 4);
        g.v = pick(&random, 1, 8);
        if (pick(&random, 0, 1)) g.rope_scaling = DSMOE_ROPE_YARN;
        check_case(&g, random);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_random_cases),
        cmocka_unit_test(test_random_latent_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
