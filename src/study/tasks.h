/* tasks.h - questions with known answers, as tokens: read from JSON lines, asked by tasks.c. */
#ifndef DSMOE_STUDY_TASKS_H
#define DSMOE_STUDY_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum { TASK_MOST_CHOICES = 64, TASK_MOST_TEXTS = 16 };

/* A choice begins with the last token that all choices share, from which its first own token is predicted. */
typedef struct task_choice {
    int32_t *ids;
    int64_t n_ids;    /* at least 2 */
    int64_t n_scored; /* the choice's own tokens, at the end of ids */
    int64_t n_characters;
} task_choice;

/* How the text that the model wrote is compared with the answers. */
typedef enum task_match { TASK_EXACT, TASK_IGNORE_CASE, TASK_NUMBER } task_match;

typedef struct task {
    size_t line;
    int32_t *ids; /* [n_ids] the question; with choices, all tokens that they share but the last */
    int64_t n_ids;
    task_choice *choices; /* [n_choices] */
    int64_t n_choices;    /* 0: the model writes the answer */
    int64_t answer;       /* the right choice */
    char *accepted[TASK_MOST_TEXTS], *stops[TASK_MOST_TEXTS];
    int n_accepted, n_stops;
    char *after; /* only what follows this text counts; NULL: everything counts */
    task_match match;
    int64_t max_tokens; /* of a written answer */
} task;

struct dsmoe_tasks {
    char *path; /* for messages */
    const dsmoe_tokenizer *tokenizer;
    task *at; /* [n] */
    int64_t n, capacity;
    int64_t longest; /* the most tokens of a question with its answer */
    int64_t n_ctx;
};

/* Parses the bytes of a file; `path` names it in messages. */
dsmoe_status tasks_parse(const char *bytes, size_t length, const char *path,
                         const dsmoe_tokenizer *tokenizer, int64_t n_ctx, dsmoe_tasks **tasks,
                         dsmoe_error *error);

/* Whether what was written is one of the answers that the task accepts. */
bool task_accepts(const task *t, const char *text);

#endif
