/* losses.h - what is measured of a trained architecture: its held-out loss, plain and under each of the
 * paper's probes. */
#ifndef DSMOE_STUDY_LOSSES_H
#define DSMOE_STUDY_LOSSES_H

#include "study/architectures.h"

enum {
    LOSS_N_MASKS = 5,   /* 0, 1/16, … 4/16 */
    LOSS_MAX_FEWER = 7, /* 1 … 7 active experts */
};

/* The losses by number. */
enum {
    LOSS_PLAIN = 0,
    LOSS_MASK = 0, /* + sixteenths; 0 is the plain model */
    LOSS_REPLACED = LOSS_MASK + LOSS_N_MASKS,
    LOSS_FEWER,                                        /* + active experts - 1 */
    LOSS_MASK_FIRST = LOSS_FEWER + LOSS_MAX_FEWER - 1, /* + sixteenths, from 1: before softmax */
    N_LOSSES = LOSS_MASK_FIRST + LOSS_N_MASKS,
};

/* Whether a loss is measured of an architecture with this configuration. */
bool loss_is_asked(const architecture *a, const dsmoe_config *config, int which);
/* The probe for a loss. The probe for the plain loss changes nothing. */
dsmoe_probe loss_probe(int which);

/* The name of a loss in files, in `out`: "plain", "mask 1/16", "replaced", "active 3", "mask first 1/16". */
enum { LOSS_NAME = 32 };
const char *loss_name(int which, char out[LOSS_NAME]);
/* The loss of that name; -1 if there is none. */
int loss_find(const char *name);

#endif
