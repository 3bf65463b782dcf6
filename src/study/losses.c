/* losses.c - what is measured of a trained architecture. */
#include "study/losses.h"

#include <stdio.h>
#include <string.h>

bool loss_is_asked(const architecture *a, const dsmoe_config *config, int which)
{
    int64_t k = config->num_experts_per_tok;
    if (which == LOSS_PLAIN) return true;
    if (which < LOSS_REPLACED) return a->is_masked;
    if (which == LOSS_REPLACED) return a->k_shared > 0;
    if (which <= LOSS_MASK_FIRST) return a->is_fewer && which - LOSS_FEWER + 1 < k;
    /* Where gate values are normalised, masking before the softmax gives the same loss. */
    return a->is_masked && !(config->norm_topk_prob && k > 1);
}

dsmoe_probe loss_probe(int which)
{
    if (which < LOSS_REPLACED) return (dsmoe_probe){.mask_top = (which - LOSS_MASK) / 16.0};
    if (which == LOSS_REPLACED) return (dsmoe_probe){.replace_shared = true};
    if (which <= LOSS_MASK_FIRST)
        return (dsmoe_probe){.num_experts_per_tok = which - LOSS_FEWER + 1};
    return (dsmoe_probe){.mask_top = (which - LOSS_MASK_FIRST) / 16.0, .mask_before_softmax = true};
}

const char *loss_name(int which, char out[LOSS_NAME])
{
    if (which == LOSS_PLAIN)
        snprintf(out, LOSS_NAME, "plain");
    else if (which < LOSS_REPLACED)
        snprintf(out, LOSS_NAME, "mask %d/16", which - LOSS_MASK);
    else if (which == LOSS_REPLACED)
        snprintf(out, LOSS_NAME, "replaced");
    else if (which <= LOSS_MASK_FIRST)
        snprintf(out, LOSS_NAME, "active %d", which - LOSS_FEWER + 1);
    else
        snprintf(out, LOSS_NAME, "mask first %d/16", which - LOSS_MASK_FIRST);
    return out;
}

int loss_find(const char *name)
{
    char other[LOSS_NAME];
    for (int i = 0; i < N_LOSSES; i++)
        if (!strcmp(name, loss_name(i, other))) return i;
    return -1;
}
