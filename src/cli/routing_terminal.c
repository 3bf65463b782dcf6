/* routing_terminal.c - prints the use of the experts, as wide as the terminal, or 80 columns. */
#include "cli/inspect_routing.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/heat_map.h"
#include "cli/table.h"
#include "report/token_label.h"

/* MAP_MARGIN is for the number of the layer and two of its figures, next to the map. */
enum { MIN_COLUMNS = 40, MAX_COLUMNS = 200, MAP_MARGIN = 16 };

static int screen_columns(void)
{
    int columns = cli_terminal_width(stdout);
    return columns < MIN_COLUMNS ? MIN_COLUMNS : columns > MAX_COLUMNS ? MAX_COLUMNS : columns;
}

/* ---- the map --------------------------------------------------------------------------------- */

/* How experts share the columns: an expert takes several columns, or several experts share one. */
typedef struct map_layout {
    int64_t n_cells, experts_per_cell;
    int width; /* of a cell */
} map_layout;

static map_layout map_fit(int64_t n_experts)
{
    int64_t columns = screen_columns() - MAP_MARGIN;
    map_layout layout = {.experts_per_cell = (n_experts + columns - 1) / columns};
    layout.n_cells = (n_experts + layout.experts_per_cell - 1) / layout.experts_per_cell;
    layout.width = (int)(columns / layout.n_cells);
    if (layout.width > 4) layout.width = 4;
    return layout;
}

/* The numbers of the experts above the map, as many as there is room for. */
static void print_axis(map_layout layout)
{
    char line[MAX_COLUMNS];
    size_t end = (size_t)layout.n_cells * (size_t)layout.width, free_from = 0;
    int64_t step = layout.n_cells > 32 ? 8 : layout.n_cells > 16 ? 4 : 1;
    memset(line, ' ', sizeof line);
    for (int64_t cell = 0; cell < layout.n_cells; cell += step) {
        char number[24];
        size_t at = (size_t)cell * (size_t)layout.width;
        int length = snprintf(number, sizeof number, "%" PRId64, cell * layout.experts_per_cell);
        if (at < free_from || at + (size_t)length > end) continue;
        memcpy(line + at, number, (size_t)length);
        free_from = at + (size_t)length + 1;
    }
    printf("    %.*s   max  entr\n", (int)end, line);
}

static void print_map(const routing_report *report)
{
    bool colour = cli_wants_colour(stdout);
    map_layout layout = map_fit(report->n_experts);
    puts("Load of the experts over the mean of their layer:");
    heat_map_legend(colour);
    print_axis(layout);
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        printf("%3" PRId64 " ", layer->layer);
        for (int64_t cell = 0; cell < layout.n_cells; cell++) {
            int64_t first = cell * layout.experts_per_cell, e = first;
            double sum = 0;
            for (; e < first + layout.experts_per_cell && e < report->n_experts; e++)
                sum += routing_relative_load(report, &layer->experts[e]);
            heat_map_cell(sum / (double)(e - first), colour, layout.width);
        }
        printf(" %5.*f %5.3f\n", layer->imbalance < 100 ? 2 : 0, layer->imbalance, layer->entropy);
    }
    if (layout.experts_per_cell > 1)
        printf("    each cell is the mean of %" PRId64 " experts\n", layout.experts_per_cell);
    puts("    max: largest load over the mean; entr: entropy of loads, 1 if all are equal");
}

/* ---- extremes and pairs ---------------------------------------------------------------------- */

enum { LOAD_COLUMNS = 11, MAX_PAIRS = 4 };

/* How many experts and pairs of a layer a line has room for. */
typedef struct extremes_layout {
    int n_loads, n_pairs;
    int digits; /* of an expert in a pair */
} extremes_layout;

static extremes_layout extremes_fit(const routing_report *report)
{
    int columns = screen_columns() - 8;
    extremes_layout layout = {.n_loads = columns < 4 * LOAD_COLUMNS ? 1 : 2, .digits = 2};
    for (int64_t n = 100; n < report->n_experts; n *= 10) layout.digits++;
    layout.n_pairs = (columns - 2 * layout.n_loads * LOAD_COLUMNS) / (2 * layout.digits + 9);
    if (layout.n_pairs > MAX_PAIRS) layout.n_pairs = MAX_PAIRS;
    if (report->k < 2) layout.n_pairs = 0;
    return layout;
}

static void print_loads(const routing_report *report, const routing_layer *layer, int64_t n,
                        int64_t from, int64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = from + i * step;
        if (at < 0 || at >= report->n_experts) {
            printf("%*s", LOAD_COLUMNS, "");
            continue;
        }
        int32_t e = layer->by_load[at];
        double share = 100 * routing_load(report, &layer->experts[e]);
        printf("%4" PRId32 " %4.*f %%", e, share < 99.95 ? 1 : 0, share);
    }
}

static void print_layers(const routing_report *report)
{
    extremes_layout layout = extremes_fit(report);
    int width = layout.n_loads * LOAD_COLUMNS;
    printf("\nlayer  %*s %*s%s\n", width, "most used", width, "least used",
           layout.n_pairs > 1    ? "  fire together (x chance)"
           : layout.n_pairs == 1 ? "  fire together"
                                 : "");
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        printf("%5" PRId64 "  ", layer->layer);
        print_loads(report, layer, layout.n_loads, 0, 1);
        fputs(" ", stdout);
        print_loads(report, layer, layout.n_loads, report->n_experts - 1, -1);
        for (int j = 0; j < layer->n_pairs && j < layout.n_pairs; j++) {
            const routing_pair *pair = &layer->pairs[j];
            printf("  %*" PRId32 "+%-*" PRId32 " %4.1fx", layout.digits, pair->first, layout.digits,
                   pair->second, pair->lift);
        }
        putchar('\n');
    }
}

static void print_biases(const routing_report *report)
{
    if (!report->layers[0].bias.values) return;
    puts("\nlayer  bias of the gate: lowest, mean and highest of its experts, and which they are");
    for (int64_t i = 0; i < report->n_layers; i++) {
        const gate_bias *bias = &report->layers[i].bias;
        int64_t low = 0, high = 0;
        for (int64_t e = 1; e < report->n_experts; e++) {
            if (bias->values[e] < bias->values[low]) low = e;
            if (bias->values[e] > bias->values[high]) high = e;
        }
        printf("%5" PRId64 "  %9.4f %9.4f %9.4f  experts %" PRId64 " and %" PRId64 "\n",
               report->layers[i].layer, bias->low, bias->mean, bias->high, low, high);
    }
}

/* ---- favourite tokens ------------------------------------------------------------------------ */

static void print_favourites(const routing_report *report, const routing_expert *expert, int column)
{
    for (int i = 0; i < expert->n_favourites; i++) {
        const routing_favourite *favourite = &expert->favourites[i];
        char label[TOKEN_LABEL], counts[32];
        int width = token_label(report->tokenizer, favourite->token, label);
        width += snprintf(counts, sizeof counts, " %" PRIu32 "/%" PRIu32, favourite->count,
                          favourite->total);
        column += 2 + width;
        if (column > screen_columns()) break;
        printf("  %s%s", label, counts);
    }
    putchar('\n');
}

/* How much an expert's choice tells about the token; experts that hardly fire tell little. */
static double specialisation(const routing_report *report, const routing_expert *expert)
{
    double sum = 0;
    double mean = (double)report->n_tokens * (double)report->k / (double)report->n_experts;
    for (int i = 0; i < expert->n_favourites; i++)
        sum += expert->favourites[i].count * log(expert->favourites[i].lift);
    return sum / ((double)expert->count + mean);
}

static void print_specialists(const routing_report *report)
{
    puts("\nThe most specialised expert of each layer with the tokens it likes most, and how\n"
         "many of their occurrences it got:");
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        int64_t best = 0;
        for (int64_t e = 1; e < report->n_experts; e++)
            if (specialisation(report, &layer->experts[e]) >
                specialisation(report, &layer->experts[best]))
                best = e;
        int column = printf("%3" PRId64 " expert %-3" PRId64, layer->layer, best);
        print_favourites(report, &layer->experts[best], column);
    }
}

static void print_experts(const routing_report *report, const routing_layer *layer)
{
    printf("\nThe experts of layer %" PRId64 ": load, mean gate value and the tokens they like\n"
           "most, with how many of their occurrences they got:\n",
           layer->layer);
    for (int64_t e = 0; e < report->n_experts; e++) {
        const routing_expert *expert = &layer->experts[e];
        int column = printf("%4" PRId64 " %5.2f %% %5.3f", e, 100 * routing_load(report, expert),
                            routing_mean_weight(expert));
        print_favourites(report, expert, column);
    }
}

void routing_print(const routing_report *report, int64_t layer)
{
    char tokens[TABLE_CELL], context[TABLE_CELL];
    printf("%s: %" PRId64 " MoE layer%s, top-%" PRId64 " of %" PRId64 " routed experts\n",
           report->model_path, report->n_layers, report->n_layers == 1 ? "" : "s", report->k,
           report->n_experts);
    printf("%s: %s token%s in contexts of %s, %.1f tokens/s\n\n", cli_input_name(report->text_path),
           number_group(report->n_tokens, tokens), report->n_tokens == 1 ? "" : "s",
           number_group(report->n_ctx, context),
           report->seconds > 0 ? (double)report->n_tokens / report->seconds : 0);
    print_map(report);
    print_layers(report);
    print_biases(report);
    if (layer < 0) print_specialists(report);
    for (int64_t i = 0; i < report->n_layers; i++)
        if (report->layers[i].layer == layer) print_experts(report, &report->layers[i]);
}
