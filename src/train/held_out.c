/* held_out.c - how well a model predicts the sequences that it was not trained on.
 *
 * Several sequences go through the model at a time, always in the same groups, and their losses are added
 * up in the order of the tokens. So the result is the same for any number of threads. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/status.h"

enum { GROUP = 8, BATCH_MAX = 2048 }; /* sequences read at a time, tokens computed at a time */

typedef struct evaluation {
    const dsmoe_model *model;
    const dsmoe_dataset *dataset;
    const dsmoe_held_out_options *options;
    int64_t n, length; /* number of sequences, and tokens of each */
    int64_t first;     /* first sequence of the current group */
    dsmoe_engine *engine;
    struct member {
        const struct evaluation *of;
        int64_t number; /* its place in the group */
        dsmoe_sequence *sequence;
    } members[GROUP];
    int32_t *tokens, *targets, *positions; /* [GROUP, length] */
    float *losses;                         /* [GROUP, length] */
    double sum;
    int64_t n_targets; /* how many targets the sum has */
} evaluation;

/* The engine counts tokens from the beginning of a sequence, the caller from the beginning of the first
 * sequence. */
static void pass_on(void *context, int64_t layer, int64_t position, int64_t n_tokens,
                    const dsmoe_routing *routing)
{
    const struct member *m = context;
    const evaluation *e = m->of;
    int64_t first = (e->first + m->number) * e->length + position;
    e->options->watch(e->options->context, layer, first, n_tokens, routing);
}

/* Creates an engine with n_group sequences. */
static dsmoe_status open_engine(evaluation *e, int64_t n_group, int64_t n_tokens,
                                dsmoe_error *error)
{
    const dsmoe_engine_options options = {
        .same_bits = true, /* whichever ranks the experts are divided over */
        .n_ctx = e->length,
        .n_sequences = n_group,
        .n_batch = n_tokens < BATCH_MAX ? n_tokens : BATCH_MAX,
        .n_threads = e->options->n_threads,
    };
    STATUS_TRY(dsmoe_engine_create(e->model, &options, &e->engine, error));
    for (int64_t i = 0; i < n_group; i++) {
        struct member *m = &e->members[i];
        *m = (struct member){.of = e, .number = i};
        STATUS_TRY(dsmoe_sequence_create(e->engine, &m->sequence, error));
        if (e->options->watch) dsmoe_sequence_watch(m->sequence, pass_on, m);
    }
    return DSMOE_OK;
}

static dsmoe_status prepare(evaluation *e, dsmoe_error *error)
{
    int64_t n_group = e->n < GROUP ? e->n : GROUP, n_tokens;
    size_t size;
    if (!checked_mul_i64(n_group, e->length, &n_tokens) ||
        !checked_mul_size((size_t)n_tokens, sizeof *e->tokens, &size))
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "sequences of %" PRId64 " tokens do not fit into memory", e->length);
    e->tokens = malloc(size);
    e->targets = malloc(size);
    e->positions = malloc(size);
    e->losses = malloc(size);
    if (!e->tokens || !e->targets || !e->positions || !e->losses)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %" PRId64 " tokens",
                           n_tokens);
    return open_engine(e, n_group, n_tokens, error);
}

/* The turn of sequence i of the group: its tokens up to the padding, with logits from its first target on.
 * The engine needs a target for each of these, so a token without one gets target 0 and position -1, which
 * means that it is not counted. */
static dsmoe_turn make_turn(const evaluation *e, int64_t i)
{
    int32_t *targets = e->targets + i * e->length, *positions = e->positions + i * e->length;
    int64_t n = 0, first = 0;
    while (n < e->length && positions[n] >= 0) n++;
    while (first < n && targets[first] < 0) first++;
    for (int64_t t = first; t < n; t++) {
        if (targets[t] >= 0) continue;
        targets[t] = 0;
        positions[t] = -1;
    }
    return (dsmoe_turn){.sequence = e->members[i].sequence,
                        .tokens = e->tokens + i * e->length,
                        .n_tokens = n,
                        .n_logits = n - first,
                        .targets = targets + first,
                        .loss = e->losses + i * e->length + first};
}

static void add_losses(evaluation *e, int64_t i, const dsmoe_turn *turn)
{
    const dsmoe_held_out_options *o = e->options;
    double sum = 0.0;
    int64_t n = 0;
    const int32_t *positions = e->positions + i * e->length + turn->n_tokens - turn->n_logits;
    for (int64_t t = 0; t < turn->n_logits; t++) {
        if (positions[t] < 0) continue;
        sum += turn->loss[t];
        n++;
    }
    if (o->losses) o->losses[e->first + i] = n ? sum / (double)n : 0.0;
    if (o->n_targets) o->n_targets[e->first + i] = n;
    e->sum += sum;
    e->n_targets += n;
}

static dsmoe_status run_group(evaluation *e, int64_t n_group, dsmoe_error *error)
{
    dsmoe_turn turns[GROUP] = {{0}};
    dsmoe_dataset_held_out(e->dataset, e->first, n_group, e->tokens, e->targets, e->positions,
                           NULL);
    STATUS_TRY(dsmoe_dataset_check(e->dataset, error));
    for (int64_t i = 0; i < n_group; i++) {
        STATUS_TRY(dsmoe_sequence_rewind(e->members[i].sequence, 0, error));
        turns[i] = make_turn(e, i);
    }
    STATUS_TRY(dsmoe_engine_forward(e->engine, turns, n_group, error));
    for (int64_t i = 0; i < n_group; i++) add_losses(e, i, &turns[i]);
    return DSMOE_OK;
}

static dsmoe_status run_all(evaluation *e, double *loss, dsmoe_error *error)
{
    const dsmoe_held_out_options *o = e->options;
    STATUS_TRY(prepare(e, error));
    for (e->first = 0; e->first < e->n;) {
        if (o->progress && !o->progress(o->context, (double)e->first, (double)e->n))
            return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
        int64_t n_group = e->n - e->first < GROUP ? e->n - e->first : GROUP;
        STATUS_TRY(run_group(e, n_group, error));
        e->first += n_group;
    }
    if (o->progress) o->progress(o->context, (double)e->n, (double)e->n);
    *loss = e->sum / (double)e->n_targets;
    if (isfinite(*loss)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_NONFINITE, "the held-out loss is %g", *loss);
}

dsmoe_status dsmoe_held_out_loss(const dsmoe_model *model, const dsmoe_dataset *dataset,
                                 const dsmoe_held_out_options *options, double *loss,
                                 dsmoe_error *error)
{
    static const dsmoe_held_out_options defaults = {0};
    if (!model || !dataset || !loss)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no model, no data or no place for the loss given");
    *loss = NAN;
    dsmoe_dataset_info info = dsmoe_dataset_get_info(dataset);
    evaluation e = {.model = model,
                    .dataset = dataset,
                    .options = options ? options : &defaults,
                    .length = info.sequence_length};
    e.n = e.options->n > 0 && e.options->n < info.n_held_out ? e.options->n : info.n_held_out;
    if (e.options->n < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%" PRId64 " held-out sequences asked for",
                           e.options->n);
    if (e.n < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no sequences are held out: open the data with a held_out above 0");
    dsmoe_status status = run_all(&e, loss, error);
    dsmoe_engine_free(e.engine);
    free(e.tokens);
    free(e.targets);
    free(e.positions);
    free(e.losses);
    return status;
}
