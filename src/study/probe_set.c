/* probe_set.c - chooses the probes that a model can take. */
#include "study/probe_set.h"

#include <inttypes.h>
#include <stdio.h>

#include "model/model.h"

enum { MOST_SMALLER = 7 }; /* smaller numbers of experts */

int probe_set_choose(const dsmoe_config *config, probe_choice choices[PROBE_SET_MOST])
{
    int64_t n = config->n_routed_experts, k = config->num_experts_per_tok, masked_before = 0;
    int n_chosen = 1;
    choices[0] = (probe_choice){.label = "none"};
    for (int sixteenths = 1; sixteenths <= 4; sixteenths++) {
        dsmoe_probe probe = {.mask_top = sixteenths / 16.0};
        int64_t n_masked = probe_count_masked(&probe, n);
        if (n_masked == masked_before || n_masked + k > n) continue;
        probe_choice *c = &choices[n_chosen++];
        *c = (probe_choice){.probe = probe};
        snprintf(c->label, sizeof c->label, "top %d/16 masked", sixteenths);
        masked_before = n_masked;
    }
    if (config->n_shared_experts > 0 && k + config->n_shared_experts <= n)
        choices[n_chosen++] =
            (probe_choice){.label = "shared replaced", .probe = {.replace_shared = true}};
    int64_t n_smaller = k - 1 < MOST_SMALLER ? k - 1 : MOST_SMALLER;
    for (int64_t i = n_smaller; i > 0; i--) { /* down to one, in equal steps if there are many */
        int64_t fewer = 1 + (i - 1) * (k - 1) / n_smaller;
        probe_choice *c = &choices[n_chosen++];
        *c = (probe_choice){.probe = {.num_experts_per_tok = fewer}};
        snprintf(c->label, sizeof c->label, "%" PRId64 " active", fewer);
    }
    return n_chosen;
}
