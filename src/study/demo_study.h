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

typedef struct demo_study_options {
    uint64_t seed; /* of the corpus and of the model's first weights */
    int n_threads;
    const char *ids_path; /* receives the examples of the second part as token ids */
    dsmoe_progress_fn
        *progress; /* may be NULL; counts prompts. False ends with DSMOE_ERROR_STOPPED */
    void *context;
} demo_study_options;

/* Asks for greedy continuations of prompts that are not in the corpus, then looks where tokens go. Free in any
 * case. */
dsmoe_status demo_study_run(const char *model_path, const demo_study_options *options,
                            demo_study *study, dsmoe_error *error);
void demo_study_free(demo_study *study);

#endif
