/* tensors.c - checks tensors of a file from elsewhere before they are used. */
#include "verify/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

dsmoe_status tensor_check_float(const safetensors_tensor *tensor, dsmoe_error *error)
{
    float none;
    if (safetensors_tensor_read_f32(tensor, 0, 0, &none)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "tensor '%.128s' has dtype %s, where F32, F64, F16 or BF16 is expected",
                       tensor->name, safetensors_dtype_name(tensor->dtype));
}

dsmoe_status tensor_check_integer(const safetensors_tensor *tensor, dsmoe_error *error)
{
    int64_t none;
    if (safetensors_tensor_read_i64(tensor, 0, 0, &none)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "tensor '%.128s' has dtype %s, where I64 or I32 is expected", tensor->name,
                       safetensors_dtype_name(tensor->dtype));
}

static void print_shape(const safetensors_tensor *tensor, char text[256])
{
    size_t used = (size_t)snprintf(text, 256, "[");
    for (int i = 0; i < tensor->n_dims; i++)
        used +=
            (size_t)snprintf(text + used, 256 - used, "%s%" PRId64, i ? "," : "", tensor->shape[i]);
    snprintf(text + used, 256 - used, "]");
}

dsmoe_status tensor_fail_shape(const safetensors_tensor *tensor, const char *wanted,
                               dsmoe_error *error)
{
    char shape[256];
    print_shape(tensor, shape);
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "tensor '%.128s' has shape %s, where %s is expected", tensor->name, shape,
                       wanted);
}

dsmoe_status tensor_check_shape(const safetensors_tensor *tensor, int64_t rows, int64_t columns,
                                dsmoe_error *error)
{
    if (tensor->n_dims > 0 && tensor->shape[tensor->n_dims - 1] == columns && columns > 0 &&
        tensor->n_elements / (uint64_t)columns == (uint64_t)rows)
        return DSMOE_OK;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "[%" PRId64 ",%" PRId64 "]", rows, columns);
    return tensor_fail_shape(tensor, wanted, error);
}

dsmoe_status tensor_check_scalar(const safetensors_tensor *tensor, dsmoe_error *error)
{
    if (tensor->n_elements != 1)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "tensor '%.128s' has %zu elements, where one number is expected",
                           tensor->name, tensor->n_elements);
    return tensor_check_float(tensor, error);
}

const char *tensor_name_behind(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}
