/* test_tuning_gradients.c - gradients of low-rank adapters against finite differences of the plain model
 * in double: for texts and for preferences. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_gguf.h"
#include "naive_loss.h"
#include "scratch.h"
#include "tuning_case.h"

/* ---- finite differences ------------------------------------------------------------------------ */

/* The name "model.layers.0.self_attn.q_proj.weight" for a parameter lora_A or lora_B of it. */
static void tensor_name(const char *parameter, char name[128])
{
    static const char before[] = "base_model.model.";
    const char *end = strstr(parameter, ".lora_");
    assert_true(end && !strncmp(parameter, before, strlen(before)));
    snprintf(name, 128, "%.*s.weight", (int)(end - parameter - (ptrdiff_t)strlen(before)),
             parameter + strlen(before));
}

/* merged = W + scale·B·A, summed in double. */
static void merge(const float *w, const double *a, const double *b, made_tensor *merged)
{
    int64_t n_out = merged->shape[0], n_in = merged->shape[1];
    for (int64_t i = 0; i < n_out; i++)
        for (int64_t j = 0; j < n_in; j++) {
            double sum = w[i * n_in + j];
            for (int64_t r = 0; r < TUNING_RANK; r++)
                sum += tuning_alpha / TUNING_RANK * b[i * TUNING_RANK + r] * a[r * n_in + j];
            merged->data[i * n_in + j] = (float)sum;
        }
}

/* Preferences: two pairs, each in a sequence of its own and followed by padding. */
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
    preferences *pairs; /* NULL: learn the texts of the batch */
} difference;

/* log p of a chosen or rejected answer: the sum over its targets. */
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

/* The mean over the pairs of -log σ(β·(margin - reference)), and the other numbers that a batch reports. */
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

/* Makes a base model, adapters for it, and the merged model, which routes the batch. */
static void begin_lora(difference *d, tuned *t, const dsmoe_config *config, const char *targets,
                       bool recompute, uint64_t seed)
{
    *d = (difference){.plain = made_model_create(config, "F32", seed),
                      .merged = made_model_create(config, "F32", seed)};
    dsmoe_trainer_options whole = made_options(1, 1);
    *t = (tuned){.owner = made_trainer(&d->plain, &whole)};
    t->base = dsmoe_trainer_model(t->owner);
    tuning_make_lora(t, NULL, targets, 2, 7);
    if (recompute) {
        dsmoe_trainer_free(t->trainer);
        t->options.recompute = true;
        t->trainer = tuning_create(config, &t->options);
        dsmoe_trainer_init(t->trainer, 5);
    }
    tuning_fill_b(t->trainer);
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
    tuning_free(t);
    made_model_free(&d->plain);
    made_model_free(&d->merged);
}

/* Uses the first weights for which the choice of experts is so clear that a small step does not
 * change it. */
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
    dsmoe_config usual = tuning_config(), latent = made_latent_config(), v3 = made_v3_config();
    check_lora(&usual, tuning_all_targets, false, 31);
    check_lora(&usual, tuning_all_targets, true, 32);
    check_lora(&usual, "layers.2.mlp.experts.1.down_proj,layers.2.self_attn.k_proj", false, 33);
    check_lora(&latent, tuning_all_targets, false, 34);
    check_lora(&v3, "attention,routed", false, 35);
    usual.first_k_dense_replace = 0; /* now there is no dense layer */
    check_lora(&usual, tuning_all_targets, false, 37);
    usual.attention_bias = true;
    usual.tie_word_embeddings = true;
    check_lora(&usual, "q_proj,gate_proj", false, 36);
}

/* ---- preferences ----------------------------------------------------------------------------------- */

/* Random tokens; in each half those after the first two are learned. */
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

/* Adapters for a made model, and pairs for which routing is clear with the adapters and without. */
static void begin_pairs(difference *d, tuned *t, preferences *p, const dsmoe_config *config,
                        uint64_t seed)
{
    double margin = 0;
    for (int attempt = 0; !(margin > 1e-4); attempt++, seed++) {
        assert_true(attempt < 200);
        if (attempt > 0) end_lora(d, t);
        begin_lora(d, t, config, tuning_all_targets, false, seed);
        dsmoe_trainer_free(t->trainer);
        t->options.sequence_length = PAIR_LENGTH;
        t->trainer = tuning_create(config, &t->options);
        dsmoe_trainer_init(t->trainer, 5); /* the same numbers as before */
        tuning_fill_b(t->trainer);
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
    dsmoe_config config = tuning_config();
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
    assert_true(fabs(expected.margin) > 1e-3); /* not trivially 0 */
    for (size_t i = 0; i < dsmoe_trainer_parameter_count(t.trainer); i++)
        check_parameter(&d, t.trainer, i, &seed);
    /* If the divisor exceeds the number of pairs, everything is smaller. */
    dsmoe_batch more = pairs_batch(&p);
    more.n_targets = N_HALVES; /* twice the true number */
    dsmoe_batch_losses half;
    dsmoe_error error = {0};
    must(dsmoe_trainer_backward(t.trainer, &more, &half, &error), &error, "half of it");
    assert_true(fabs(half.loss - found.loss / 2) < 1e-12);
    end_pairs(&d, &t, &p);
}

/* Before the first step the model equals the reference model to the bit, with quantised weights too. */
static void test_preferences_begin(void **state)
{
    (void)state;
    static preferences p;
    dsmoe_config config = tuning_block_config();
    made_model model = made_model_create(&config, "F32", 72);
    made_gguf_options q4 = {.type = DSMOE_Q4_K, .has_type = true};
    made_gguf_write(&model, made_file, &q4);
    tuned t = {0};
    tuning_make_lora(&t, made_file, tuning_all_targets, 2, PAIR_LENGTH);
    fill_pairs(&p, &config, 73);
    dsmoe_batch_losses first = run_pairs(t.trainer, &p);
    assert_true(first.loss == log1p(1.0) && first.margin == 0 && first.accuracy == 0);
    for (int step = 0; step < 20; step++) {
        run_update(t.trainer, 3e-3);
        run_pairs(t.trainer, &p);
    }
    dsmoe_batch_losses last = run_pairs(t.trainer, &p);
    assert_true(last.loss < first.loss / 2 && last.accuracy == 1 && last.margin > 1);
    tuning_free(&t);
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
    dsmoe_config config = tuning_config();
    made_model model = made_model_create(&config, "F32", 74);
    made_model_write(&model, directory, false);
    tuned t = {0};
    tuning_make_lora(&t, directory, "attention", 2, PAIR_LENGTH);
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
    for (int i = 7; i < PAIR_LENGTH; i++) p.positions[i] = p.targets[i] = -1; /* one half left */
    batch = pairs_batch(&p);
    refuse_pairs(t.trainer, &batch, "an even number");
    dsmoe_trainer_free(all);
    tuning_free(&t);
    made_model_remove(directory);
    made_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_preferences),
        cmocka_unit_test(test_preferences_begin),
        cmocka_unit_test(test_preferences_refused),
    };
    return cmocka_run_group_tests(tests, made_gguf_set_up, made_gguf_tear_down);
}
