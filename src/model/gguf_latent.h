/* gguf_latent.h - metadata of the architecture deepseek2 (DeepSeek-V2, V3 and their relatives) that
 * deepseek does not have: latent attention, other gates, YaRN. */
#ifndef DSMOE_MODEL_GGUF_LATENT_H
#define DSMOE_MODEL_GGUF_LATENT_H

#include "model/gguf_fields.h"

#define GGUF_LATENT_ARCHITECTURE "deepseek2"

/* Whether kv_b_proj is stored as two tensors, attn_k_b and attn_v_b. Then the file describes attention in
 * its absorbed form, with one wide key for all heads, and has other keys for the widths of heads (…_mla).
 * Older files have attn_kv_b. If a file has all three tensors, its keys decide. */
bool gguf_latent_is_split(const gguf *file);

/* The tables of the keys. */
enum { GGUF_LATENT_TABLES = 3 };
void gguf_latent_tables(bool split, gguf_fields tables[GGUF_LATENT_TABLES]);

/* Derives the rest of the configuration once the fields of the tables are filled in. */
dsmoe_status gguf_latent_read(const gguf_reader *r, bool split, dsmoe_config *config,
                              dsmoe_error *error);
/* Checks the keys that allow only one value, for a checked configuration. */
dsmoe_status gguf_latent_check(const gguf_reader *r, bool split, const dsmoe_config *config,
                               dsmoe_error *error);

#endif
