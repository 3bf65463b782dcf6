/* demo_study.h - what a trained demo model can do, and which experts do it. */
#ifndef DSMOE_CLI_DEMO_STUDY_H
#define DSMOE_CLI_DEMO_STUDY_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/demo_corpus.h"
#include "dsmoe.h"

enum { DEMO_EXAM = 40, DEMO_ANSWER = 512 };

typedef struct demo_answer {
    char prompt[DEMO_TEXT], text[DEMO_ANSWER];
    bool given; /* there is one */
} demo_answer;

typedef struct demo_score {
    int n_asked, n_right;
    demo_answer right, wrong; /* the first of each */
} demo_score;

typedef struct demo_study {
    demo_score scores[DEMO_N_KINDS];
    int64_t n_layers; /* MoE layers */
    int64_t n_experts, k;
    int64_t *layers; /* [n_layers] their places in the model */
    int64_t *counts; /* [n_layers, DEMO_N_KINDS, n_experts]: choices of the tokens of a kind */
} demo_study;

/* Asks for greedy continuations of prompts that are not in the corpus, and runs whole examples that
 * are not either to see where their tokens go. On failure the message is printed and the exit code
 * returned, else CLI_OK. Free in any case. */
int demo_study_run(const char *model_path, uint64_t seed, int n_threads, demo_study *study);
void demo_study_free(demo_study *study);

/* A kind's choices of an expert in the layer at `place`, over those of an expert that is used like all others. */
double demo_relative_load(const demo_study *study, int64_t place, int kind, int64_t expert);
/* How often one is right who is told one expert that a token chose and guesses the kind that sends
 * most to it, all kinds being equally frequent: 1 / DEMO_N_KINDS by chance, 1 at best. */
double demo_guess_rate(const demo_study *study, int64_t place);
/* Share of a kind's choices that go to the k experts it uses most, the mean over the kinds. */
double demo_concentration(const demo_study *study, int64_t place);
/* The place of the layer with the highest guess rate. */
int64_t demo_best_layer(const demo_study *study);
/* The experts of a layer: those of the first kind first, which are the ones that no other kind uses
 * more, by falling use, and so on. order is [n_experts], owner the kind of each expert. */
void demo_order_experts(const demo_study *study, int64_t place, int32_t *order, int *owner);

#endif
