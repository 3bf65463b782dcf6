/* dsmoe/adapter.h - LoRA adapters of a model. */
#ifndef DSMOE_ADAPTER_H
#define DSMOE_ADAPTER_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A LoRA adapter: what fine-tuning adds to some matrices of a model, W + scale·B·A. It is a folder in PEFT's
 * layout (adapter_config.json, adapter_model.safetensors) or a GGUF file in llama.cpp's. */
typedef struct dsmoe_adapter dsmoe_adapter;
/* Whether a path is an adapter, judged by the files that are there. dsmoe_adapter_open checks their
 * content. */
DSMOE_API bool dsmoe_adapter_is(const char *path);
/* Opens an adapter and checks it against the model, which must outlive it. An adapter made for another model
 * is an error. So is one of a kind that is not supported (not LoRA, with biases, DoRA …); the message names
 * the kind. */
DSMOE_API dsmoe_status dsmoe_adapter_open(const char *path, const dsmoe_model *model,
                                          dsmoe_adapter **adapter, dsmoe_error *error);
DSMOE_API void dsmoe_adapter_free(dsmoe_adapter *adapter);
/* Writes a GGUF file if the name ends with .gguf, otherwise a PEFT folder, which must be new or empty. An
 * existing GGUF adapter is replaced only with `replace`. */
DSMOE_API dsmoe_status dsmoe_adapter_write(const dsmoe_adapter *adapter, const char *to,
                                           bool replace, dsmoe_error *error);

typedef struct dsmoe_adapter_info {
    const char *path;   /* valid until the adapter is freed */
    int64_t n_matrices; /* matrices that it changes */
    int64_t rank;       /* the largest of any matrix */
    int64_t n_parameters;
} dsmoe_adapter_info;
DSMOE_API dsmoe_adapter_info dsmoe_adapter_get_info(const dsmoe_adapter *adapter);

#ifdef __cplusplus
}
#endif
#endif
