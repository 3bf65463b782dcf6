/* generation_config.h - the sampling that the makers of a model recommend. */
#ifndef DSMOE_MODEL_GENERATION_CONFIG_H
#define DSMOE_MODEL_GENERATION_CONFIG_H

#include <stddef.h>

#include "dsmoe.h"

/* Reads generation_config.json of a model folder. Missing keys have the public defaults: greedy,
 * temperature 1, top_p 1, top_k 50, repetition_penalty 1, and the tokens of config.json. A missing file
 * is not an error: then all keys have their defaults. `config` must have been checked. */
dsmoe_status generation_config_read(const char *folder, const dsmoe_config *config,
                                    dsmoe_generation_config *out, dsmoe_error *error);

/* The same for text in memory; `source` names it in messages. */
dsmoe_status generation_config_parse(const char *text, size_t length, const char *source,
                                     const dsmoe_config *config, dsmoe_generation_config *out,
                                     dsmoe_error *error);

#endif
