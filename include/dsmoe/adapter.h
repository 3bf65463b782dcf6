/* dsmoe/adapter.h - LoRA adapters of a model. */
#ifndef DSMOE_ADAPTER_H
#define DSMOE_ADAPTER_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A LoRA adapter: what fine-tuning adds to some matrices of a model, W + scale·B·A. It is a folder as PEFT writes it
 * (adapter_config.json, adapter_model.safetensors) or a GGUF file as llama.cpp takes it. */
typedef struct dsmoe_adapter dsmoe_adapter;
/* Whether a path is one, by its files; what is in them is looked at by dsmoe_adapter_open. */
DSMOE_API bool dsmoe_adapter_is(const char *path);
/* Checks it against the model, which must outlive it: one of another model is an error. What it cannot mean here (other
 * types of adapters than LoRA, biases, DoRA …) is refused by name. */
DSMOE_API dsmoe_status dsmoe_adapter_open(const char *path, const dsmoe_model *model,
                                          dsmoe_adapter **adapter, dsmoe_error *error);
DSMOE_API void dsmoe_adapter_free(dsmoe_adapter *adapter);
/* As a GGUF file if the name ends with .gguf (which a file of the same kind that is there gives way to with `replace`
 * only), else as PEFT's folder, which must be new or empty. */
DSMOE_API dsmoe_status dsmoe_adapter_write(const dsmoe_adapter *adapter, const char *to,
                                           bool replace, dsmoe_error *error);

typedef struct dsmoe_adapter_info {
    const char *path;   /* valid as long as the adapter */
    int64_t n_matrices; /* that it adapts */
    int64_t rank;       /* the largest of them */
    int64_t n_parameters;
} dsmoe_adapter_info;
DSMOE_API dsmoe_adapter_info dsmoe_adapter_get_info(const dsmoe_adapter *adapter);

#ifdef __cplusplus
}
#endif
#endif
