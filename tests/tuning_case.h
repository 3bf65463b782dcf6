/* tuning_case.h - a base and low-rank additions to it, as the tests of tuning share them. */
#ifndef DSMOE_TESTS_TUNING_CASE_H
#define DSMOE_TESTS_TUNING_CASE_H

#include "made_trainer.h"

enum { TUNING_RANK = 3 };
extern const double tuning_alpha;
extern const char tuning_all_targets[];

typedef struct tuned {
    dsmoe_trainer *owner;    /* of the base; NULL: */
    const dsmoe_model *base; /* it is opened here */
    dsmoe_tuning tuning;
    dsmoe_trainer_options options;
    dsmoe_trainer *trainer;
} tuned;

dsmoe_model *tuning_open_base(const char *from);
dsmoe_trainer *tuning_create(const dsmoe_config *config, const dsmoe_trainer_options *options);
/* Low-rank additions to a base. */
void tuning_make_lora(tuned *t, const char *from, const char *targets, int64_t n_sequences,
                      int64_t length);
/* Random numbers in B, which begins with zeros. */
void tuning_fill_b(dsmoe_trainer *trainer);
void tuning_free(tuned *t);

/* made_config with a balance loss; and one whose sizes blocks divide. */
dsmoe_config tuning_config(void);
dsmoe_config tuning_block_config(void);

#endif
