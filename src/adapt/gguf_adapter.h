/* gguf_adapter.h - an adapter as llama.cpp takes it: a GGUF file with "general.type" "adapter".
 *
 * A matrix of the base named N has N.lora_a, [rank, in], and N.lora_b, [out, rank]. Stacked experts have theirs stacked,
 * [expert, rank, in] and [expert, out, rank]: zeros for one that is not adapted. B of q and k lies in the order of
 * GGUF files. The factor is adapter.lora.alpha over the rank. */
#ifndef DSMOE_ADAPT_GGUF_ADAPTER_H
#define DSMOE_ADAPT_GGUF_ADAPTER_H

#include "adapt/adapter.h"

/* Fills in the adapter from its path. */
dsmoe_status gguf_adapter_read(dsmoe_adapter *adapter, dsmoe_error *error);
/* A file of the same kind that is there gives way only with `replace`. */
dsmoe_status gguf_adapter_write(const dsmoe_adapter *adapter, const char *path, bool replace,
                                dsmoe_error *error);

#endif
