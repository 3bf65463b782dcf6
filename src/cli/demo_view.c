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

/* ---- text of two parts, wrapped between words ------------------------------------------------ */

/* An untrained model can output anything, so only printable ASCII is passed to the terminal. */
static void put_plain(const char *text, int length)
{
    for (int i = 0; i < length; i++) putchar(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
}

/* Prints words from `column` on, later lines after the indent, and returns the column after them. */
static int put_words(const char *text, const char *style, int column, int indent, int width)
{
    const char *end = *style ? "\033[0m" : "";
    while (*text) {
        int blanks = (int)strspn(text, " "), letters = (int)strcspn(text + blanks, " ");
        if (column + blanks + letters > width && column > indent) {
            printf("\n%*s", indent, "");
            column = indent;
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

static void print_paragraph(const char *text)
{
    put_words(text, "", 0, 0, screen_columns());
    putchar('\n');
}

/* Without colour, an arrow separates the prompt from the answer. */
static void print_answer(const demo_answer *answer, bool right)
{
    bool colour = cli_wants_colour(stdout);
    int width = screen_columns();
    const char *dim = colour ? "\033[2m" : "", *off = colour ? "\033[0m" : "";
    const char *sign = !colour ? "" : right ? "\033[32m" : "\033[31m";
    const char *strong = !colour ? "" : right ? "\033[1;32m" : "\033[1;31m";
    printf("  %s%s%s ", sign, right ? "✓" : "✗", off);
    int column = put_words(answer->prompt, dim, INDENT, INDENT, width - 2);
    if (!colour) column += printf(" →") > 0 ? 2 : 0;
    put_words(*answer->text ? answer->text : " (nothing)", strong, column, INDENT, width);
    putchar('\n');
}

/* ---- the corpus ------------------------------------------------------------------------------ */

void demo_print_corpus(const char *folder, uint64_t seed, demo_size size)
{
    char examples[TABLE_CELL], bytes[CLI_BYTES], text[DSMOE_PATH + 128];
    int room = screen_columns() - LABEL - 2;
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        demo_example example;
        demo_make(kind, seed, false, 0, &example);
        bool cut = (int)example.length > room;
        printf("  %-*s%.*s%s\n", LABEL, demo_kinds[kind].name, cut ? room - 1 : room, example.text,
               cut ? "…" : "");
    }
    putchar('\n');
    snprintf(text, sizeof text, "%s: %s examples of %d kinds, %s, made from seed %" PRIu64, folder,
             number_group(size.n_examples, examples), DEMO_N_KINDS,
             cli_format_bytes((double)size.n_bytes, bytes), seed);
    print_paragraph(text);
    cli_flush();
}

/* ---- while it trains ------------------------------------------------------------------------- */

static void print_start(const dsmoe_run_event *event)
{
    const dsmoe_config *c = event->config;
    const dsmoe_trainer_memory *m = event->memory;
    char total[TABLE_CELL], active[TABLE_CELL], tokens[TABLE_CELL], bytes[CLI_BYTES], text[320];
    size_t memory = m->weights + m->gradients + m->moments + m->activations + m->workspace;
    snprintf(text, sizeof text,
             "%" PRId64 " layers, each with %" PRId64 " shared and %" PRId64
             " routed experts, of which a token takes %" PRId64
             "; %s parameters, %s of them active. %s tokens of text, %s of memory.",
             c->num_hidden_layers, c->n_shared_experts, c->n_routed_experts, c->num_experts_per_tok,
             number_shorten(event->parameters, total),
             number_shorten(event->active_parameters, active),
             number_group(event->data->n_tokens, tokens), cli_format_bytes((double)memory, bytes));
    print_paragraph(text);
    putchar('\n');
    cli_flush();
}

/* The unit is only "parts": some work counts two things in turn, and none takes long here. */
static void show_work(demo_watch *watch, const dsmoe_run_event *event)
{
    if (strcmp(watch->what, event->what)) {
        progress_finish(&watch->work);
        snprintf(watch->what, sizeof watch->what, "%s", event->what);
        watch->work = progress_start(watch->what, "parts");
    }
    progress_update(&watch->work, event->done, event->total);
}

static void clear_line(demo_watch *watch)
{
    progress_finish(&watch->work);
    progress_finish(&watch->training);
    *watch->what = '\0';
}

static void show_step(demo_watch *watch, const dsmoe_run_event *event)
{
    double tokens = (double)watch->tokens_per_step;
    progress_finish(&watch->work);
    snprintf(watch->label, sizeof watch->label, "training  loss %.3f", event->loss);
    progress_update(&watch->training, (double)event->step * tokens,
                    (double)event->n_steps * tokens);
    watch->step = event->step;
    watch->n_steps = event->n_steps;
    watch->loss = event->loss;
}

void demo_watch_event(demo_watch *watch, const dsmoe_run_event *event)
{
    switch (event->kind) {
    case DSMOE_RUN_PROGRESS: show_work(watch, event); break;
    case DSMOE_RUN_START:
        clear_line(watch);
        print_start(event);
        watch->training = progress_start(watch->label, "tokens");
        break;
    case DSMOE_RUN_STEP: show_step(watch, event); break;
    case DSMOE_RUN_EVAL: /* a line that is not redrawn */
        clear_line(watch);
        fprintf(stderr, "  step %4" PRId64 " of %" PRId64 "  loss %.3f  on text held out %.3f\n",
                watch->step, watch->n_steps, watch->loss, event->held_out_loss);
        break;
    case DSMOE_RUN_SKIP:
    case DSMOE_RUN_MESSAGE:
        clear_line(watch);
        fprintf(stderr, "  %s\n", event->text);
        break;
    case DSMOE_RUN_SAMPLE:
    case DSMOE_RUN_CHECKPOINT:
    case DSMOE_RUN_SEQUENCE: break;
    }
}

void demo_watch_end(demo_watch *watch) { clear_line(watch); }

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

/* ---- experts and kinds ----------------------------------------------------------------------- */

static void print_map(const demo_routing *r, int64_t place, const int32_t *order)
{
    bool colour = cli_wants_colour(stdout);
    int width = (screen_columns() - LABEL - 2) / (int)r->n_experts;
    if (width < 1) width = 1;
    heat_map_legend(colour);
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        printf("  %-*s", LABEL, demo_kinds[kind].name);
        for (int64_t i = 0; i < r->n_experts; i++)
            heat_map_cell(demo_relative_load(r, place, kind, order[i]), colour, width);
        putchar('\n');
    }
    putchar('\n');
}

/* The highest rate of all layers. */
static double best_shared_rate(const demo_routing *r, double *chance)
{
    double best = 0;
    for (int64_t place = 0; place < r->n_layers; place++) {
        double rate = demo_shared_guess_rate(r, place, chance);
        if (rate > best) best = rate;
    }
    return best;
}

/* An untrained gate also sends tokens somewhere, so the numbers after training must be compared with those
 * before it. */
static void print_rates(const demo_study *study, int64_t best)
{
    char text[640];
    double chance, before_chance;
    const demo_routing *r = &study->routing, *before = &study->untrained;
    snprintf(
        text, sizeof text,
        "From one expert that a token chose there, its kind can be guessed in %.0f %% of cases "
        "(%.0f %% before training, %.0f %% by chance). The %" PRId64
        " experts that a kind likes best get %.0f %% of its choices; %.0f %% would be no "
        "preference.",
        100 * demo_guess_rate(r, best), 100 * demo_guess_rate(before, demo_best_layer(before)),
        100.0 / DEMO_N_KINDS, r->k, 100 * demo_concentration(r, best),
        100 * (double)r->k / (double)r->n_experts);
    print_paragraph(text);
    double shared = best_shared_rate(r, &chance);
    if (shared == 0) return;
    snprintf(text, sizeof text,
             "Part of that is the token itself: a bracket belongs to brackets. For tokens that "
             "several kinds have in common, such as digits, commas and names, the token alone "
             "allows %.0f %%; with one expert of the best layer it is %.0f %% (%.0f %% before "
             "training).",
             100 * chance, 100 * shared, 100 * best_shared_rate(before, &before_chance));
    print_paragraph(text);
}

void demo_print_experts(const demo_study *study)
{
    const demo_routing *r = &study->routing;
    if (r->n_layers == 0 || r->n_experts == 0) return;
    int64_t best = demo_best_layer(r);
    int32_t *order = malloc((size_t)r->n_experts * sizeof *order);
    int *owner = malloc((size_t)r->n_experts * sizeof *owner);
    if (order && owner) {
        demo_order_experts(r, best, order, owner);
        printf("The %" PRId64 " experts of layer %" PRId64
               " side by side, by the kind that likes them most.\n"
               "How often a kind chooses each, over the mean:\n",
               r->n_experts, r->layers[best]);
        print_map(r, best, order);
        print_rates(study, best);
    }
    free(order);
    free(owner);
    cli_flush();
}

/* ---- next steps ------------------------------------------------------------------------------ */

void demo_print_next(const char *program, const char *folder, const char *report)
{
    printf("  report   %s\n"
           "  model    %s/latest\n"
           "  text     %s/corpus\n\n",
           report, folder, folder);
    printf("ask it something\n"
           "  %s generate -m %s/latest --temp 0 -p \"add 23 + 8 =\"\n",
           program, folder);
    printf("see which experts a text goes to\n"
           "  echo \"Dan saw a lamp.\" | %s inspect -m %s/latest --routing -\n",
           program, folder);
    printf("take experts away from it, as the paper does\n"
           "  %s eval -m %s/latest -f %s/sample.ids --ids --probes\n",
           program, folder, folder);
    printf("train on your own text, and compare the paper's architectures on it\n"
           "  %s train --data TEXT --out my-run\n"
           "  %s ablate --data TEXT --out my-ablation\n",
           program, program);
}
