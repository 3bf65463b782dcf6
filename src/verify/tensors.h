/* tensors.h - what the tensors of a file from elsewhere must be before anyone relies on them. The
 * messages name the tensor, not the file. */
#ifndef DSMOE_VERIFY_TENSORS_H
#define DSMOE_VERIFY_TENSORS_H

#include <stdint.h>

#include "dsmoe.h"
#include "formats/safetensors.h"

/* Of a type that can be read as float32, or as int64. */
dsmoe_status tensor_check_float(const safetensors_tensor *tensor, dsmoe_error *error);
dsmoe_status tensor_check_integer(const safetensors_tensor *tensor, dsmoe_error *error);

/* The last dimension is `columns`, the others make up `rows`: [b,s,h] and [b*s,h] are the same. */
dsmoe_status tensor_check_shape(const safetensors_tensor *tensor, int64_t rows, int64_t columns,
                                dsmoe_error *error);
/* One number, whatever its shape. */
dsmoe_status tensor_check_scalar(const safetensors_tensor *tensor, dsmoe_error *error);

/* Says that the shape is not the one that `wanted` describes. */
dsmoe_status tensor_fail_shape(const safetensors_tensor *tensor, const char *wanted,
                               dsmoe_error *error);

/* What follows `prefix` in `name`, or NULL if it does not begin so. */
const char *tensor_name_behind(const char *name, const char *prefix);

#endif
