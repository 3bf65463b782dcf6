/* demo_view.c - what `dsmoe demo` prints, on a terminal of any width and without one. */
#include "cli/demo_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/heat_map.h"
#include "cli/table.h"

enum { MIN_COLUMNS = 40, MAX_COLUMNS = 120, LABEL = 11, INDENT = 4 };

static int screen_columns(void)
{
    int columns = cli_terminal_width(stdout) - 1;
    return columns < MIN_COLUMNS ? MIN_COLUMNS : columns > MAX_COLUMNS ? MAX_COLUMNS : columns;
}

void demo_print_title(const char *title)
{
    bool colour = cli_wants_colour(stdout);
    printf("\n%s%s%s\n\n", colour ? "\033[1m" : "", title, colour ? "\033[0m" : "");
    cli_flush();
}

/* ---- text of two parts, wrapped between words ------------------------------------------------- */

/* Of an untrained model anything may come, and a terminal is not to obey it. */
static void put_plain(const char *text, int length)
{
    for (int i = 0; i < length; i++) putchar(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
}

/* Prints words from `column` on and returns the column behind them. */
static int put_words(const char *text, const char *style, int column, int width)
{
    const char *end = *style ? "\033[0m" : "";
    while (*text) {
        int blanks = (int)strspn(text, " "), letters = (int)strcspn(text + blanks, " ");
        if (column + blanks + letters > width && column > INDENT) {
            printf("\n%*s", INDENT, "");
            column = INDENT;
            text += blanks;
            blanks = 0;
        }
        fputs(style, stdout);
        put_plain(text, blanks + letters);
        fputs(end, stdout);
        text += blanks + letters;
        column += blanks + letters;
    }
    return column;
}

/* Without colour an arrow stands between what was given and what was written. */
static void print_answer(const demo_answer *answer, bool right)
{
    bool colour = cli_wants_colour(stdout);
    int width = screen_columns();
    const char *dim = colour ? "\033[2m" : "", *off = colour ? "\033[0m" : "";
    const char *sign = !colour ? "" : right ? "\033[32m" : "\033[31m";
    const char *strong = !colour ? "" : right ? "\033[1;32m" : "\033[1;31m";
    printf("  %s%s%s ", sign, right ? "✓" : "✗", off);
    int column = put_words(answer->prompt, dim, INDENT, width - 2);
    if (!colour) column += printf(" →") > 0 ? 2 : 0;
    put_words(*answer->text ? answer->text : " (nothing)", strong, column, width);
    putchar('\n');
}

/* ---- the corpus ------------------------------------------------------------------------------ */

void demo_print_corpus(const char *folder, uint64_t seed, demo_size size)
{
    char examples[TABLE_CELL], bytes[CLI_BYTES];
    int room = screen_columns() - LABEL - 2;
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        demo_example example;
        demo_make(kind, seed, false, 0, &example);
        bool cut = (int)example.length > room;
        printf("  %-*s%.*s%s\n", LABEL, demo_kinds[kind].name, cut ? room - 1 : room, example.text,
               cut ? "…" : "");
    }
    printf("\n%s: %s examples of %d kinds, %s, made from seed %" PRIu64 "\n", folder,
           number_group(size.n_examples, examples), DEMO_N_KINDS,
           cli_format_bytes((double)size.n_bytes, bytes), seed);
    cli_flush();
}

/* ---- while it trains ------------------------------------------------------------------------- */

static void print_start(const dsmoe_run_event *event)
{
    const dsmoe_config *c = event->config;
    const dsmoe_trainer_memory *m = event->memory;
    char total[TABLE_CELL], active[TABLE_CELL], tokens[TABLE_CELL], bytes[CLI_BYTES];
    size_t memory = m->weights + m->gradients + m->moments + m->activations + m->workspace;
    printf("%" PRId64 " layers, each with %" PRId64 " shared and %" PRId64
           " routed experts, of which a token takes %" PRId64 ":\n"
           "%s parameters, %s of them active; %s tokens of text, %s of memory\n",
           c->num_hidden_layers, c->n_shared_experts, c->n_routed_experts, c->num_experts_per_tok,
           number_shorten(event->parameters, total),
           number_shorten(event->active_parameters, active),
           number_group(event->data->n_tokens, tokens), cli_format_bytes((double)memory, bytes));
    cli_flush();
}

static void begin_bar(demo_watch *watch, const char *what, const char *unit)
{
    progress_finish(&watch->bar);
    snprintf(watch->label, sizeof watch->label, "%s", what);
    snprintf(watch->what, sizeof watch->what, "%s", what);
    watch->bar = progress_start(watch->label, unit);
}

static void show_step(demo_watch *watch, const dsmoe_run_event *event)
{
    double tokens = (double)watch->tokens_per_step;
    if (strcmp(watch->what, "training")) begin_bar(watch, "training", "tokens");
    snprintf(watch->label, sizeof watch->label, "training  loss %.3f", event->loss);
    progress_update(&watch->bar, (double)event->step * tokens, (double)event->n_steps * tokens);
    watch->step = event->step;
    watch->n_steps = event->n_steps;
    watch->loss = event->loss;
}

/* Held-out loss is measured now and then: a line that stays. */
static void show_eval(demo_watch *watch, const dsmoe_run_event *event)
{
    progress_finish(&watch->bar);
    fprintf(stderr, "  step %4" PRId64 " of %" PRId64 "  loss %.3f  on text held out %.3f\n",
            watch->step, watch->n_steps, watch->loss, event->held_out_loss);
}

void demo_watch_event(demo_watch *watch, const dsmoe_run_event *event)
{
    switch (event->kind) {
    case DSMOE_RUN_PROGRESS:
        if (strcmp(watch->what, event->what)) begin_bar(watch, event->what, "items");
        progress_update(&watch->bar, event->done, event->total);
        break;
    case DSMOE_RUN_START:
        progress_finish(&watch->bar);
        print_start(event);
        break;
    case DSMOE_RUN_STEP: show_step(watch, event); break;
    case DSMOE_RUN_EVAL: show_eval(watch, event); break;
    case DSMOE_RUN_SKIP:
    case DSMOE_RUN_MESSAGE:
        progress_finish(&watch->bar);
        fprintf(stderr, "  %s\n", event->text);
        break;
    case DSMOE_RUN_SAMPLE:
    case DSMOE_RUN_CHECKPOINT: break;
    }
}

void demo_watch_end(demo_watch *watch) { progress_finish(&watch->bar); }

/* ---- what it learned ------------------------------------------------------------------------- */

static void print_bar(int part, int whole)
{
    enum { WIDTH = 20 };
    int filled = whole ? part * WIDTH / whole : 0;
    for (int i = 0; i < WIDTH; i++) fputs(i < filled ? "█" : "░", stdout);
}

void demo_print_scores(const demo_study *study)
{
    bool colour = cli_wants_colour(stdout);
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        const demo_score *score = &study->scores[kind];
        printf("%s%-*s%s", colour ? "\033[1m" : "", LABEL, demo_kinds[kind].name,
               colour ? "\033[0m" : "");
        print_bar(score->n_right, score->n_asked);
        printf("  %2d of %d right: %s\n", score->n_right, score->n_asked, demo_kinds[kind].task);
        if (score->right.given) print_answer(&score->right, true);
        if (score->wrong.given) print_answer(&score->wrong, false);
    }
    cli_flush();
}

/* ---- who does what --------------------------------------------------------------------------- */

static void print_map(const demo_study *study, int64_t place, const int32_t *order)
{
    bool colour = cli_wants_colour(stdout);
    int width = (screen_columns() - LABEL - 2) / (int)study->n_experts;
    if (width < 1) width = 1;
    heat_map_legend(colour);
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        printf("  %-*s", LABEL, demo_kinds[kind].name);
        for (int64_t i = 0; i < study->n_experts; i++)
            heat_map_cell(demo_relative_load(study, place, kind, order[i]), colour, width);
        putchar('\n');
    }
}

static void print_rates(const demo_study *study, int64_t best)
{
    printf(
        "\nFrom one expert that a token chose in layer %" PRId64 ", its kind can be guessed in "
        "%.0f %% of the\ncases; by chance in %.0f %%. The %" PRId64
        " favourites of a kind get %.0f %% of its choices there;\nwithout any preference it would "
        "be %.0f %%. The guess, layer by layer:",
        study->layers[best], 100 * demo_guess_rate(study, best), 100.0 / DEMO_N_KINDS, study->k,
        100 * demo_concentration(study, best), 100 * (double)study->k / (double)study->n_experts);
    for (int64_t place = 0; place < study->n_layers; place++)
        printf("%s %.0f %%", place ? "," : "", 100 * demo_guess_rate(study, place));
    putchar('\n');
}

void demo_print_experts(const demo_study *study)
{
    if (study->n_layers == 0 || study->n_experts == 0) return;
    int64_t best = demo_best_layer(study);
    int32_t *order = malloc((size_t)study->n_experts * sizeof *order);
    int *owner = malloc((size_t)study->n_experts * sizeof *owner);
    if (order && owner) {
        demo_order_experts(study, best, order, owner);
        printf("The %" PRId64 " experts of layer %" PRId64
               ", a column each, those of one kind side by side; load over the mean:\n",
               study->n_experts, study->layers[best]);
        print_map(study, best, order);
        print_rates(study, best);
    }
    free(order);
    free(owner);
    cli_flush();
}

void demo_print_next(const char *folder, const char *report)
{
    printf("  report   %s\n"
           "  model    %s/latest\n"
           "  text     %s/corpus\n\n"
           "  dsmoe generate -m %s/latest --temp 0 -p \"23 + 58 =\"\n"
           "  dsmoe inspect -m %s/latest --routing %s/corpus/stories/examples.jsonl\n"
           "  dsmoe eval -m %s/latest -f %s/corpus/dates/examples.jsonl --probes\n"
           "  dsmoe train --data YOUR-TEXT --out my-model\n"
           "  dsmoe ablate --data %s/corpus --scale tiny\n",
           report, folder, folder, folder, folder, folder, folder, folder, folder);
}
