/* train_view.c - shows a training run. */
#include "cli/train_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/table.h"
#include "cli/train_show.h"
#include "base/utf8.h"

enum { LINE_BYTES = 320, MARGIN = 3 };  /* a line that wraps cannot be cleared */
static const double redraw_after = 0.1; /* seconds */

train_view train_view_start(const char *command, int64_t log_every, bool quiet)
{
    return (train_view){.command = command,
                        .quiet = quiet,
                        .log_every = log_every > 0 ? log_every : 1,
                        .live = !quiet && cli_steers_terminal(stderr)};
}

/* ---- the line that is redrawn ---------------------------------------------------------------- */

static void end_work(train_view *v)
{
    if (v->working) progress_finish(&v->bar);
    v->working = NULL;
}

static void clear_line(train_view *v)
{
    end_work(v);
    if (!v->drawn) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    v->drawn = false;
}

void train_view_finish(train_view *v) { clear_line(v); }

/* "0:42", "12:05", "3:00:10". */
static void describe_duration(double seconds, char *out, size_t size)
{
    long long n = (long long)(seconds + 0.5);
    if (n < 3600)
        snprintf(out, size, "%lld:%02lld", n / 60, n % 60);
    else
        snprintf(out, size, "%lld:%02lld:%02lld", n / 3600, n / 60 % 60, n % 60);
}

/* In full if there is room, otherwise in short. */
static void describe_step(const dsmoe_run_event *e, int width, char line[LINE_BYTES])
{
    char left[32] = "?", device[40] = "", skipped[40] = "", pairs[64] = "";
    if (e->seconds_left >= 0) describe_duration(e->seconds_left, left, sizeof left);
    if (e->device_loss != 0) snprintf(device, sizeof device, " + %.4f", e->device_loss);
    if (e->n_skipped > 0) snprintf(skipped, sizeof skipped, "  skipped %" PRId64, e->n_skipped);
    if (e->data && e->data->has_pairs)
        snprintf(pairs, sizeof pairs, "  met %.2f  margin %.3f", e->accuracy, e->margin);
    int length =
        snprintf(line, LINE_BYTES,
                 "step %" PRId64 "/%" PRId64 "  loss %.4f%s  balance %.4f%s  lr %.2e  norm %.2f  "
                 "%.0f tokens/s  %s left  imbalance %.2f%s",
                 e->step, e->n_steps, e->loss, pairs, e->aux_loss, device, e->lr, e->grad_norm,
                 e->tokens_per_s, left, e->imbalance, skipped);
    if (length <= width) return;
    if (e->n_skipped > 0) snprintf(skipped, sizeof skipped, " skip %" PRId64, e->n_skipped);
    if (*pairs) snprintf(pairs, sizeof pairs, " met %.2f", e->accuracy);
    snprintf(line, LINE_BYTES,
             "%" PRId64 "/%" PRId64
             " loss %.3f%s bal %.3f lr %.1e norm %.1f imb %.1f %.0f tok/s %s%s",
             e->step, e->n_steps, e->loss, pairs, e->aux_loss + e->device_loss, e->lr, e->grad_norm,
             e->imbalance, e->tokens_per_s, left, skipped);
}

/* Whether the line of a step stays, and scrolls up. */
static bool is_kept(const train_view *v, const dsmoe_run_event *e)
{
    return e->step % v->log_every == 0 || e->step == e->first_step + 1 || e->step == e->n_steps;
}

static void show_step(train_view *v, const dsmoe_run_event *e)
{
    char line[LINE_BYTES];
    int width = v->live ? cli_terminal_width(stderr) - MARGIN : LINE_BYTES;
    if (is_kept(v, e)) {
        clear_line(v);
        describe_step(e, width, line);
        fprintf(stderr, "%s\n", line);
        return;
    }
    double now = cli_seconds();
    if (!v->live || (v->drawn && now - v->drawn_at < redraw_after)) return;
    end_work(v);
    describe_step(e, width, line);
    fprintf(stderr, "\r%.*s\033[K", width > 0 ? width : 0, line);
    fflush(stderr);
    v->drawn = true;
    v->drawn_at = now;
}

/* Training a tokenizer counts bytes and then, in the same work, merges. */
static const char *unit_of(const char *what, bool again)
{
    if (strstr(what, "loss")) return "sequences";
    return again ? "merges" : "bytes";
}

static void show_progress(train_view *v, const dsmoe_run_event *e)
{
    if (!v->live) return;
    bool same = v->working && !strcmp(v->working, e->what);
    if (!same || e->done < v->done) {
        end_work(v);
        v->working = e->what;
        v->bar = progress_start(e->what, unit_of(e->what, same));
    }
    v->done = e->done;
    progress_update(&v->bar, e->done, e->total);
}

/* ---- before the first step ------------------------------------------------------------------- */

static void show_model(const dsmoe_run_event *e)
{
    char total[TABLE_CELL], active[TABLE_CELL];
    const dsmoe_config *c = e->config;
    fprintf(stderr,
            "model   %s parameters, %s of them active for a token; %" PRId64
            " layers of width %" PRId64,
            number_shorten(e->parameters, total), number_shorten(e->active_parameters, active),
            c->num_hidden_layers, c->hidden_size);
    if (c->n_routed_experts > 0)
        fprintf(stderr, ", %" PRId64 " + %" PRId64 " experts, top-%" PRId64, c->n_shared_experts,
                c->n_routed_experts, c->num_experts_per_tok);
    fprintf(stderr, ", %" PRId64 " token ids\n", c->vocab_size);
}

/* Says how many conversations share the sequences, and how much of them is learned. */
static void show_packing(const dsmoe_dataset_info *d)
{
    char conversations[TABLE_CELL], targets[TABLE_CELL];
    double places = (double)d->n_train * (double)d->sequence_length;
    fprintf(stderr, "        %s %s fill %.1f %% of these, %s of their tokens are targets\n",
            number_group(d->n_conversations, conversations),
            d->has_pairs ? "preferences" : "conversations",
            100.0 * (double)d->n_packed_tokens / places, number_group(d->n_targets, targets));
}

static void show_data(const dsmoe_run_event *e)
{
    char tokens[TABLE_CELL], train[TABLE_CELL], held_out[TABLE_CELL], bytes[CLI_BYTES];
    const dsmoe_dataset_info *d = e->data;
    fprintf(stderr, "data    %s tokens", number_group(d->n_tokens, tokens));
    if (d->n_bytes > 0)
        fprintf(stderr, " from %s of text", cli_format_bytes((double)d->n_bytes, bytes));
    fprintf(stderr, ": %s sequences of %" PRId64 " to learn from, %s held out%s\n",
            number_group(d->n_train, train), d->sequence_length,
            number_group(d->n_held_out, held_out),
            d->cache_built ? "" : " (tokens from the cache)");
    if (d->is_packed) show_packing(d);
}

static void show_memory(const dsmoe_run_event *e)
{
    const dsmoe_trainer_memory *m = e->memory;
    char all[CLI_BYTES], weights[CLI_BYTES], rest[CLI_BYTES], kept[CLI_BYTES], base[CLI_BYTES];
    double weights_all = (double)m->weights + (double)m->gradients + (double)m->moments;
    fprintf(stderr, "memory  %s: ",
            cli_format_bytes(weights_all + (double)m->activations + (double)m->workspace +
                                 (double)m->base,
                             all));
    if (m->base > 0)
        fprintf(stderr,
                "the model %s; for what is trained: ", cli_format_bytes((double)m->base, base));
    fprintf(stderr, "weights, gradients and moments %s, activations %s, workspace %s\n",
            cli_format_bytes(weights_all, weights), cli_format_bytes((double)m->activations, kept),
            cli_format_bytes((double)m->workspace, rest));
}

static void show_start(train_view *v, const dsmoe_run_event *e)
{
    clear_line(v);
    show_model(e);
    show_data(e);
    show_memory(e);
    if (e->first_step > 0)
        fprintf(stderr, "resume  after step %" PRId64 " of %" PRId64 "\n", e->first_step,
                e->n_steps);
    if (e->text) fprintf(stderr, "changed %s\n", e->text);
}

/* ---- lines to keep --------------------------------------------------------------------------- */

static void show_eval(const dsmoe_run_event *e)
{
    fprintf(stderr, "step %" PRId64 ": held-out loss %.4f ", e->step, e->held_out_loss);
    if (e->data && e->data->has_pairs)
        fprintf(stderr, "(met %.2f, margin %.3f)", e->accuracy, e->margin);
    else
        fprintf(stderr, "(perplexity %.2f)", exp(e->held_out_loss));
    if (!isnan(e->best_loss)) fprintf(stderr, ", best checkpoint %.4f", e->best_loss);
    fputc('\n', stderr);
}

/* A model that has just begun to learn may write anything, so the terminal gets no control characters. */
static void show_sample(const dsmoe_run_event *e)
{
    size_t length = strlen(e->text);
    uint32_t code = 0;
    fprintf(stderr, "step %" PRId64 ": it writes\n    ", e->step);
    for (size_t i = 0, size; i < length; i += size) {
        size = utf8_decode(e->text + i, length - i, &code);
        bool shown = size > 0 && code >= 0x20 && (code < 0x7f || code > 0x9f);
        if (size == 0) size = 1;
        if (shown)
            fwrite(e->text + i, 1, size, stderr);
        else
            fputs(code == '\n' ? "\n    " : " ", stderr);
    }
    fputc('\n', stderr);
}

/* The live line comes back with the next step. */
void train_view_event(void *view, const dsmoe_run_event *e)
{
    train_view *v = view;
    if (e->kind == DSMOE_RUN_MESSAGE) {
        clear_line(v);
        cli_failure(v->command, "%s", e->text);
        return;
    }
    if (e->kind == DSMOE_RUN_SEQUENCE) { /* what --show-data asked for */
        clear_line(v);
        train_show_sequence(e->sequence);
        return;
    }
    if (v->quiet) return;
    if (e->kind == DSMOE_RUN_PROGRESS) {
        show_progress(v, e);
        return;
    }
    if (e->kind == DSMOE_RUN_STEP) {
        show_step(v, e);
        return;
    }
    clear_line(v);
    switch (e->kind) {
    case DSMOE_RUN_START: show_start(v, e); break;
    case DSMOE_RUN_EVAL: show_eval(e); break;
    case DSMOE_RUN_SAMPLE: show_sample(e); break;
    case DSMOE_RUN_CHECKPOINT:
        fprintf(stderr, "step %" PRId64 ": saved %s\n", e->step, e->path);
        break;
    case DSMOE_RUN_SKIP:
        fprintf(stderr, "step %" PRId64 ": skipped, %s (%" PRId64 " so far)\n", e->step, e->text,
                e->n_skipped);
        break;
    default: break;
    }
}
