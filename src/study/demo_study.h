/* demo_study.h - what a trained demo model can do, and which experts do it. */
#ifndef DSMOE_STUDY_DEMO_STUDY_H
#define DSMOE_STUDY_DEMO_STUDY_H

#include <stdbool.h>
#include <stdint.h>

#include "study/demo_corpus.h"
#include "study/demo_routing.h"

enum { DEMO_EXAM = 40, DEMO_ANSWER = 512 };

typedef struct demo_answer {
    char prompt[DEMO_TEXT], text[DEMO_ANSWER];
    bool given; /* there is such an answer */
} demo_answer;

typedef struct demo_score {
    int n_asked, n_right;
    demo_answer right, wrong; /* the first right and the first wrong one */
} demo_score;

typedef struct demo_study {
    demo_score scores[DEMO_N_KINDS];
    demo_routing routing, untrained; /* untrained: with the weights that training began with */
} demo_study;

typedef struct demo_study_options {
    uint64_t seed; /* of the corpus and of the model's first weights */
    int n_threads;
    const char *ids_path; /* receives the examples whose routing is counted, as token ids */
    dsmoe_progress_fn
        *progress; /* may be NULL; counts prompts. False ends with DSMOE_ERROR_STOPPED */
    void *context;
} demo_study_options;

/* Asks for greedy continuations of prompts that are not in the corpus, then counts which experts tokens
 * choose. Call demo_study_free in any case. */
dsmoe_status demo_study_run(const char *model_path, const demo_study_options *options,
                            demo_study *study, dsmoe_error *error);
void demo_study_free(demo_study *study);

#endif
