/* demo_study.c - the examination of a demo model, and the count of what its gates chose. */
#include "cli/demo_study.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"

enum { N_CTX = 256, MAX_ANSWER_TOKENS = 48 };

typedef struct student {
    demo_study *study;
    dsmoe_model *model;
    dsmoe_tokenizer *tokenizer;
    dsmoe_session *session;
    dsmoe_sampler *sampler;
    float *logits;
    int64_t *place; /* [num_hidden_layers] among the MoE layers */
    int kind;       /* of what is running */
    progress bar;
    int n_done;
} student;

/* ---- the numbers ----------------------------------------------------------------------------- */

static const int64_t *counts_of(const demo_study *study, int64_t place, int kind)
{
    return study->counts + (place * DEMO_N_KINDS + kind) * study->n_experts;
}

double demo_relative_load(const demo_study *study, int64_t place, int kind, int64_t expert)
{
    const int64_t *counts = counts_of(study, place, kind);
    int64_t sum = 0;
    for (int64_t e = 0; e < study->n_experts; e++) sum += counts[e];
    return sum ? (double)counts[expert] * (double)study->n_experts / (double)sum : 0;
}

/* The kind that sends the largest share of its choices to an expert. */
static int owner_of(const demo_study *study, int64_t place, int64_t expert)
{
    int best = 0;
    for (int kind = 1; kind < DEMO_N_KINDS; kind++)
        if (demo_relative_load(study, place, kind, expert) >
            demo_relative_load(study, place, best, expert))
            best = kind;
    return best;
}

double demo_guess_rate(const demo_study *study, int64_t place)
{
    double sum = 0;
    for (int64_t e = 0; e < study->n_experts; e++)
        sum += demo_relative_load(study, place, owner_of(study, place, e), e);
    return sum / (double)study->n_experts / DEMO_N_KINDS;
}

static int compare_loads(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

double demo_concentration(const demo_study *study, int64_t place)
{
    double sum = 0, *loads = malloc((size_t)study->n_experts * sizeof *loads);
    if (!loads) return 0;
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        for (int64_t e = 0; e < study->n_experts; e++)
            loads[e] = demo_relative_load(study, place, kind, e);
        qsort(loads, (size_t)study->n_experts, sizeof *loads, compare_loads);
        for (int64_t i = 0; i < study->k; i++) sum += loads[i];
    }
    free(loads);
    return sum / (double)study->n_experts / DEMO_N_KINDS;
}

int64_t demo_best_layer(const demo_study *study)
{
    int64_t best = 0;
    for (int64_t place = 1; place < study->n_layers; place++)
        if (demo_guess_rate(study, place) > demo_guess_rate(study, best)) best = place;
    return best;
}

void demo_order_experts(const demo_study *study, int64_t place, int32_t *order, int *owner)
{
    for (int32_t e = 0; e < study->n_experts; e++) {
        owner[e] = owner_of(study, place, e);
        double load = demo_relative_load(study, place, owner[e], e);
        int32_t at = e;
        for (; at > 0; at--) {
            int32_t before = order[at - 1];
            if (owner[before] < owner[e]) break;
            if (owner[before] == owner[e] &&
                demo_relative_load(study, place, owner[before], before) >= load)
                break;
            order[at] = before;
        }
        order[at] = e;
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

static void count_choices(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                          const dsmoe_routing *routing)
{
    student *s = context;
    demo_study *study = s->study;
    int64_t *counts = study->counts + (s->place[layer] * DEMO_N_KINDS + s->kind) * study->n_experts;
    (void)first;
    for (int64_t i = 0; i < n_tokens * study->k; i++) counts[routing->topk_idx[i]]++;
}

static bool make_counts(student *s, const dsmoe_config *config)
{
    demo_study *study = s->study;
    size_t n_layers = (size_t)config->num_hidden_layers;
    study->n_experts = config->n_routed_experts;
    study->k = config->num_experts_per_tok;
    s->place = calloc(n_layers, sizeof *s->place);
    study->layers = calloc(n_layers, sizeof *study->layers);
    study->counts =
        calloc(n_layers * DEMO_N_KINDS * (size_t)study->n_experts + 1, sizeof *study->counts);
    s->logits = malloc((size_t)config->vocab_size * sizeof *s->logits);
    if (!s->place || !study->layers || !study->counts || !s->logits) return false;
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++) {
        if (!dsmoe_config_layer_is_moe(config, layer)) continue;
        s->place[layer] = study->n_layers;
        study->layers[study->n_layers++] = layer;
    }
    return true;
}

static dsmoe_status student_open(student *s, const char *path, int n_threads, dsmoe_error *error)
{
    dsmoe_session_options session = {.n_ctx = N_CTX, .n_batch = N_CTX, .n_threads = n_threads};
    dsmoe_sampler_options greedy = dsmoe_sampler_options_default();
    greedy.temperature = 0;
    dsmoe_status status = dsmoe_model_open(path, &s->model, error);
    if (status == DSMOE_OK) status = dsmoe_tokenizer_open(path, &s->tokenizer, error);
    if (status == DSMOE_OK) status = dsmoe_session_create(s->model, &session, &s->session, error);
    if (status != DSMOE_OK) return status;
    const dsmoe_config *config = dsmoe_model_config(s->model);
    if (!make_counts(s, config)) {
        *error = (dsmoe_error){DSMOE_ERROR_MEMORY, "not enough memory to look at the model"};
        return error->status;
    }
    return dsmoe_sampler_create(&greedy, config->vocab_size, &s->sampler, error);
}

static void student_close(student *s)
{
    dsmoe_sampler_free(s->sampler);
    dsmoe_session_free(s->session);
    dsmoe_tokenizer_free(s->tokenizer);
    dsmoe_model_free(s->model);
    free(s->logits);
    free(s->place);
}

/* Into an empty session, as `dsmoe generate` would. */
static dsmoe_status read_text(student *s, const char *text, size_t length, dsmoe_error *error)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    dsmoe_status status = dsmoe_session_rewind(s->session, 0, error);
    if (status == DSMOE_OK)
        status = dsmoe_tokenizer_encode(s->tokenizer, text, length, DSMOE_ENCODE_BOS, &ids, &n_ids,
                                        error);
    if (status == DSMOE_OK)
        status = dsmoe_session_prefill(s->session, ids, (int64_t)n_ids, s->logits, error);
    free(ids);
    return status;
}

/* The likeliest continuation until the model ends the text. One that never ends is cut, and wrong. */
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
        if (dsmoe_session_length(s->session) == dsmoe_session_capacity(s->session)) break;
        status = dsmoe_session_decode(s->session, token, s->logits, error);
        if (status != DSMOE_OK) return status;
    }
    text[used] = '\0';
    return DSMOE_OK;
}

/* ---- examination and routing ----------------------------------------------------------------- */

static dsmoe_status ask(student *s, const demo_example *example, demo_score *score,
                        dsmoe_error *error)
{
    demo_answer given = {.given = true};
    demo_prompt(example, given.prompt);
    dsmoe_status status = read_text(s, example->text, example->prompt_length, error);
    if (status == DSMOE_OK) status = answer(s, given.text, error);
    if (status != DSMOE_OK) return status;
    bool right = demo_kinds[s->kind].grade(given.prompt, given.text);
    demo_answer *kept = right ? &score->right : &score->wrong;
    if (!kept->given) *kept = given;
    score->n_asked++;
    score->n_right += right;
    return DSMOE_OK;
}

/* Whole examples of the examination go through alone, as they would have been learned. */
static dsmoe_status study_kind(student *s, uint64_t seed, dsmoe_error *error)
{
    demo_example examples[DEMO_EXAM];
    dsmoe_status status = DSMOE_OK;
    if (!demo_exam(s->kind, seed, examples, DEMO_EXAM)) {
        *error = (dsmoe_error){DSMOE_ERROR_ARGUMENT, "too few prompts for this seed"};
        return error->status;
    }
    for (int i = 0; i < DEMO_EXAM && status == DSMOE_OK && !cli_interrupted(); i++) {
        status = ask(s, &examples[i], &s->study->scores[s->kind], error);
        if (status != DSMOE_OK) break;
        dsmoe_session_watch(s->session, count_choices, s);
        status = read_text(s, examples[i].text, examples[i].length, error);
        dsmoe_session_watch(s->session, NULL, NULL);
        progress_update(&s->bar, ++s->n_done, DEMO_N_KINDS * DEMO_EXAM);
    }
    return status;
}

int demo_study_run(const char *model_path, uint64_t seed, int n_threads, demo_study *study)
{
    student s = {.study = study, .bar = progress_start("asking", "prompts")};
    dsmoe_error error;
    memset(study, 0, sizeof *study);
    dsmoe_status status = student_open(&s, model_path, n_threads, &error);
    for (s.kind = 0; s.kind < DEMO_N_KINDS && status == DSMOE_OK; s.kind++)
        status = study_kind(&s, seed, &error);
    progress_finish(&s.bar);
    student_close(&s);
    if (status != DSMOE_OK) return cli_failure("demo", "%s: %s", model_path, error.message);
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

void demo_study_free(demo_study *study)
{
    free(study->layers);
    free(study->counts);
    memset(study, 0, sizeof *study);
}
