/* demo_corpus.h - the text of `dsmoe demo`: small tasks of plainly different kinds, from a seed.
 *
 * Every example is a prompt and the continuation that is right for it. The hash of the prompt decides
 * whether an example may be learned from or is kept for the examination, so that no prompt of the
 * latter is ever in the corpus. Graders look at the prompt and work the answer out themselves. */
#ifndef DSMOE_STUDY_DEMO_CORPUS_H
#define DSMOE_STUDY_DEMO_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum { DEMO_N_KINDS = 7, DEMO_TEXT = 256 };

/* Text that is being put together, cut short rather than too long; a random number beside it. */
typedef struct demo_example {
    char text[DEMO_TEXT]; /* the prompt and what follows it */
    size_t length, prompt_length;
    uint64_t random; /* the state of the generator */
} demo_example;

typedef struct demo_kind {
    const char *name;   /* of its folder as well */
    const char *task;   /* in a few words */
    int64_t n_examples; /* of the corpus: about as many tokens for each kind */
    void (*make)(demo_example *example);
    /* Whether `answer` is a right and complete continuation of a prompt that `make` may make. */
    bool (*grade)(const char *prompt, const char *answer);
} demo_kind;
extern const demo_kind demo_kinds[DEMO_N_KINDS];

/* For `make`: a number below n, text after the text so far, and the end of the prompt. */
int demo_below(demo_example *example, int n);
void demo_put(demo_example *example, const char *format, ...) __attribute__((format(printf, 2, 3)));
void demo_end_prompt(demo_example *example);

/* An example to learn from, or one for the examination: a pure function of all that is given. */
void demo_make(int kind, uint64_t seed, bool held_out, int64_t index, demo_example *example);
/* That many examples for the examination with different prompts; false if there are not so many. */
bool demo_exam(int kind, uint64_t seed, demo_example *examples, int n);

/* The prompt into `prompt`, for graders. */
void demo_prompt(const demo_example *example, char prompt[DEMO_TEXT]);

typedef struct demo_size {
    int64_t n_examples, n_bytes; /* bytes of text */
} demo_size;
/* FOLDER/KIND/examples.jsonl, an example a line; the folder must not be there yet. */
dsmoe_status demo_corpus_write(const char *folder, uint64_t seed, demo_size *size,
                               dsmoe_error *error);

/* ---- the kinds: demo_tasks.c and demo_texts.c ------------------------------------------------ */

void demo_make_sum(demo_example *example);
bool demo_grade_sum(const char *prompt, const char *answer);
void demo_make_counting(demo_example *example);
bool demo_grade_counting(const char *prompt, const char *answer);
void demo_make_brackets(demo_example *example);
bool demo_grade_brackets(const char *prompt, const char *answer);
void demo_make_sorting(demo_example *example);
bool demo_grade_sorting(const char *prompt, const char *answer);
void demo_make_date(demo_example *example);
bool demo_grade_date(const char *prompt, const char *answer);
void demo_make_record(demo_example *example);
bool demo_grade_record(const char *prompt, const char *answer);
void demo_make_story(demo_example *example);
bool demo_grade_story(const char *prompt, const char *answer);

#endif
