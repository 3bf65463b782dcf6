/* demo_routing.h - which experts the tokens of each kind of the demo's text choose, in numbers. */
#ifndef DSMOE_STUDY_DEMO_ROUTING_H
#define DSMOE_STUDY_DEMO_ROUTING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "study/demo_corpus.h"
#include "dsmoe.h"

typedef struct demo_routing {
    int64_t n_layers; /* MoE layers */
    int64_t n_experts, k, vocab_size;
    int64_t *layers;    /* [n_layers] their places in the model */
    int64_t *counts;    /* [n_layers, DEMO_N_KINDS, n_experts]: choices of the tokens of a kind */
    uint32_t *by_token; /* [n_layers, DEMO_N_KINDS, vocab_size, n_experts]: of each token */
} demo_routing;

typedef struct demo_routing_options {
    uint64_t seed; /* of the corpus */
    int n_threads;
    bool (*stop)(void *context); /* may be NULL; true ends it early */
    void *context;
    FILE *ids; /* receives the examples as token ids, one document per line; may be NULL */
} demo_routing_options;

/* Runs the examples that would come next in the corpus. Call demo_routing_free in any case. */
dsmoe_status demo_routing_collect(const dsmoe_model *model, const dsmoe_tokenizer *tokenizer,
                                  const demo_routing_options *options, demo_routing *r,
                                  dsmoe_error *error);
void demo_routing_free(demo_routing *r);

/* How often a kind chooses an expert in the layer at `place`, divided by the mean over the experts. */
double demo_relative_load(const demo_routing *r, int64_t place, int kind, int64_t expert);
/* How often one can guess the kind of a token from one expert that the token chose. The guess is the kind
 * that sends most to the expert; all kinds are equally frequent. 1 / DEMO_N_KINDS by chance, 1 at best. */
double demo_guess_rate(const demo_routing *r, int64_t place);
/* The guess rate for tokens that several kinds have in common (digits, commas, names), if the guess may use
 * the token as well. The expert tells more than the token alone only if the gate sees the kind. The kinds
 * that have a token count equally; a token counts as often as it occurs. `chance` is the rate of a guess from
 * the token alone. */
double demo_shared_guess_rate(const demo_routing *r, int64_t place, double *chance);
/* The share of a kind's choices that go to the k experts it uses most; the mean over the kinds. */
double demo_concentration(const demo_routing *r, int64_t place);
/* The place of the layer with the highest guess rate. */
int64_t demo_best_layer(const demo_routing *r);
/* Sorts the experts of a layer by owner, the kind that uses an expert most, and by falling use by that kind.
 * order is [n_experts]; owner, [n_experts], receives the owner of each expert. */
void demo_order_experts(const demo_routing *r, int64_t place, int32_t *order, int *owner);

#endif
