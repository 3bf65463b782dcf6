/* run_page.c - expert loads, kinds of text, samples and settings of a run's page. */
#include "report/run_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_write.h"
#include "report/chart.h"
#include "report/digits.h"
#include "report/heatmap.h"
#include "report/lines.h"
#include "report/page.h"

/* If all layers have more cells than this, only rows have a text for hovering. */
enum { MAX_TITLED_CELLS = 6000 };

/* ---- load over time ------------------------------------------------------------------------- */

typedef struct layer_load {
    const load_history *load;
    size_t layer;
} layer_load;

static double load_value(const void *context, size_t expert, size_t column)
{
    const layer_load *l = context;
    return load_history_at(l->load, column, l->layer, expert);
}

static void put_load_title(FILE *html, const void *context, size_t expert, size_t column)
{
    const layer_load *l = context;
    double low = INFINITY, high = 0;
    (void)column; /* there is one text for each row */
    for (size_t c = 0; c < l->load->n_columns; c++) {
        double value = load_history_at(l->load, c, l->layer, expert);
        low = fmin(low, value);
        high = fmax(high, value);
    }
    char last[DIGITS], least[DIGITS], most[DIGITS];
    fprintf(
        html, "expert %zu: now %s × the mean, so far between %s and %s", expert,
        digits_fixed(load_history_at(l->load, l->load->n_columns - 1, l->layer, expert), 2, last),
        digits_fixed(low, 2, least), digits_fixed(high, 2, most));
}

/* The pixels for an expert, so that a layer can be taken in at a glance. */
static int row_height(size_t n_rows)
{
    int height = (int)(230 / n_rows);
    return height < 2 ? 2 : height > 12 ? 12 : height;
}

static void put_layer_title(FILE *html, const run_history *run, size_t layer)
{
    fprintf(html, "<figure><h3>Layer %zu</h3>\n", run_history_layer(run, layer));
}

void run_page_load(FILE *html, const run_history *run)
{
    const load_history *load = &run->load;
    if (load->too_large)
        fputs("<p class=\"note\">There are too many experts to draw the load of each.</p>\n", html);
    if (load->n_columns == 0) return;
    axis steps = axis_linear(0, load->steps[load->n_columns - 1], 3, false, true);
    page_card_open(
        html, "Load of the experts",
        "Each row is an expert: how many tokens chose it, divided by the mean of its layer, from"
        " the start (left) to now. Even routing would be grey everywhere.");
    heatmap_legend(html, "load over the mean", NULL);
    fputs("<div class=\"maps\">\n", html);
    for (size_t l = 0; l < load->n_layers; l++) {
        const layer_load context = {load, l};
        char name[64];
        snprintf(name, sizeof name, "Load of the experts of layer %zu over time",
                 run_history_layer(run, l));
        const heatmap map = {.name = name,
                             .n_rows = load->n_experts,
                             .n_columns = load->n_columns,
                             .row_height = row_height(load->n_experts),
                             .value = load_value,
                             .context = &context,
                             .x = &steps,
                             .edges = load->steps,
                             .x_name = "step",
                             .y_name = "expert",
                             .title = put_load_title};
        put_layer_title(html, run, l);
        heatmap_put(html, &map);
        fputs("</figure>\n", html);
    }
    fputs("</div>\n", html);
    page_card_close(html);
}

/* ---- kinds of text -------------------------------------------------------------------------- */

typedef struct layer_routing {
    const json_node *shares; /* [kind][expert] */
    size_t n_experts;
    const char *const *kinds;
    const size_t *experts; /* [n_experts] in the order of the columns */
} layer_routing;

static double routing_value(const void *context, size_t kind, size_t column)
{
    const layer_routing *r = context;
    return line_item(line_item_array(r->shares, kind), r->experts[column]) * (double)r->n_experts;
}

static void put_routing_title(FILE *html, const void *context, size_t kind, size_t column)
{
    const layer_routing *r = context;
    char percent[DIGITS], times[DIGITS];
    page_text_cut(html, r->kinds[kind], 40);
    if (column == r->n_experts) return;
    double ratio = routing_value(context, kind, column);
    fprintf(html, ", expert %zu: %s %% of the choices, %s × the mean", r->experts[column],
            digits_fixed(100 * ratio / (double)r->n_experts, 1, percent),
            digits_fixed(ratio, 2, times));
}

typedef struct liked_expert {
    size_t kind, expert; /* the kind that chooses it most */
    double share;
} liked_expert;

static int by_kind(const void *one, const void *other)
{
    const liked_expert *a = one, *b = other;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->share != b->share) return a->share > b->share ? -1 : 1;
    return a->expert < b->expert ? -1 : 1;
}

/* Puts the experts that the same kind of text chooses most side by side, so that its row shows them together.
 * Returns memory to free(), or NULL. */
static size_t *order_by_kind(const json_node *shares, size_t n_kinds, size_t n_experts)
{
    liked_expert *liked = calloc(n_experts, sizeof *liked);
    size_t *order = calloc(n_experts, sizeof *order);
    for (size_t e = 0; liked && e < n_experts; e++) {
        liked[e].expert = e;
        for (size_t k = 0; k < n_kinds; k++) {
            double share = line_item(line_item_array(shares, k), e);
            if (!(share > liked[e].share)) continue; /* false for NAN */
            liked[e].kind = k;
            liked[e].share = share;
        }
    }
    if (liked) qsort(liked, n_experts, sizeof *liked, by_kind);
    for (size_t e = 0; liked && order && e < n_experts; e++) order[e] = liked[e].expert;
    bool ok = liked != NULL;
    free(liked);
    if (ok) return order;
    free(order);
    return NULL;
}

/* Reads the names of a routing line, as many as the page has room for. */
static size_t read_kinds(const json_node *names, const char *kinds[RUN_MAX_KINDS])
{
    size_t n = line_count(names);
    if (n > RUN_MAX_KINDS) n = RUN_MAX_KINDS;
    for (size_t k = 0; k < n; k++) {
        const json_node *name = json_node_item(names, k);
        kinds[k] = json_node_kind(name) == JSON_KIND_STRING ? json_node_string(name, NULL) : "?";
    }
    return n;
}

static void put_routing_layers(FILE *html, const run_history *run, const json_node *load,
                               const char *const *kinds, size_t n_kinds)
{
    size_t n_layers = line_count(load);
    if (n_layers > RUN_MAX_LAYERS) n_layers = RUN_MAX_LAYERS;
    for (size_t l = 0; l < n_layers; l++) {
        const json_node *shares = line_item_array(load, l);
        size_t n_experts = line_count(line_item_array(shares, 0));
        if (n_experts == 0 || n_experts > 4096) continue;
        size_t *experts = order_by_kind(shares, n_kinds, n_experts);
        if (!experts) return;
        char name[64];
        snprintf(name, sizeof name, "Routing by kind of text in layer %zu",
                 run_history_layer(run, l));
        const layer_routing context = {shares, n_experts, kinds, experts};
        const heatmap map = {.name = name,
                             .n_rows = n_kinds,
                             .n_columns = n_experts,
                             .row_height = 18,
                             .value = routing_value,
                             .context = &context,
                             .numbers = experts,
                             .x_name = "expert",
                             .y_name = "kind of text",
                             .row_names = kinds,
                             .title = put_routing_title,
                             .title_cells = n_layers * n_kinds * n_experts <= MAX_TITLED_CELLS};
        put_layer_title(html, run, l);
        heatmap_put(html, &map);
        fputs("</figure>\n", html);
        free(experts);
    }
}

static void put_routing(FILE *html, const run_history *run)
{
    const char *kinds[RUN_MAX_KINDS];
    const json_node *load = line_array(run->routing, "load");
    size_t n_kinds = read_kinds(line_array(run->routing, "kinds"), kinds);
    if (n_kinds == 0 || line_count(load) == 0) return;
    page_card_open(
        html, "Routing by kind of text",
        "Which experts each kind of held-out text goes to: an expert’s share of the"
        " kind’s choices, divided by an even share. Experts that the same kind chooses"
        " most are side by side, whatever their numbers: a long orange run in one row is a"
        " kind with experts of its own.");
    heatmap_legend(html, "share over an even share", NULL);
    fputs("<div class=\"maps two\">\n", html);
    put_routing_layers(html, run, load, kinds, n_kinds);
    fputs("</div>\n", html);
    page_card_close(html);
}

static void put_kind_loss(FILE *html, const run_history *run)
{
    chart_line lines[RUN_MAX_KINDS], legend[RUN_MAX_KINDS];
    char kinds[RUN_MAX_KINDS][44], names[RUN_MAX_KINDS][100], digits[DIGITS];
    if (run->n_kinds == 0) return;
    for (size_t k = 0; k < run->n_kinds; k++) {
        const series *s = &run->kind_loss[k];
        const char *last = digits_fixed(s->count ? s->points[s->count - 1].y : NAN, 3, digits);
        const char *kind = page_shorten(run->kinds[k], kinds[k], sizeof kinds[k]);
        snprintf(names[k], sizeof names[k], "%s %s", kind, last);
        lines[k] = (chart_line){kind, page_tone(k), s->points, s->count, CHART_DOTS};
        legend[k] = lines[k];
        legend[k].name = names[k];
    }
    chart c = chart_make("Held-out loss of each kind of text", "step", "nats per token");
    c.lines = lines;
    c.n_lines = run->n_kinds;
    c.x_low = 0;
    c.x_high = run->step;
    c.no_legend = true;
    page_card_open(html, "Held-out loss by kind of text", "Beside each kind: its last value.");
    chart_legend(html, legend, run->n_kinds, NULL);
    chart_put(html, &c);
    page_card_close(html);
}

void run_page_kinds(FILE *html, const run_history *run)
{
    put_kind_loss(html, run);
    put_routing(html, run);
}

/* ---- samples -------------------------------------------------------------------------------- */

void run_page_samples(FILE *html, const run_history *run)
{
    char digits[DIGITS];
    if (run->n_samples == 0) return;
    page_card_open(html, "Samples", "What the model wrote after different numbers of steps.");
    fputs("<ol class=\"samples\">\n", html);
    for (size_t i = 0; i < run->n_samples; i++) {
        const json_node *sample = run->samples[i];
        const char *prompt = line_text(sample, "prompt");
        fprintf(html, "<li><span>step %s</span><pre>",
                digits_group(line_number(sample, "step"), digits));
        if (prompt && *prompt) {
            fputs("<b>", html);
            page_text_cut(html, prompt, 1000);
            fputs("</b>", html);
        }
        page_text_cut(html, line_text(sample, "text"), 3000);
        fputs("</pre></li>\n", html);
    }
    fputs("</ol>\n", html);
    page_card_close(html);
}

/* ---- settings ------------------------------------------------------------------------------- */

typedef struct settings_table {
    FILE *html;
    int n_rows, depth;
} settings_table;

enum { MAX_ROWS = 200, MAX_ITEMS = 32 };

static void put_value(FILE *html, const json_node *value, int depth)
{
    switch (json_node_kind(value)) {
    case JSON_KIND_NULL: fputs("–", html); break;
    case JSON_KIND_BOOL: fputs(json_node_bool(value) ? "yes" : "no", html); break;
    case JSON_KIND_INTEGER: fprintf(html, "%" PRId64, json_node_integer(value)); break;
    case JSON_KIND_REAL: json_write_number(html, json_node_number(value)); break;
    case JSON_KIND_STRING: page_text_cut(html, json_node_string(value, NULL), 500); break;
    case JSON_KIND_ARRAY:
        for (size_t i = 0; i < json_node_count(value) && i < MAX_ITEMS; i++) {
            if (i) fputs(", ", html);
            if (depth < 3) put_value(html, json_node_item(value, i), depth + 1);
        }
        break;
    case JSON_KIND_OBJECT: fputs("{…}", html); break;
    }
}

static dsmoe_status put_setting(void *context, const char *key, const json_node *value,
                                dsmoe_error *error)
{
    settings_table *table = context;
    (void)error;
    if (table->n_rows++ >= MAX_ROWS) return DSMOE_OK;
    fputs("<tr><td>", table->html);
    page_text_cut(table->html, key, 100);
    fputs("</td><td>", table->html);
    put_value(table->html, value, 0);
    fputs("</td></tr>\n", table->html);
    return DSMOE_OK;
}

static void put_table(FILE *html, const char *title, const json_node *object)
{
    if (!object) return;
    settings_table table = {.html = html};
    fprintf(html, "<details class=\"card\"><summary>%s</summary>\n<table class=\"pairs\">\n",
            title);
    json_node_each(object, put_setting, &table, NULL);
    fputs("</table></details>\n", html);
}

void run_page_settings(FILE *html, const run_history *run)
{
    put_table(html, "Settings", line_object(run->start, "settings"));
    put_table(html, "Model configuration", line_object(run->start, "config"));
    put_table(html, "Data", line_object(run->start, "data"));
}
