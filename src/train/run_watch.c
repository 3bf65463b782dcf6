/* run_watch.c - measures the model while it is trained: its loss on text it never sees, which experts
 * serve which kind of text, and what it writes. Nothing here changes the model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "formats/documents.h"
#include "model/config.h"
#include "text/buffer.h"
#include "train/preference.h"
#include "train/run.h"
#include "train/team.h"

/* ---- held-out loss and routing by kind ------------------------------------------------------- */

typedef struct evaluation {
    run *run;
    int64_t n;          /* sequences */
    int *kinds;         /* [n] */
    double *losses;     /* [n] */
    int64_t *n_targets; /* [n] how many targets each loss is the mean of */
    int64_t *counts;    /* [n_moe_layers, n_kinds, n_routed_experts]; NULL: not wanted */
} evaluation;

static void count_choices(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                          const dsmoe_routing *routing)
{
    const evaluation *e = context;
    const run *r = e->run;
    int64_t k = r->config.num_experts_per_tok, n_experts = r->config.n_routed_experts;
    int64_t *of_layer =
        e->counts + config_moe_layers(&r->config, layer) * r->data.n_kinds * n_experts;
    for (int64_t i = 0; i < n_tokens; i++) {
        int kind = e->kinds[(first + i) / r->settings.seq];
        for (int64_t j = 0; j < k; j++) of_layer[kind * n_experts + routing->topk_idx[i * k + j]]++;
    }
}

/* Prepares kinds and losses of the sequences; with `routing`, also what count_choices needs, if there are
 * experts. */
static dsmoe_status prepare(evaluation *e, bool routing, dsmoe_error *error)
{
    const run *r = e->run;
    size_t n_counts = (size_t)(r->plan.n_moe_layers * r->data.n_kinds * r->config.n_routed_experts);
    routing = routing && n_counts > 0;
    e->kinds = calloc((size_t)e->n, sizeof *e->kinds);
    e->losses = calloc((size_t)e->n, sizeof *e->losses);
    e->n_targets = calloc((size_t)e->n, sizeof *e->n_targets);
    if (routing) e->counts = calloc(n_counts, sizeof *e->counts);
    if (!e->kinds || !e->losses || !e->n_targets || (routing && !e->counts))
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", r->folder);
    for (int64_t i = 0; i < e->n; i++)
        dsmoe_dataset_held_out(r->dataset, i, 1, r->tokens, r->targets, NULL, &e->kinds[i]);
    return DSMOE_OK;
}

/* Kinds of text that are among the sequences; not every kind has held-out text. */
typedef struct seen_kinds {
    int n, of[DOCUMENT_MAX_KINDS];
    const char *names[DOCUMENT_MAX_KINDS];
    double losses[DOCUMENT_MAX_KINDS];
} seen_kinds;

static void find_seen(const evaluation *e, seen_kinds *seen)
{
    const run *r = e->run;
    seen->n = 0;
    for (int kind = 0; kind < r->data.n_kinds; kind++) {
        double sum = 0, n = 0;
        for (int64_t i = 0; i < e->n; i++) {
            bool by_targets = r->data.is_packed && !r->data.has_pairs; /* otherwise weight is 1 */
            double weight = by_targets ? (double)e->n_targets[i] : 1;
            if (e->kinds[i] != kind) continue;
            sum += weight * e->losses[i];
            n += weight;
        }
        if (n == 0) continue;
        seen->of[seen->n] = kind;
        seen->names[seen->n] = dsmoe_dataset_kind_name(r->dataset, kind);
        seen->losses[seen->n++] = sum / n;
    }
}

/* Moves the counts of the seen kinds together: [n_moe_layers, n_seen, n_routed_experts]. */
static void close_up(const evaluation *e, const seen_kinds *seen)
{
    const run *r = e->run;
    int64_t n_experts = r->config.n_routed_experts, *to = e->counts;
    for (int64_t layer = 0; layer < r->plan.n_moe_layers; layer++)
        for (int i = 0; i < seen->n; i++, to += n_experts)
            memmove(to, e->counts + (layer * r->data.n_kinds + seen->of[i]) * n_experts,
                    (size_t)n_experts * sizeof *to);
}

/* Logs the loss, the loss of each kind of text that was seen, and which experts it chose. */
static dsmoe_status put_evaluation(const evaluation *e, double loss, dsmoe_error *error)
{
    const run *r = e->run;
    seen_kinds seen;
    find_seen(e, &seen);
    const metrics_eval line = {.step = r->state.step,
                               .loss = loss,
                               .kinds = seen.names,
                               .losses = seen.losses,
                               .n_kinds = r->data.n_kinds > 1 ? seen.n : 0,
                               .has_pairs = r->data.has_pairs,
                               .accuracy = r->held_out.accuracy,
                               .margin = r->held_out.margin};
    STATUS_TRY(metrics_put_eval(r->metrics, &line, error));
    if (!e->counts) return DSMOE_OK;
    close_up(e, &seen);
    return metrics_put_routing(r->metrics, r->state.step, seen.names, seen.n, e->counts,
                               r->plan.n_moe_layers, r->config.n_routed_experts, error);
}

static bool show_evaluation(void *context, double done, double total)
{
    const evaluation *e = context;
    run_progress progress = {e->run, "measuring the held-out loss"};
    return run_show_progress(&progress, done, total);
}

static dsmoe_held_out_options held_out_options(evaluation *e, bool counts)
{
    return (dsmoe_held_out_options){.n = e->n,
                                    .n_threads = e->run->options.n_threads,
                                    .losses = e->losses,
                                    .n_targets = e->n_targets,
                                    .watch = counts && e->counts ? count_choices : NULL,
                                    .progress = show_evaluation,
                                    .context = e};
}

/* log p(chosen) - log p(rejected) of a pair of sequences. */
static double margin_of(const evaluation *e, int64_t pair)
{
    int64_t i = 2 * pair;
    return e->losses[i + 1] * (double)e->n_targets[i + 1] - e->losses[i] * (double)e->n_targets[i];
}

/* Measures the base's margins, which preferences are compared with. They do not change, so this is done
 * once. */
static dsmoe_status refer(evaluation *e, dsmoe_error *error)
{
    run *r = e->run;
    run_preferences *p = &r->held_out;
    double loss;
    if (!r->data.has_pairs || p->n == e->n / 2) return DSMOE_OK;
    free(p->reference);
    p->n = 0;
    p->reference = malloc((size_t)(e->n / 2) * sizeof *p->reference);
    if (!p->reference)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", r->folder);
    const dsmoe_held_out_options options = held_out_options(e, false);
    STATUS_TRY(dsmoe_held_out_loss(r->tuning.base, r->dataset, &options, &loss, error));
    for (int64_t i = 0; i < e->n / 2; i++) p->reference[i] = margin_of(e, i);
    p->n = e->n / 2;
    return DSMOE_OK;
}

/* Computes the loss of preferences, which replaces the loss of their tokens. */
static double compare(const evaluation *e)
{
    run *r = e->run;
    run_preferences *p = &r->held_out;
    double sum = 0, slope;
    p->accuracy = p->margin = 0;
    for (int64_t i = 0; i < p->n; i++) {
        double margin = margin_of(e, i) - p->reference[i];
        double loss = preference_loss(r->settings.dpo_beta, margin, &slope);
        sum += loss;
        p->accuracy += (margin > 0) / (double)p->n;
        p->margin += r->settings.dpo_beta * margin / (double)p->n;
        e->losses[2 * i] = e->losses[2 * i + 1] = loss;
    }
    return sum / (double)p->n;
}

static dsmoe_status measure(evaluation *e, bool *measured, dsmoe_error *error)
{
    run *r = e->run;
    const dsmoe_held_out_options options = held_out_options(e, true);
    double loss = NAN;
    STATUS_TRY(team_begin_serving(r->trainer, error));
    dsmoe_status status = refer(e, error);
    if (status == DSMOE_OK)
        status = dsmoe_held_out_loss(dsmoe_trainer_model(r->trainer), r->dataset, &options, &loss,
                                     error);
    if (status == DSMOE_OK && r->data.has_pairs) loss = compare(e);
    STATUS_TRY(team_end_serving(r->trainer, error));
    *measured = status == DSMOE_OK || status == DSMOE_ERROR_NONFINITE;
    if (status == DSMOE_ERROR_STOPPED) return DSMOE_OK; /* the caller asked to stop */
    r->held_out_loss = isfinite(loss) ? loss : (double)NAN;
    /* A model that overflows on unseen text may still recover. */
    if (status == DSMOE_ERROR_NONFINITE) return DSMOE_OK;
    STATUS_TRY(status);
    dsmoe_error reason;
    run_log_result(r, put_evaluation(e, loss, &reason), &reason);
    return DSMOE_OK;
}

dsmoe_status run_evaluate(run *r, bool with_routing, bool *measured, dsmoe_error *error)
{
    *measured = false;
    evaluation e = {.run = r, .n = r->settings.eval_sequences};
    if (e.n == 0 || e.n > r->data.n_held_out) e.n = r->data.n_held_out;
    if (r->data.has_pairs) e.n += e.n % 2;
    dsmoe_status status = prepare(&e, with_routing, error);
    if (status == DSMOE_OK) status = measure(&e, measured, error);
    free(e.kinds);
    free(e.losses);
    free(e.n_targets);
    free(e.counts);
    return status;
}

/* ---- samples --------------------------------------------------------------------------------- */

typedef struct writing {
    const run *run;
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    dsmoe_sampler *sampler;
    float *logits;
    int32_t *ids; /* ids of the prompt */
    size_t n_ids;
    byte_buffer bytes; /* what was written */
} writing;

/* A text begins with the tokens that the tokenizer puts before it. If there are none, it begins after EOS,
 * the end of another text. */
static dsmoe_status encode_prompt(writing *w, dsmoe_error *error)
{
    const run *r = w->run;
    const char *prompt = r->settings.sample_prompt;
    STATUS_TRY(dsmoe_tokenizer_encode(r->tokenizer, prompt, strlen(prompt), DSMOE_ENCODE_BOS,
                                      &w->ids, &w->n_ids, error));
    if (w->n_ids > 0) return DSMOE_OK;
    free(w->ids);
    w->ids = calloc(1, sizeof *w->ids);
    if (!w->ids) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a sample");
    w->n_ids = 1;
    if (r->config.eos_token_id >= 0) *w->ids = (int32_t)r->config.eos_token_id;
    return DSMOE_OK;
}

static dsmoe_status open_engine(writing *w, dsmoe_error *error)
{
    const run *r = w->run;
    const dsmoe_model *model = dsmoe_trainer_model(r->trainer);
    dsmoe_engine_options options = {.n_ctx = (int64_t)w->n_ids + r->settings.sample_tokens,
                                    .same_bits = true, /* for any number of ranks */
                                    .n_threads = r->options.n_threads};
    STATUS_TRY(dsmoe_engine_create(model, &options, &w->engine, error));
    STATUS_TRY(dsmoe_sequence_create(w->engine, &w->sequence, error));
    dsmoe_sampler_options sampler = dsmoe_sampler_options_default();
    sampler.seed = (uint64_t)(r->settings.seed + r->state.step);
    STATUS_TRY(
        dsmoe_sampler_create(&sampler, dsmoe_tokenizer_size(r->tokenizer), &w->sampler, error));
    w->logits = malloc((size_t)r->config.vocab_size * sizeof *w->logits);
    return w->logits ? DSMOE_OK
                     : status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a sample");
}

static dsmoe_status write_tokens(writing *w, dsmoe_error *error)
{
    const run *r = w->run;
    STATUS_TRY(dsmoe_sequence_append(w->sequence, w->ids, (int64_t)w->n_ids, w->logits, error));
    for (int64_t i = 0; i < r->settings.sample_tokens; i++) {
        int32_t token;
        STATUS_TRY(dsmoe_sampler_pick(w->sampler, w->logits, &token, error));
        if (token == r->config.eos_token_id) break;
        size_t length = 0;
        const char *piece = dsmoe_tokenizer_piece(r->tokenizer, token, &length);
        if (piece) STATUS_TRY(byte_buffer_append(&w->bytes, piece, length, error));
        STATUS_TRY(dsmoe_sequence_append(w->sequence, &token, 1, w->logits, error));
    }
    return DSMOE_OK;
}

/* Turns the bytes, which may be anything, into a text that ends with NUL: bytes that are not a character
 * become U+FFFD. */
static dsmoe_status make_readable(const byte_buffer *bytes, byte_buffer *text, dsmoe_error *error)
{
    size_t end = dsmoe_utf8_complete(bytes->bytes, bytes->length);
    for (size_t at = 0, size; at < end; at += size) {
        uint32_t code = 0;
        size = utf8_decode(bytes->bytes + at, end - at, &code);
        bool shown = size > 0 && code != 0;
        if (size == 0) size = 1;
        STATUS_TRY(byte_buffer_append(text, shown ? bytes->bytes + at : "\xef\xbf\xbd",
                                      shown ? size : 3, error));
    }
    return byte_buffer_append(text, "", 1, error);
}

static void show_sample(run *r, const char *text)
{
    dsmoe_run_event event = run_event(r, DSMOE_RUN_SAMPLE);
    event.text = text;
    run_emit(r, &event);
    dsmoe_error error;
    run_log_result(
        r, metrics_put_sample(r->metrics, r->state.step, r->settings.sample_prompt, text, &error),
        &error);
}

dsmoe_status run_sample(run *r, dsmoe_error *error)
{
    if (!r->tokenizer || r->settings.sample_tokens == 0) return DSMOE_OK;
    writing w = {.run = r};
    byte_buffer text = {0};
    dsmoe_status status = encode_prompt(&w, error);
    if (status == DSMOE_OK) status = open_engine(&w, error);
    if (status == DSMOE_OK) status = team_begin_serving(r->trainer, error);
    if (status == DSMOE_OK) {
        status = write_tokens(&w, error);
        if (team_end_serving(r->trainer, error) != DSMOE_OK) status = DSMOE_ERROR_PEER;
    }
    if (status == DSMOE_OK) status = make_readable(&w.bytes, &text, error);
    if (status == DSMOE_OK) show_sample(r, text.bytes);
    if (status == DSMOE_ERROR_NONFINITE) status = DSMOE_OK; /* there is nothing to show */
    byte_buffer_free(&text);
    byte_buffer_free(&w.bytes);
    free(w.ids);
    free(w.logits);
    dsmoe_sampler_free(w.sampler);
    dsmoe_engine_free(w.engine);
    return status;
}
