/* routing_html.c - the use of the experts as one page that needs no other file.
 *
 * The map of all layers and the curves are SVG; each layer has a section of its own with bars, pairs
 * and tokens. Without scripts the sections follow each other; the script shows one at a time and
 * draws how its experts fire together. */
#include "cli/inspect_routing.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/routing_page.h"
#include "cli/table.h"
#include "cli/token_label.h"
#include "base/utf8.h"

/* ---- text ------------------------------------------------------------------------------------ */

/* Escaped; what is no character or would not be seen is shown as U+FFFD. */
static void put_text(FILE *file, const char *text, size_t length)
{
    uint32_t code = 0;
    for (size_t i = 0, size; i < length; i += size) {
        size = utf8_decode(text + i, length - i, &code);
        bool shown = size > 0 && code >= 0x20 && (code < 0x7f || code > 0x9f);
        if (size == 0) size = 1;
        if (!shown)
            fputs("\xef\xbf\xbd", file);
        else if (code == '&')
            fputs("&amp;", file);
        else if (code == '<')
            fputs("&lt;", file);
        else if (code == '>')
            fputs("&gt;", file);
        else if (code == '"')
            fputs("&quot;", file);
        else
            fwrite(text + i, 1, size, file);
    }
}

/* The shade of something that is `ratio` times what it would be if all were equal; `steps` of them
 * make a factor of two. */
static void put_shade(FILE *file, double ratio, int steps)
{
    if (ratio <= 0) {
        fputs("never", file);
        return;
    }
    double level = round(steps * log2(ratio)) + PAGE_MEAN;
    fprintf(file, "s%d", level < 0 ? 0 : level >= PAGE_SHADES ? PAGE_SHADES - 1 : (int)level);
}

/* ---- head ------------------------------------------------------------------------------------ */

static void put_fact(FILE *file, const char *name, const char *value, const char *more)
{
    fprintf(file, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", name, value, more);
}

static void put_balance_facts(FILE *file, const routing_report *report)
{
    const routing_layer *worst = &report->layers[0];
    double entropy = 0;
    int64_t n_unused = 0;
    char value[TABLE_CELL], more[TABLE_CELL];
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        entropy += layer->entropy / (double)report->n_layers;
        n_unused += layer->n_unused;
        if (layer->imbalance > worst->imbalance) worst = layer;
    }
    snprintf(value, sizeof value, "%.3f", entropy);
    put_fact(file, "entropy of loads", value, "layers’ mean; 1: all equal");
    snprintf(value, sizeof value, "%.2f ×", worst->imbalance);
    snprintf(more, sizeof more, "the mean load, in layer %" PRId64, worst->layer);
    put_fact(file, "busiest expert", value, more);
    number_group(n_unused, value);
    snprintf(more, sizeof more, "of %" PRId64 " experts", report->n_layers * report->n_experts);
    put_fact(file, "never chosen", value, more);
}

static void put_facts(FILE *file, const routing_report *report)
{
    const dsmoe_config *config = report->config;
    dsmoe_model_plan plan;
    char value[TABLE_CELL], more[2 * TABLE_CELL], number[TABLE_CELL];
    fputs("<dl class=\"facts\">\n", file);
    if (dsmoe_model_plan_make(config, 1, &plan, NULL) == DSMOE_OK) {
        snprintf(more, sizeof more, "%s active for a token", number_shorten(plan.active, number));
        put_fact(file, "parameters", number_shorten(plan.total, value), more);
    }
    snprintf(value, sizeof value, "%" PRId64, report->n_layers);
    snprintf(more, sizeof more, "of %" PRId64 ", hidden size %" PRId64, config->num_hidden_layers,
             config->hidden_size);
    put_fact(file, "MoE layers", value, more);
    snprintf(value, sizeof value, "%" PRId64 " of %" PRId64, report->k, report->n_experts);
    snprintf(more, sizeof more, "and %" PRId64 " shared, width %" PRId64, config->n_shared_experts,
             config->moe_intermediate_size);
    put_fact(file, "experts for a token", value, more);
    snprintf(more, sizeof more, "in contexts of %s%s", number_group(report->n_ctx, number),
             report->interrupted ? "; interrupted" : "");
    put_fact(file, "tokens", number_group(report->n_tokens, value), more);
    put_balance_facts(file, report);
    fputs("</dl>\n", file);
}

/* The last part of a path, without slashes at its end. */
static void put_name(FILE *file, const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    put_text(file, path + start, end - start);
}

static void put_head(FILE *file, const routing_report *report)
{
    bool named = strcmp(report->text_path, "-") != 0;
    fprintf(file,
            "<!DOCTYPE html>\n<html lang=\"en\" data-letters=\"%s\" data-one=\"%d\">\n<head>\n"
            "<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
            "<meta name=\"generator\" content=\"dsmoe %s\">\n"
            "<title>Experts of ",
            page_lift_letters, PAGE_LIFT_ONE, dsmoe_version());
    put_name(file, report->model_path);
    fprintf(file, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>Experts of ",
            routing_page_style);
    put_name(file, report->model_path);
    fputs("</h1>\n<p>and what they do with ", file);
    put_name(file, named ? report->text_path : "a text");
    fputs("</p>\n", file);
    put_facts(file, report);
}

/* ---- the map --------------------------------------------------------------------------------- */

static void put_cell_title(FILE *file, const routing_report *report, const routing_layer *layer,
                           int64_t e)
{
    const routing_expert *expert = &layer->experts[e];
    fprintf(
        file, "<title>layer %" PRId64 ", expert %" PRId64 ": %.2f %% of the slots, %.2f × the mean",
        layer->layer, e, 100 * routing_load(report, expert), routing_relative_load(report, expert));
    if (expert->count) fprintf(file, "; mean gate value %.3f", routing_mean_weight(expert));
    if (layer->bias.values) fprintf(file, "; bias %.4f", (double)layer->bias.values[e]);
    fputs("</title>", file);
}

static void put_legend(FILE *file)
{
    enum { CELL = 26, NEVER = 6, FIRST = 60 };
    static const char *const marks[] = {"≤ 1/8", "1/4", "1/2", "1", "2", "4", "≥ 8"};
    fprintf(
        file,
        "<div class=\"wide\"><svg width=\"460\" height=\"40\" role=\"img\" aria-label=\"legend\">"
        "<rect class=\"never\" x=\"%d.5\" y=\".5\" width=\"%d\" height=\"13\"/>"
        "<text class=\"mid\" x=\"%d\" y=\"28\">never</text>",
        NEVER, CELL - 2, NEVER + CELL / 2);
    for (int i = 0; i < PAGE_SHADES; i++) {
        int x = FIRST + i * CELL;
        fprintf(file, "<rect class=\"s%d\" x=\"%d\" width=\"%d\" height=\"14\"/>", i, x, CELL - 1);
        if (i % 2 == 0)
            fprintf(file, "<text class=\"mid\" x=\"%d\" y=\"28\">%s</text>", x + CELL / 2,
                    marks[i / 2]);
    }
    fprintf(file, "<text x=\"%d\" y=\"12\">× mean</text></svg></div>\n",
            FIRST + PAGE_SHADES * CELL + 6);
}

/* Every how many experts a number fits under cells of that width. */
static int64_t label_step(double cell)
{
    int64_t step = 1;
    while ((double)step * cell < 26) step *= 2;
    return step;
}

static void put_axis(FILE *file, int64_t n_experts, double left, double cell, double y)
{
    for (int64_t e = 0; e < n_experts; e += label_step(cell))
        fprintf(file, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%" PRId64 "</text>",
                left + ((double)e + 0.5) * cell, y, e);
}

static double cell_width(int64_t n_experts)
{
    double cell = floor(1064.0 / (double)n_experts);
    return cell < 4 ? 4 : cell > 48 ? 48 : cell; /* 256 experts fit a screen of 1280 */
}

static void put_map(FILE *file, const routing_report *report)
{
    enum { LEFT = 34, TOP = 18, HEIGHT = 18 };
    double cell = cell_width(report->n_experts);
    fputs("<section class=\"card\"><h2>Load of the experts</h2>\n<p>Each cell is an expert of a "
          "layer:"
          " its share of the chosen slots over the mean of the layer. Click on a layer to see it"
          " below.</p>\n",
          file);
    put_legend(file);
    fprintf(file, "<div class=\"wide\"><svg class=\"map\" width=\"%.0f\" height=\"%" PRId64 "\">",
            LEFT + cell * (double)report->n_experts + 2, TOP + report->n_layers * HEIGHT + 2);
    put_axis(file, report->n_experts, LEFT, cell, 12);
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        int64_t y = TOP + i * HEIGHT;
        fprintf(file,
                "\n<g data-layer=\"%" PRId64 "\"><a href=\"#layer%" PRId64
                "\"><text class=\"end\" x=\"%d\" y=\"%" PRId64 "\">%" PRId64 "</text></a>",
                layer->layer, layer->layer, LEFT - 8, y + 13, layer->layer);
        for (int64_t e = 0; e < report->n_experts; e++) {
            fputs("<rect class=\"", file);
            put_shade(file, routing_relative_load(report, &layer->experts[e]), 2);
            fprintf(file, "\" x=\"%.0f\" y=\"%" PRId64 "\" width=\"%.0f\" height=\"%d\">",
                    LEFT + (double)e * cell, y, cell - 1, HEIGHT - 1);
            put_cell_title(file, report, layer, e);
            fputs("</rect>", file);
        }
        fputs("</g>", file);
    }
    fputs("</svg></div></section>\n", file);
}

/* ---- curves over the layers ------------------------------------------------------------------ */

/* A round number of which a few make the range. */
static double tick_step(double range)
{
    double step = pow(10, floor(log10(range)));
    if (range / step < 1.5) return step / 5;
    if (range / step < 3) return step / 2;
    return range / step < 7 ? step : 2 * step;
}

typedef struct curve {
    const char *title, *about;
    size_t field;     /* of a routing_layer: the offset of a double */
    double low, high; /* of the axis at least */
} curve;

static double curve_value(const curve *c, const routing_layer *layer)
{
    double value;
    memcpy(&value, (const char *)layer + c->field, sizeof value);
    return value;
}

enum { CURVE_WIDTH = 540, CURVE_HEIGHT = 220, CURVE_LEFT = 44, CURVE_RIGHT = 12, CURVE_TOP = 10 };
enum { CURVE_BOTTOM = 26 };

/* Where a layer and a value of the axis from low to high lie. */
static double curve_x(const routing_report *report, int64_t i)
{
    double room = CURVE_WIDTH - CURVE_LEFT - CURVE_RIGHT;
    return CURVE_LEFT + room * ((double)i + 0.5) / (double)report->n_layers;
}

static double curve_y(const curve *c, double value)
{
    double room = CURVE_HEIGHT - CURVE_TOP - CURVE_BOTTOM;
    return CURVE_TOP + room * (c->high - value) / (c->high - c->low);
}

static void put_curve_grid(FILE *file, const curve *c, double step)
{
    for (int i = 0; i <= (int)round((c->high - c->low) / step); i++) {
        double value = c->low + i * step, y = curve_y(c, value);
        fprintf(file,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"end\" x=\"%d\" y=\"%.1f\">%.4g</text>",
                CURVE_LEFT, CURVE_WIDTH - CURVE_RIGHT, y, y, CURVE_LEFT - 6, y + 4, value);
    }
}

static void put_curve(FILE *file, const routing_report *report, curve c)
{
    int64_t n = report->n_layers;
    for (int64_t i = 0; i < n; i++) {
        c.low = fmin(c.low, curve_value(&c, &report->layers[i]));
        c.high = fmax(c.high, curve_value(&c, &report->layers[i]));
    }
    double step = tick_step(c.high - c.low);
    c.low = step * floor(c.low / step + 1e-9);
    c.high = step * ceil(c.high / step - 1e-9);
    fprintf(file,
            "<section class=\"card\"><h2>%s</h2><p>%s</p>\n"
            "<svg class=\"fluid\" viewBox=\"0 0 %d %d\">",
            c.title, c.about, CURVE_WIDTH, CURVE_HEIGHT);
    put_curve_grid(file, &c, step);
    fputs("<polyline class=\"curve\" points=\"", file);
    for (int64_t i = 0; i < n; i++)
        fprintf(file, "%.1f,%.1f ", curve_x(report, i),
                curve_y(&c, curve_value(&c, &report->layers[i])));
    fputs("\"/>", file);
    int64_t every = label_step(curve_x(report, 1) - curve_x(report, 0));
    for (int64_t i = 0; i < n; i++) {
        const routing_layer *layer = &report->layers[i];
        double x = curve_x(report, i), value = curve_value(&c, layer);
        fprintf(file,
                "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>layer %" PRId64
                ": %.4g</title></circle>",
                x, curve_y(&c, value), layer->layer, value);
        if (i % every == 0)
            fprintf(file, "<text class=\"mid\" x=\"%.1f\" y=\"%d\">%" PRId64 "</text>", x,
                    CURVE_HEIGHT - 8, layer->layer);
    }
    fputs("</svg></section>\n", file);
}

static void put_curves(FILE *file, const routing_report *report)
{
    const curve imbalance = {"Imbalance", "Largest load of a layer over the mean; 1 would be even.",
                             offsetof(routing_layer, imbalance), 1, 1.5};
    const curve entropy = {"Entropy", "Of the loads of a layer; 1 if all experts are used alike.",
                           offsetof(routing_layer, entropy), 0.99, 1};
    const curve spread = {"Bias of the gates",
                          "From the lowest to the highest bias of a layer’s experts, by which its"
                          " gate corrects the choice.",
                          offsetof(routing_layer, bias_spread), 0, 0.001};
    fputs("<div class=\"pair\">\n", file);
    put_curve(file, report, imbalance);
    put_curve(file, report, entropy);
    if (report->layers[0].bias.values) put_curve(file, report, spread);
    fputs("</div>\n", file);
}

/* ---- one layer ------------------------------------------------------------------------------- */

static void put_bars(FILE *file, const routing_report *report, const routing_layer *layer)
{
    enum { LEFT = 44, TOP = 8, HEIGHT = 150 };
    double cell = cell_width(report->n_experts), width = cell * (double)report->n_experts;
    double top = 100 * routing_load(report, &layer->experts[layer->by_load[0]]);
    double step = tick_step(top), high = step * ceil(top / step - 1e-9);
    double mean = 100.0 / (double)report->n_experts;
    fprintf(file, "<div class=\"wide\"><svg class=\"bars\" width=\"%.0f\" height=\"%d\">",
            LEFT + width + 2, TOP + HEIGHT + 22);
    for (int i = 0; i <= (int)round(high / step); i++) {
        double y = TOP + HEIGHT * (1 - i * step / high);
        fprintf(file,
                "<line class=\"grid\" x1=\"%d\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"end\" x=\"%d\" y=\"%.1f\">%.3g %%</text>",
                LEFT, LEFT + width, y, y, LEFT - 6, y + 4, i * step);
    }
    for (int64_t e = 0; e < report->n_experts; e++) {
        const routing_expert *expert = &layer->experts[e];
        double tall = HEIGHT * 100 * routing_load(report, expert) / high;
        fputs("<rect class=\"", file);
        put_shade(file, routing_relative_load(report, expert), 2);
        fprintf(file, "\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">",
                LEFT + (double)e * cell + 1, TOP + HEIGHT - tall, cell - 2, tall);
        put_cell_title(file, report, layer, e);
        fputs("</rect>", file);
    }
    double y = TOP + HEIGHT * (1 - mean / high);
    fprintf(file, "<line class=\"mean\" x1=\"%d\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
            LEFT + width, y, y);
    put_axis(file, report->n_experts, LEFT, cell, TOP + HEIGHT + 16);
    fputs("</svg></div>\n", file);
}

/* One token more on both sides: what is rare says little, and should not shout. */
static char lift_letter(const routing_report *report, const routing_layer *layer, int64_t a,
                        int64_t b)
{
    double count = layer->together[a * report->n_experts + b];
    if (count == 0) return page_lift_letters[0];
    double expected = count / routing_lift(report, layer, a, b);
    double level = round(8 * log2((count + 1) / (expected + 1))) + PAGE_LIFT_ONE;
    if (level < 0) level = 0;
    if (level > PAGE_LIFTS - 1) level = PAGE_LIFTS - 1;
    return page_lift_letters[1 + (int)level];
}

static void put_matrix(FILE *file, const routing_report *report, const routing_layer *layer)
{
    fprintf(file, "<figure><canvas data-n=\"%" PRId64 "\" data-lifts=\"", report->n_experts);
    for (int64_t a = 0; a < report->n_experts; a++)
        for (int64_t b = a + 1; b < report->n_experts; b++)
            fputc(lift_letter(report, layer, a, b), file);
    fputs("\"></canvas><figcaption>Orange: more often than by chance, blue: less often, at full"
          " strength from 2.8 times. Point at a cell.</figcaption></figure>\n",
          file);
}

static void put_firing(FILE *file, const routing_report *report, const routing_layer *layer)
{
    enum { MOST_IN_MATRIX = 512 }; /* a page has to stay one that a browser can open */
    if (report->k < 2) return;
    fputs("<h3>Which experts fire together</h3>\n<p>How often two experts are chosen by the same "
          "token,"
          " over how often they would be if tokens chose at random by load.</p>\n"
          "<div class=\"firing\">\n",
          file);
    if (report->n_experts <= MOST_IN_MATRIX) put_matrix(file, report, layer);
    fputs("<div><table><tr><th>experts</th><th>tokens</th><th>× chance</th></tr>\n", file);
    for (int i = 0; i < layer->n_pairs; i++)
        fprintf(file,
                "<tr><td>%" PRId32 " + %" PRId32 "</td><td>%" PRIu32 "</td><td>%.2f</td></tr>\n",
                layer->pairs[i].first, layer->pairs[i].second, layer->pairs[i].count,
                layer->pairs[i].lift);
    fputs("</table></div></div>\n", file);
}

static void put_favourites(FILE *file, const routing_report *report, const routing_expert *expert)
{
    for (int i = 0; i < expert->n_favourites; i++) {
        const routing_favourite *favourite = &expert->favourites[i];
        char label[TOKEN_LABEL];
        token_label(report->tokenizer, favourite->token, label);
        fprintf(file,
                "<code title=\"token %" PRId32 ": %" PRIu32 " of its %" PRIu32
                " occurrences, %.2g times as often as by chance\">",
                favourite->token, favourite->count, favourite->total, favourite->lift);
        put_text(file, label, strlen(label));
        fprintf(file, " <b>%.0f%%</b></code> ", 100.0 * favourite->count / favourite->total);
    }
}

static void put_experts(FILE *file, const routing_report *report, const routing_layer *layer)
{
    double most = routing_load(report, &layer->experts[layer->by_load[0]]);
    fputs("<h3>What each expert likes</h3>\n<p>Tokens that an expert gets more often than its load "
          "would"
          " give, those that tell most about it first; in per cent, how many of the token’s"
          " occurrences it got.</p>\n<div class=\"wide\"><table class=\"experts\">"
          "<tr><th>expert</th><th>load</th><th>gate</th><th class=\"tokens\">tokens</th></tr>\n",
          file);
    for (int64_t e = 0; e < report->n_experts; e++) {
        const routing_expert *expert = &layer->experts[e];
        double load = routing_load(report, expert);
        fprintf(file,
                "<tr><td>%" PRId64 "</td><td><span class=\"load\"><i style=\"width:%.0f%%\"></i>"
                "</span>%.2f %%</td><td>%.3f</td><td class=\"tokens\">",
                e, 100 * load / most, 100 * load, routing_mean_weight(expert));
        put_favourites(file, report, expert);
        fputs("</td></tr>\n", file);
    }
    fputs("</table></div>\n", file);
}

static void put_layers(FILE *file, const routing_report *report)
{
    fputs("<nav><button id=\"before\" aria-label=\"layer before\">‹</button><select"
          " aria-label=\"layer\">",
          file);
    for (int64_t i = 0; i < report->n_layers; i++)
        fprintf(file, "<option value=\"%" PRId64 "\">Layer %" PRId64 "</option>",
                report->layers[i].layer, report->layers[i].layer);
    fputs("</select><button id=\"after\" aria-label=\"layer after\">›</button></nav>\n", file);
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        fprintf(file,
                "<section class=\"card layer\" id=\"layer%" PRId64 "\" data-layer=\"%" PRId64
                "\">\n<h2>Layer %" PRId64 "</h2>\n<p>Share of the chosen slots; the dashed line is"
                " the mean. Imbalance %.2f, entropy %.3f",
                layer->layer, layer->layer, layer->layer, layer->imbalance, layer->entropy);
        if (layer->n_unused) fprintf(file, ", %" PRId64 " never chosen", layer->n_unused);
        fputs(".", file);
        if (layer->bias.values)
            fprintf(file, " Bias of the gate %.4f to %.4f, mean %.4f.", layer->bias.low,
                    layer->bias.high, layer->bias.mean);
        fputs("</p>\n", file);
        put_bars(file, report, layer);
        put_firing(file, report, layer);
        put_experts(file, report, layer);
        fputs("</section>\n", file);
    }
}

void routing_print_html(const routing_report *report, FILE *file)
{
    put_head(file, report);
    put_map(file, report);
    put_curves(file, report);
    put_layers(file, report);
    fprintf(file, "<footer>dsmoe %s</footer>\n</main>\n<script>\n%s</script>\n</body>\n</html>\n",
            dsmoe_version(), page_script);
}
