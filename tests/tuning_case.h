/* tuning_case.h - a base model and low-rank adapters for it, shared by the tests of tuning. */
#ifndef DSMOE_TESTS_TUNING_CASE_H
#define DSMOE_TESTS_TUNING_CASE_H

#include "made_trainer.h"

enum { TUNING_RANK = 3 };
extern const double tuning_alpha;
extern const char tuning_all_targets[];

typedef struct tuned {
    dsmoe_trainer *owner;    /* a trainer that owns the base, or NULL */
    const dsmoe_model *base; /* if there is no owner, opened here */
    dsmoe_tuning tuning;
    dsmoe_trainer_options options;
    dsmoe_trainer *trainer;
} tuned;

dsmoe_model *tuning_open_base(const char *from);
dsmoe_trainer *tuning_create(const dsmoe_config *config, const dsmoe_trainer_options *options);
/* Makes low-rank adapters for a base model. */
void tuning_make_lora(tuned *t, const char *from, const char *targets, int64_t n_sequences,
                      int64_t length);
/* Fills B, which starts as zeros, with random numbers. */
void tuning_fill_b(dsmoe_trainer *trainer);
void tuning_free(tuned *t);

/* made_config with a balance loss; and a configuration with sizes that quantised blocks divide. */
dsmoe_config tuning_config(void);
dsmoe_config tuning_block_config(void);

#endif
