/* kv_type.h - the option --kv-type: how the cache of an engine keeps keys and values. */
#ifndef DSMOE_CLI_KV_TYPE_H
#define DSMOE_CLI_KV_TYPE_H

#include "dsmoe.h"

/* "f32", "f16" or "q8_0"; *type stays as it is if `text` is NULL. CLI_OK, or CLI_USAGE after a
 * message. */
int kv_type_parse(const char *command, const char *text, dsmoe_dtype *type);

/* Prints why an engine could not be created, and returns the exit code. The message names the option if the
 * model's heads do not fit the type, otherwise the model. */
int kv_type_error(const char *command, const char *model, const dsmoe_error *error);

#endif
