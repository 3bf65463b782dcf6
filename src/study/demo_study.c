/* demo_study.c - the examination of a demo model, and a look at its gates. */
#include "study/demo_study.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { N_CTX = 128, MAX_ANSWER_TOKENS = 48 };

typedef struct student {
    const demo_study_options *options;
    dsmoe_model *model;
    dsmoe_tokenizer *tokenizer;
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    dsmoe_sampler *sampler;
    float *logits;
    int kind; /* of the questions that are asked */
    int n_done;
    bool is_stopped;
} student;

static bool goes_on(student *s)
{
    const demo_study_options *o = s->options;
    if (o->progress && !s->is_stopped)
        s->is_stopped = !o->progress(o->context, s->n_done, DEMO_N_KINDS * DEMO_EXAM);
    return !s->is_stopped;
}

static bool is_stopped(void *context) { return !goes_on(context); }

static dsmoe_status student_open(student *s, const char *path, dsmoe_error *error)
{
    dsmoe_engine_options engine = {
        .n_ctx = N_CTX, .n_batch = N_CTX, .n_threads = s->options->n_threads};
    dsmoe_sampler_options greedy = dsmoe_sampler_options_default();
    greedy.temperature = 0;
    STATUS_TRY(dsmoe_model_open(path, &s->model, error));
    STATUS_TRY(dsmoe_tokenizer_open(path, &s->tokenizer, error));
    STATUS_TRY(dsmoe_engine_create(s->model, &engine, &s->engine, error));
    STATUS_TRY(dsmoe_sequence_create(s->engine, &s->sequence, error));
    int64_t vocab_size = dsmoe_model_config(s->model)->vocab_size;
    s->logits = malloc((size_t)vocab_size * sizeof *s->logits);
    if (!s->logits)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to ask the model");
    return dsmoe_sampler_create(&greedy, vocab_size, &s->sampler, error);
}

static void student_close(student *s)
{
    dsmoe_sampler_free(s->sampler);
    dsmoe_engine_free(s->engine);
    dsmoe_tokenizer_free(s->tokenizer);
    dsmoe_model_free(s->model);
    free(s->logits);
}

/* ---- the examination ------------------------------------------------------------------------- */

/* Reads the prompt into an empty sequence, as `dsmoe generate` does. */
static dsmoe_status read_prompt(student *s, const demo_example *example, dsmoe_error *error)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    dsmoe_status status = dsmoe_sequence_rewind(s->sequence, 0, error);
    if (status == DSMOE_OK)
        status = dsmoe_tokenizer_encode(s->tokenizer, example->text, example->prompt_length,
                                        DSMOE_ENCODE_BOS, &ids, &n_ids, error);
    if (status == DSMOE_OK)
        status = dsmoe_sequence_append(s->sequence, ids, (int64_t)n_ids, s->logits, error);
    free(ids);
    return status;
}

/* Generates the likeliest continuation until the model ends the text. One that does not end is cut off. */
static dsmoe_status answer(student *s, char text[DEMO_ANSWER], dsmoe_error *error)
{
    int32_t eos = dsmoe_tokenizer_eos(s->tokenizer), token;
    size_t used = 0;
    for (int i = 0; i < MAX_ANSWER_TOKENS; i++) {
        dsmoe_status status = dsmoe_sampler_pick(s->sampler, s->logits, &token, error);
        if (status != DSMOE_OK) return status;
        size_t length = 0;
        const char *piece = dsmoe_tokenizer_piece(s->tokenizer, token, &length);
        if (token == eos || !piece || used + length >= DEMO_ANSWER) break;
        memcpy(text + used, piece, length);
        used += length;
        if (dsmoe_sequence_length(s->sequence) == N_CTX) break;
        status = dsmoe_sequence_append(s->sequence, &token, 1, s->logits, error);
        if (status != DSMOE_OK) return status;
    }
    text[used] = '\0';
    return DSMOE_OK;
}

static dsmoe_status ask(student *s, const demo_example *example, demo_score *score,
                        dsmoe_error *error)
{
    demo_answer given = {.given = true};
    demo_prompt(example, given.prompt);
    dsmoe_status status = read_prompt(s, example, error);
    if (status == DSMOE_OK) status = answer(s, given.text, error);
    if (status != DSMOE_OK) return status;
    bool right = demo_kinds[s->kind].grade(given.prompt, given.text);
    demo_answer *kept = right ? &score->right : &score->wrong;
    if (!kept->given) *kept = given;
    score->n_asked++;
    score->n_right += right;
    return DSMOE_OK;
}

static dsmoe_status ask_kind(student *s, demo_study *study, dsmoe_error *error)
{
    demo_example exam[DEMO_EXAM];
    if (!demo_exam(s->kind, s->options->seed, exam, DEMO_EXAM))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "too few prompts for this seed");
    for (int i = 0; i < DEMO_EXAM && goes_on(s); i++, s->n_done++)
        STATUS_TRY(ask(s, &exam[i], &study->scores[s->kind], error));
    return DSMOE_OK;
}

/* ---- the gates ------------------------------------------------------------------------------- */

/* Counts the routing of the model as it was before the first step: a trainer with the same seed makes it. */
static dsmoe_status watch_untrained(student *s, demo_study *study, dsmoe_error *error)
{
    const demo_study_options *o = s->options;
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = 1;
    options.sequence_length = 1; /* the trainer will not train */
    options.n_threads = o->n_threads;
    dsmoe_trainer *trainer;
    STATUS_TRY(dsmoe_trainer_create(dsmoe_model_config(s->model), &options, &trainer, error));
    dsmoe_trainer_init(trainer, o->seed);
    const demo_routing_options routing = {o->seed, o->n_threads, is_stopped, s, NULL};
    dsmoe_status status = demo_routing_collect(dsmoe_trainer_model(trainer), s->tokenizer, &routing,
                                               &study->untrained, error);
    dsmoe_trainer_free(trainer);
    return status;
}

static dsmoe_status watch(student *s, demo_study *study, dsmoe_error *error)
{
    const demo_study_options *o = s->options;
    FILE *ids = fopen(o->ids_path, "w");
    if (!ids)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot create the file: %s", o->ids_path,
                           strerror(errno));
    const demo_routing_options routing = {o->seed, o->n_threads, is_stopped, s, ids};
    dsmoe_status status =
        demo_routing_collect(s->model, s->tokenizer, &routing, &study->routing, error);
    bool written = !ferror(ids);
    written = fclose(ids) == 0 && written;
    STATUS_TRY(status);
    if (written) return watch_untrained(s, study, error);
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot write the file", o->ids_path);
}

/* ---- interface ------------------------------------------------------------------------------- */

dsmoe_status demo_study_run(const char *model_path, const demo_study_options *options,
                            demo_study *study, dsmoe_error *error)
{
    student s = {.options = options};
    memset(study, 0, sizeof *study);
    dsmoe_status status = student_open(&s, model_path, error);
    for (; s.kind < DEMO_N_KINDS && status == DSMOE_OK; s.kind++)
        status = ask_kind(&s, study, error);
    if (status == DSMOE_OK && goes_on(&s)) status = watch(&s, study, error);
    student_close(&s);
    if (status != DSMOE_OK || !s.is_stopped) return status;
    return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
}

void demo_study_free(demo_study *study)
{
    demo_routing_free(&study->routing);
    demo_routing_free(&study->untrained);
}
