/* gguf_config.h - reads the configuration of a model from the metadata of its GGUF file. */
#ifndef DSMOE_MODEL_GGUF_CONFIG_H
#define DSMOE_MODEL_GGUF_CONFIG_H

#include "formats/gguf.h"

/* Reads and checks the keys of the architectures deepseek and deepseek2. Whether attention has biases
 * follows from the tensors; embeddings are tied if there is no output.weight. Missing keys have the
 * public defaults. Some values have no public key, so this project writes its own: dsmoe.aux_loss_alpha,
 * dsmoe.seq_aux, dsmoe.initializer_range, dsmoe.routed_scaling_factor, and dsmoe.tie_word_embeddings,
 * which says that the output.weight in the file is only a copy. Messages name the file and the key. */
dsmoe_status gguf_config_read(const gguf *file, dsmoe_config *config, dsmoe_error *error);
/* The same for a file that is opened only for this. */
dsmoe_status gguf_config_open(const char *path, dsmoe_config *config, dsmoe_error *error);

/* Reads dsmoe.generation_config, which holds the text of a generation_config.json. If that key is
 * missing, only the tokens that begin and end a text are known. `config` must have been checked. */
dsmoe_status gguf_generation_config_read(const gguf *file, const dsmoe_config *config,
                                         dsmoe_generation_config *out, dsmoe_error *error);

#endif
