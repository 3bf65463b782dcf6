/* choices.h - the settings that each architecture of a comparison can have its own value of: "0.002" is for
 * all, "switch=0.001" for one. */
#ifndef DSMOE_STUDY_CHOICES_H
#define DSMOE_STUDY_CHOICES_H

#include <stdio.h>

#include "study/architectures.h"

/* The names of the settings: lr, norm-topk-prob, routed-scaling-factor, balance, aux-loss-alpha, init-std. */
enum { N_CHOICES = 6 };
extern const char *const choice_names[N_CHOICES];

typedef struct study_choices {
    study_choice common; /* for architectures without a value of their own */
    study_choice of[N_ARCHITECTURES];
} study_choices;

/* The paper's choices: gate values are softmax scores; balance over sequences with a factor of 0.01. */
study_choices choices_paper(double lr);
/* The choices that short runs found best for each architecture (docs/ablation.md): normalised gate values, or scaled
 * ones where a token takes one routed expert; balance over the batch; half the learning rate without experts. */
study_choices choices_fair(double lr);

/* Applies the texts that were given for a setting: first those for all architectures, then those for one,
 * whatever their order. A message says what is wrong, but does not name the setting. */
dsmoe_status choices_take(study_choices *choices, int name, const char *const *texts, int n_texts,
                          dsmoe_error *error);
/* Fails with DSMOE_ERROR_ARGUMENT if a choice for one architecture has no effect on it; the message names the
 * choice. A choice for all is dropped for an architecture on which it has no effect. */
dsmoe_status choices_settle(study_choices *choices, dsmoe_error *error);

/* Writes a line "--NAME VALUE" for each choice that is not the paper's, and "--NAME ARCHITECTURE=VALUE" for
 * each value of an architecture's own. The learning rate is always written. */
void choices_put(FILE *file, const study_choices *choices);

#endif
