/* gguf_latent.h - what the metadata of the architecture deepseek2 (DeepSeek-V2, V3 and their relatives)
 * say beyond those of deepseek: latent attention, other gates, YaRN. */
#ifndef DSMOE_MODEL_GGUF_LATENT_H
#define DSMOE_MODEL_GGUF_LATENT_H

#include "model/gguf_fields.h"

#define GGUF_LATENT_ARCHITECTURE "deepseek2"

/* Whether kv_b_proj lies in two tensors, attn_k_b and attn_v_b: then a file describes attention in its
 * absorbed form, one wide key for all heads, and has the widths of heads in keys of their own (…_mla).
 * Older files have attn_kv_b. Where a file has all three tensors, its keys decide. */
bool gguf_latent_is_split(const gguf *file);

/* The tables of its keys. */
enum { GGUF_LATENT_TABLES = 3 };
void gguf_latent_tables(bool split, gguf_fields tables[GGUF_LATENT_TABLES]);

/* What the fields of the tables mean together, once they are filled: the rest of the configuration. */
dsmoe_status gguf_latent_read(const gguf_reader *r, bool split, dsmoe_config *config,
                              dsmoe_error *error);
/* Keys that must be as they are, for a checked configuration. */
dsmoe_status gguf_latent_check(const gguf_reader *r, bool split, const dsmoe_config *config,
                               dsmoe_error *error);

#endif
