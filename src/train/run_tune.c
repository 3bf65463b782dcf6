/* run_tune.c - a run that trains a part of a model: the base, which experts are trained, and what other
 * ranks must know about it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "train/base_hash.h"
#include "train/expert_choice.h"
#include "train/run.h"

static const char choice_name[] = "expert_cfg.json"; /* in the run's folder */

enum { SAMPLE_SEQUENCES = 32 }; /* of the training data, to score experts on */

/* ---- the base ---------------------------------------------------------------------------------- */

dsmoe_status tune_open(const char *base, const dsmoe_tuning *words, run_tuning *t,
                       dsmoe_error *error)
{
    const dsmoe_model_options shared = {.share_weights = true};
    STATUS_TRY(dsmoe_model_open_with(base, &shared, &t->base, error));
    t->words = *words;
    t->words.base = t->base;
    const dsmoe_config *c = dsmoe_model_config(t->base);
    size_t n = (size_t)(c->num_hidden_layers * c->n_routed_experts);
    t->chosen = calloc(n + 1, 1);
    if (!t->chosen)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a list of experts");
    t->words.experts = t->chosen;
    return DSMOE_OK;
}

void tune_close(run_tuning *t)
{
    dsmoe_model_free(t->base);
    free(t->chosen);
}

/* Checks that the base is the one that the checkpoint was made with. */
static dsmoe_status check_base(run *r, dsmoe_error *error)
{
    const dsmoe_model *base = r->tuning.base;
    uint64_t hash = base_hash(base, HASH_XXH64), saved = r->state.base_hash;
    if (r->saved_step >= 0 && saved != hash && saved != base_hash(base, HASH_OLD))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s is not the model that this run began with: restore that one",
                           r->settings.init);
    r->base_hash = hash;
    return DSMOE_OK;
}

dsmoe_status run_open_base(run *r, dsmoe_error *error)
{
    const dsmoe_run_settings *s = &r->settings;
    dsmoe_tuning words = {.train = settings_train(s),
                          .rank = s->rank,
                          .alpha = s->alpha,
                          .rslora = s->rslora,
                          .targets = s->targets};
    if (words.train == DSMOE_TRAIN_ALL) return DSMOE_OK;
    if (!*s->init)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s %s trains a part of a model: name that model with %s",
                           run_setting_name(r, "train"), s->train, run_setting_name(r, "init"));
    STATUS_TRY(tune_open(s->init, &words, &r->tuning, error));
    return check_base(r, error);
}

/* ---- the experts --------------------------------------------------------------------------------- */

typedef struct scoring {
    run *run;
    expert_scores scores;
} scoring;

/* Runs the texts of a sequence one after the other, without the padding. */
static dsmoe_status score_texts(scoring *s, dsmoe_sequence *sequence, const int32_t *tokens,
                                const int32_t *positions, dsmoe_error *error)
{
    int64_t length = s->run->settings.seq;
    for (int64_t first = 0, end; first < length; first = end) {
        end = first + 1;
        while (end < length && positions[end] > 0) end++;
        if (positions[first] < 0) continue;
        STATUS_TRY(dsmoe_sequence_rewind(sequence, 0, error));
        STATUS_TRY(dsmoe_sequence_append(sequence, tokens + first, end - first, NULL, error));
        s->scores.n_tokens += end - first;
    }
    return DSMOE_OK;
}

static dsmoe_status score_sequences(scoring *s, dsmoe_sequence *sequence, int32_t *tokens,
                                    int64_t n, dsmoe_error *error)
{
    run *r = s->run;
    int32_t *targets = tokens + r->settings.seq, *positions = targets + r->settings.seq;
    for (int64_t i = 0; i < n; i++) {
        run_progress progress = {r, "scoring the experts"};
        if (!run_show_progress(&progress, (double)i, (double)n)) return DSMOE_ERROR_STOPPED;
        dsmoe_dataset_train(r->dataset, i, 1, tokens, targets, positions);
        STATUS_TRY(score_texts(s, sequence, tokens, positions, error));
    }
    return DSMOE_OK;
}

static dsmoe_status score(scoring *s, int32_t *tokens, dsmoe_error *error)
{
    run *r = s->run;
    dsmoe_engine_options options = {.n_ctx = r->settings.seq, .n_threads = r->options.n_threads};
    dsmoe_engine *engine = NULL;
    dsmoe_sequence *sequence = NULL;
    int64_t n = moe_min(SAMPLE_SEQUENCES, r->data.n_train);
    dsmoe_status status = dsmoe_engine_create(r->tuning.base, &options, &engine, error);
    if (status == DSMOE_OK) status = dsmoe_sequence_create(engine, &sequence, error);
    if (status == DSMOE_OK) {
        dsmoe_sequence_watch(sequence, expert_scores_add, &s->scores);
        status = score_sequences(s, sequence, tokens, n, error);
    }
    dsmoe_engine_free(engine);
    return status;
}

static void choose(const scoring *s, double share)
{
    const dsmoe_config *c = s->scores.config;
    int64_t n = c->num_hidden_layers * c->n_routed_experts;
    for (int64_t i = 0; i < n; i++) s->scores.sums[i] /= (double)s->scores.n_tokens;
    dsmoe_experts_choose(c, s->scores.sums, share, s->run->tuning.chosen);
}

/* Scores the experts on the first sequences of the training data and chooses the best. */
static dsmoe_status choose_by_score(run *r, dsmoe_error *error)
{
    const dsmoe_config *c = dsmoe_model_config(r->tuning.base);
    scoring s = {.run = r, .scores = {.config = c}};
    double share = r->settings.expert_share;
    dsmoe_expert_score_find(r->settings.expert_score, &s.scores.kind);
    if (share < 0) share = dsmoe_expert_share_default(s.scores.kind);
    s.scores.sums =
        calloc((size_t)(c->num_hidden_layers * c->n_routed_experts) + 1, sizeof *s.scores.sums);
    /* tokens, targets and positions */
    int32_t *tokens = malloc(3 * (size_t)r->settings.seq * sizeof *tokens);
    dsmoe_status status = DSMOE_OK;
    if (!s.scores.sums || !tokens)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to score experts");
    if (status == DSMOE_OK) status = score(&s, tokens, error);
    if (status == DSMOE_OK) choose(&s, share);
    free(s.scores.sums);
    free(tokens);
    return status;
}

static void tell_choice(const run *r)
{
    const dsmoe_config *c = dsmoe_model_config(r->tuning.base);
    int64_t chosen = 0, n_layers = config_moe_layers(c, c->num_hidden_layers);
    for (int64_t i = 0; i < c->num_hidden_layers * c->n_routed_experts; i++)
        chosen += r->tuning.chosen[i];
    run_message(r, "experts that are trained: %lld of %lld (%s/%s)", (long long)chosen,
                (long long)(n_layers * c->n_routed_experts), r->folder, choice_name);
}

dsmoe_status run_choose_experts(run *r, dsmoe_error *error)
{
    const char *given = r->settings.experts;
    char own[CHECKPOINT_PATH];
    if (settings_train(&r->settings) != DSMOE_TRAIN_EXPERTS) return DSMOE_OK;
    const dsmoe_config *c = dsmoe_model_config(r->tuning.base);
    STATUS_TRY(run_path(r->folder, choice_name, own, error));
    if (r->options.resume && run_has(r, choice_name))
        return dsmoe_experts_read(own, c, r->tuning.chosen, error);
    STATUS_TRY(*given ? dsmoe_experts_read(given, c, r->tuning.chosen, error)
                      : choose_by_score(r, error));
    STATUS_TRY(expert_choice_put(r->folder, c, r->tuning.chosen, error));
    tell_choice(r);
    return DSMOE_OK;
}

bool run_scores_experts(const run *r)
{
    return settings_train(&r->settings) == DSMOE_TRAIN_EXPERTS && !*r->settings.experts &&
           !(r->options.resume && run_has(r, choice_name));
}

/* ---- other ranks --------------------------------------------------------------------------------- */

dsmoe_status tune_tell(const dsmoe_peers *peers, run_tuning *t, dsmoe_error *error)
{
    if (!t->base) return DSMOE_OK;
    const dsmoe_config *c = dsmoe_model_config(t->base);
    return peers_broadcast(peers, 0, t->chosen,
                           (size_t)(c->num_hidden_layers * c->n_routed_experts) + 1, error);
}
