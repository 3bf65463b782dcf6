/* gguf_config.h - the configuration of a model from the metadata of its GGUF file. */
#ifndef DSMOE_MODEL_GGUF_CONFIG_H
#define DSMOE_MODEL_GGUF_CONFIG_H

#include "formats/gguf.h"

/* Reads and checks the keys of the architectures deepseek and deepseek2. Whether attention has biases follows from the
 * tensors; embeddings are tied where there is no output.weight. What the keys do not say has the public defaults. Keys
 * that only this project writes hold what the public ones cannot say: dsmoe.aux_loss_alpha, dsmoe.seq_aux,
 * dsmoe.initializer_range, dsmoe.routed_scaling_factor, and dsmoe.tie_word_embeddings, which says that the
 * output.weight in the file is only a copy. Messages name the file and the key. */
dsmoe_status gguf_config_read(const gguf *file, dsmoe_config *config, dsmoe_error *error);
/* The same for a file that is opened for this alone. */
dsmoe_status gguf_config_open(const char *path, dsmoe_config *config, dsmoe_error *error);

/* The text of a generation_config.json is in dsmoe.generation_config; where that key is missing,
 * what is known are the tokens that begin and end a text. `config` must be a checked one. */
dsmoe_status gguf_generation_config_read(const gguf *file, const dsmoe_config *config,
                                         dsmoe_generation_config *out, dsmoe_error *error);

#endif
