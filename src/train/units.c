/* units.c - forward, the exchange between ranks, and backward. */
#include "train/units.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "train/arrival.h"
#include "train/step.h"

/* ---- reports ----------------------------------------------------------------------------------- */

size_t units_report_size(const dsmoe_trainer *t)
{
    size_t n = (size_t)t->n_moe_layers, n_experts = (size_t)t->config.n_routed_experts;
    size_t size =
        sizeof(unit_report) + n * (sizeof(dsmoe_layer_losses) + n_experts * sizeof(int32_t));
    return (size + sizeof(double) - 1) / sizeof(double) * sizeof(double);
}

unit_report *units_report(const dsmoe_trainer *t, int rank)
{
    return (unit_report *)((char *)t->reports + (size_t)rank * units_report_size(t));
}

dsmoe_layer_losses *units_layers(const dsmoe_trainer *t, int rank)
{
    return (dsmoe_layer_losses *)(units_report(t, rank) + 1);
}

int32_t *units_load(const dsmoe_trainer *t, int rank)
{
    return (int32_t *)(units_layers(t, rank) + t->n_moe_layers);
}

dsmoe_batch_losses units_losses(const dsmoe_trainer *t, int rank)
{
    const unit_report *report = units_report(t, rank);
    dsmoe_batch_losses losses = {.loss = report->loss,
                                 .accuracy = report->accuracy,
                                 .margin = report->margin,
                                 .layers = units_layers(t, rank)};
    for (int64_t i = 0; i < t->n_moe_layers; i++) {
        losses.aux_loss += losses.layers[i].aux_loss;
        losses.device_loss += losses.layers[i].device_loss;
    }
    return losses;
}

static dsmoe_status gather_reports(dsmoe_trainer *t, dsmoe_error *error)
{
    if (!t->options.peers) return DSMOE_OK;
    double start = trainer_start_lap(t);
    dsmoe_bytes *parts = t->fold.lists;
    for (int r = 0; r < t->options.peers->size; r++)
        parts[r] = (dsmoe_bytes){units_report(t, r), units_report_size(t)};
    dsmoe_status status = peers_gather(t->options.peers, parts, error);
    timed_peers_take(&t->timed); /* part of waiting */
    t->times.waiting += clock_seconds() - start;
    return status;
}

/* Every rank counts the units of all ranks. */
static void count_units(dsmoe_trainer *t, int64_t *n_units, int *n_well)
{
    *n_units = *n_well = 0;
    for (int r = 0; r < peers_size(t->options.peers); r++) {
        const int32_t *load = units_load(t, r);
        *n_well += units_report(t, r)->status == DSMOE_OK;
        if (!units_report(t, r)->is_there) continue;
        (*n_units)++;
        for (int64_t i = 0; i < t->n_moe_layers * t->config.n_routed_experts; i++) {
            t->expert_load[i] += load[i];
            t->step_load[i] += load[i];
        }
    }
}

/* ---- one unit ---------------------------------------------------------------------------------- */

static dsmoe_status check_tokens(const dsmoe_trainer *t, const int32_t *tokens, int32_t least,
                                 const char *what, dsmoe_error *error)
{
    for (int64_t i = 0; i < t->options.n_sequences * t->options.sequence_length; i++)
        if (tokens[i] < least || tokens[i] >= t->config.vocab_size)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "%s %lld is %d, which is not a token of a vocabulary of %lld", what,
                               (long long)i, tokens[i], (long long)t->config.vocab_size);
    return DSMOE_OK;
}

/* Positions rise by one in a conversation; padding can only be followed by padding or 0. */
static dsmoe_status check_positions(const dsmoe_trainer *t, const dsmoe_batch *b,
                                    dsmoe_error *error)
{
    int64_t length = t->options.sequence_length;
    for (int64_t i = 0; i < t->options.n_sequences * length; i++) {
        int32_t before = i % length ? b->positions[i - 1] : -1, position = b->positions[i];
        bool goes_on = before >= 0 && position == before + 1;
        if (!goes_on && position != 0 && position != -1)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "position %lld is %d, after %d in a conversation", (long long)i,
                               position, before);
        if (position < 0 && b->targets[i] >= 0)
            return status_fail(error, DSMOE_ERROR_ARGUMENT, "token %lld is padding with a target",
                               (long long)i);
    }
    return DSMOE_OK;
}

static dsmoe_status check_preferences(const dsmoe_trainer *t, const dsmoe_batch *b,
                                      dsmoe_error *error)
{
    if (!(b->beta > 0) || !isfinite(b->beta))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "beta must be above 0, not %g", b->beta);
    if (!trainer_low_rank(t))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "preferences are learned by low-rank additions only");
    const preference_places places = {b->positions, t->options.n_sequences,
                                      t->options.sequence_length};
    if (b->positions && preference_count(&places) >= 0) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_ARGUMENT,
        "preferences are pairs of conversations: each sequence has an even number of "
        "them");
}

static dsmoe_status forward(dsmoe_trainer *t, const dsmoe_batch *batch, dsmoe_error *error)
{
    unit_report *report = units_report(t, peers_rank(t->options.peers));
    fold_begin(t);
    dsmoe_status referred = batch && batch->beta > 0 ? step_refer(t, batch, error) : DSMOE_OK;
    memset(report, 0, units_report_size(t)); /* also what step_refer counted */
    report->is_there = batch != NULL;
    report->loss = NAN;
    STATUS_TRY(referred);
    STATUS_TRY(step_forward(t, batch, error));
    if (!batch) return DSMOE_OK;
    preference_sums sums = step_predict(t, batch);
    report->loss = sums.loss;
    report->accuracy = sums.accuracy;
    report->margin = sums.margin;
    if (isfinite(report->loss)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_NONFINITE, "the loss is not a finite number");
}

/* ---- a wave ------------------------------------------------------------------------------------ */

static dsmoe_status check_arguments(const dsmoe_trainer *t, const dsmoe_batch *b,
                                    dsmoe_error *error)
{
    if (!b && t->options.peers) return DSMOE_OK; /* this rank has no unit */
    if (!b || !b->tokens || !b->targets)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no tokens or targets given");
    if (!(b->n_targets >= 0) || !isfinite(b->n_targets) || !(b->n_tokens >= 0) ||
        !isfinite(b->n_tokens))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a batch cannot have %g targets and %g tokens", b->n_targets,
                           b->n_tokens);
    STATUS_TRY(check_tokens(t, b->tokens, 0, "token", error));
    STATUS_TRY(check_tokens(t, b->targets, -1, "target", error));
    if (b->positions) STATUS_TRY(check_positions(t, b, error));
    return b->beta != 0 ? check_preferences(t, b, error) : DSMOE_OK;
}

/* All ranks run backward, or none does. A rank that has failed before (`mine`) has no unit. */
static dsmoe_status run_wave(dsmoe_trainer *t, const dsmoe_batch *batch, dsmoe_status mine,
                             dsmoe_error *error)
{
    int n_well, n_ranks = peers_size(t->options.peers);
    int64_t n_units;
    dsmoe_error other;
    if (trainer_divides_experts(t)) STATUS_TRY(arrival_finish(t, error)); /* rows are sent next */
    dsmoe_status status = forward(t, batch, mine == DSMOE_OK ? error : &other);
    if (status == DSMOE_ERROR_PEER) return status;
    STATUS_TRY(arrival_finish(t, error));
    if (mine != DSMOE_OK) status = mine;
    units_report(t, peers_rank(t->options.peers))->status = (int32_t)status;
    STATUS_TRY(gather_reports(t, error));
    count_units(t, &n_units, &n_well);
    if (n_well == n_ranks)
        status = step_backward(t, batch, error);
    else if (n_well > 0) /* if all failed, they agreed in a layer, or each has its reason */
        status = peers_agree(t->options.peers, status, error);
    t->n_batches += n_units;
    t->poisoned = t->poisoned || status != DSMOE_OK;
    return status;
}

dsmoe_status dsmoe_trainer_backward(dsmoe_trainer *trainer, const dsmoe_batch *batch,
                                    dsmoe_batch_losses *losses, dsmoe_error *error)
{
    if (!trainer) return status_fail(error, DSMOE_ERROR_ARGUMENT, "no trainer given");
    dsmoe_error own, *why = error ? error : &own;
    if (batch && !batch->tokens && !batch->targets) batch = NULL;
    dsmoe_status status = check_arguments(trainer, batch, why);
    if (status != DSMOE_OK && !trainer->options.peers) return status;
    if (status != DSMOE_OK) batch = NULL;
    status = run_wave(trainer, batch, status, why);
    if (losses) *losses = units_losses(trainer, peers_rank(trainer->options.peers));
    return status;
}
