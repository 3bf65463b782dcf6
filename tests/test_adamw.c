/* test_adamw.c - the optimizer of a trainer against AdamW in double arithmetic: decoupled weight decay of
 * matrices only, clipping by the norm of the whole gradient, means over batches. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "made_trainer.h"

/* All weights and moments in double, one tensor after another. */
typedef struct plain_adamw {
    double *w, *m, *v;
    int64_t n;
    double clip, decay, beta1, beta2, eps, updates;
} plain_adamw;

static plain_adamw plain_start(const dsmoe_trainer *t, const dsmoe_trainer_options *o)
{
    plain_adamw p = {.clip = o->clip_norm,
                     .decay = o->weight_decay,
                     .beta1 = o->beta1,
                     .beta2 = o->beta2,
                     .eps = o->eps};
    for (size_t i = 0; i < trainer_tensors(t); i++) p.n += trainer_count(t, i);
    p.w = calloc((size_t)(3 * p.n), sizeof *p.w);
    assert_non_null(p.w);
    p.m = p.w + p.n;
    p.v = p.m + p.n;
    int64_t at = 0;
    for (size_t i = 0; i < trainer_tensors(t); i++)
        for (int64_t j = 0; j < trainer_count(t, i); j++) p.w[at++] = dsmoe_trainer_weight(t, i)[j];
    return p;
}

/* One step with the current gradients of the trainer; returns their norm. */
static double plain_step(plain_adamw *p, const dsmoe_trainer *t, double n_batches, double lr)
{
    double norm = gradient_norm(t) / n_batches, scale = 1 / n_batches;
    if (p->clip > 0 && norm > p->clip) scale *= p->clip / norm;
    p->updates++;
    int64_t at = 0;
    for (size_t i = 0; i < trainer_tensors(t); i++) {
        bool matrix = dsmoe_model_tensor(dsmoe_trainer_model(t), i).n_dims == 2;
        for (int64_t j = 0; j < trainer_count(t, i); j++, at++) {
            double g = scale * dsmoe_trainer_gradient(t, i)[j];
            if (matrix) p->w[at] -= lr * p->decay * p->w[at];
            p->m[at] += (1 - p->beta1) * (g - p->m[at]);
            p->v[at] += (1 - p->beta2) * (g * g - p->v[at]);
            double m = p->m[at] / (1 - pow(p->beta1, p->updates));
            double v = p->v[at] / (1 - pow(p->beta2, p->updates));
            p->w[at] -= lr * m / (sqrt(v) + p->eps);
        }
    }
    return norm;
}

/* A step moves each weight by about the learning rate, so the difference must be a small part of that. */
static void plain_compare(const plain_adamw *p, const dsmoe_trainer *t, double lr)
{
    int64_t at = 0;
    for (size_t i = 0; i < trainer_tensors(t); i++)
        for (int64_t j = 0; j < trainer_count(t, i); j++, at++) {
            double ours = dsmoe_trainer_weight(t, i)[j];
            if (!(fabs(ours - p->w[at]) <= 1e-4 * lr + 3e-7 * fabs(p->w[at])))
                fail_msg("%s: weight %lld is %.9g, where %.9g is expected", trainer_name(t, i),
                         (long long)j, ours, p->w[at]);
        }
}

static void adamw_case(const dsmoe_trainer_options *options, double most_norm)
{
    const double lr = 2e-3;
    dsmoe_config config = made_config();
    config.attention_bias = true;
    made_model made = made_model_create(&config, "F32", 9); /* norms are not 1, biases not 0 */
    dsmoe_trainer *trainer = made_trainer(&made, options);
    plain_adamw expected = plain_start(trainer, options);
    for (int step = 0; step < 6; step++) {
        int n_batches = 1 + step % 2;
        for (int i = 0; i < n_batches; i++) {
            made_batch batch = made_batch_create(&config, options, (uint64_t)(10 * step + i));
            run_batch(trainer, &batch);
            made_batch_free(&batch);
        }
        double norm = plain_step(&expected, trainer, n_batches, lr * (step + 1));
        dsmoe_update update = run_update(trainer, lr * (step + 1));
        assert_false(update.skipped);
        assert_true(fabs(update.grad_norm - norm) <= 1e-9 * norm);
        assert_true(norm > 1e-3 && (options->clip_norm == 0 || (norm > most_norm)));
        plain_compare(&expected, trainer, lr * (step + 1));
    }
    free(expected.w);
    dsmoe_trainer_free(trainer);
    made_model_free(&made);
}

static void test_adamw(void **state)
{
    (void)state;
    dsmoe_trainer_options options = made_options(2, 8);
    options.clip_norm = 0.1;
    adamw_case(&options, 0.1); /* always clipped */
    options.clip_norm = 1e6;
    adamw_case(&options, 0); /* never */
    options.clip_norm = 0;
    options.weight_decay = 0;
    options.beta1 = 0;
    options.beta2 = 0.5;
    options.eps = 1e-3;
    adamw_case(&options, 0);
}

/* With a learning rate of 0 no weight moves. */
static void test_no_rate(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    dsmoe_trainer_options options = made_options(1, 6);
    made_batch batch = made_batch_create(&config, &options, 1);
    dsmoe_trainer *still = fresh_trainer(&config, &options, 2);
    dsmoe_trainer *fresh = fresh_trainer(&config, &options, 2);
    for (int i = 0; i < 3; i++) {
        run_batch(still, &batch);
        assert_false(run_update(still, 0).skipped);
    }
    run_batch(fresh, &batch);
    assert_same_trainers(still, fresh);
    made_batch_free(&batch);
    dsmoe_trainer_free(still);
    dsmoe_trainer_free(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
