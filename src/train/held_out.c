/* held_out.c - how well a model predicts the sequences that it was not trained on.
 *
 * Sequences go through the model several at a time, always in the same groups, and their losses are
 * added up in the order of the tokens: the result is the same for any number of threads. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/status.h"

enum { GROUP = 8, BATCH_MAX = 2048 }; /* sequences that are read, tokens that go together */

typedef struct evaluation {
    const dsmoe_model *model;
    const dsmoe_dataset *dataset;
    const dsmoe_held_out_options *options;
    int64_t n, length;              /* sequences, and tokens of one */
    int64_t first;                  /* sequence of the group at work */
    dsmoe_session *sessions[GROUP]; /* the first one's workspace is used */
    int32_t *tokens, *targets;      /* [GROUP, length] */
    float *losses;                  /* [GROUP, length] */
    double sum;
} evaluation;

/* The session counts rows from the group's beginning, the caller from that of the first sequence. */
static void pass_on(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                    const dsmoe_routing *routing)
{
    const evaluation *e = context;
    e->options->watch(e->options->context, layer, e->first * e->length + first, n_tokens, routing);
}

static dsmoe_status prepare(evaluation *e, dsmoe_error *error)
{
    int64_t n_group = e->n < GROUP ? e->n : GROUP, n_tokens;
    size_t size;
    if (!checked_mul_i64(n_group, e->length, &n_tokens) ||
        !checked_mul_size((size_t)n_tokens, sizeof *e->tokens, &size))
        return status_fail(error, DSMOE_ERROR_MEMORY, "sequences of %" PRId64 " tokens do not fit",
                           e->length);
    e->tokens = malloc(size);
    e->targets = malloc(size);
    e->losses = malloc(size);
    if (!e->tokens || !e->targets || !e->losses)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %" PRId64 " tokens",
                           n_tokens);
    for (int64_t i = 0; i < n_group; i++) {
        const dsmoe_session_options options = {
            .n_ctx = e->length,
            .n_batch = i > 0                  ? 1
                       : n_tokens < BATCH_MAX ? n_tokens
                                              : BATCH_MAX,
            .n_threads = i > 0 ? 1 : e->options->n_threads,
        };
        STATUS_TRY(dsmoe_session_create(e->model, &options, &e->sessions[i], error));
    }
    if (e->options->watch) dsmoe_session_watch(e->sessions[0], pass_on, e);
    return DSMOE_OK;
}

static void add_losses(evaluation *e, int64_t i)
{
    double sum = 0.0;
    for (int64_t t = 0; t < e->length; t++) sum += e->losses[i * e->length + t];
    if (e->options->losses) e->options->losses[e->first + i] = sum / (double)e->length;
    e->sum += sum;
}

static dsmoe_status run_group(evaluation *e, int64_t n_group, dsmoe_error *error)
{
    dsmoe_turn turns[GROUP] = {{0}};
    dsmoe_dataset_held_out(e->dataset, e->first, n_group, e->tokens, e->targets, NULL);
    STATUS_TRY(dsmoe_dataset_check(e->dataset, error));
    for (int64_t i = 0; i < n_group; i++) {
        STATUS_TRY(dsmoe_session_rewind(e->sessions[i], 0, error));
        turns[i] = (dsmoe_turn){.session = e->sessions[i],
                                .tokens = e->tokens + i * e->length,
                                .n_tokens = e->length,
                                .n_logits = e->length,
                                .targets = e->targets + i * e->length,
                                .loss = e->losses + i * e->length};
    }
    STATUS_TRY(dsmoe_session_forward(turns, n_group, error));
    for (int64_t i = 0; i < n_group; i++) add_losses(e, i);
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
    *loss = e->sum / ((double)e->n * (double)e->length);
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
    for (int i = 0; i < GROUP; i++) dsmoe_session_free(e.sessions[i]);
    free(e.tokens);
    free(e.targets);
    free(e.losses);
    return status;
}
