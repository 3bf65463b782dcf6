/* tasks.c - asks a model questions whose answers are known.
 *
 * Many questions run at the same time. Their common beginning, such as examples before every question, is
 * computed once: if another question is computing a page that a question begins with too, the question waits
 * for that page. A question with choices is a sequence of the tokens that the choices share, and a fork of it
 * for each choice. A question whose answer is written is a sequence that grows by the likeliest token until a
 * stop text, EOS or max_tokens. */
#include "study/tasks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine/engine.h"

enum {
    PLACES = TASK_MOST_CHOICES + 16, /* sequences at a time */
    ROOM = 8192, /* tokens in the KV cache, if the longest question needs no more */
};

/* The right answers by one measure. */
typedef struct tally {
    int64_t n, n_right;
} tally;

/* A running question. */
typedef struct asked {
    const task *task;
    dsmoe_sequence *sequence; /* NULL: the place is free */
    int64_t n_reused;
    /* for choices */
    dsmoe_sequence *forks[TASK_MOST_CHOICES];
    float *loss[TASK_MOST_CHOICES];
    /* for a written answer */
    int32_t next; /* after the question, the next token that goes through the model */
    int64_t n_written;
    char *text;
    size_t length, capacity, shown;
    bool ended;
} asked;

typedef struct asking {
    const dsmoe_tasks *tasks;
    const dsmoe_task_options *options;
    dsmoe_engine *engine;
    int64_t vocab_size;
    int64_t next, n_done; /* tasks */
    asked at[PLACES];
    int n_at;
    dsmoe_turn turns[PLACES];
    tally acc, acc_norm, acc_token, exact_match;
    int64_t n_run;
} asking;

/* ---- room ------------------------------------------------------------------------------------- */

static int64_t pages_of_choices(const task *t)
{
    int64_t n = engine_pages(t->n_ids);
    for (int64_t i = 0; i < t->n_choices; i++)
        n += engine_pages(t->n_ids % KV_PAGE + t->choices[i].n_ids);
    return n;
}

static int64_t pages_of_task(const task *t)
{
    return t->n_choices ? pages_of_choices(t) : engine_pages(t->n_ids + t->max_tokens);
}

/* The pages that the running questions will still take. */
static int64_t pages_promised(const asking *a)
{
    int64_t n = 0;
    for (int i = 0; i < a->n_at; i++)
        n += pages_of_task(a->at[i].task) - engine_pages(dsmoe_sequence_length(a->at[i].sequence));
    return n;
}

static int64_t places_of_task(const task *t) { return 1 + t->n_choices; }

static bool has_places(const asking *a, const task *t)
{
    int64_t n = places_of_task(t);
    for (int i = 0; i < a->n_at; i++) n += places_of_task(a->at[i].task);
    return n <= PLACES;
}

/* Whether another question is computing a page that this question begins with too. */
static bool should_wait(const asking *a, const task *t, int64_t n_reused)
{
    for (int i = 0; i < a->n_at; i++) {
        const task *other = a->at[i].task;
        int64_t n = 0, most = moe_min(t->n_ids, other->n_ids);
        if (dsmoe_sequence_length(a->at[i].sequence) >= other->n_ids) continue;
        while (n < most && n < n_reused + KV_PAGE && t->ids[n] == other->ids[n]) n++;
        if (n == n_reused + KV_PAGE) return true;
    }
    return false;
}

/* ---- beginning -------------------------------------------------------------------------------- */

/* Begins the next question, unless there is no room for it or it should wait. */
static dsmoe_status begin_next(asking *a, bool *begun, dsmoe_error *error)
{
    const task *t = &a->tasks->at[a->next];
    asked *q = &a->at[a->n_at];
    *begun = false;
    if (!has_places(a, t)) return DSMOE_OK;
    *q = (asked){.task = t};
    STATUS_TRY(dsmoe_sequence_begin(a->engine, t->ids, t->n_ids, &q->sequence, error));
    q->n_reused = dsmoe_sequence_length(q->sequence);
    dsmoe_engine_info info = dsmoe_engine_get_info(a->engine);
    int64_t needed = pages_of_task(t) - engine_pages(q->n_reused) + pages_promised(a);
    if (a->n_at > 0 &&
        (needed > info.n_pages - info.n_pages_used || should_wait(a, t, q->n_reused))) {
        dsmoe_sequence_free(q->sequence);
        return DSMOE_OK;
    }
    a->n_at++;
    a->next++;
    *begun = true;
    return DSMOE_OK;
}

/* Begins questions of one kind, with choices or without, as long as there is room. */
static dsmoe_status begin_some(asking *a, bool with_choices, dsmoe_error *error)
{
    bool begun = true;
    while (begun && a->next < a->tasks->n &&
           (a->tasks->at[a->next].n_choices > 0) == with_choices && a->n_at < PLACES)
        STATUS_TRY(begin_next(a, &begun, error));
    return DSMOE_OK;
}

/* Runs all turns through the model. A message about a question names its line. */
static dsmoe_status run_turns(asking *a, int n, const task *const *owners, dsmoe_error *error)
{
    dsmoe_error reason;
    if (n == 0 || dsmoe_engine_forward(a->engine, a->turns, n, &reason) == DSMOE_OK) {
        for (int i = 0; i < n; i++) a->n_run += a->turns[i].n_tokens;
        return DSMOE_OK;
    }
    for (int i = 0; i < n; i++)
        if (a->turns[i].error.status != DSMOE_OK)
            return status_fail(error, reason.status, "%s: line %zu: %s", a->tasks->path,
                               owners[i]->line, a->turns[i].error.message);
    return status_fail(error, reason.status, "%s", reason.message);
}

/* ---- results ---------------------------------------------------------------------------------- */

static void count(tally *t, bool right)
{
    t->n++;
    t->n_right += right;
}

static void tell(const asking *a, const dsmoe_task_result *result)
{
    if (a->options->visit) a->options->visit(a->options->context, result);
}

/* Removes a question. The last question takes its place. */
static void leave(asking *a, asked *q)
{
    for (int64_t i = 0; i < q->task->n_choices; i++) {
        dsmoe_sequence_free(q->forks[i]);
        free(q->loss[i]);
    }
    dsmoe_sequence_free(q->sequence);
    free(q->text);
    *q = a->at[--a->n_at];
}

/* Asked by the engine before each layer, so that a long pass can be stopped. */
static bool should_stop(void *context)
{
    const asking *a = context;
    const dsmoe_task_options *o = a->options;
    return o->progress && !o->progress(o->context, (double)a->n_done, (double)a->tasks->n);
}

/* ---- choices ---------------------------------------------------------------------------------- */

/* The index of the highest value; the first of equals. */
static int64_t best_of(const double *values, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

static void judge_choices(asking *a, const asked *q)
{
    const task *t = q->task;
    double sums[TASK_MOST_CHOICES], by_character[TASK_MOST_CHOICES], by_token[TASK_MOST_CHOICES];
    for (int64_t c = 0; c < t->n_choices; c++) {
        sums[c] = 0;
        for (int64_t i = 0; i < t->choices[c].n_scored; i++) sums[c] -= (double)q->loss[c][i];
        by_character[c] = sums[c] / (double)t->choices[c].n_characters;
        by_token[c] = sums[c] / (double)t->choices[c].n_scored;
    }
    dsmoe_task_result result = {.line = (int64_t)t->line,
                                .n_choices = t->n_choices,
                                .answer = t->answer,
                                .chosen = best_of(sums, t->n_choices),
                                .chosen_by_character = best_of(by_character, t->n_choices),
                                .chosen_by_token = best_of(by_token, t->n_choices),
                                .log_probabilities = sums};
    result.right = result.chosen == t->answer;
    count(&a->acc, result.right);
    count(&a->acc_norm, result.chosen_by_character == t->answer);
    count(&a->acc_token, result.chosen_by_token == t->answer);
    tell(a, &result);
    a->n_done++;
}

/* Runs the tokens that the choices of each question share. */
static dsmoe_status run_questions(asking *a, dsmoe_error *error)
{
    const task *owners[PLACES] = {0};
    int n = 0;
    for (int i = 0; i < a->n_at; i++) {
        const task *t = a->at[i].task;
        int64_t done = a->at[i].n_reused;
        if (done == t->n_ids) continue;
        owners[n] = t;
        a->turns[n++] = (dsmoe_turn){
            .sequence = a->at[i].sequence, .tokens = t->ids + done, .n_tokens = t->n_ids - done};
    }
    return run_turns(a, n, owners, error);
}

/* Makes the fork of a choice and its turn. */
static dsmoe_status fork_choice(asked *q, int64_t c, dsmoe_turn *turn, dsmoe_error *error)
{
    const task_choice *choice = &q->task->choices[c];
    q->loss[c] = malloc((size_t)choice->n_scored * sizeof *q->loss[c]);
    if (!q->loss[c])
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for the choices");
    STATUS_TRY(dsmoe_sequence_fork(q->sequence, q->task->n_ids, &q->forks[c], error));
    *turn = (dsmoe_turn){.sequence = q->forks[c],
                         .tokens = choice->ids,
                         .n_tokens = choice->n_ids - 1,
                         .n_logits = choice->n_scored,
                         .targets = choice->ids + choice->n_ids - choice->n_scored,
                         .loss = q->loss[c]};
    return DSMOE_OK;
}

static dsmoe_status run_choices(asking *a, dsmoe_error *error)
{
    const task *owners[PLACES] = {0};
    int n = 0;
    for (int i = 0; i < a->n_at; i++)
        for (int64_t c = 0; c < a->at[i].task->n_choices; c++, n++) {
            owners[n] = a->at[i].task;
            STATUS_TRY(fork_choice(&a->at[i], c, &a->turns[n], error));
        }
    return run_turns(a, n, owners, error);
}

static dsmoe_status ask_choices(asking *a, dsmoe_error *error)
{
    STATUS_TRY(begin_some(a, true, error));
    STATUS_TRY(run_questions(a, error));
    STATUS_TRY(run_choices(a, error));
    for (int i = 0; i < a->n_at; i++) judge_choices(a, &a->at[i]);
    while (a->n_at > 0) leave(a, &a->at[a->n_at - 1]);
    return DSMOE_OK;
}

/* ---- written answers -------------------------------------------------------------------------- */

typedef struct pick {
    asked *q;
    int64_t vocab_size;
} pick;

/* Picks the likeliest token; the lowest id of equals. */
static void pick_token(void *context, int64_t row, const float *logits)
{
    const pick *p = context;
    (void)row;
    p->q->next = 0;
    for (int32_t i = 1; i < p->vocab_size; i++)
        if (logits[i] > logits[p->q->next]) p->q->next = i;
}

static bool text_add(asked *q, const char *piece, size_t size)
{
    if (q->length + size + 1 > q->capacity) {
        size_t capacity = 2 * q->capacity + size + 64;
        char *grown = realloc(q->text, capacity);
        if (!grown) return false;
        q->text = grown;
        q->capacity = capacity;
    }
    memcpy(q->text + q->length, piece, size);
    q->length += size;
    q->text[q->length] = '\0';
    return true;
}

/* Appends the picked token to the text, and finds out whether the text has ended. */
static dsmoe_status write_token(const asking *a, asked *q, dsmoe_error *error)
{
    const dsmoe_tokenizer *tokenizer = a->tasks->tokenizer;
    const task *t = q->task;
    size_t size = 0;
    int stopped;
    const char *piece = dsmoe_tokenizer_piece(tokenizer, q->next, &size);
    bool is_end = !piece || q->next == dsmoe_tokenizer_eos(tokenizer);
    if (!text_add(q, is_end ? "" : piece, is_end ? 0 : size))
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for an answer");
    q->shown = dsmoe_stop_find(q->text, q->length, q->shown, (const char *const *)t->stops,
                               t->n_stops, &stopped);
    if (stopped >= 0) q->text[q->shown] = '\0';
    q->ended = is_end || stopped >= 0 || ++q->n_written == t->max_tokens;
    return DSMOE_OK;
}

static void judge_written(asking *a, const asked *q)
{
    dsmoe_task_result result = {
        .line = (int64_t)q->task->line, .text = q->text, .right = task_accepts(q->task, q->text)};
    count(&a->exact_match, result.right);
    tell(a, &result);
    a->n_done++;
}

/* Writes one more token of every answer. */
static dsmoe_status write_on(asking *a, dsmoe_error *error)
{
    const task *owners[PLACES] = {0};
    pick picks[PLACES];
    int n = a->n_at;
    for (int i = 0; i < n; i++) {
        asked *q = &a->at[i];
        int64_t length = dsmoe_sequence_length(q->sequence);
        bool is_question = length < q->task->n_ids;
        owners[i] = q->task;
        picks[i] = (pick){q, a->vocab_size};
        a->turns[i] = (dsmoe_turn){.sequence = q->sequence,
                                   .tokens = is_question ? q->task->ids + length : &q->next,
                                   .n_tokens = is_question ? q->task->n_ids - length : 1,
                                   .n_logits = 1,
                                   .visit = pick_token,
                                   .context = &picks[i]};
    }
    STATUS_TRY(run_turns(a, n, owners, error));
    for (int i = 0; i < n; i++) STATUS_TRY(write_token(a, &a->at[i], error));
    return DSMOE_OK;
}

static dsmoe_status ask_written(asking *a, dsmoe_error *error)
{
    STATUS_TRY(begin_some(a, false, error));
    while (a->n_at > 0) {
        STATUS_TRY(write_on(a, error));
        for (int i = a->n_at - 1; i >= 0; i--)
            if (a->at[i].ended) {
                judge_written(a, &a->at[i]);
                leave(a, &a->at[i]);
            }
        STATUS_TRY(begin_some(a, false, error));
    }
    return DSMOE_OK;
}

/* ---- all questions ---------------------------------------------------------------------------- */

static dsmoe_task_score score_of(tally t)
{
    double n = (double)t.n, mean = t.n > 0 ? (double)t.n_right / n : 0;
    return (dsmoe_task_score){t.n, mean, t.n > 1 ? sqrt(mean * (1 - mean) / (n - 1)) : 0};
}

static dsmoe_status open_engine(asking *a, const dsmoe_model *model, dsmoe_error *error)
{
    int64_t most = ROOM / KV_PAGE;
    for (int64_t i = 0; i < a->tasks->n; i++)
        if (pages_of_task(&a->tasks->at[i]) > most) most = pages_of_task(&a->tasks->at[i]);
    dsmoe_engine_options options = {.n_ctx = a->tasks->longest + 1,
                                    .n_sequences = PLACES,
                                    .n_kv = most * KV_PAGE,
                                    .n_batch = 512,
                                    .n_threads = a->options->n_threads,
                                    .kv_type = a->options->kv_type,
                                    .adapters = a->options->adapters,
                                    .adapter_scales = a->options->adapter_scales,
                                    .n_adapters = a->options->n_adapters,
                                    .stop = should_stop,
                                    .stop_context = a};
    return dsmoe_engine_create(model, &options, &a->engine, error);
}

dsmoe_status dsmoe_tasks_run(const dsmoe_tasks *tasks, const dsmoe_model *model,
                             const dsmoe_task_options *options, dsmoe_task_scores *scores,
                             dsmoe_error *error)
{
    static const dsmoe_task_options none = {0};
    if (!tasks || !model || !scores)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "tasks, a model and a place for the scores are needed");
    asking *a = calloc(1, sizeof *a);
    if (!a) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for the questions");
    *a = (asking){.tasks = tasks,
                  .options = options ? options : &none,
                  .vocab_size = dsmoe_model_config(model)->vocab_size};
    dsmoe_status status = open_engine(a, model, error);
    while (status == DSMOE_OK && a->next < tasks->n)
        status = (tasks->at[a->next].n_choices ? ask_choices : ask_written)(a, error);
    *scores = (dsmoe_task_scores){.acc = score_of(a->acc),
                                  .acc_norm = score_of(a->acc_norm),
                                  .acc_token = score_of(a->acc_token),
                                  .exact_match = score_of(a->exact_match),
                                  .n_run = a->n_run};
    if (a->engine) scores->n_reused = dsmoe_engine_get_info(a->engine).n_tokens_reused;
    while (a->n_at > 0) leave(a, &a->at[a->n_at - 1]);
    dsmoe_engine_free(a->engine);
    free(a);
    return status;
}
