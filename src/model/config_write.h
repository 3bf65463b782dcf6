/* config_write.h - the two JSON files of a model folder, in the words of the public ones. */
#ifndef DSMOE_MODEL_CONFIG_WRITE_H
#define DSMOE_MODEL_CONFIG_WRITE_H

#include "base/status.h"

/* FOLDER/config.json; `dtype` is that of the weights beside it. What a file may leave out and has
 * its public default stays out, so that the released model's configuration is its file, but for
 * the place of its PyTorch code. An old file is replaced at once or not at all. */
dsmoe_status config_write(const char *folder, const dsmoe_config *config, dsmoe_dtype dtype,
                          dsmoe_error *error);
/* The same under another name. */
dsmoe_status config_write_as(const char *folder, const char *name, const dsmoe_config *config,
                             dsmoe_dtype dtype, dsmoe_error *error);
/* FOLDER/generation_config.json: the tokens that begin and end a text. */
dsmoe_status generation_config_write(const char *folder, const dsmoe_config *config,
                                     dsmoe_error *error);

#endif
