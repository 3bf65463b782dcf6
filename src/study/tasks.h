/* tasks.h - questions with known answers, as tokens: read from JSON lines, asked by tasks.c. */
#ifndef DSMOE_STUDY_TASKS_H
#define DSMOE_STUDY_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

enum { TASK_MOST_CHOICES = 64, TASK_MOST_TEXTS = 16 };

/* From the last token that all choices share on, which is what its first own token is predicted from. */
typedef struct task_choice {
    int32_t *ids;
    int64_t n_ids;    /* at least 2 */
    int64_t n_scored; /* the last of them: the choice's own */
    int64_t n_characters;
} task_choice;

/* How what the model wrote is compared. */
typedef enum task_match { TASK_EXACT, TASK_IGNORE_CASE, TASK_NUMBER } task_match;

typedef struct task {
    size_t line;
    int32_t
        *ids; /* [n_ids] of the question: with choices all that they share, but its last token */
    int64_t n_ids;
    task_choice *choices; /* [n_choices] */
    int64_t n_choices;    /* 0: the answer is to be written */
    int64_t answer;       /* the right choice */
    char *accepted[TASK_MOST_TEXTS], *stops[TASK_MOST_TEXTS];
    int n_accepted, n_stops;
    char *after; /* only what follows this text counts; NULL: all of it does */
    task_match match;
    int64_t max_tokens; /* to write at most */
} task;

struct dsmoe_tasks {
    char *path; /* for messages */
    const dsmoe_tokenizer *tokenizer;
    task *at; /* [n] */
    int64_t n, capacity;
    int64_t longest; /* tokens of a question with its answer */
    int64_t n_ctx;
};

/* The bytes of a file; `path` names it in messages. */
dsmoe_status tasks_parse(const char *bytes, size_t length, const char *path,
                         const dsmoe_tokenizer *tokenizer, int64_t n_ctx, dsmoe_tasks **tasks,
                         dsmoe_error *error);

/* Whether what was written is one of the answers that the task accepts. */
bool task_accepts(const task *t, const char *text);

#endif
