/* gguf_adapter.h - an adapter in llama.cpp's form: a GGUF file with "general.type" "adapter".
 *
 * A matrix N of the base has N.lora_a, [rank, in], and N.lora_b, [out, rank]. For stacked experts they are
 * stacked, [expert, rank, in] and [expert, out, rank], with zeros for an expert that is not adapted. Rows of
 * B of q and k are in the order of GGUF files. The factor is adapter.lora.alpha / rank. */
#ifndef DSMOE_ADAPT_GGUF_ADAPTER_H
#define DSMOE_ADAPT_GGUF_ADAPTER_H

#include "adapt/adapter.h"

/* Reads the adapter from its path. */
dsmoe_status gguf_adapter_read(dsmoe_adapter *adapter, dsmoe_error *error);
/* Replaces an existing file of the same kind only with `replace`. */
dsmoe_status gguf_adapter_write(const dsmoe_adapter *adapter, const char *path, bool replace,
                                dsmoe_error *error);

#endif
