/* demo_corpus.h - the text of `dsmoe demo`: small tasks of clearly different kinds, made from a seed.
 *
 * Every example is a prompt and its right continuation. A hash of the prompt decides whether the example is
 * for training or for the examination, so no prompt of the examination is ever in the corpus. Graders work
 * out the answer from the prompt themselves. */
#ifndef DSMOE_STUDY_DEMO_CORPUS_H
#define DSMOE_STUDY_DEMO_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum { DEMO_N_KINDS = 7, DEMO_TEXT = 256 };

/* An example under construction. Text that does not fit is cut off. */
typedef struct demo_example {
    char text[DEMO_TEXT]; /* the prompt and what follows it */
    size_t length, prompt_length;
    uint64_t random; /* the state of the generator */
} demo_example;

typedef struct demo_kind {
    const char *name;   /* also the name of its folder */
    const char *task;   /* in a few words */
    int64_t n_examples; /* in the corpus; all kinds have about the same number of tokens */
    void (*make)(demo_example *example);
    /* Whether `answer` is a right and complete continuation of a prompt that `make` may make. */
    bool (*grade)(const char *prompt, const char *answer);
} demo_kind;
extern const demo_kind demo_kinds[DEMO_N_KINDS];

/* For `make`: draw a random number below n, append text, and end the prompt. */
int demo_below(demo_example *example, int n);
void demo_put(demo_example *example, const char *format, ...) __attribute__((format(printf, 2, 3)));
void demo_end_prompt(demo_example *example);

/* Makes an example for training or for the examination. The same arguments always give the same example. */
void demo_make(int kind, uint64_t seed, bool held_out, int64_t index, demo_example *example);
/* Makes n examples for the examination with different prompts; false if there are not enough. */
bool demo_exam(int kind, uint64_t seed, demo_example *examples, int n);

/* Copies the prompt of an example, for graders. */
void demo_prompt(const demo_example *example, char prompt[DEMO_TEXT]);

typedef struct demo_size {
    int64_t n_examples, n_bytes; /* bytes of text */
} demo_size;
/* Writes FOLDER/KIND/examples.jsonl, one example per line. The folder must not exist yet. */
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
