/* train_speed.c - training steps of a fresh model on random tokens, timed. */
#include "cli/train_speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "peers/peers.h"

enum { MIN_STEPS = 3, MAX_STEPS = 1000 };

/* What each rank tells the others. */
typedef struct rank_words {
    dsmoe_trainer_times times;
    dsmoe_machine machine;
    int64_t peak_rss;
} rank_words;

typedef struct speed_state {
    const train_speed_case *of;
    const dsmoe_peers *peers; /* NULL: alone */
    dsmoe_trainer *trainer;
    int32_t *tokens, *targets;
    bench_probe probe;
    rank_words *words; /* [n_ranks], like `parts` */
    dsmoe_bytes *parts;
} speed_state;

/* ---- ranks --------------------------------------------------------------------------------------- */

static void add_times(dsmoe_trainer_times *sum, const dsmoe_trainer_times *t, double share)
{
    sum->attention += share * t->attention;
    sum->experts += share * t->experts;
    sum->router += share * t->router;
    sum->head += share * t->head;
    sum->optimizer += share * t->optimizer;
    sum->rest += share * t->rest;
    sum->sending += share * t->sending;
    sum->waiting += share * t->waiting;
}

/* Combines all ranks: the mean of the times, the sum of the machines' speeds, the largest memory. */
static dsmoe_status combine(const speed_state *s, rank_words *words, dsmoe_error *error)
{
    const dsmoe_peers *p = s->peers;
    if (!p) return DSMOE_OK;
    rank_words *all = s->words;
    all[p->rank] = *words;
    for (int r = 0; r < p->size; r++) s->parts[r] = (dsmoe_bytes){&all[r], sizeof *all};
    STATUS_TRY(peers_gather(p, s->parts, error));
    *words = (rank_words){0};
    for (int r = 0; r < p->size; r++) {
        add_times(&words->times, &all[r].times, 1.0 / p->size);
        words->machine.fma_gflops += all[r].machine.fma_gflops;
        words->machine.read_gbs += all[r].machine.read_gbs;
        if (all[r].peak_rss > words->peak_rss) words->peak_rss = all[r].peak_rss;
    }
    return DSMOE_OK;
}

/* Whether all ranks continue; rank 0 decides. Afterwards all ranks are at the same point. */
static dsmoe_status go_on(const speed_state *s, bool *more, dsmoe_error *error)
{
    return peers_any(s->peers, peers_rank(s->peers) == 0 && *more, more, error);
}

/* ---- getting ready ------------------------------------------------------------------------------- */

static bool make_tokens(speed_state *s)
{
    const dsmoe_trainer_options *o = &s->of->options;
    int64_t n = o->n_sequences * o->sequence_length;
    uint64_t state = 1 + (uint64_t)peers_rank(s->peers);
    s->tokens = malloc((size_t)n * sizeof *s->tokens);
    s->targets = malloc((size_t)n * sizeof *s->targets);
    if (!s->tokens || !s->targets) return false;
    for (int64_t i = 0; i < 2 * n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int32_t token = (int32_t)((state >> 33) % (uint64_t)s->of->config.vocab_size);
        *(i < n ? &s->tokens[i] : &s->targets[i - n]) = token;
    }
    return true;
}

static dsmoe_status make_ready(speed_state *s, dsmoe_error *error)
{
    size_t n_ranks = (size_t)peers_size(s->peers);
    STATUS_TRY(dsmoe_trainer_create(&s->of->config, &s->of->options, &s->trainer, error));
    dsmoe_trainer_init(s->trainer, 1);
    s->words = calloc(n_ranks, sizeof *s->words);
    s->parts = calloc(n_ranks, sizeof *s->parts);
    if (s->words && s->parts && make_tokens(s) &&
        bench_probe_create(&s->probe, s->of->options.n_threads))
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory");
}

/* ---- steps ----------------------------------------------------------------------------------------- */

/* A step's batches go to the ranks in turn; in the last round some may have none. */
static dsmoe_status run_batches(const speed_state *s, double *loss, dsmoe_error *error)
{
    int rank = peers_rank(s->peers), n_ranks = peers_size(s->peers);
    dsmoe_status status = DSMOE_OK;
    for (int64_t first = 0; status == DSMOE_OK && first < s->of->n_units; first += n_ranks) {
        bool is_there = first + rank < s->of->n_units;
        dsmoe_batch_losses losses;
        const dsmoe_batch batch = {.tokens = s->tokens, .targets = s->targets};
        status = dsmoe_trainer_backward(s->trainer, is_there ? &batch : NULL, &losses, error);
        if (is_there) *loss = losses.loss;
    }
    return status;
}

static dsmoe_status run_step(const speed_state *s, train_speed *out, dsmoe_error *error)
{
    rank_words words = {0};
    dsmoe_trainer_take_times(s->trainer);
    double start = cli_seconds();
    STATUS_TRY(run_batches(s, &out->loss, error));
    STATUS_TRY(dsmoe_trainer_update(s->trainer, 1e-3, NULL, error));
    double seconds = cli_seconds() - start;
    words.times = dsmoe_trainer_take_times(s->trainer);
    STATUS_TRY(combine(s, &words, error));
    if (seconds >= out->step_s) return DSMOE_OK;
    out->step_s = seconds;
    out->times = words.times;
    return DSMOE_OK;
}

/* Measures the machine's limits, then a step. */
static dsmoe_status run_turn(const speed_state *s, train_speed *out, dsmoe_error *error)
{
    bool more = true;
    STATUS_TRY(bench_probe_measure(&s->probe, bench_window, &out->machine, error));
    STATUS_TRY(go_on(s, &more, error));
    STATUS_TRY(run_step(s, out, error));
    out->n_steps++;
    return DSMOE_OK;
}

static dsmoe_status run_steps(const speed_state *s, train_speed *out, dsmoe_error *error)
{
    double start = cli_seconds(), elapsed = 0;
    const dsmoe_trainer_options *o = &s->of->options;
    double tokens = (double)(s->of->n_units * o->n_sequences * o->sequence_length);
    progress bar = progress_start("measuring", "tokens");
    dsmoe_status status = DSMOE_OK;
    for (bool more = true; status == DSMOE_OK && more;) {
        status = run_turn(s, out, error);
        elapsed = cli_seconds() - start;
        double expected = fmax(s->of->seconds * out->n_steps / elapsed, MIN_STEPS);
        progress_update(&bar, tokens * out->n_steps, tokens * expected);
        more = out->n_steps < MAX_STEPS && (out->n_steps < MIN_STEPS || elapsed < s->of->seconds);
        if (status == DSMOE_OK) status = go_on(s, &more, error);
    }
    progress_finish(&bar);
    return status;
}

static dsmoe_status measure(const speed_state *s, train_speed *out, dsmoe_error *error)
{
    const train_speed nothing = {.step_s = INFINITY};
    *out = nothing;
    STATUS_TRY(run_step(s, out, error)); /* warms up; its memory is the peak */
    rank_words words = {.peak_rss = cli_peak_rss()};
    *out = nothing;
    STATUS_TRY(run_steps(s, out, error));
    words.machine = out->machine;
    STATUS_TRY(combine(s, &words, error));
    out->machine = words.machine;
    out->peak_rss = words.peak_rss;
    out->memory = dsmoe_trainer_memory_size(&s->of->config, &s->of->options);
    return DSMOE_OK;
}

dsmoe_status train_speed_measure(const train_speed_case *of, train_speed *out, dsmoe_error *error)
{
    speed_state s = {.of = of, .peers = of->options.peers};
    dsmoe_status status = peers_agree(s.peers, make_ready(&s, error), error);
    if (status == DSMOE_OK) status = measure(&s, out, error);
    dsmoe_trainer_free(s.trainer);
    bench_probe_free(&s.probe);
    free(s.tokens);
    free(s.targets);
    free(s.words);
    free(s.parts);
    return status;
}

dsmoe_status train_speed_flops(const dsmoe_config *config, const dsmoe_trainer_options *options,
                               double *flops, dsmoe_error *error)
{
    dsmoe_model_plan plan;
    STATUS_TRY(dsmoe_model_plan_make(config, options->sequence_length, &plan, error));
    *flops = (plan.matmul_flops + plan.attention_flops / 2) * (double)options->n_sequences;
    return DSMOE_OK;
}
