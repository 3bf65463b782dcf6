/* test_tune_reference.c - fine-tuning compared with PyTorch: the gradients of adapters and of chosen
 * experts, and twenty optimizer steps, on texts and on preferences. bench/pytorch_tune.py made the
 * expected numbers from the formulas. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"

enum { N_STEPS = 20, N_SEQUENCES = 4, LENGTH = 32, N_TOKENS = N_SEQUENCES * LENGTH };
enum { PROMPT = 8 }; /* tokens, for preferences */
static const double beta = 0.5;

typedef struct reference {
    safetensors *file;
    dsmoe_model *base;
    dsmoe_trainer *trainer;
} reference;

static void must(dsmoe_status status, const dsmoe_error *error)
{
    if (status != DSMOE_OK) fail_msg("%s", error->message);
}

/* With preferences, a sequence holds both answers of a pair. */
static reference reference_open(const char *name, const char *base, dsmoe_tuning *tuning,
                                bool has_pairs)
{
    char path[256];
    dsmoe_error error;
    reference r;
    snprintf(path, sizeof path, "%s/tune/%s.safetensors", TEST_DATA, name);
    must(safetensors_open(path, &r.file, &error), &error);
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, base);
    must(dsmoe_model_open(path, &r.base, &error), &error);
    tuning->base = r.base;
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = has_pairs ? N_SEQUENCES / 2 : N_SEQUENCES;
    options.sequence_length = has_pairs ? 2 * LENGTH : LENGTH;
    options.n_threads = 2;
    options.tuning = tuning;
    must(dsmoe_trainer_create(dsmoe_model_config(r.base), &options, &r.trainer, &error), &error);
    dsmoe_trainer_init(r.trainer, 1);
    return r;
}

static void reference_close(reference *r)
{
    dsmoe_trainer_free(r->trainer);
    dsmoe_model_free(r->base);
    safetensors_close(r->file);
}

/* The tensor WHAT.NAME of a parameter; to be freed. */
static float *expected(const reference *r, const char *what, size_t index)
{
    char name[256];
    dsmoe_tensor_info p = dsmoe_trainer_parameter(r->trainer, index);
    snprintf(name, sizeof name, "%s.%s", what, p.name);
    const safetensors_tensor *t = safetensors_find(r->file, name);
    if (!t) fail_msg("PyTorch did not train %s", p.name);
    assert_int_equal(t->n_elements, p.shape[0] * p.shape[1]);
    float *numbers = malloc(t->n_elements * sizeof *numbers);
    assert_true(safetensors_tensor_read_f32(t, 0, t->n_elements, numbers));
    return numbers;
}

static float expected_number(const reference *r, const char *series, int64_t step)
{
    float number = NAN;
    safetensors_tensor_read_f32(safetensors_find(r->file, series), (size_t)step, 1, &number);
    return number;
}

/* Loads the initial weights; both sides must train the same tensors. */
static void take_first_weights(const reference *r)
{
    size_t n = dsmoe_trainer_parameter_count(r->trainer), n_expected = 0;
    for (size_t i = 0; i < safetensors_count(r->file); i++)
        n_expected += !strncmp(safetensors_at(r->file, i)->name, "init.", 5);
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(r->trainer, i);
        float *numbers = expected(r, "init", i);
        memcpy((float *)dsmoe_trainer_weight(r->trainer, i), numbers,
               (size_t)(p.shape[0] * p.shape[1]) * sizeof *numbers);
        free(numbers);
    }
}

/* The largest difference divided by the largest expected number. */
static double worst(const float *numbers, const float *wanted, int64_t n)
{
    double off = 0, largest = 1e-12;
    for (int64_t i = 0; i < n; i++) {
        off = fmax(off, fabs((double)numbers[i] - wanted[i]));
        largest = fmax(largest, fabs((double)wanted[i]));
    }
    return off / largest;
}

typedef const float *numbers_fn(const dsmoe_trainer *trainer, size_t index);

static void compare(const reference *r, const char *what, numbers_fn *numbers, double bound)
{
    for (size_t i = 0; i < dsmoe_trainer_parameter_count(r->trainer); i++) {
        dsmoe_tensor_info p = dsmoe_trainer_parameter(r->trainer, i);
        float *wanted = expected(r, what, i);
        double off = worst(numbers(r->trainer, i), wanted, p.shape[0] * p.shape[1]);
        if (!(off < bound)) fail_msg("%s.%s is off by %g", what, p.name, off);
        free(wanted);
    }
}

static void read_batch(const reference *r, int64_t step, int32_t *tokens, int32_t *targets)
{
    const safetensors_tensor *ids = safetensors_find(r->file, "input_ids");
    for (int64_t i = 0; i < N_TOKENS; i++) {
        int64_t id;
        assert_true(safetensors_tensor_read_i64(ids, (size_t)(step * N_TOKENS + i), 1, &id));
        tokens[i] = (int32_t)id;
    }
    for (int64_t i = 0; i < N_TOKENS; i++) targets[i] = (i + 1) % LENGTH ? tokens[i + 1] : -1;
}

/* Only what follows the prompts is learned. */
static void make_pairs(int32_t *targets, int32_t *positions)
{
    for (int64_t i = 0; i < N_TOKENS; i++) {
        positions[i] = (int32_t)(i % LENGTH);
        if (positions[i] + 1 < PROMPT) targets[i] = -1;
    }
}

static void check_pairs(const reference *r, int64_t step, const dsmoe_batch_losses *losses)
{
    assert_true(fabs(losses->accuracy - expected_number(r, "accuracy", step)) < 1e-6);
    assert_true(fabs(losses->margin - expected_number(r, "margin", step)) < 1e-4);
}

/* AdamW divides by the size of a gradient, so differences in the last digit grow from step to step. */
static void check(const char *name, const char *base, dsmoe_tuning tuning, bool has_pairs)
{
    reference r = reference_open(name, base, &tuning, has_pairs);
    int32_t tokens[N_TOKENS], targets[N_TOKENS], positions[N_TOKENS];
    take_first_weights(&r);
    for (int64_t step = 0; step < N_STEPS; step++) {
        dsmoe_error error;
        dsmoe_batch_losses losses;
        dsmoe_update update;
        const dsmoe_batch batch = {.tokens = tokens,
                                   .targets = targets,
                                   .positions = has_pairs ? positions : NULL,
                                   .beta = has_pairs ? beta : 0};
        read_batch(&r, step, tokens, targets);
        if (has_pairs) make_pairs(targets, positions);
        must(dsmoe_trainer_backward(r.trainer, &batch, &losses, &error), &error);
        if (step == 0) compare(&r, "grad", dsmoe_trainer_gradient, 1e-5);
        must(dsmoe_trainer_update(r.trainer, expected_number(&r, "lr", step), &update, &error),
             &error);
        assert_true(fabs(losses.loss - expected_number(&r, "loss", step)) < 2e-5);
        assert_true(fabs(losses.aux_loss - expected_number(&r, "aux_loss", step)) < 1e-6);
        if (has_pairs) check_pairs(&r, step, &losses);
        double norm = expected_number(&r, "grad_norm", step);
        assert_true(fabs(update.grad_norm - norm) < 1e-4 * norm);
    }
    compare(&r, "final", dsmoe_trainer_weight, 2e-3);
    reference_close(&r);
}

static const dsmoe_tuning lora = {
    .train = DSMOE_TRAIN_LORA, .rank = 4, .alpha = 6.0, .targets = "attention,shared,dense,routed"};

static void test_lora(void **state)
{
    (void)state;
    check("lora", "lm/base", lora, false);
}

static void test_latent_lora(void **state)
{
    (void)state;
    check("latent_lora", "lm_v2/v2_lite", lora, false);
}

static void test_experts(void **state)
{
    (void)state;
    unsigned char chosen[3][12] = {[1] = {[0] = 1, [5] = 1, [7] = 1}, [2] = {[3] = 1, [11] = 1}};
    check("experts", "lm/base",
          (dsmoe_tuning){.train = DSMOE_TRAIN_EXPERTS, .experts = &chosen[0][0]}, false);
}

static void test_preferences(void **state)
{
    (void)state;
    check("dpo", "lm/base", lora, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_latent_lora),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_preferences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
