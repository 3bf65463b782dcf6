/* config.h - what the rest of this room needs of a configuration beyond the public functions. */
#ifndef DSMOE_MODEL_CONFIG_H
#define DSMOE_MODEL_CONFIG_H

#include <stddef.h>

#include "dsmoe.h"

/* Whether a model of this configuration can exist; the message names the offending key. Afterwards
 * every dimension is positive where it is used, divisions are exact, and all the parameters
 * together are fewer than 2^58, so that sums and products of them fit int64. */
dsmoe_status config_check(const dsmoe_config *config, dsmoe_error *error);

/* dsmoe_config_read over text in memory; `source` names it in messages. */
dsmoe_status config_parse(const char *text, size_t length, const char *source, dsmoe_config *config,
                          dsmoe_error *error);

#endif
