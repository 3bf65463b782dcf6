/* peft.h - an adapter as PEFT writes it: a folder with adapter_config.json and adapter_model.safetensors. */
#ifndef DSMOE_ADAPT_PEFT_H
#define DSMOE_ADAPT_PEFT_H

#include "adapt/adapter.h"

#define PEFT_CONFIG "adapter_config.json"
#define PEFT_WEIGHTS "adapter_model.safetensors"

/* The contents of adapter_config.json. Patterns match names such as "model.layers.0.self_attn.q_proj". */
typedef struct peft_config peft_config;
dsmoe_status peft_config_parse(const char *text, size_t length, const char *source,
                               peft_config **config, dsmoe_error *error);
void peft_config_free(peft_config *config); /* NULL is allowed */
/* The rank of a module and the factor of its addition. Fails if target_modules does not name the module. */
dsmoe_status peft_config_of(const peft_config *config, const char *module, int64_t *rank,
                            float *scale, dsmoe_error *error);

/* Reads the adapter from its path. */
dsmoe_status peft_read(dsmoe_adapter *adapter, dsmoe_error *error);

/* Settings for the folder in addition to the numbers. */
typedef struct peft_words {
    const char *base;    /* base_model_name_or_path; NULL: null */
    double lora_dropout; /* as in its training */
    bool use_rslora;     /* the scale is alpha/√rank */
    dsmoe_dtype dtype;   /* the plain type that peft_write_table writes */
} peft_words;

/* Writes an adapter into a folder, which is made if necessary; files of the same names are replaced. The
 * weights come first, so a folder with an adapter_config.json is complete. `words` may be NULL. */
dsmoe_status peft_write(const dsmoe_adapter *adapter, const char *folder, const peft_words *words,
                        dsmoe_error *error);
/* The same for a table (moe/low_rank.h), such as a trainer's. Rows of B are in the model's order. */
dsmoe_status peft_write_table(const adapter *table, const dsmoe_model *model, const char *folder,
                              const peft_words *words, dsmoe_error *error);

#endif
