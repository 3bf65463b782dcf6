/* latent_attention.h - attention over latents: DeepSeek-V2 and V3. */
#ifndef DSMOE_MODEL_LATENT_ATTENTION_H
#define DSMOE_MODEL_LATENT_ATTENTION_H

#include "model/pass.h"

/* As attention_size and attention_forward, which call these. */
size_t latent_attention_size(const dsmoe_model *model, int64_t n_rows, int n_threads);
void latent_attention_forward(pass *p, int64_t layer);

#endif
