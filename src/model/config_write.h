/* config_write.h - writes the two JSON files of a model folder, with the keys of the public ones. */
#ifndef DSMOE_MODEL_CONFIG_WRITE_H
#define DSMOE_MODEL_CONFIG_WRITE_H

#include "base/status.h"

/* Writes FOLDER/config.json; `dtype` is the type of the weights. Optional keys with their public
 * defaults are left out, so that the released model's configuration gives its own file, except for the
 * place of its PyTorch code. An old file is replaced completely or not at all. */
dsmoe_status config_write(const char *folder, const dsmoe_config *config, dsmoe_dtype dtype,
                          dsmoe_error *error);
/* The same under another name. */
dsmoe_status config_write_as(const char *folder, const char *name, const dsmoe_config *config,
                             dsmoe_dtype dtype, dsmoe_error *error);
/* Writes FOLDER/generation_config.json: the tokens that begin and end a text. */
dsmoe_status generation_config_write(const char *folder, const dsmoe_config *config,
                                     dsmoe_error *error);

#endif
