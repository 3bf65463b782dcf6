/* gguf_model.h - a model from a GGUF file. */
#ifndef DSMOE_MODEL_GGUF_MODEL_H
#define DSMOE_MODEL_GGUF_MODEL_H

#include "model/model.h"

/* Fills in all but the layers of a zeroed model that has its kernels. `path` may name any part of a
 * split file. */
dsmoe_status gguf_model_open(const char *path, dsmoe_model *model, dsmoe_error *error);

#endif
