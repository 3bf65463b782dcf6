/* expected.c - opens an expected.safetensors and checks that it belongs to the model. */
#include "verify/expected.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "verify/tensors.h"

static dsmoe_status find_input_ids(expected_file *e, dsmoe_error *error)
{
    const safetensors_tensor *ids = e->input_ids = safetensors_find(e->file, "input_ids");
    if (!ids) return status_fail(error, DSMOE_ERROR_FORMAT, "tensor 'input_ids' is missing");
    STATUS_TRY(tensor_check_integer(ids, error));
    if (ids->n_dims != 2 || ids->n_elements == 0)
        return tensor_fail_shape(ids, "[sequences,tokens]", error);
    e->n_sequences = ids->shape[0];
    e->sequence_length = ids->shape[1];
    return DSMOE_OK;
}

static dsmoe_status find_logits(expected_file *e, dsmoe_error *error)
{
    e->logits = safetensors_find(e->file, "logits");
    if (!e->logits) return status_fail(error, DSMOE_ERROR_FORMAT, "tensor 'logits' is missing");
    STATUS_TRY(tensor_check_float(e->logits, error));
    return tensor_check_shape(e->logits, e->n_sequences * e->sequence_length, e->vocab_size, error);
}

static dsmoe_status find_losses(expected_file *e, dsmoe_error *error)
{
    e->loss = safetensors_find(e->file, "loss");
    e->aux_loss = safetensors_find(e->file, "aux_loss");
    if (e->loss) STATUS_TRY(tensor_check_scalar(e->loss, error));
    if (e->loss && e->sequence_length < 2)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "tensor 'loss' needs at least 2 tokens in each sequence of 'input_ids'");
    return e->aux_loss ? tensor_check_scalar(e->aux_loss, error) : DSMOE_OK;
}

static dsmoe_status find_greedy(expected_file *e, dsmoe_error *error)
{
    const safetensors_tensor *greedy = e->greedy = safetensors_find(e->file, "greedy");
    if (!greedy) return DSMOE_OK;
    STATUS_TRY(tensor_check_integer(greedy, error));
    if (greedy->n_dims != 1 || greedy->n_elements <= EXPECTED_PROMPT)
        return tensor_fail_shape(greedy, "one dimension of more than 8 tokens", error);
    e->n_greedy = greedy->shape[0];
    int64_t prompt[EXPECTED_PROMPT], begins[EXPECTED_PROMPT];
    bool same = e->sequence_length >= EXPECTED_PROMPT;
    if (same) {
        safetensors_tensor_read_i64(e->input_ids, 0, EXPECTED_PROMPT, prompt);
        safetensors_tensor_read_i64(greedy, 0, EXPECTED_PROMPT, begins);
        same = memcmp(prompt, begins, sizeof prompt) == 0;
    }
    if (same) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "tensor 'greedy' does not begin with the first %d tokens of 'input_ids'",
                       EXPECTED_PROMPT);
}

/* ---- gradients ----------------------------------------------------------------------------- */

/* The expected gradient of a model's tensor, or NULL. */
static const safetensors_tensor *find_gradient(const expected_file *e, const char *parameter)
{
    char name[256];
    int length = snprintf(name, sizeof name, "grad.%s", parameter);
    return length < (int)sizeof name ? safetensors_find(e->file, name) : NULL;
}

static bool is_parameter(const dsmoe_model *model, const char *name)
{
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++)
        if (!strcmp(dsmoe_model_tensor(model, i).name, name)) return true;
    return false;
}

/* Every gradient must belong to a parameter and have its shape. */
static dsmoe_status check_gradients(const expected_file *e, const dsmoe_model *model,
                                    dsmoe_error *error)
{
    size_t n_known = 0, n_claimed = 0;
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        dsmoe_tensor_info info = dsmoe_model_tensor(model, i);
        const safetensors_tensor *gradient = find_gradient(e, info.name);
        if (!gradient) continue;
        n_known++;
        STATUS_TRY(tensor_check_float(gradient, error));
        int64_t rows = info.n_dims == 2 ? info.shape[0] : 1;
        STATUS_TRY(tensor_check_shape(gradient, rows, info.shape[info.n_dims - 1], error));
    }
    for (size_t i = 0; i < safetensors_count(e->file); i++)
        n_claimed += tensor_name_behind(safetensors_at(e->file, i)->name, "grad.") != NULL;
    for (size_t i = 0; n_claimed > n_known && i < safetensors_count(e->file); i++) {
        const char *name = safetensors_at(e->file, i)->name;
        const char *parameter = tensor_name_behind(name, "grad.");
        if (parameter && !is_parameter(model, parameter))
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "tensor '%.128s' belongs to no parameter of the model", name);
    }
    return DSMOE_OK;
}

/* ---- the file ------------------------------------------------------------------------------ */

static dsmoe_status check_all(expected_file *e, const dsmoe_model *model, dsmoe_error *error)
{
    STATUS_TRY(find_input_ids(e, error));
    STATUS_TRY(find_logits(e, error));
    STATUS_TRY(find_losses(e, error));
    STATUS_TRY(find_greedy(e, error));
    return check_gradients(e, model, error);
}

dsmoe_status expected_open(expected_file *expected, const char *path, const dsmoe_model *model,
                           dsmoe_error *error)
{
    *expected = (expected_file){.vocab_size = dsmoe_model_config(model)->vocab_size};
    STATUS_TRY(safetensors_open(path, &expected->file, error));
    dsmoe_error why = {0};
    dsmoe_status status = check_all(expected, model, &why);
    if (status == DSMOE_OK) return DSMOE_OK;
    expected_close(expected);
    return status_fail(error, status, "%s: %s", path, why.message);
}

void expected_close(expected_file *expected)
{
    safetensors_close(expected->file);
    *expected = (expected_file){0};
}

dsmoe_status expected_read_tokens(const expected_file *expected, const safetensors_tensor *tensor,
                                  int32_t *tokens, dsmoe_error *error)
{
    for (size_t i = 0; i < tensor->n_elements; i++) {
        int64_t token;
        safetensors_tensor_read_i64(tensor, i, 1, &token);
        if (token < 0 || token >= expected->vocab_size)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: tensor '%.128s': element %zu is %" PRId64
                               ", not a token of the model, which has %" PRId64,
                               safetensors_path(expected->file), tensor->name, i, token,
                               expected->vocab_size);
        tokens[i] = (int32_t)token;
    }
    return DSMOE_OK;
}

bool expected_is_checked(const expected_file *e, const safetensors_tensor *tensor)
{
    return tensor == e->input_ids || tensor == e->logits || tensor == e->loss ||
           tensor == e->aux_loss || tensor == e->greedy ||
           tensor_name_behind(tensor->name, "grad.");
}
