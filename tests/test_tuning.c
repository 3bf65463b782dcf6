/* test_tuning.c - training a part of a model: gradients of low-rank additions and of chosen experts against finite
 * differences of the plain model in double, over frozen weights of several types; the same bits for any number of
 * threads and whatever is kept or made again. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"
#include "made_gguf.h"
#include "made_trainer.h"
#include "model/gguf_names.h"
#include "naive_loss.h"
#include "scratch.h"

enum { RANK = 3 };
static const double alpha = 5.0;
static const char all_targets[] = "attention,shared,dense,routed";

/* ---- a base and what is trained of it --------------------------------------------------------- */

typedef struct tuned {
    dsmoe_trainer *owner;    /* of the base; NULL: */
    const dsmoe_model *base; /* it is opened here */
    dsmoe_tuning tuning;
    dsmoe_trainer_options options;
    dsmoe_trainer *trainer;
} tuned;

static dsmoe_model *open_base(const char *from)
{
    dsmoe_error error = {0};
    dsmoe_model *model;
    must(dsmoe_model_open(from, &model, &error), &error, "the base");
    return model;
}

static dsmoe_trainer *create(const dsmoe_config *config, const dsmoe_trainer_options *options)
{
    dsmoe_error error = {0};
    dsmoe_trainer *trainer;
    must(dsmoe_trainer_create(config, options, &trainer, &error), &error, "a trainer");
    return trainer;
}

/* Low-rank additions to a base. */
static void make_lora(tuned *t, const char *from, const char *targets, int64_t n_sequences,
                      int64_t length)
{
    if (!t->owner) t->base = open_base(from);
    t->tuning = (dsmoe_tuning){.base = t->base,
                               .train = DSMOE_TRAIN_LORA,
                               .rank = RANK,
                               .alpha = alpha,
                               .targets = targets};
    t->options = made_options(n_sequences, length);
    t->options.n_threads = 2;
    t->options.tuning = &t->tuning;
    t->trainer = create(dsmoe_model_config(t->base), &t->options);
    dsmoe_trainer_init(t->trainer, 5);
}

static void fill_b(dsmoe_trainer *trainer)
{
    for (size_t i = 1; i < dsmoe_trainer_parameter_count(trainer); i += 2) {
        dsmoe_tensor_info b = dsmoe_trainer_parameter(trainer, i);
        fill_random((float *)dsmoe_trainer_weight(trainer, i), b.shape[0] * b.shape[1], 900 + i,
                    0.1);
    }
}

static void free_tuned(tuned *t)
{
    dsmoe_trainer_free(t->trainer);
    if (!t->owner) dsmoe_model_free((dsmoe_model *)t->base);
    dsmoe_trainer_free(t->owner);
}

static dsmoe_config plain_config(void)
{
    dsmoe_config c = made_config();
    c.aux_loss_alpha = 0.1;
    return c;
}

/* ---- finite differences ------------------------------------------------------------------------ */

/* "model.layers.0.self_attn.q_proj.weight" of its lora_A. */
static void tensor_name(const char *parameter, char name[128])
{
    static const char before[] = "base_model.model.";
    const char *end = strstr(parameter, ".lora_");
    assert_true(end && !strncmp(parameter, before, strlen(before)));
    snprintf(name, 128, "%.*s.weight", (int)(end - parameter - (ptrdiff_t)strlen(before)),
             parameter + strlen(before));
}

/* merged = W + scale·(B + step·dB)·(A + step·dA), in double. */
static void merge(const float *w, const double *a, const double *b, made_tensor *merged)
{
    int64_t n_out = merged->shape[0], n_in = merged->shape[1];
    for (int64_t i = 0; i < n_out; i++)
        for (int64_t j = 0; j < n_in; j++) {
            double sum = w[i * n_in + j];
            for (int64_t r = 0; r < RANK; r++)
                sum += alpha / RANK * b[i * RANK + r] * a[r * n_in + j];
            merged->data[i * n_in + j] = (float)sum;
        }
}

/* Preferences: two pairs, each in a sequence of its own, with padding after it. */
enum { N_HALVES = 4, PAIR_LENGTH = 16, N_PLACES = 2 * PAIR_LENGTH };
static const int64_t half_lengths[N_HALVES] = {7, 6, 5, 8};
static const double beta = 0.3;
typedef struct preferences {
    int32_t tokens[N_PLACES], targets[N_PLACES], positions[N_PLACES];
    naive_batch halves[N_HALVES]; /* chosen, rejected, chosen, rejected */
    double reference[N_HALVES / 2];
} preferences;

typedef struct difference {
    made_model plain, merged;
    naive_batch batch;
    made_batch tokens;
    preferences *pairs; /* NULL: the batch is learnt */
} difference;

/* log p of a half, the sum over its targets. */
static double half_sum(const naive_batch *half, const made_model *model)
{
    int64_t n = 0;
    for (int64_t i = 0; i < half->sequence_length; i++) n += half->targets[i] >= 0;
    return -naive_batch_losses(half, model).loss * (double)n;
}

static double pair_margin(const preferences *p, int pair, const made_model *model)
{
    return half_sum(&p->halves[2 * pair], model) - half_sum(&p->halves[2 * pair + 1], model);
}

/* The mean over the pairs of -log σ(β·(margin - reference)), and of what is counted beside it. */
static dsmoe_batch_losses pairs_loss(const preferences *p, const made_model *model)
{
    dsmoe_batch_losses losses = {0};
    for (int i = 0; i < N_HALVES / 2; i++) {
        double z = beta * (pair_margin(p, i, model) - p->reference[i]);
        losses.loss += log(1 + exp(-z)) / (N_HALVES / 2);
        losses.accuracy += (z > 0) / (double)(N_HALVES / 2);
        losses.margin += z / (N_HALVES / 2);
    }
    return losses;
}

static double loss_of(const difference *d)
{
    return d->pairs ? pairs_loss(d->pairs, &d->merged).loss
                    : naive_batch_losses(&d->batch, &d->merged).total;
}

static double *widened(const float *from, int64_t n)
{
    double *to = malloc((size_t)n * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
    return to;
}

static void merge_pair(const difference *d, const dsmoe_trainer *trainer, size_t index,
                       const double *move_a, const double *move_b, double step)
{
    char name[128];
    dsmoe_tensor_info a = dsmoe_trainer_parameter(trainer, index),
                      b = dsmoe_trainer_parameter(trainer, index + 1);
    int64_t n_a = a.shape[0] * a.shape[1], n_b = b.shape[0] * b.shape[1];
    tensor_name(a.name, name);
    double *at_a = widened(dsmoe_trainer_weight(trainer, index), n_a);
    double *at_b = widened(dsmoe_trainer_weight(trainer, index + 1), n_b);
    for (int64_t i = 0; move_a && i < n_a; i++) at_a[i] += step * move_a[i];
    for (int64_t i = 0; move_b && i < n_b; i++) at_b[i] += step * move_b[i];
    merge(made_model_find(&d->plain, name)->data, at_a, at_b, made_model_find(&d->merged, name));
    free(at_a);
    free(at_b);
}

static double slope(const difference *d, const dsmoe_trainer *trainer, size_t pair, bool of_b,
                    const double *direction, double step)
{
    double loss[2];
    for (int side = 0; side < 2; side++) {
        merge_pair(d, trainer, pair, of_b ? NULL : direction, of_b ? direction : NULL,
                   side ? step : -step);
        loss[side] = loss_of(d);
    }
    merge_pair(d, trainer, pair, NULL, NULL, 0);
    return (loss[1] - loss[0]) / (2 * step);
}

static void check_parameter(const difference *d, const dsmoe_trainer *trainer, size_t index,
                            uint64_t *random)
{
    dsmoe_tensor_info p = dsmoe_trainer_parameter(trainer, index);
    const float *gradient = dsmoe_trainer_gradient(trainer, index);
    int64_t n = p.shape[0] * p.shape[1];
    double *direction = malloc((size_t)n * sizeof *direction), expected = 0, size = 0;
    assert_non_null(direction);
    for (int64_t i = 0; i < n; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        direction[i] = (*random >> 40 & 1 ? 1 : -1) / sqrt((double)n);
        expected += direction[i] * gradient[i];
        size += (double)gradient[i] * gradient[i] / (double)n;
    }
    double found = slope(d, trainer, index / 2 * 2, index % 2, direction, 0x1p-8);
    if (!(fabs(found - expected) <= 2e-3 * sqrt(size) + 2e-6))
        fail_msg("%s: %g by differences, %g by backward, where %g is the size", p.name, found,
                 expected, sqrt(size));
    free(direction);
}

/* A base, its additions, and both merged, which routes the batch. */
static void begin_lora(difference *d, tuned *t, const dsmoe_config *config, const char *targets,
                       bool recompute, uint64_t seed)
{
    *d = (difference){.plain = made_model_create(config, "F32", seed),
                      .merged = made_model_create(config, "F32", seed)};
    dsmoe_trainer_options whole = made_options(1, 1);
    *t = (tuned){.owner = made_trainer(&d->plain, &whole)};
    t->base = dsmoe_trainer_model(t->owner);
    make_lora(t, NULL, targets, 2, 7);
    if (recompute) {
        dsmoe_trainer_free(t->trainer);
        t->options.recompute = true;
        t->trainer = create(config, &t->options);
        dsmoe_trainer_init(t->trainer, 5);
    }
    fill_b(t->trainer);
    d->tokens = made_batch_create(config, &t->options, seed);
    d->batch = (naive_batch){.tokens = d->tokens.tokens,
                             .targets = d->tokens.targets,
                             .n_sequences = 2,
                             .sequence_length = 7};
    for (size_t i = 0; i < dsmoe_trainer_parameter_count(t->trainer); i += 2)
        merge_pair(d, t->trainer, i, NULL, NULL, 0);
    naive_batch_route(&d->batch, &d->merged);
}

static void end_lora(difference *d, tuned *t)
{
    naive_batch_free(&d->batch);
    made_batch_free(&d->tokens);
    free_tuned(t);
    made_model_free(&d->plain);
    made_model_free(&d->merged);
}

/* With the first weights for which the choice of experts is so clear that a small step changes none. */
static void check_lora(const dsmoe_config *config, const char *targets, bool recompute,
                       uint64_t seed)
{
    difference d;
    tuned t;
    begin_lora(&d, &t, config, targets, recompute, seed);
    for (int attempt = 0; !(d.batch.margin > 1e-4); attempt++) {
        assert_true(attempt < 50);
        end_lora(&d, &t);
        begin_lora(&d, &t, config, targets, recompute, ++seed);
    }
    dsmoe_batch_losses losses = run_batch(t.trainer, &d.tokens);
    double expected = naive_batch_losses(&d.batch, &d.merged).loss;
    assert_true(fabs(losses.loss - expected) < 1e-5 * expected);
    for (size_t i = 0; i < dsmoe_trainer_parameter_count(t.trainer); i++)
        check_parameter(&d, t.trainer, i, &seed);
    end_lora(&d, &t);
}

static void test_lora(void **state)
{
    (void)state;
    dsmoe_config usual = plain_config(), latent = made_latent_config(), v3 = made_v3_config();
    check_lora(&usual, all_targets, false, 31);
    check_lora(&usual, all_targets, true, 32);
    check_lora(&usual, "layers.2.mlp.experts.1.down_proj,layers.2.self_attn.k_proj", false, 33);
    check_lora(&latent, all_targets, false, 34);
    check_lora(&v3, "attention,routed", false, 35);
    usual.first_k_dense_replace = 0; /* then none is dense */
    check_lora(&usual, all_targets, false, 37);
    usual.attention_bias = true;
    usual.tie_word_embeddings = true;
    check_lora(&usual, "q_proj,gate_proj", false, 36);
}

/* ---- chosen experts ---------------------------------------------------------------------------- */

/* The gradients of a trainer of the whole model, of which those are checked in test_train_gradients.c. */
static void test_experts(void **state)
{
    (void)state;
    dsmoe_config config = plain_config();
    made_model model = made_model_create(&config, "F32", 41);
    made_model_write(&model, directory, false);
    tuned t = {.base = open_base(directory), .options = made_options(2, 9)};
    unsigned char *chosen = calloc((size_t)(config.num_hidden_layers * config.n_routed_experts), 1);
    chosen[1 * config.n_routed_experts + 2] = 1;
    chosen[2 * config.n_routed_experts + 0] = 1;
    chosen[2 * config.n_routed_experts + 3] = 1;
    t.tuning = (dsmoe_tuning){.base = t.base, .train = DSMOE_TRAIN_EXPERTS, .experts = chosen};
    dsmoe_trainer_options whole = t.options;
    t.options.tuning = &t.tuning;
    t.trainer = create(&config, &t.options);
    dsmoe_error error = {0};
    must(dsmoe_trainer_load(t.trainer, t.base, &error), &error, "the experts");
    dsmoe_trainer *all = made_trainer(&model, &whole);
    made_batch batch = made_batch_create(&config, &whole, 7);
    for (int step = 0; step < 2; step++) { /* the second one is added */
        dsmoe_batch_losses a = run_batch(all, &batch), b = run_batch(t.trainer, &batch);
        assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    }
    assert_int_equal(dsmoe_trainer_parameter_count(t.trainer), 9);
    for (size_t i = 0; i < 9; i++) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(t.trainer, i);
        size_t same = trainer_find(all, p.name);
        assert_same_bits(dsmoe_trainer_gradient(t.trainer, i), dsmoe_trainer_gradient(all, same),
                         (size_t)(p.shape[0] * p.shape[1]), p.name);
    }
    run_update(t.trainer, 1e-3);
    assert_true(run_batch(t.trainer, &batch).loss < run_batch(all, &batch).loss);
    made_batch_free(&batch);
    dsmoe_trainer_free(all);
    free_tuned(&t);
    free(chosen);
    made_model_remove(directory);
    made_model_free(&model);
}

/* ---- preferences ----------------------------------------------------------------------------------- */

static dsmoe_config block_config(void);

/* Random tokens, of which those after the first two of each half are learnt. */
static void fill_pairs(preferences *p, const dsmoe_config *config, uint64_t seed)
{
    for (int i = 0; i < N_HALVES; i++) naive_batch_free(&p->halves[i]);
    *p = (preferences){0};
    for (int i = 0; i < N_PLACES; i++) {
        p->targets[i] = p->positions[i] = -1;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        p->tokens[i] = (int32_t)((seed >> 33) % (uint64_t)config->vocab_size);
    }
    for (int half = 0; half < N_HALVES; half++) {
        int64_t n = half_lengths[half];
        int64_t first = half / 2 * PAIR_LENGTH + (half % 2 ? half_lengths[half - 1] : 0);
        for (int64_t i = 0; i < n; i++) {
            p->positions[first + i] = (int32_t)i;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if (i < 2) continue;
            p->targets[first + i] = i + 1 < n
                                        ? p->tokens[first + i + 1]
                                        : (int32_t)((seed >> 33) % (uint64_t)config->vocab_size);
        }
        p->halves[half] = (naive_batch){.tokens = p->tokens + first,
                                        .targets = p->targets + first,
                                        .n_sequences = 1,
                                        .sequence_length = n};
    }
}

static double route_pairs(preferences *p, const made_model *model)
{
    double least = INFINITY;
    for (int i = 0; i < N_HALVES; i++) {
        naive_batch_free(&p->halves[i]);
        naive_batch_route(&p->halves[i], model);
        least = fmin(least, p->halves[i].margin);
    }
    return least;
}

static dsmoe_batch pairs_batch(const preferences *p)
{
    return (dsmoe_batch){
        .tokens = p->tokens, .targets = p->targets, .positions = p->positions, .beta = beta};
}

static dsmoe_batch_losses run_pairs(dsmoe_trainer *trainer, const preferences *p)
{
    dsmoe_error error = {0};
    dsmoe_batch_losses losses;
    const dsmoe_batch batch = pairs_batch(p);
    must(dsmoe_trainer_backward(trainer, &batch, &losses, &error), &error, "preferences");
    return losses;
}

/* Additions over a made model, and pairs that it routes clearly, with the additions and without. */
static void begin_pairs(difference *d, tuned *t, preferences *p, const dsmoe_config *config,
                        uint64_t seed)
{
    double margin = 0;
    for (int attempt = 0; !(margin > 1e-4); attempt++, seed++) {
        assert_true(attempt < 200);
        if (attempt > 0) end_lora(d, t);
        begin_lora(d, t, config, all_targets, false, seed);
        dsmoe_trainer_free(t->trainer);
        t->options.sequence_length = PAIR_LENGTH;
        t->trainer = create(config, &t->options);
        dsmoe_trainer_init(t->trainer, 5); /* the same numbers, whatever the length */
        fill_b(t->trainer);
        fill_pairs(p, config, seed);
        margin = route_pairs(p, &d->plain);
        for (int i = 0; i < N_HALVES / 2; i++) p->reference[i] = pair_margin(p, i, &d->plain);
        margin = fmin(margin, route_pairs(p, &d->merged));
    }
    d->pairs = p;
}

static void end_pairs(difference *d, tuned *t, preferences *p)
{
    for (int i = 0; i < N_HALVES; i++) naive_batch_free(&p->halves[i]);
    end_lora(d, t);
}

static void test_preferences(void **state)
{
    (void)state;
    dsmoe_config config = plain_config();
    config.aux_loss_alpha = 0;
    static preferences p;
    difference d;
    tuned t;
    uint64_t seed = 71;
    begin_pairs(&d, &t, &p, &config, seed);
    dsmoe_batch_losses found = run_pairs(t.trainer, &p), expected = pairs_loss(&p, &d.merged);
    assert_true(fabs(found.loss - expected.loss) < 1e-5 * expected.loss);
    assert_true(fabs(found.margin - expected.margin) < 1e-5);
    assert_true(found.accuracy == expected.accuracy);
    assert_true(fabs(expected.margin) > 1e-3); /* there is something to see */
    for (size_t i = 0; i < dsmoe_trainer_parameter_count(t.trainer); i++)
        check_parameter(&d, t.trainer, i, &seed);
    /* Divided by more pairs than there are, all is less. */
    dsmoe_batch more = pairs_batch(&p);
    more.n_targets = N_HALVES; /* twice as many */
    dsmoe_batch_losses half;
    dsmoe_error error = {0};
    must(dsmoe_trainer_backward(t.trainer, &more, &half, &error), &error, "half of it");
    assert_true(fabs(half.loss - found.loss / 2) < 1e-12);
    end_pairs(&d, &t, &p);
}

/* Before the first step the model is what it is compared with, to the bit; over quantised weights too. */
static void test_preferences_begin(void **state)
{
    (void)state;
    static preferences p;
    dsmoe_config config = block_config();
    made_model model = made_model_create(&config, "F32", 72);
    made_gguf_options q4 = {.type = DSMOE_Q4_K, .has_type = true};
    made_gguf_write(&model, made_file, &q4);
    tuned t = {0};
    make_lora(&t, made_file, all_targets, 2, PAIR_LENGTH);
    fill_pairs(&p, &config, 73);
    dsmoe_batch_losses first = run_pairs(t.trainer, &p);
    assert_true(first.loss == log1p(1.0) && first.margin == 0 && first.accuracy == 0);
    for (int step = 0; step < 20; step++) {
        run_update(t.trainer, 3e-3);
        run_pairs(t.trainer, &p);
    }
    dsmoe_batch_losses last = run_pairs(t.trainer, &p);
    assert_true(last.loss < first.loss / 2 && last.accuracy == 1 && last.margin > 1);
    free_tuned(&t);
    made_model_free(&model);
}

static void refuse_pairs(dsmoe_trainer *trainer, const dsmoe_batch *batch, const char *part)
{
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_trainer_backward(trainer, batch, NULL, &error), DSMOE_ERROR_ARGUMENT);
    if (!strstr(error.message, part)) fail_msg("\"%s\" does not say \"%s\"", error.message, part);
}

static void test_preferences_refused(void **state)
{
    (void)state;
    static preferences p;
    dsmoe_config config = plain_config();
    made_model model = made_model_create(&config, "F32", 74);
    made_model_write(&model, directory, false);
    tuned t = {0};
    make_lora(&t, directory, "attention", 2, PAIR_LENGTH);
    dsmoe_trainer_options whole = t.options;
    whole.tuning = NULL;
    dsmoe_trainer *all = made_trainer(&model, &whole);
    fill_pairs(&p, &config, 75);
    dsmoe_batch batch = pairs_batch(&p);
    refuse_pairs(all, &batch, "low-rank additions only");
    batch.beta = -1;
    refuse_pairs(t.trainer, &batch, "above 0");
    batch.beta = NAN;
    refuse_pairs(t.trainer, &batch, "above 0");
    batch = pairs_batch(&p);
    batch.positions = NULL;
    refuse_pairs(t.trainer, &batch, "pairs of conversations");
    for (int i = 7; i < PAIR_LENGTH; i++) p.positions[i] = p.targets[i] = -1; /* only one is left */
    batch = pairs_batch(&p);
    refuse_pairs(t.trainer, &batch, "an even number");
    dsmoe_trainer_free(all);
    free_tuned(&t);
    made_model_remove(directory);
    made_model_free(&model);
}

/* ---- frozen weights of other types --------------------------------------------------------------- */

/* Sizes that blocks divide. */
static dsmoe_config block_config(void)
{
    dsmoe_config c = made_config();
    c.hidden_size = 256;
    c.num_attention_heads = c.num_key_value_heads = 4;
    c.intermediate_size = 512;
    c.moe_intermediate_size = 256;
    return c;
}

/* Rounds the matrices but routers to what the type has. */
static void round_to(made_model *model, dsmoe_dtype type)
{
    unsigned char *row = malloc(1 << 16);
    for (int i = 0; i < model->n_tensors; i++) {
        made_tensor *t = &model->tensors[i];
        if (t->n_dims != 2 || strstr(t->name, "mlp.gate.")) continue;
        for (int64_t r = 0; r < t->shape[0]; r++) {
            float *numbers = t->data + r * t->shape[1];
            quantize_row(type, t->shape[1], numbers, NULL, row);
            kernels_scalar.dtypes[type].widen(t->shape[1], row, numbers);
        }
    }
    free(row);
}

static double cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa == 0 && bb == 0 ? 1 : ab / sqrt(aa * bb);
}

/* Over a type the gradients are those over the same numbers in float32, but for x in integers on the way forth. */
static void check_type(dsmoe_dtype type, double least)
{
    dsmoe_config config = block_config();
    made_model model = made_model_create(&config, "F32", 51);
    round_to(&model, type);
    made_gguf_options as_type = {.type = type, .has_type = true},
                      as_f32 = {.type = DSMOE_F32, .has_type = true};
    tuned t[2] = {{0}};
    made_batch batch;
    for (int i = 0; i < 2; i++) {
        made_gguf_write(&model, made_file, i ? &as_type : &as_f32);
        make_lora(&t[i], made_file, all_targets, 1, 40);
        fill_b(t[i].trainer);
        if (i == 0) batch = made_batch_create(&config, &t[0].options, 3);
        dsmoe_batch_losses losses = run_batch(t[i].trainer, &batch);
        assert_true(isfinite(losses.loss));
    }
    double worst = 1;
    for (size_t i = 0; i < dsmoe_trainer_parameter_count(t[0].trainer); i++) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(t[0].trainer, i);
        if (strstr(p.name, ".experts.")) continue; /* a token near the edge may choose another */
        double c = cosine(dsmoe_trainer_gradient(t[0].trainer, i),
                          dsmoe_trainer_gradient(t[1].trainer, i), p.shape[0] * p.shape[1]);
        worst = fmin(worst, c);
    }
    if (!(worst > least)) fail_msg("type %d: a gradient turns by a cosine of %g", type, worst);
    for (int i = 0; i < 2; i++) free_tuned(&t[i]);
    made_batch_free(&batch);
    made_model_free(&model);
}

static void test_types(void **state)
{
    (void)state;
    check_type(DSMOE_F16, 0.999999);
    check_type(DSMOE_BF16, 0.999999);
    check_type(DSMOE_Q8_0, 0.99);
    check_type(DSMOE_Q5_0, 0.98);
    check_type(DSMOE_Q4_K, 0.98);
    check_type(DSMOE_Q6_K, 0.98);
}

/* Rows of q and k of a GGUF file lie in another order, and so do B's. */
static void test_rope_pairs(void **state)
{
    (void)state;
    dsmoe_config config = block_config();
    made_model model = made_model_create(&config, "F32", 52);
    made_model_write(&model, directory, false);
    made_gguf_write(&model, made_file, NULL);
    tuned a = {0}, b = {0};
    make_lora(&a, directory, "attention", 1, 20);
    make_lora(&b, made_file, "attention", 1, 20);
    made_batch batch = made_batch_create(&config, &a.options, 3);
    run_batch(a.trainer, &batch);
    run_batch(b.trainer, &batch);
    for (size_t i = 1; i < dsmoe_trainer_parameter_count(a.trainer); i += 2) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(a.trainer, i);
        const float *ours = dsmoe_trainer_gradient(b.trainer, i),
                    *usual = dsmoe_trainer_gradient(a.trainer, i);
        bool turned = strstr(p.name, "q_proj") || strstr(p.name, "k_proj");
        for (int64_t r = 0; r < p.shape[0]; r++) {
            int64_t from = turned ? gguf_source_row(256 / 4, r) : r;
            for (int64_t j = 0; j < RANK; j++)
                assert_true(fabsf(ours[r * RANK + j] - usual[from * RANK + j]) < 1e-5f);
        }
    }
    made_batch_free(&batch);
    free_tuned(&a);
    free_tuned(&b);
    made_model_remove(directory);
    made_model_free(&model);
}

/* ---- bits ---------------------------------------------------------------------------------------- */

/* B of zeros, as it begins, is the base bit for bit. */
static void test_zeros(void **state)
{
    (void)state;
    dsmoe_config config = block_config();
    made_model model = made_model_create(&config, "F32", 53);
    made_model_write(&model, directory, false);
    tuned lora = {0};
    make_lora(&lora, directory, all_targets, 1, 33);
    dsmoe_trainer_options whole = lora.options;
    whole.tuning = NULL;
    dsmoe_trainer *base = made_trainer(&model, &whole);
    made_batch batch = made_batch_create(&config, &whole, 3);
    double with = run_batch(lora.trainer, &batch).loss, without = run_batch(base, &batch).loss;
    assert_memory_equal(&with, &without, sizeof with);
    fill_b(lora.trainer);
    assert_true(run_batch(lora.trainer, &batch).loss != with);
    dsmoe_trainer_free(base);
    made_batch_free(&batch);
    free_tuned(&lora);
    made_model_remove(directory);
    made_model_free(&model);
}

/* Logits of a model after a prompt, and after one more token. */
static float *logits_of(const dsmoe_model *model, const made_batch *batch, int64_t n)
{
    dsmoe_error error = {0};
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    const dsmoe_engine_options options = {.n_ctx = n, .n_threads = 2};
    int64_t vocab_size = dsmoe_model_config(model)->vocab_size;
    float *logits = malloc(2 * (size_t)vocab_size * sizeof *logits);
    assert_non_null(logits);
    must(dsmoe_engine_create(model, &options, &engine, &error), &error, "an engine");
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    must(dsmoe_sequence_append(sequence, batch->tokens, n - 1, logits, &error), &error, "a prompt");
    must(dsmoe_sequence_append(sequence, batch->tokens + n - 1, 1, logits + vocab_size, &error),
         &error, "a token");
    dsmoe_engine_free(engine);
    return logits;
}

/* The same over quantised files, all matrices adapted: the logits are those of the base, and training sees the same loss
 * whatever is adapted. */
static void check_quantised_zeros(dsmoe_dtype type)
{
    enum { LENGTH = 40 };
    dsmoe_config config = block_config();
    made_model model = made_model_create(&config, "F32", 56);
    made_gguf_options as_type = {.type = type, .has_type = true};
    made_gguf_write(&model, made_file, &as_type);
    tuned all = {0}, one = {0};
    make_lora(&all, made_file, all_targets, 1, LENGTH);
    make_lora(&one, made_file, "layers.2.self_attn.o_proj", 1, LENGTH);
    made_batch batch = made_batch_create(&config, &all.options, 3);
    float *base = logits_of(all.base, &batch, LENGTH);
    const dsmoe_model *adapted = dsmoe_trainer_model(all.trainer);
    float *zeros = logits_of(adapted, &batch, LENGTH);
    size_t n = 2 * (size_t)config.vocab_size;
    assert_same_bits(base, zeros, n, "zeros over a quantised model");
    double of_all = run_batch(all.trainer, &batch).loss,
           of_one = run_batch(one.trainer, &batch).loss;
    assert_memory_equal(&of_all, &of_one, sizeof of_all);
    free(zeros);
    fill_b(all.trainer);
    zeros = logits_of(adapted, &batch, LENGTH);
    assert_true(memcmp(base, zeros, n * sizeof *base) != 0);
    assert_true(run_batch(all.trainer, &batch).loss != of_all);
    free(base);
    free(zeros);
    made_batch_free(&batch);
    free_tuned(&all);
    free_tuned(&one);
    made_model_free(&model);
}

static void test_quantised_zeros(void **state)
{
    (void)state;
    static const dsmoe_dtype types[] = {DSMOE_Q8_0, DSMOE_Q4_0, DSMOE_Q4_K, DSMOE_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) check_quantised_zeros(types[i]);
}

/* Ten steps with other threads, with layers that are made again, and with fewer kept. */
static void test_same_bits(void **state)
{
    (void)state;
    dsmoe_config config = block_config();
    made_model model = made_model_create(&config, "F32", 54);
    made_gguf_options q8 = {.type = DSMOE_Q8_0, .has_type = true};
    made_gguf_write(&model, made_file, &q8);
    tuned t = {0};
    make_lora(&t, made_file, all_targets, 2, 17);
    dsmoe_trainer *others[3];
    dsmoe_trainer_options options = t.options;
    options.n_threads = 5;
    others[0] = create(&config, &options);
    options.n_threads = 1;
    options.recompute = true;
    others[1] = create(&config, &options);
    options.recompute = false;
    dsmoe_trainer_memory full = dsmoe_trainer_memory_size(&config, &options);
    options.most_memory = full.base + full.weights + full.gradients + full.moments +
                          full.activations + full.workspace - 1;
    dsmoe_trainer_memory less = dsmoe_trainer_memory_size(&config, &options);
    assert_true(less.activations < full.activations);
    others[2] = create(&config, &options);
    made_batch batch = made_batch_create(&config, &t.options, 3);
    for (int i = -1; i < 3; i++) {
        dsmoe_trainer *trainer = i < 0 ? t.trainer : others[i];
        dsmoe_trainer_init(trainer, 5);
        for (int step = 0; step < 10; step++) {
            run_batch(trainer, &batch);
            if (step % 3 == 0) run_batch(trainer, &batch);
            run_update(trainer, 1e-3);
        }
    }
    for (int i = 0; i < 3; i++)
        for (size_t p = 0; p < dsmoe_trainer_parameter_count(t.trainer); p++) {
            dsmoe_tensor_info info = dsmoe_trainer_parameter(t.trainer, p);
            assert_same_bits(dsmoe_trainer_weight(t.trainer, p), dsmoe_trainer_weight(others[i], p),
                             info.size / sizeof(float), info.name);
        }
    for (int i = 0; i < 3; i++) dsmoe_trainer_free(others[i]);
    made_batch_free(&batch);
    free_tuned(&t);
    made_model_free(&model);
}

/* ---- what is refused ------------------------------------------------------------------------------ */

static void refuse(dsmoe_tuning tuning, const dsmoe_config *config, const char *part)
{
    dsmoe_error error = {0};
    dsmoe_trainer *trainer;
    dsmoe_trainer_options options = made_options(1, 4);
    options.tuning = &tuning;
    assert_true(dsmoe_trainer_create(config, &options, &trainer, &error) != DSMOE_OK);
    if (!strstr(error.message, part)) fail_msg("\"%s\" does not say \"%s\"", error.message, part);
}

static void test_refused(void **state)
{
    (void)state;
    dsmoe_config config = plain_config(), other = config;
    made_model model = made_model_create(&config, "F32", 55);
    made_model_write(&model, directory, false);
    dsmoe_model *base = open_base(directory);
    dsmoe_tuning good = {.base = base,
                         .train = DSMOE_TRAIN_LORA,
                         .rank = 2,
                         .alpha = 4,
                         .targets = "attention"},
                 bad = good;
    bad.rank = 0;
    refuse(bad, &config, "ranks are 1 to 256");
    bad = good;
    bad.alpha = NAN;
    refuse(bad, &config, "alpha");
    bad = good;
    bad.targets = "attention,lm_head";
    refuse(bad, &config, "\"lm_head\"");
    bad.targets = "";
    refuse(bad, &config, "name no matrix");
    bad.targets = "gate";
    refuse(bad, &config, "\"gate\"");
    bad = good;
    bad.train = DSMOE_TRAIN_EXPERTS;
    refuse(bad, &config, "no routed expert");
    bad = good;
    bad.base = NULL;
    refuse(bad, &config, "must be there");
    other.vocab_size++;
    refuse(good, &other, "differs");
    dsmoe_model_free(base);
    made_model_remove(directory);
    made_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_rope_pairs),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_quantised_zeros),
        cmocka_unit_test(test_preferences),
        cmocka_unit_test(test_preferences_begin),
        cmocka_unit_test(test_preferences_refused),
    };
    return cmocka_run_group_tests(tests, made_gguf_set_up, made_gguf_tear_down);
}
