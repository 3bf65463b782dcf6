/* probe_set.h - the paper's probes of what experts know (section 4.5), chosen for one model. */
#ifndef DSMOE_STUDY_PROBE_SET_H
#define DSMOE_STUDY_PROBE_SET_H

#include "dsmoe.h"

enum { PROBE_SET_MOST = 1 + 4 + 1 + 7, PROBE_LABEL = 32 };

typedef struct probe_choice {
    char label[PROBE_LABEL]; /* "none", "top 1/16 masked", "shared replaced", "3 active" */
    dsmoe_probe probe;
} probe_choice;

/* Fills `choices` with the probes that a model with this configuration can take, no probe first, and returns
 * their number. With few experts, two shares may mask as many, or leave too few to choose from. */
int probe_set_choose(const dsmoe_config *config, probe_choice choices[PROBE_SET_MOST]);

#endif
