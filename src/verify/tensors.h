/* tensors.h - checks tensors of a file from elsewhere before they are used. The messages name the tensor,
 * not the file. */
#ifndef DSMOE_VERIFY_TENSORS_H
#define DSMOE_VERIFY_TENSORS_H

#include <stdint.h>

#include "dsmoe.h"
#include "formats/safetensors.h"

/* Check that the type can be read as float32, or as int64. */
dsmoe_status tensor_check_float(const safetensors_tensor *tensor, dsmoe_error *error);
dsmoe_status tensor_check_integer(const safetensors_tensor *tensor, dsmoe_error *error);

/* Checks that the last dimension is `columns` and the product of the others is `rows`: [b,s,h] and [b*s,h]
 * are equivalent. */
dsmoe_status tensor_check_shape(const safetensors_tensor *tensor, int64_t rows, int64_t columns,
                                dsmoe_error *error);
/* Checks that it is one number, of any shape. */
dsmoe_status tensor_check_scalar(const safetensors_tensor *tensor, dsmoe_error *error);

/* Fails with a message that the shape is not the one that `wanted` describes. */
dsmoe_status tensor_fail_shape(const safetensors_tensor *tensor, const char *wanted,
                               dsmoe_error *error);

/* What follows `prefix` in `name`, or NULL if it does not begin with it. */
const char *tensor_name_behind(const char *name, const char *prefix);

#endif
