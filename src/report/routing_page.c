/* routing_page.c - a routing report as one page that needs no other file.
 *
 * Each layer has a section of its own with loads, pairs and tokens. Without scripts the sections follow each
 * other; the script shows one at a time and draws how its experts fire together. */
#include "report/routing_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/chart.h"
#include "report/digits.h"
#include "report/heatmap.h"
#include "report/page.h"
#include "report/seriation.h"
#include "report/token_label.h"

/* ---- head ------------------------------------------------------------------------------------ */

static void put_balance_facts(FILE *html, const routing_report *report)
{
    const routing_layer *worst = &report->layers[0];
    double entropy = 0;
    int64_t n_unused = 0;
    char value[2 * DIGITS], more[2 * DIGITS];
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        entropy += layer->entropy / (double)report->n_layers;
        n_unused += layer->n_unused;
        if (layer->imbalance > worst->imbalance) worst = layer;
    }
    snprintf(value, sizeof value, "%.3f", entropy);
    page_fact(html, "entropy of loads", value, "mean of the layers; 1: all equal");
    snprintf(value, sizeof value, "%.2f ×", worst->imbalance);
    snprintf(more, sizeof more, "the mean load, in layer %" PRId64, worst->layer);
    page_fact(html, "busiest expert", value, more);
    snprintf(more, sizeof more, "of %" PRId64 " experts", report->n_layers * report->n_experts);
    page_fact(html, "never chosen", digits_group((double)n_unused, value), more);
}

static void put_facts(FILE *html, const routing_report *report)
{
    const dsmoe_config *config = report->config;
    dsmoe_model_plan plan;
    char value[2 * DIGITS], more[2 * DIGITS], number[DIGITS];
    fputs("<dl class=\"facts\">\n", html);
    if (dsmoe_model_plan_make(config, 1, &plan, NULL) == DSMOE_OK) {
        snprintf(more, sizeof more, "%s active for a token",
                 digits_short((double)plan.active, number));
        page_fact(html, "parameters", digits_short((double)plan.total, value), more);
    }
    snprintf(value, sizeof value, "%" PRId64, report->n_layers);
    snprintf(more, sizeof more, "of %" PRId64 ", hidden size %" PRId64, config->num_hidden_layers,
             config->hidden_size);
    page_fact(html, "MoE layers", value, more);
    snprintf(value, sizeof value, "%" PRId64 " of %" PRId64, report->k, report->n_experts);
    snprintf(more, sizeof more, "and %" PRId64 " shared, width %" PRId64, config->n_shared_experts,
             config->moe_intermediate_size);
    page_fact(html, "experts for a token", value, more);
    snprintf(more, sizeof more, "in contexts of %s%s", digits_group((double)report->n_ctx, number),
             report->interrupted ? "; interrupted" : "");
    page_fact(html, "tokens", digits_group((double)report->n_tokens, value), more);
    put_balance_facts(html, report);
    fputs("</dl>\n", html);
}

/* Where the last part of a path begins, if the path is cut at `end`. */
static size_t part_start(const char *path, size_t end)
{
    while (end > 0 && path[end - 1] != '/') end--;
    return end;
}

/* The last part of a path, without slashes at its end, in memory to free(). Many runs have a folder of that
 * name if it is "latest", "best" or "step-…", so the part before belongs to the name. */
static char *last_part(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = part_start(path, end), size = end - start;
    const char *part = path + start;
    bool usual = (size == 6 && !strncmp(part, "latest", 6)) ||
                 (size == 4 && !strncmp(part, "best", 4)) || !strncmp(part, "step-", 5);
    if (usual && start > 1) start = part_start(path, start - 1);
    return strndup(path + start, end - start);
}

static void put_head(FILE *html, const routing_report *report)
{
    bool named = strcmp(report->text_path, "-") != 0;
    char *model = last_part(report->model_path), *text = last_part(report->text_path),
         *title = NULL;
    if (asprintf(&title, "Experts of %s", model ? model : "a model") < 0) title = NULL;
    page_open(html, title ? title : "Experts", 0);
    fputs("<header>\n<h1>", html);
    page_text_cut(html, title ? title : "Experts", 100);
    fputs("</h1>\n<p>and what they do with ", html);
    page_text_cut(html, named && text ? text : "a text", 100);
    fputs(
        ". Point at a mark for its value, or go to a chart with Tab and to its marks with the arrow"
        " keys.</p>\n</header>\n",
        html);
    put_facts(html, report);
    free(title);
    free(text);
    free(model);
}

/* ---- loads ----------------------------------------------------------------------------------- */

typedef struct layer_view {
    const routing_report *report;
    const routing_layer *layer;
} layer_view;

/* Writes what is known of an expert, for hovering. */
static void put_expert_title(FILE *html, const routing_report *report, const routing_layer *layer,
                             size_t e)
{
    const routing_expert *expert = &layer->experts[e];
    char count[DIGITS], all[DIGITS];
    fprintf(html,
            "layer %" PRId64
            ", expert %zu: chosen by %s of %s tokens,\n%.2f %% of the choices, %.2f"
            " × the mean",
            layer->layer, e, digits_group((double)expert->count, count),
            digits_group((double)report->n_tokens, all), 100 * routing_load(report, expert),
            routing_relative_load(report, expert));
    if (expert->count) fprintf(html, "; mean gate value %.3f", routing_mean_weight(expert));
    if (layer->bias.values) fprintf(html, "; bias %.4f", (double)layer->bias.values[e]);
}

static double map_value(const void *context, size_t layer, size_t e)
{
    const routing_report *report = context;
    const routing_expert *expert = &report->layers[layer].experts[e];
    return expert->count ? routing_relative_load(report, expert) : (double)NAN;
}

static void put_map_title(FILE *html, const void *context, size_t layer, size_t e)
{
    const routing_report *report = context;
    put_expert_title(html, report, &report->layers[layer], e);
}

static void put_map(FILE *html, const routing_report *report)
{
    enum { NAME = 24, ROW = 18 };
    size_t n = (size_t)report->n_layers;
    const char **names = malloc(n * sizeof *names);
    char(*texts)[NAME] = malloc(n * sizeof *texts);
    for (size_t i = 0; names && texts && i < n; i++) {
        snprintf(texts[i], NAME, "%" PRId64, report->layers[i].layer);
        names[i] = texts[i];
    }
    const heatmap map = {.name = "Load of each expert of each layer",
                         .n_rows = n,
                         .n_columns = (size_t)report->n_experts,
                         .row_height = ROW,
                         .value = map_value,
                         .context = report,
                         .x_name = "expert",
                         .y_name = "layer",
                         .row_names = texts ? names : NULL,
                         .title = put_map_title,
                         .title_cells = true,
                         .rows_lead = true};
    page_card_open(
        html, "Load of the experts",
        "Each cell is an expert of a layer: its share of the choices, divided by the mean of"
        " the layer. A click or the Enter key shows that layer below.");
    heatmap_legend(html, "load over the mean", "never");
    heatmap_put(html, &map);
    page_card_close(html);
    free(texts);
    free(names);
}

typedef struct curve {
    const char *title, *about, *name, *y_name;
    size_t field;      /* the offset of a double in a routing_layer */
    double low, high;  /* the axis covers at least these; NAN: those of the data */
    const char *level; /* the name of the line at 1; NULL: none */
} curve;

static void put_curve(FILE *html, const routing_report *report, const curve *c)
{
    size_t n = (size_t)report->n_layers;
    series_point *points = calloc(n, sizeof *points);
    for (size_t i = 0; points && i < n; i++) {
        double y;
        memcpy(&y, (const char *)&report->layers[i] + c->field, sizeof y);
        points[i] = (series_point){(double)report->layers[i].layer, y, y, y, 1};
    }
    const chart_line line = {c->name, "t1", points, points ? n : 0, CHART_DOTS};
    chart shown = chart_make(c->title, "layer", c->y_name);
    shown.lines = &line;
    shown.n_lines = 1;
    shown.y_low = c->low;
    shown.y_high = c->high;
    shown.level_name = c->level;
    shown.level = 1;
    page_card_open(html, c->title, c->about);
    chart_put(html, &shown);
    page_card_close(html);
    free(points);
}

static void put_curves(FILE *html, const routing_report *report)
{
    const curve imbalance = {"Imbalance",
                             "The largest load of a layer, divided by the mean.",
                             "busiest expert",
                             "× the mean",
                             offsetof(routing_layer, imbalance),
                             1,
                             1.5,
                             "all loads equal"};
    const curve entropy = {"Entropy",
                           "The entropy of a layer’s loads over its greatest possible value.",
                           "this layer",
                           "entropy",
                           offsetof(routing_layer, entropy),
                           0.99,
                           1,
                           "all loads equal"};
    const curve bias = {"Bias of the gates",
                        "The highest bias of a layer’s experts minus the lowest. The gate adds the"
                        " bias to the scores when it chooses experts.",
                        "spread",
                        "bias",
                        offsetof(routing_layer, bias_spread),
                        0,
                        0.001,
                        NULL};
    fputs("<div class=\"grid2\">\n", html);
    put_curve(html, report, &imbalance);
    put_curve(html, report, &entropy);
    if (report->layers[0].bias.values) put_curve(html, report, &bias);
    fputs("</div>\n", html);
}

static double column_value(const void *context, size_t e)
{
    const layer_view *view = context;
    return routing_load(view->report, &view->layer->experts[e]);
}

static void put_column_title(FILE *html, const void *context, size_t e)
{
    const layer_view *view = context;
    put_expert_title(html, view->report, view->layer, e);
}

static void put_loads(FILE *html, const routing_report *report, const routing_layer *layer)
{
    const layer_view view = {report, layer};
    const chart_columns columns = {.name = "Load of each expert",
                                   .x_name = "expert",
                                   .y_name = "share of the choices",
                                   .level_name = "mean",
                                   .level = 1 / (double)report->n_experts,
                                   .n = (size_t)report->n_experts,
                                   .value = column_value,
                                   .title = put_column_title,
                                   .context = &view};
    chart_columns_put(html, &columns);
}

/* ---- experts that fire together -------------------------------------------------------------- */

static uint32_t count_both(const routing_report *report, const routing_layer *layer, int32_t a,
                           int32_t b)
{
    return layer->together[(a < b ? a : b) * report->n_experts + (a < b ? b : a)];
}

/* Lists the experts that were chosen at all, with experts that fire together side by side. Returns how many;
 * 0 also if out of memory. */
static size_t order_experts(const routing_report *report, const routing_layer *layer,
                            int32_t *experts)
{
    size_t n = 0;
    for (int32_t e = 0; e < report->n_experts; e++)
        if (layer->experts[e].count) experts[n++] = e;
    double *affinity = calloc(n * n, sizeof *affinity);
    int32_t *order = calloc(n, sizeof *order);
    for (size_t i = 0; affinity && i < n * n; i++) {
        int32_t a = experts[i / n], b = experts[i % n];
        /* Adds one token to both counts, as the matrix does: rare pairs say little. */
        if (a != b)
            affinity[i] = log((count_both(report, layer, a, b) + 1.0) /
                              (routing_expected(report, layer, a, b) + 1));
    }
    bool ok = affinity && order && seriation_order(affinity, n, order);
    for (size_t i = 0; ok && i < n; i++) order[i] = experts[order[i]];
    if (ok) memcpy(experts, order, n * sizeof *order);
    free(order);
    free(affinity);
    return ok ? n : 0;
}

static void put_base36(FILE *html, uint32_t number)
{
    if (number >= 36) put_base36(html, number / 36);
    fputc("0123456789abcdefghijklmnopqrstuvwxyz"[number % 36], html);
}

static void put_matrix_data(FILE *html, const routing_report *report, const routing_layer *layer,
                            const int32_t *experts, size_t n)
{
    fputs("<canvas role=\"img\" aria-label=\"How often each two experts fire together\""
          " data-experts=\"",
          html);
    for (size_t i = 0; i < n; i++) fprintf(html, "%s%" PRId32, i ? "," : "", experts[i]);
    fputs("\" data-counts=\"", html);
    for (size_t i = 0; i < n; i++)
        fprintf(html, "%s%" PRId64, i ? "," : "", layer->experts[experts[i]].count);
    const routing_expert *first = &layer->experts[experts[0]],
                         *second = &layer->experts[experts[1]];
    fprintf(html, "\" data-chance=\"%.9g\" data-pairs=\"",
            routing_expected(report, layer, experts[0], experts[1]) / (double)first->count /
                (double)second->count);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            uint32_t count = count_both(report, layer, experts[i], experts[j]);
            if (i + j > 1) fputc(',', html);
            if (count) put_base36(html, count);
        }
    fputs("\"></canvas>", html);
}

static void put_matrix(FILE *html, const routing_report *report, const routing_layer *layer)
{
    enum { MOST = 512 }; /* a browser must still be able to open the page */
    int32_t *experts = calloc((size_t)report->n_experts, sizeof *experts);
    size_t n = experts && report->n_experts <= MOST ? order_experts(report, layer, experts) : 0;
    if (n > 1) {
        fputs("<figure>", html);
        heatmap_legend(html, "times as often as by chance", NULL);
        fputs("<div class=\"matrix\"><span>expert</span><span class=\"up\">expert</span>\n", html);
        put_matrix_data(html, report, layer, experts, n);
        fputs("</div></figure>\n", html);
    }
    free(experts);
}

static void put_pairs(FILE *html, const routing_layer *layer)
{
    char digits[DIGITS];
    fputs("<div><table>\n<thead><tr><th>experts</th><th>tokens</th><th>× chance</th></tr></thead>"
          "<tbody>\n",
          html);
    for (int i = 0; i < layer->n_pairs; i++)
        fprintf(html, "<tr><td>%" PRId32 " + %" PRId32 "</td><td>%s</td><td>%.2f</td></tr>\n",
                layer->pairs[i].first, layer->pairs[i].second,
                digits_group(layer->pairs[i].count, digits), layer->pairs[i].lift);
    fputs("</tbody></table></div>\n", html);
}

static void put_firing(FILE *html, const routing_report *report, const routing_layer *layer)
{
    if (report->k < 2) return;
    fputs(
        "<h3>Which experts fire together</h3>\n<p class=\"about\">How often two experts are chosen"
        " by the same token, divided by how often they would be if tokens chose at random by load."
        " Experts that fire together are side by side, whatever their numbers, so a group of them is"
        " a square on the diagonal. The table has the most telling pairs: of many tokens, and far"
        " more often than by chance.",
        html);
    if (layer->n_unused) fputs(" Experts that were never chosen are left out.", html);
    fputs("</p>\n<div class=\"firing\">\n", html);
    put_matrix(html, report, layer);
    put_pairs(html, layer);
    fputs("</div>\n", html);
}

/* ---- favourite tokens ------------------------------------------------------------------------ */

static void put_favourites(FILE *html, const routing_report *report, const routing_expert *expert)
{
    char count[DIGITS], total[DIGITS];
    for (int i = 0; i < expert->n_favourites; i++) {
        const routing_favourite *favourite = &expert->favourites[i];
        char label[TOKEN_LABEL];
        token_label(report->tokenizer, favourite->token, label);
        fprintf(html,
                "<code class=\"hit\" title=\"token %" PRId32
                ": %s of its %s occurrences, %.2g times"
                " as often as by chance\">",
                favourite->token, digits_group(favourite->count, count),
                digits_group(favourite->total, total), favourite->lift);
        page_text(html, label);
        fprintf(html, " <b>%.0f %% of %s</b></code> ", 100.0 * favourite->count / favourite->total,
                total);
    }
}

static void put_experts(FILE *html, const routing_report *report, const routing_layer *layer)
{
    double most = routing_load(report, &layer->experts[layer->by_load[0]]);
    char digits[DIGITS], gate[DIGITS];
    fputs(
        "<h3>What each expert likes</h3>\n<p class=\"about\">Tokens that an expert gets more often"
        " than its load would give, the most telling ones first. Next to each token: the share of"
        " its occurrences that the expert got. Mean gate: the mean gate value of the tokens that"
        " chose the expert.</p>\n"
        "<table class=\"full stack experts marks\">\n<thead><tr><th>expert</th><th>chosen by</th>"
        "<th>load</th><th>mean gate</th><th>tokens</th></tr></thead><tbody>\n",
        html);
    for (int64_t e = 0; e < report->n_experts; e++) {
        const routing_expert *expert = &layer->experts[e];
        double load = routing_load(report, expert);
        fprintf(html,
                "<tr><th scope=\"row\">%" PRId64 "</th><td data-name=\"chosen by\">%s token%s</td>"
                "<td data-name=\"load\"><span><span class=\"load\"><i style=\"width:%.0f%%\"></i>"
                "</span>%.2f %%</span></td><td data-name=\"mean gate\">%s</td>"
                "<td class=\"tokens\">",
                e, digits_group((double)expert->count, digits), expert->count == 1 ? "" : "s",
                100 * load / most, 100 * load,
                digits_fixed(expert->count ? routing_mean_weight(expert) : (double)NAN, 3, gate));
        put_favourites(html, report, expert);
        fputs("</td></tr>\n", html);
    }
    fputs("</tbody></table>\n", html);
}

/* ---- page ------------------------------------------------------------------------------------ */

static void put_picker(FILE *html, const routing_report *report)
{
    fputs(
        "<nav class=\"layers\" aria-label=\"layers\"><button value=\"-1\" aria-label=\"previous layer\">‹"
        "</button><select aria-label=\"layer\">",
        html);
    for (int64_t i = 0; i < report->n_layers; i++)
        fprintf(html, "<option>Layer %" PRId64 "</option>", report->layers[i].layer);
    fputs("</select><button value=\"1\" aria-label=\"next layer\">›</button></nav>\n", html);
}

static void put_layer(FILE *html, const routing_report *report, const routing_layer *layer)
{
    fprintf(html,
            "<section class=\"card layer\">\n<h2>Layer %" PRId64
            "</h2>\n<p class=\"about\">Imbalance"
            " %.2f, entropy %.3f",
            layer->layer, layer->imbalance, layer->entropy);
    if (layer->n_unused)
        fprintf(html, ", %" PRId64 " expert%s never chosen", layer->n_unused,
                layer->n_unused == 1 ? "" : "s");
    fputs(".", html);
    if (layer->bias.values)
        fprintf(html, " Bias of the gate %.4f to %.4f, mean %.4f.", layer->bias.low,
                layer->bias.high, layer->bias.mean);
    fputs(" The columns have the colours of the map; grey is near the mean.</p>\n", html);
    put_loads(html, report, layer);
    put_firing(html, report, layer);
    put_experts(html, report, layer);
    fputs("</section>\n", html);
}

void routing_page_put(FILE *html, const routing_report *report)
{
    put_head(html, report);
    put_map(html, report);
    put_curves(html, report);
    put_picker(html, report);
    for (int64_t i = 0; i < report->n_layers; i++) put_layer(html, report, &report->layers[i]);
    page_close(html, routing_script);
}
