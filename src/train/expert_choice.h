/* expert_choice.h - which routed experts a task uses most, and expert_cfg.json, ESFT's file of them (arXiv
 * 2407.01906).
 *
 * An expert's score in a layer is the mean over tokens of its gate value (0 where it is not chosen), or of
 * chosen / K. In each layer the best experts are taken until their scores add up to a share; of equal
 * experts, the one with the lower number comes first. */
#ifndef DSMOE_TRAIN_EXPERT_CHOICE_H
#define DSMOE_TRAIN_EXPERT_CHOICE_H

#include "base/status.h"

typedef struct expert_scores {
    const dsmoe_config *config;
    dsmoe_expert_score kind;
    int64_t n_tokens;
    double *sums; /* [num_hidden_layers, n_routed_experts] */
} expert_scores;

/* A dsmoe_routing_fn whose context is the scores: adds what a layer chose. The caller counts the tokens. */
void expert_scores_add(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                       const dsmoe_routing *routing);

/* Writes expert_cfg.json into a folder, completely or not at all. */
dsmoe_status expert_choice_put(const char *folder, const dsmoe_config *config,
                               const unsigned char *chosen, dsmoe_error *error);
/* Parses the text of such a file; messages call it `source`. */
dsmoe_status expert_choice_parse(const char *text, size_t length, const char *source,
                                 const dsmoe_config *config, unsigned char *chosen,
                                 dsmoe_error *error);

#endif
