/* choices.h - what a comparison gives each architecture its own, by name: "0.002" for all, "switch=0.001" for
 * one. */
#ifndef DSMOE_STUDY_CHOICES_H
#define DSMOE_STUDY_CHOICES_H

#include <stdio.h>

#include "study/architectures.h"

/* The names of what can be chosen: lr, norm-topk-prob, routed-scaling-factor, balance, aux-loss-alpha,
 * init-std. */
enum { N_CHOICES = 6 };
extern const char *const choice_names[N_CHOICES];

typedef struct study_choices {
    study_choice common; /* of those that have none of their own */
    study_choice of[N_ARCHITECTURES];
} study_choices;

/* As the paper trains: gates are softmax scores, balance over sequences with a factor of 0.01. */
study_choices choices_default(double lr);

/* Takes the texts that were given for a name: those for all first, whatever their order. The message
 * says what is wrong, without the name. */
dsmoe_status choices_take(study_choices *choices, int name, const char *const *texts, int n_texts,
                          dsmoe_error *error);
/* A choice of an architecture's own that changes nothing is a mistake: DSMOE_ERROR_ARGUMENT, and the message
 * names it. Choices for all that mean nothing to one are taken out of it. */
dsmoe_status choices_settle(study_choices *choices, dsmoe_error *error);

/* A line "--NAME VALUE" for each choice that is not the default, and "--NAME ARCHITECTURE=VALUE" for
 * each of an architecture's own. The rate is always there. */
void choices_put(FILE *file, const study_choices *choices);

#endif
