/* training.c - trains a model as a reference did, and compares. */
#include "verify/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "verify/tensors.h"

/* AdamW divides by the size of a gradient. If that is tiny, its last digit becomes a visible difference in
 * the weight, which grows from step to step. So the tolerance is this many times larger. */
enum { STEPS_GROW = 10 };

static dsmoe_status make_trainer(const dsmoe_model *model, int64_t n_sequences, int64_t length,
                                 int n_threads, dsmoe_trainer **trainer, dsmoe_error *error)
{
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = n_sequences;
    options.sequence_length = length;
    options.n_threads = n_threads;
    options.bias_speed = 0; /* PyTorch's optimizer does not move weights without a gradient */
    STATUS_TRY(dsmoe_trainer_create(dsmoe_model_config(model), &options, trainer, error));
    return dsmoe_trainer_load(*trainer, model, error);
}

/* The target of each token is the next one; a row's last token has none. */
static void next_tokens(const int32_t *tokens, int64_t n, int64_t length, int32_t *targets)
{
    for (int64_t i = 0; i < n; i++) targets[i] = (i + 1) % length ? tokens[i + 1] : -1;
}

/* PREFIX.PARAM of a file, or NULL. */
static const safetensors_tensor *find_parameter(const safetensors *file, const char *prefix,
                                                const char *parameter, char name[256])
{
    return snprintf(name, 256, "%s.%s", prefix, parameter) < 256 ? safetensors_find(file, name)
                                                                 : NULL;
}

static bool has_any(const safetensors *file, const char *prefix)
{
    for (size_t i = 0; i < safetensors_count(file); i++)
        if (tensor_name_behind(safetensors_at(file, i)->name, prefix)) return true;
    return false;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void compare_gradients(const dsmoe_trainer *trainer, const expected_file *expected,
                              verify_report *report)
{
    const dsmoe_model *model = dsmoe_trainer_model(trainer);
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        char name[256];
        const safetensors_tensor *gradient =
            find_parameter(expected->file, "grad", dsmoe_model_tensor(model, i).name, name);
        if (gradient) report_tensor(report, name, dsmoe_trainer_gradient(trainer, i), gradient);
    }
}

dsmoe_status training_check_gradients(const dsmoe_model *model, const expected_file *expected,
                                      const int32_t *tokens, int n_threads, verify_report *report,
                                      dsmoe_error *error)
{
    int64_t length = expected->sequence_length, n = expected->n_sequences * length;
    if (!has_any(expected->file, "grad.")) return DSMOE_OK; /* training needs far more memory */
    dsmoe_trainer *trainer = NULL;
    int32_t *targets = malloc((size_t)n * sizeof *targets);
    dsmoe_status status =
        targets ? DSMOE_OK : status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    if (status == DSMOE_OK)
        status = make_trainer(model, expected->n_sequences, length, n_threads, &trainer, error);
    if (status == DSMOE_OK) {
        next_tokens(tokens, n, length, targets);
        const dsmoe_batch batch = {.tokens = tokens, .targets = targets};
        status = dsmoe_trainer_backward(trainer, &batch, NULL, error);
    }
    if (status == DSMOE_OK) compare_gradients(trainer, expected, report);
    dsmoe_trainer_free(trainer);
    free(targets);
    return status;
}

/* ---- steps of the optimizer ------------------------------------------------------------------ */

typedef struct reference_run {
    safetensors *file;
    const safetensors_tensor *ids, *lr;
    const safetensors_tensor *loss, *aux_loss, *grad_norm; /* may be NULL */
    int64_t n_steps, n_sequences, length;
    int32_t *tokens, *targets;
    dsmoe_trainer *trainer;
} reference_run;

/* The expected number of a step, NaN if the file has none. */
static float number_of(const safetensors_tensor *series, int64_t step)
{
    float number = NAN;
    if (series) safetensors_tensor_read_f32(series, (size_t)step, 1, &number);
    return number;
}

/* Finds a tensor that may be absent, with a number for each step. */
static dsmoe_status find_series(reference_run *run, const char *name,
                                const safetensors_tensor **tensor, dsmoe_error *error)
{
    *tensor = safetensors_find(run->file, name);
    if (!*tensor) return DSMOE_OK;
    STATUS_TRY(tensor_check_float(*tensor, error));
    return tensor_check_shape(*tensor, 1, run->n_steps, error);
}

static dsmoe_status find_tensors(reference_run *run, dsmoe_error *error)
{
    run->ids = safetensors_find(run->file, "input_ids");
    if (!run->ids) return status_fail(error, DSMOE_ERROR_FORMAT, "tensor 'input_ids' is missing");
    STATUS_TRY(tensor_check_integer(run->ids, error));
    if (run->ids->n_dims != 3 || run->ids->n_elements == 0 || run->ids->shape[2] < 2)
        return tensor_fail_shape(run->ids, "[steps,sequences,tokens]", error);
    run->n_steps = run->ids->shape[0];
    run->n_sequences = run->ids->shape[1];
    run->length = run->ids->shape[2];
    STATUS_TRY(find_series(run, "lr", &run->lr, error));
    if (!run->lr) return status_fail(error, DSMOE_ERROR_FORMAT, "tensor 'lr' is missing");
    STATUS_TRY(find_series(run, "loss", &run->loss, error));
    STATUS_TRY(find_series(run, "aux_loss", &run->aux_loss, error));
    STATUS_TRY(find_series(run, "grad_norm", &run->grad_norm, error));
    for (int64_t step = 0; step < run->n_steps; step++)
        if (!(number_of(run->lr, step) >= 0) || isinf(number_of(run->lr, step)))
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "tensor 'lr': step %lld has no valid learning rate",
                               (long long)step);
    return DSMOE_OK;
}

static dsmoe_status read_batch(const reference_run *run, int64_t step, int64_t vocab_size,
                               dsmoe_error *error)
{
    int64_t n = run->n_sequences * run->length;
    for (int64_t i = 0; i < n; i++) {
        int64_t token;
        safetensors_tensor_read_i64(run->ids, (size_t)(step * n + i), 1, &token);
        if (token < 0 || token >= vocab_size)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "tensor 'input_ids' has %lld, which is not a token of the model",
                               (long long)token);
        run->tokens[i] = (int32_t)token;
    }
    next_tokens(run->tokens, n, run->length, run->targets);
    return DSMOE_OK;
}

static dsmoe_status run_steps(reference_run *run, int64_t vocab_size, verify_report *report,
                              dsmoe_error *error)
{
    difference loss = {0}, aux_loss = {0}, grad_norm = {0};
    for (int64_t step = 0; step < run->n_steps; step++) {
        dsmoe_batch_losses losses;
        dsmoe_update update;
        STATUS_TRY(read_batch(run, step, vocab_size, error));
        const dsmoe_batch batch = {.tokens = run->tokens, .targets = run->targets};
        STATUS_TRY(dsmoe_trainer_backward(run->trainer, &batch, &losses, error));
        STATUS_TRY(dsmoe_trainer_update(run->trainer, number_of(run->lr, step), &update, error));
        difference_add(&loss, losses.loss, number_of(run->loss, step));
        difference_add(&aux_loss, losses.aux_loss, number_of(run->aux_loss, step));
        difference_add(&grad_norm, update.grad_norm, number_of(run->grad_norm, step));
    }
    if (run->loss) report_difference(report, "training loss", &loss);
    if (run->aux_loss) report_difference(report, "training aux_loss", &aux_loss);
    if (run->grad_norm) report_difference(report, "training grad_norm", &grad_norm);
    return DSMOE_OK;
}

static dsmoe_status compare_final(const reference_run *run, verify_report *report,
                                  dsmoe_error *error)
{
    const dsmoe_model *model = dsmoe_trainer_model(run->trainer);
    size_t n_known = 0, n_claimed = 0;
    for (size_t i = 0; i < safetensors_count(run->file); i++)
        n_claimed += tensor_name_behind(safetensors_at(run->file, i)->name, "final.") != NULL;
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        dsmoe_tensor_info info = dsmoe_model_tensor(model, i);
        char name[256];
        const safetensors_tensor *final = find_parameter(run->file, "final", info.name, name);
        if (!final) continue;
        n_known++;
        STATUS_TRY(tensor_check_float(final, error));
        STATUS_TRY(tensor_check_shape(final, info.n_dims == 2 ? info.shape[0] : 1,
                                      info.shape[info.n_dims - 1], error));
        report_tensor(report, name, dsmoe_trainer_weight(run->trainer, i), final);
    }
    if (n_claimed > n_known)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%zu tensors 'final.…' belong to no parameter of the model",
                           n_claimed - n_known);
    return DSMOE_OK;
}

static dsmoe_status check_file(reference_run *run, const dsmoe_model *model, int n_threads,
                               verify_report *report, dsmoe_error *error)
{
    STATUS_TRY(find_tensors(run, error));
    size_t n = (size_t)(run->n_sequences * run->length); /* cannot overflow: the file has them */
    run->tokens = calloc(n, sizeof *run->tokens);
    run->targets = calloc(n, sizeof *run->targets);
    if (!run->tokens || !run->targets)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    STATUS_TRY(make_trainer(model, run->n_sequences, run->length, n_threads, &run->trainer, error));
    STATUS_TRY(run_steps(run, dsmoe_model_config(model)->vocab_size, report, error));
    return compare_final(run, report, error);
}

dsmoe_status training_check_run(const char *folder, const dsmoe_model *model, int n_threads,
                                verify_report *report, dsmoe_error *error)
{
    char path[4096];
    struct stat info;
    if (snprintf(path, sizeof path, "%s/train.safetensors", folder) >= (int)sizeof path ||
        stat(path, &info) != 0)
        return DSMOE_OK;
    reference_run run = {0};
    STATUS_TRY(safetensors_open(path, &run.file, error));
    dsmoe_error why = {0};
    verify_report grown = *report;
    grown.tolerance *= STEPS_GROW;
    dsmoe_status status = check_file(&run, model, n_threads, &grown, &why);
    report->all_ok = grown.all_ok;
    status = report_outcome(run.file, "train.safetensors", status, &why, error);
    dsmoe_trainer_free(run.trainer);
    free(run.tokens);
    free(run.targets);
    safetensors_close(run.file);
    return status;
}
