/* generation_config.h - how the makers of a model want it sampled. */
#ifndef DSMOE_MODEL_GENERATION_CONFIG_H
#define DSMOE_MODEL_GENERATION_CONFIG_H

#include <stddef.h>

#include "dsmoe.h"

/* generation_config.json of a model folder. What it leaves out has the public defaults: greedy,
 * temperature 1, top_p 1, top_k 50, repetition_penalty 1, and the tokens of config.json. So has all
 * of it if there is no such file, which is not an error. `config` must be a checked one. */
dsmoe_status generation_config_read(const char *folder, const dsmoe_config *config,
                                    dsmoe_generation_config *out, dsmoe_error *error);

/* The same over text in memory; `source` names it in messages. */
dsmoe_status generation_config_parse(const char *text, size_t length, const char *source,
                                     const dsmoe_config *config, dsmoe_generation_config *out,
                                     dsmoe_error *error);

#endif
