/* demo_study.h - what a trained demo model can do, and which experts do it. */
#ifndef DSMOE_CLI_DEMO_STUDY_H
#define DSMOE_CLI_DEMO_STUDY_H

#include <stdbool.h>
#include <stdint.h>

#include "study/demo_corpus.h"
#include "study/demo_routing.h"

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
    demo_routing routing, untrained; /* the latter of the weights that training began with */
} demo_study;

/* Asks for greedy continuations of prompts that are not in the corpus, then looks where tokens go;
 * the examples for that are also written to a file as token ids. On failure the message is printed
 * and the exit code returned, else CLI_OK. Free in any case. */
int demo_study_run(const char *model_path, uint64_t seed, int n_threads, const char *ids_path,
                   demo_study *study);
void demo_study_free(demo_study *study);

#endif
