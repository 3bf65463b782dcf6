/* layer_file.c - runs the layer of a reference file in every mode (inference, routing, training, backward)
 * and compares the results with the file. */
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "verify/reference.h"
#include "verify/report.h"

/* device_loss.D in a reference file includes the paper's alpha2; the layer itself is run without it. */
static const double device_loss_alpha = 0.05;

typedef struct verify_run {
    reference_file reference;
    verify_report report;
    dsmoe_layer_weights *weights, *gradients;
    dsmoe_layer *layer;
    dsmoe_workspace workspace; /* enough for every pass */
    void *saved;
    size_t saved_size;
    float *x, *dy; /* dy only if the file has it */
    float *out;    /* y of inference or training, then dx: [n_tokens, hidden_size] */
    dsmoe_routing routing;
} verify_run;

/* ---- setting up ---------------------------------------------------------------------------- */

static dsmoe_status allocate(int64_t rows, int64_t columns, size_t size, void **memory,
                             dsmoe_error *error)
{
    size_t total;
    *memory = NULL;
    if (checked_mul_size((size_t)rows, (size_t)columns, &total) &&
        checked_mul_size(total, size, &total) && total > 0)
        *memory = malloc(total);
    if (!*memory) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    return DSMOE_OK;
}

static dsmoe_status allocate_floats(int64_t rows, int64_t columns, float **floats,
                                    dsmoe_error *error)
{
    void *memory;
    dsmoe_status status = allocate(rows, columns, sizeof **floats, &memory, error);
    *floats = memory;
    return status;
}

static dsmoe_status make_buffers(verify_run *run, dsmoe_error *error)
{
    const dsmoe_layer_config *config = &run->reference.config;
    int64_t n_tokens = run->reference.n_tokens, k = config->num_experts_per_tok;
    STATUS_TRY(allocate_floats(n_tokens, config->hidden_size, &run->x, error));
    STATUS_TRY(allocate_floats(n_tokens, config->hidden_size, &run->dy, error));
    STATUS_TRY(allocate_floats(n_tokens, config->hidden_size, &run->out, error));
    STATUS_TRY(allocate_floats(n_tokens, config->n_routed_experts, &run->routing.scores, error));
    STATUS_TRY(allocate_floats(n_tokens, k, &run->routing.topk_weight, error));
    void *topk_idx;
    STATUS_TRY(allocate(n_tokens, k, sizeof *run->routing.topk_idx, &topk_idx, error));
    run->routing.topk_idx = topk_idx;

    int n_threads = run->workspace.n_threads;
    size_t infer_size = dsmoe_layer_workspace_size(run->layer, n_tokens, n_threads);
    size_t train_size = dsmoe_layer_train_workspace_size(run->layer, n_tokens, n_threads);
    run->saved_size = dsmoe_layer_saved_size(run->layer, n_tokens);
    run->workspace.size = infer_size > train_size ? infer_size : train_size;
    if (infer_size == 0 || train_size == 0 || run->saved_size == 0)
        return status_fail(error, DSMOE_ERROR_MEMORY, "the layer does not fit into memory");
    run->workspace.memory = malloc(run->workspace.size);
    run->saved = malloc(run->saved_size);
    if (!run->workspace.memory || !run->saved)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    return DSMOE_OK;
}

static dsmoe_status set_up(verify_run *run, dsmoe_error *error)
{
    const dsmoe_layer_config *config = &run->reference.config;
    STATUS_TRY(dsmoe_layer_weights_create(config, &run->weights, error));
    STATUS_TRY(reference_read_weights(&run->reference, run->weights, error));
    STATUS_TRY(dsmoe_layer_create(config, run->weights, &run->layer, error));
    STATUS_TRY(make_buffers(run, error));
    STATUS_TRY(reference_read(run->reference.x, run->x, error));
    if (!run->reference.dy) return DSMOE_OK;
    STATUS_TRY(reference_read(run->reference.dy, run->dy, error));
    return dsmoe_layer_weights_create(config, &run->gradients, error);
}

static void tear_down(verify_run *run)
{
    free(run->x);
    free(run->dy);
    free(run->out);
    free(run->routing.scores);
    free(run->routing.topk_weight);
    free(run->routing.topk_idx);
    free(run->workspace.memory);
    free(run->saved);
    dsmoe_layer_free(run->layer);
    dsmoe_layer_weights_free(run->gradients);
    dsmoe_layer_weights_free(run->weights);
    reference_close(&run->reference);
}

/* Fills with NaN, so that a number which a pass leaves unwritten cannot come from the pass before it. */
static void poison(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = NAN;
}

static void poison_out(verify_run *run)
{
    poison(run->out, (size_t)run->reference.n_tokens * (size_t)run->reference.config.hidden_size);
}

/* ---- routing ------------------------------------------------------------------------------- */

static void report_experts(verify_run *run, const int64_t *experts)
{
    int64_t k = run->reference.config.num_experts_per_tok, n_different = 0;
    for (int64_t t = 0; t < run->reference.n_tokens; t++)
        n_different += !compare_experts(run->routing.topk_idx + t * k, experts + t * k, k);
    report_tokens(&run->report, "topk_idx", n_different, run->reference.n_tokens);
}

static void report_gates(verify_run *run, const int64_t *experts, const float *gates)
{
    int64_t k = run->reference.config.num_experts_per_tok;
    difference sum = {0};
    for (int64_t t = 0; t < run->reference.n_tokens; t++)
        difference_add_gates(&sum, run->routing.topk_idx + t * k, run->routing.topk_weight + t * k,
                             experts + t * k, gates + t * k, k);
    report_difference(&run->report, "topk_weight", &sum);
}

/* A token's k experts may be in any order, so they are compared as sets. */
static dsmoe_status report_topk(verify_run *run, dsmoe_error *error)
{
    const reference_file *reference = &run->reference;
    if (!reference->topk_idx) return DSMOE_OK;
    int64_t n_tokens = reference->n_tokens, k = reference->config.num_experts_per_tok;
    void *experts;
    float *gates = NULL;
    dsmoe_status status = allocate(n_tokens, k, sizeof(int64_t), &experts, error);
    if (status != DSMOE_OK) goto done;
    safetensors_tensor_read_i64(reference->topk_idx, 0, (size_t)(n_tokens * k), experts);
    report_experts(run, experts);
    if (!reference->topk_weight) goto done;
    status = allocate_floats(n_tokens, k, &gates, error);
    if (status != DSMOE_OK) goto done;
    safetensors_tensor_read_f32(reference->topk_weight, 0, (size_t)(n_tokens * k), gates);
    report_gates(run, experts, gates);
done:
    free(gates);
    free(experts);
    return status;
}

/* A model must route in inference exactly as in training: the same bits. */
static void report_train_routing(verify_run *run)
{
    dsmoe_routing serving = run->routing;
    dsmoe_routing training = dsmoe_layer_saved_routing(run->layer, run->saved);
    int64_t n_experts = run->reference.config.n_routed_experts;
    int64_t k = run->reference.config.num_experts_per_tok, n_different = 0;
    size_t row = (size_t)n_experts * sizeof(float);
    size_t idx_row = (size_t)k * sizeof(int32_t), weight_row = (size_t)k * sizeof(float);
    for (int64_t t = 0; t < run->reference.n_tokens; t++)
        n_different +=
            memcmp(serving.scores + t * n_experts, training.scores + t * n_experts, row) != 0 ||
            memcmp(serving.topk_idx + t * k, training.topk_idx + t * k, idx_row) != 0 ||
            memcmp(serving.topk_weight + t * k, training.topk_weight + t * k, weight_row) != 0;
    report_tokens(&run->report, "train routing", n_different, run->reference.n_tokens);
}

static dsmoe_status report_device_losses(verify_run *run, dsmoe_error *error)
{
    const reference_file *reference = &run->reference;
    int64_t n_experts = reference->config.n_routed_experts;
    for (int64_t n_groups = 1; n_groups <= n_experts; n_groups++) {
        if (n_experts % n_groups != 0) continue;
        char name[80];
        const safetensors_tensor *expected = reference_device_loss(reference, n_groups, name);
        if (!expected) continue;
        double loss;
        STATUS_TRY(dsmoe_device_loss(&reference->config, run->routing, reference->n_tokens,
                                     n_groups, &loss, error));
        report_number(&run->report, name, device_loss_alpha * loss, expected);
    }
    return DSMOE_OK;
}

/* ---- the passes ---------------------------------------------------------------------------- */

static dsmoe_status run_inference(verify_run *run, dsmoe_error *error)
{
    const reference_file *reference = &run->reference;
    poison_out(run);
    STATUS_TRY(dsmoe_layer_forward(run->layer, run->x, reference->n_tokens, run->out,
                                   &run->workspace, error));
    report_tensor(&run->report, "infer y", run->out, reference->y);
    STATUS_TRY(dsmoe_layer_route(run->layer, run->x, reference->n_tokens, run->routing,
                                 &run->workspace, error));
    report_tensor(&run->report, "scores", run->routing.scores, reference->scores);
    return report_topk(run, error);
}

static dsmoe_status run_training(verify_run *run, dsmoe_error *error)
{
    const reference_file *reference = &run->reference;
    dsmoe_layer_losses losses;
    poison_out(run);
    STATUS_TRY(dsmoe_layer_forward_train(run->layer, run->x, reference->n_sequences,
                                         reference->sequence_length, run->out, run->saved,
                                         run->saved_size, &losses, &run->workspace, error));
    report_train_routing(run);
    report_tensor(&run->report, "train y", run->out, reference->y);
    report_number(&run->report, "aux_loss", losses.aux_loss, reference->aux_loss);
    STATUS_TRY(report_device_losses(run, error));
    return DSMOE_OK;
}

static dsmoe_status run_backward(verify_run *run, dsmoe_error *error)
{
    const reference_file *reference = &run->reference;
    if (!reference->dy) return DSMOE_OK;
    int64_t n_parameters = reference_parameter_count(reference);
    poison_out(run);
    for (int64_t i = 0; i < n_parameters; i++) {
        reference_parameter parameter = reference_parameter_at(reference, i);
        poison(reference_matrix(reference, run->gradients, i),
               (size_t)parameter.rows * (size_t)parameter.columns);
    }
    STATUS_TRY(dsmoe_layer_backward(run->layer, run->x, run->dy, run->saved, run->out,
                                    run->gradients, false, &run->workspace, error));
    report_tensor(&run->report, "dx", run->out, reference->dx);
    for (int64_t i = 0; i < n_parameters; i++) {
        char name[80];
        const safetensors_tensor *expected = reference_gradient(reference, i, name);
        report_tensor(&run->report, name, reference_matrix(reference, run->gradients, i), expected);
    }
    return DSMOE_OK;
}

static dsmoe_status run_all(verify_run *run, dsmoe_error *error)
{
    STATUS_TRY(set_up(run, error));
    STATUS_TRY(run_inference(run, error));
    STATUS_TRY(run_training(run, error));
    return run_backward(run, error);
}

dsmoe_status dsmoe_verify_layer_file(const char *path, double tolerance, int n_threads,
                                     dsmoe_check_fn *report, void *context, bool *all_ok,
                                     dsmoe_error *error)
{
    if (all_ok) *all_ok = false;
    STATUS_TRY(report_check_arguments(path, tolerance, n_threads, error));
    verify_run run = {.report = {tolerance, report, context, true},
                      .workspace.n_threads = n_threads};
    STATUS_TRY(reference_open(&run.reference, path, error));
    dsmoe_error why = {0};
    dsmoe_status status = run_all(&run, &why);
    status = report_outcome(run.reference.file, path, status, &why, error);
    if (status == DSMOE_OK && all_ok) *all_ok = run.report.all_ok;
    tear_down(&run);
    return status;
}
