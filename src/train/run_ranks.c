/* run_ranks.c - a run of several ranks: rank 0 tells the others what to train, and they follow its orders. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run.h"
#include "train/team.h"

/* What rank 0 tells the others when it knows the run. */
typedef struct run_terms {
    int32_t is_training; /* false: there is nothing to do, or rank 0 has failed */
    dsmoe_error failure;
    dsmoe_config config;
    dsmoe_trainer_options trainer;
    dsmoe_tuning tuning; /* if there is a base: */
    char base[DSMOE_PATH], targets[512];
} run_terms;

dsmoe_status run_tell_ranks(run *r, dsmoe_error *error)
{
    run_terms terms = {.is_training = true,
                       .config = r->config,
                       .trainer = r->trainer_options,
                       .tuning = r->tuning.words};
    if (r->tuning.base) memcpy(terms.base, r->settings.init, sizeof terms.base);
    memcpy(terms.targets, r->settings.targets, sizeof terms.targets);
    r->told_ranks = true;
    STATUS_TRY(peers_broadcast(r->peers, 0, &terms, sizeof terms, error));
    if (!r->tuning.base || !r->peers) return DSMOE_OK;
    STATUS_TRY(peers_agree(r->peers, DSMOE_OK, error));
    return tune_tell(r->peers, &r->tuning, error);
}

/* The memory that a rank needs, and what its machine has available. All ranks of a machine map the same file of
 * the base model. */
typedef struct memory_card {
    char host[128];
    uint64_t own, base, available;
} memory_card;

/* Whether a machine has enough memory for all ranks on it. */
static dsmoe_status check_shared_memory(const memory_card *cards, int rank, int n_ranks,
                                        dsmoe_error *error)
{
    double needed = 0;
    int n = 0;
    for (int r = 0; r < n_ranks; r++) {
        if (strcmp(cards[r].host, cards[rank].host)) continue;
        needed += (double)cards[r].own;
        if (n++ == 0) needed += (double)cards[r].base;
    }
    if (needed <= (double)cards[rank].available) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_MEMORY,
        "training takes %.1f GB of this machine's memory (%d ranks), and %.1f GB is available: "
        "use a smaller batch, fewer ranks on a machine, or more machines with the experts divided",
        needed / 1e9, n, (double)cards[rank].available / 1e9);
}

static dsmoe_status share_memory(const dsmoe_peers *p, const dsmoe_trainer_memory *m,
                                 dsmoe_error *error)
{
    memory_card *cards = calloc((size_t)p->size, sizeof *cards);
    dsmoe_bytes *parts = calloc((size_t)p->size, sizeof *parts);
    dsmoe_status status = cards && parts ? DSMOE_OK : DSMOE_ERROR_MEMORY;
    if (status != DSMOE_OK) status_fail(error, status, "not enough memory for a list of ranks");
    status = peers_agree(p, status, error);
    for (int r = 0; status == DSMOE_OK && r < p->size; r++)
        parts[r] = (dsmoe_bytes){&cards[r], sizeof *cards};
    if (status == DSMOE_OK) {
        memory_card *card = &cards[p->rank];
        snprintf(card->host, sizeof card->host, "%s", p->host);
        card->own = m->weights + m->gradients + m->moments + m->activations + m->workspace;
        card->base = m->base;
        card->available = memory_available();
        status = peers_gather(p, parts, error);
    }
    if (status == DSMOE_OK) status = check_shared_memory(cards, p->rank, p->size, error);
    free(cards);
    free(parts);
    return status;
}

dsmoe_status run_share_memory(run *r, dsmoe_error *error)
{
    return r->peers ? share_memory(r->peers, &r->memory, error) : DSMOE_OK;
}

dsmoe_status run_await_ranks(run *r, dsmoe_status status, dsmoe_error *error)
{
    STATUS_TRY(peers_agree(r->peers, status, error));
    r->has_ranks = r->peers != NULL;
    return DSMOE_OK;
}

void run_dismiss_ranks(run *r, dsmoe_status status, const dsmoe_error *reason)
{
    if (!r->peers || status == DSMOE_ERROR_PEER) return;
    if (r->has_ranks) {
        team_end(r->peers, status, reason);
    } else if (!r->told_ranks) {
        run_terms terms = {.failure = *reason};
        terms.failure.status = status;
        peers_broadcast(r->peers, 0, &terms, sizeof terms, NULL);
    }
}

/* ---- the other ranks ----------------------------------------------------------------------------- */

/* Opens the same base as rank 0. */
static dsmoe_status open_base(const run_terms *terms, const dsmoe_run_options *options,
                              run_tuning *t, dsmoe_error *error)
{
    dsmoe_tuning words = terms->tuning;
    words.targets = terms->targets;
    if (!*terms->base) return DSMOE_OK;
    dsmoe_status status = tune_open(terms->base, &words, t, error);
    STATUS_TRY(peers_agree(options->peers, status, error));
    return tune_tell(options->peers, t, error);
}

static dsmoe_status get_ready(const run_terms *terms, const dsmoe_run_options *options,
                              const run_tuning *tuning, team_follower *f, dsmoe_error *error)
{
    dsmoe_trainer_options o = terms->trainer;
    o.tuning = tuning->base ? &tuning->words : NULL;
    size_t size = (size_t)(o.n_sequences * o.sequence_length) * sizeof(int32_t);
    o.peers = options->peers;
    o.n_threads = options->n_threads;
    dsmoe_trainer_memory memory = dsmoe_trainer_memory_size(&terms->config, &o);
    STATUS_TRY(share_memory(options->peers, &memory, error));
    f->tokens = malloc(size);
    f->targets = malloc(size);
    f->positions = malloc(size);
    if (!f->tokens || !f->targets || !f->positions)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a batch of tokens");
    return dsmoe_trainer_create(&terms->config, &o, &f->trainer, error);
}

dsmoe_status run_follow(const dsmoe_run_options *options, dsmoe_error *error)
{
    run_terms terms;
    dsmoe_error own, *why = error ? error : &own;
    STATUS_TRY(peers_broadcast(options->peers, 0, &terms, sizeof terms, why));
    if (!terms.is_training) {
        *why = terms.failure;
        return terms.failure.status;
    }
    team_follower f = {.stop = options->stop, .context = options->context};
    run_tuning tuning = {0};
    dsmoe_status status = open_base(&terms, options, &tuning, why);
    if (status == DSMOE_OK) {
        status = get_ready(&terms, options, &tuning, &f, why);
        status = peers_agree(options->peers, status, why);
    }
    if (status == DSMOE_OK) status = team_follow(&f, why);
    dsmoe_trainer_free(f.trainer);
    tune_close(&tuning);
    free(f.tokens);
    free(f.targets);
    free(f.positions);
    return status;
}
