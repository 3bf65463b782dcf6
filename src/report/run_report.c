/* run_report.c - the page of a training run, made from its metrics.jsonl alone. */
#include "dsmoe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/mapped_file.h"
#include "report/chart.h"
#include "report/digits.h"
#include "report/lines.h"
#include "report/page.h"
#include "report/run_page.h"

enum { REFRESH_SECONDS = 15, MAX_LEGEND = 6 };
/* Series with fewer points are not smoothed: see series_smooth. */
enum { SMOOTH_FROM = 50 };

static bool is_smoothed(const series *s) { return s->count >= SMOOTH_FROM; }

/* ---- head ----------------------------------------------------------------------------------- */

/* Writes ", 4 layers" and the like, if the number is known. */
static void put_count(FILE *html, double count, const char *before, const char *after)
{
    char digits[DIGITS];
    if (count >= 0) fprintf(html, "%s%s%s", before, digits_group(count, digits), after);
}

static void put_model(FILE *html, const run_history *run)
{
    const json_node *config = line_object(run->start, "config");
    char digits[DIGITS];
    double total = line_number(run->start, "parameters");
    double active = line_number(run->start, "active_parameters");
    double n_routed = line_number(config, "n_routed_experts");
    double n_shared = line_number(config, "n_shared_experts");
    if (total >= 0) fprintf(html, "%s parameters", digits_short(total, digits));
    if (active >= 0 && active < total)
        fprintf(html, ", %s of them active for a token", digits_short(active, digits));
    if (total >= 0) fputs(". ", html);
    put_count(html, line_number(config, "num_hidden_layers"), "", " layers");
    put_count(html, line_number(config, "hidden_size"), ", hidden size ", "");
    if (n_routed > 0) {
        put_count(html, line_number(config, "num_experts_per_tok"), ", ", " of");
        put_count(html, n_routed, " ", " routed experts");
        if (n_shared > 0)
            put_count(html, n_shared, " and ", n_shared > 1 ? " shared ones" : " shared one");
        put_count(html, line_number(config, "moe_intermediate_size"), " of width ", "");
    }
    if (config) fputs(". ", html);
    double n_tokens = line_number(line_object(run->start, "data"), "n_tokens");
    if (n_tokens >= 0) fprintf(html, "%s tokens of text.", digits_short(n_tokens, digits));
}

static void put_state(FILE *html, const run_history *run)
{
    char digits[DIGITS];
    if (run->finished)
        fputs("<p class=\"state done\"><i></i><b>Finished.</b>", html);
    else if (run->ended)
        fprintf(html, "<p class=\"state\"><i></i><b>Stopped</b> after %s steps.",
                digits_group(isnan(run->step) ? 0 : run->step, digits));
    else
        fprintf(html,
                "<p class=\"state live\"><i></i><b>Training.</b> This page reloads itself every %d"
                " seconds.",
                REFRESH_SECONDS);
    if (run->n_starts == 2) fputs(" Resumed once.", html);
    if (run->n_starts > 2)
        fprintf(html, " Resumed %s times.", digits_group((double)run->n_starts - 1, digits));
    fputs("</p>\n", html);
}

/* ---- headline numbers ----------------------------------------------------------------------- */

/* The time left at the pace since the last start, including what happened between steps; NAN if not known. */
static double seconds_left(const run_history *run)
{
    double n_steps = line_number(line_object(run->start, "settings"), "steps");
    double done = run->step - run->step_before, seconds = run->seconds - run->seconds_before;
    if (!(done > 0 && seconds > 0 && n_steps >= run->step)) return NAN;
    return seconds / done * (n_steps - run->step);
}

static void put_step_facts(FILE *html, const run_history *run)
{
    char value[DIGITS], more[4 * DIGITS], digits[DIGITS];
    double n_steps = line_number(line_object(run->start, "settings"), "steps");
    double done = isnan(run->step) ? 0 : run->step;
    snprintf(more, sizeof more, "so far");
    if (n_steps > 0) snprintf(more, sizeof more, "of %s", digits_group(n_steps, digits));
    page_fact(html, "steps", digits_group(done, value), more);
    double n_tokens = line_number(line_object(run->start, "data"), "n_tokens");
    more[0] = '\0';
    if (n_tokens > 0 && run->tokens >= 0.01 * n_tokens)
        snprintf(more, sizeof more, "%s × the text",
                 digits_plain(run->tokens / n_tokens, 2, digits));
    page_fact(html, "tokens seen", digits_short(run->tokens, value), more);
    if (!(run->skipped > 0)) return;
    char bad[2 * DIGITS];
    snprintf(bad, sizeof bad, "<span class=\"bad\">%s</span>", digits_group(run->skipped, value));
    page_fact(html, "skipped steps", bad, "loss or gradient not finite");
}

static void put_facts(FILE *html, const run_history *run, const series_point *smooth)
{
    char value[DIGITS], more[4 * DIGITS], digits[DIGITS];
    const series *loss = &run->numbers[RUN_LOSS], *speed = &run->numbers[RUN_TOKENS_PER_S];
    fputs("<dl class=\"facts\">\n", html);
    if (loss->count > 0) {
        snprintf(more, sizeof more, "last logged");
        if (is_smoothed(loss))
            snprintf(more, sizeof more, "smoothed; last logged %s",
                     digits_fixed(loss->points[loss->count - 1].y, 3, digits));
        page_fact(html, "training loss", digits_fixed(smooth[loss->count - 1].y, 3, value), more);
    }
    if (isfinite(run->best)) {
        snprintf(more, sizeof more, "at step %s", digits_group(run->best_step, digits));
        page_fact(html, "best held-out loss", digits_fixed(run->best, 3, value), more);
    }
    put_step_facts(html, run);
    if (speed->count > 0)
        page_fact(html, "tokens per second", digits_group(speed->points[speed->count - 1].y, value),
                  "recently");
    page_fact(html, "time", digits_time(run->seconds, value), "of training");
    if (!run->ended)
        page_fact(html, "time left", digits_time(seconds_left(run), value), "at the pace so far");
    fputs("</dl>\n", html);
}

/* ---- charts --------------------------------------------------------------------------------- */

static size_t make_marks(const run_history *run, chart_mark marks[RUN_MAX_SKIPS])
{
    for (size_t i = 0; i < run->n_skips; i++) {
        const char *reason = line_text(run->skips[i], "reason");
        char digits[DIGITS], shown[60];
        marks[i].x = line_number(run->skips[i], "step");
        snprintf(marks[i].title, sizeof marks[i].title, "step %s was skipped: %s",
                 digits_group(marks[i].x, digits),
                 page_shorten(reason ? reason : "not finite", shown, sizeof shown));
    }
    return run->n_skips;
}

/* Every chart reaches from the beginning to now, wherever its lines begin and end. */
static chart make_chart(const run_history *run, const char *name, const char *y_name)
{
    chart c = chart_make(name, "step", y_name);
    c.x_low = 0;
    c.x_high = run->step;
    return c;
}

/* The loss of the first steps is far higher. A chart that shows all of it would flatten the rest. */
static double loss_top(const series *loss, const series_point *smooth)
{
    return is_smoothed(loss) ? 1.02 * smooth[loss->count / 30].y : NAN;
}

/* What the text under the heading says of points that the chart does not show. */
static const char *loss_about(const chart *c, const series *loss, const series_point *smooth)
{
    double top = chart_top(c);
    bool single = false;
    for (size_t i = 0; i < loss->count; i++) single |= loss->points[i].y > top;
    if (loss->count > 0 && is_smoothed(loss) && smooth[0].y > top)
        return "Mean negative log probability of the next token, without balance losses. The very"
               " first steps are above the chart.";
    if (single)
        return "Mean negative log probability of the next token, without balance losses. Some"
               " single steps are above the chart.";
    return "Mean negative log probability of the next token, without balance losses.";
}

/* The name of the unsmoothed line: "as logged", or "means of …" if a point stands for several steps. */
static const char *raw_name(const series *s, const char *what, char *out, size_t size)
{
    char digits[DIGITS];
    if (s->per_point > 1)
        snprintf(out, size, "%smeans of %s logged steps, shaded from lowest to highest", what,
                 digits_group(s->per_point, digits));
    else
        snprintf(out, size, "%sas logged", what);
    return out;
}

/* Makes the lines of one number over the steps: if there are many points, the logged values in the background
 * and a smoothed line. Returns the number of lines. `name` is for a line that is not smoothed. */
static size_t make_lines(const series *s, const series_point *smooth, const char *name,
                         const char *raw, const char *smoothed, chart_line lines[2])
{
    if (!is_smoothed(s)) {
        lines[0] = (chart_line){name, "t0", s->points, s->count, 0};
        return 1;
    }
    lines[0] = (chart_line){raw, "t0", s->points, s->count, CHART_FAINT | CHART_BAND};
    lines[1] = (chart_line){smoothed, "t0", smooth, s->count, 0};
    return 2;
}

static void put_loss(FILE *html, const run_history *run, const series_point *smooth)
{
    const series *loss = &run->numbers[RUN_LOSS], *held_out = &run->numbers[RUN_HELD_OUT];
    if (loss->count + held_out->count == 0) return;
    chart_mark marks[RUN_MAX_SKIPS];
    char raw[128];
    chart_line lines[3];
    chart c = make_chart(run, "Training and held-out loss by step", "nats per token");
    c.lines = lines;
    c.n_lines = make_lines(loss, smooth, "training", raw_name(loss, "training, ", raw, sizeof raw),
                           "training, smoothed", lines);
    lines[c.n_lines++] =
        (chart_line){"held-out", "t1", held_out->points, held_out->count, CHART_DOTS};
    c.tall = true;
    c.y_top = loss_top(loss, smooth);
    c.marks = marks;
    c.n_marks = make_marks(run, marks);
    page_card_open(html, "Loss", loss_about(&c, loss, smooth));
    chart_put(html, &c);
    page_card_close(html);
}

/* Whether the learning rate drops at a few steps: a slope between two logged steps would then be wrong. */
static bool falls_in_steps(const run_history *run)
{
    const char *schedule = line_text(line_object(run->start, "settings"), "schedule");
    return schedule && !strcmp(schedule, "step");
}

/* Writes a card with one number over the steps; nothing if there are no points. */
static void put_single(FILE *html, const run_history *run, run_number number, const char *title,
                       const char *about, const char *y_name, double y_low)
{
    const series *s = &run->numbers[number];
    if (s->count == 0) return;
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->points[i].y > 0) low = fmin(low, s->points[i].y);
        high = fmax(high, s->points[i].y);
    }
    char raw[128];
    chart_line lines[2] = {{y_name, "t0", s->points, s->count, 0}};
    series_point *smooth = NULL;
    chart c = make_chart(run, title, y_name);
    c.lines = lines;
    c.n_lines = 1;
    if (number == RUN_LR) { /* it has no noise to smooth */
        if (falls_in_steps(run)) lines[0].form = CHART_STEPS;
    } else if ((smooth = series_smooth(s))) {
        c.n_lines =
            make_lines(s, smooth, y_name, raw_name(s, "", raw, sizeof raw), "smoothed", lines);
    }
    c.log_y = number == RUN_GRAD_NORM && high > 10 * low;
    if (!c.log_y) c.y_low = y_low;
    page_card_open(html, title, about);
    chart_put(html, &c);
    page_card_close(html);
    free(smooth);
}

/* Writes a card with a line for each MoE layer; `about` may be NULL. */
static void put_layers(FILE *html, const run_history *run, const series *layers, size_t n,
                       const char *title, const char *about, const char *y_name)
{
    chart_line lines[RUN_MAX_LAYERS];
    char names[RUN_MAX_LAYERS][32], digits[DIGITS];
    for (size_t i = 0; i < n; i++) {
        const series *s = &layers[i];
        snprintf(names[i], sizeof names[i], "layer %s",
                 digits_group((double)run_history_layer(run, i), digits));
        lines[i] = (chart_line){names[i], page_depth(i, n), s->points, s->count, 0};
    }
    chart c = make_chart(run, title, y_name);
    c.lines = lines;
    c.n_lines = n;
    c.no_legend = n > MAX_LEGEND;
    page_card_open(html, title, about);
    if (c.no_legend) { /* a few of the layers show the order of the colours */
        chart_line some[MAX_LEGEND];
        for (size_t i = 0; i < MAX_LEGEND; i++) some[i] = lines[i * (n - 1) / (MAX_LEGEND - 1)];
        chart_legend(html, some, MAX_LEGEND, NULL);
    }
    chart_put(html, &c);
    page_card_close(html);
}

/* With even loads, each layer's balance loss is the factor itself, so the text gives that for comparison. */
static void put_balance(FILE *html, const run_history *run)
{
    char about[256] = "Expert-level, all layers together.", digits[DIGITS], sum[DIGITS];
    double alpha = line_number(line_object(run->start, "settings"), "aux_loss_alpha");
    if (!(alpha >= 0)) alpha = line_number(line_object(run->start, "config"), "aux_loss_alpha");
    if (alpha > 0 && run->n_aux_layers > 0)
        snprintf(about, sizeof about,
                 "Expert-level, all layers together. If all experts are used equally, it is %s: %s"
                 " for each layer.",
                 digits_plain(alpha * (double)run->n_aux_layers, 3, sum),
                 digits_plain(alpha, 3, digits));
    const series *s = &run->numbers[RUN_AUX_LOSS];
    bool used = false;
    for (size_t i = 0; i < s->count; i++) used |= s->points[i].y != 0;
    if (!used) return;
    put_single(html, run, RUN_AUX_LOSS, "Balance loss", about, "balance loss", NAN);
    if (run->n_aux_layers > 1)
        put_layers(html, run, run->aux_layers, run->n_aux_layers, "Balance loss by layer", NULL,
                   "balance loss");
}

/* If gates balance by a bias: how far the load has moved it. */
static void put_bias(FILE *html, const run_history *run)
{
    const series *low = &run->numbers[RUN_BIAS_LOW], *high = &run->numbers[RUN_BIAS_HIGH];
    if (low->count == 0) return;
    const chart_line lines[] = {{"highest", "t0", high->points, high->count, 0},
                                {"lowest", "t1", low->points, low->count, 0}};
    chart c = make_chart(run, "Bias of the gates", "bias");
    c.lines = lines;
    c.n_lines = 2;
    page_card_open(html, "Bias of the gates",
                   "The bias goes up for experts that are chosen less than the mean, and down for"
                   " the others. Shown are the highest and the lowest of all layers.");
    chart_put(html, &c);
    page_card_close(html);
    put_layers(html, run, run->bias_layers, run->n_bias_layers, "Spread of the bias by layer",
               "The highest bias of a layer’s experts minus the lowest.", "bias");
}

static void put_device_balance(FILE *html, const run_history *run)
{
    const series *s = &run->numbers[RUN_DEVICE_LOSS];
    bool used = false;
    for (size_t i = 0; i < s->count; i++) used |= s->points[i].y != 0;
    if (used)
        put_single(html, run, RUN_DEVICE_LOSS, "Device-level balance loss",
                   "All layers together, over the groups of experts.", "balance loss", NAN);
}

static void put_device_rows(FILE *html, const run_history *run)
{
    char about[256], digits[DIGITS];
    snprintf(about, sizeof about,
             "Rows for the experts of the busiest of %s devices, divided by the mean, in the worst"
             " layer; 1 would be even.",
             digits_group((double)run_history_devices(run), digits));
    put_single(html, run, RUN_DEVICE_ROWS, "Rows per device", about, "× the mean", 1);
}

/* With several ranks: how the first rank spends its time. */
static void put_times(FILE *html, const run_history *run)
{
    const series *s = run->numbers;
    if (s[RUN_COMPUTING].count == 0) return;
    const chart_line lines[] = {
        {"computing", "t0", s[RUN_COMPUTING].points, s[RUN_COMPUTING].count, 0},
        {"sending", "t1", s[RUN_SENDING].points, s[RUN_SENDING].count, 0},
        {"waiting", "t2", s[RUN_WAITING].points, s[RUN_WAITING].count, 0}};
    chart c = make_chart(run, "Where the time goes", "share of the time");
    c.lines = lines;
    c.n_lines = 3;
    c.y_low = 0;
    page_card_open(
        html, "Where the time goes",
        "How the first rank spends its time: computing; sending gradients, weights and rows of"
        " experts; and waiting for the other ranks.");
    chart_put(html, &c);
    page_card_close(html);
}

static void put_charts(FILE *html, const run_history *run)
{
    fputs("<div class=\"grid2\">\n", html);
    put_single(html, run, RUN_ACCURACY, "Preferences met",
               "The share of pairs in which the chosen answer has gained on the rejected one.",
               "share of the pairs", 0);
    put_single(html, run, RUN_MARGIN, "Margin of preferences",
               "How much the chosen answer has gained on the rejected one: beta times nats.",
               "margin", NAN);
    put_single(html, run, RUN_GRAD_NORM, "Gradient norm", "Before it is clipped.", "norm", 0);
    put_single(html, run, RUN_LR, "Learning rate", "As scheduled.", "learning rate", 0);
    put_balance(html, run);
    put_bias(html, run);
    put_device_balance(html, run);
    put_device_rows(html, run);
    put_single(html, run, RUN_IMBALANCE, "Worst imbalance",
               "The busiest expert’s load, divided by the mean of its layer, in the worst layer;"
               " 1 would be even.",
               "× the mean", 1);
    put_single(html, run, RUN_TOKENS_PER_S, "Speed", "Tokens trained on per second.",
               "tokens per second", 0);
    put_times(html, run);
    fputs("</div>\n", html);
}

/* ---- the page ------------------------------------------------------------------------------- */

typedef struct run_page {
    const run_history *run;
    const series_point *smooth; /* of the training loss */
    const char *name;
} run_page;

static void put_note(FILE *html, const run_history *run)
{
    char digits[DIGITS], number[DIGITS];
    if (run->n_unreadable == 0) return;
    fprintf(html,
            "<p class=\"note\">%s line%s of metrics.jsonl could not be read; the first is line"
            " %s.</p>\n",
            digits_group((double)run->n_unreadable, digits), run->n_unreadable > 1 ? "s" : "",
            digits_group((double)run->first_unreadable, number));
}

void run_page_put(FILE *html, const run_history *run, const series_point *smooth, const char *name)
{
    page_open(html, name, run->ended ? 0 : REFRESH_SECONDS);
    fputs("<header>\n", html);
    put_state(html, run);
    fputs("<h1>", html);
    page_text_cut(html, name, 100);
    fputs("</h1>\n<p>", html);
    put_model(html, run);
    fputs("</p>\n</header>\n", html);
    put_facts(html, run, smooth);
    put_loss(html, run, smooth);
    put_charts(html, run);
    run_page_load(html, run);
    run_page_kinds(html, run);
    run_page_samples(html, run);
    run_page_settings(html, run);
    put_note(html, run);
    page_close(html, NULL);
}

static void put_page(FILE *html, const void *context)
{
    const run_page *page = context;
    run_page_put(html, page->run, page->smooth, page->name);
}

/* The last part of the folder's real path, as "." needs a name as well; to free(). */
static char *folder_name(const char *folder)
{
    char *path = realpath(folder, NULL);
    const char *slash = path ? strrchr(path, '/') : NULL;
    char *name = strdup(slash && slash[1] ? slash + 1 : folder);
    free(path);
    return name;
}

dsmoe_status dsmoe_report_run(const char *folder, dsmoe_error *error)
{
    run_history run = {0};
    char *path = mapped_file_path(folder, "metrics.jsonl"), *name = folder_name(folder);
    series_point *smooth = NULL;
    dsmoe_status status = DSMOE_ERROR_MEMORY;
    if (path && name) {
        status = run_history_read(&run, path, error);
        if (status != DSMOE_OK) goto done;
        smooth = series_smooth(&run.numbers[RUN_LOSS]);
    }
    if (smooth) {
        const run_page page = {&run, smooth, name};
        status = page_write(folder, "report.html", put_page, &page, error);
    } else {
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    }
done:
    run_history_free(&run);
    free(smooth);
    free(name);
    free(path);
    return status;
}
