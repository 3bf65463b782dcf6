/* dsmoe/tasks.h - questions with known answers. */
#ifndef DSMOE_TASKS_H
#define DSMOE_TASKS_H

#include "adapter.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Questions from a file of JSON lines, each with choices or with an answer that the model must write; see
 * docs/tasks.md. Messages name the file and the line. `n_ctx` is the most tokens that a question and its
 * answer may have together. */
typedef struct dsmoe_tasks dsmoe_tasks;
DSMOE_API dsmoe_status dsmoe_tasks_read(const char *path, const dsmoe_tokenizer *tokenizer,
                                        int64_t n_ctx, dsmoe_tasks **tasks, dsmoe_error *error);
DSMOE_API void dsmoe_tasks_free(dsmoe_tasks *tasks);
DSMOE_API int64_t dsmoe_tasks_count(const dsmoe_tasks *tasks);

/* The result of one question. */
typedef struct dsmoe_task_result {
    int64_t line; /* in the file, from 1 */
    int64_t n_choices;
    /* With choices: the right one; and the one with the highest log probability: of all its tokens, by
     * character, by token. */
    int64_t answer, chosen, chosen_by_character, chosen_by_token;
    const double *log_probabilities; /* [n_choices] of all tokens */
    const char *text;                /* what the model wrote, if there are no choices */
    bool right;                      /* whether that text, or `chosen`, is right */
} dsmoe_task_result;

/* A mean over n questions and its standard error, the deviation over sqrt(n - 1). */
typedef struct dsmoe_task_score {
    int64_t n;
    double mean, error;
} dsmoe_task_score;
typedef struct dsmoe_task_scores {
    dsmoe_task_score acc, acc_norm; /* `chosen` is right; chosen_by_character is right */
    dsmoe_task_score acc_token;     /* chosen_by_token is right */
    dsmoe_task_score exact_match;   /* the written text is right */
    int64_t n_run;                  /* tokens that went through the model */
    int64_t n_reused;               /* tokens found in pages */
} dsmoe_task_scores;

typedef struct dsmoe_task_options {
    int n_threads; /* 0: all processors */
    dsmoe_dtype kv_type;
    const dsmoe_adapter *const *adapters; /* as in dsmoe_engine_options */
    const double *adapter_scales;
    int n_adapters;
    dsmoe_progress_fn *progress; /* may be NULL; counts questions */
    /* Called with each result once it is known; may be NULL. */
    void (*visit)(void *context, const dsmoe_task_result *result);
    void *context;
} dsmoe_task_options;
/* The tokenizer must be the model's. If `progress` stops the work (DSMOE_ERROR_STOPPED), *scores has what is
 * known so far. `options` may be NULL. */
DSMOE_API dsmoe_status dsmoe_tasks_run(const dsmoe_tasks *tasks, const dsmoe_model *model,
                                       const dsmoe_task_options *options, dsmoe_task_scores *scores,
                                       dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
