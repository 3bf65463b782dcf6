/* ablation_report.c - the page of a comparison of architectures, made from its JSON. */
#include "dsmoe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/ablation.h"
#include "report/ablation_tables.h"
#include "report/chart.h"
#include "report/digits.h"
#include "report/lines.h"
#include "report/page.h"

enum { REFRESH_SECONDS = 15 };

/* ---- head ----------------------------------------------------------------------------------- */

/* A model may have been trained with more seeds than the others. */
static bool has_equal_seeds(const ablation *a)
{
    size_t fewest = SIZE_MAX, most = 0;
    for (size_t i = 0; i < a->n_models; i++) {
        size_t n = spread_of(a->models[i].final, a->models[i].n_runs).n;
        if (n < fewest) fewest = n;
        if (n > most) most = n;
    }
    return fewest == most || !line_flag(a->root, "finished");
}

static void put_head(FILE *html, const ablation *a)
{
    char digits[DIGITS];
    const char *scale = line_text(a->root, "scale");
    double tokens = line_number(a->root, "tokens"), steps = line_number(a->root, "steps");
    fputs("<header>\n", html);
    if (line_flag(a->root, "finished"))
        fputs("<p class=\"state done\"><i></i><b>Finished.</b></p>\n", html);
    else
        fprintf(
            html,
            "<p class=\"state live\"><i></i><b>Training.</b> %zu of %zu runs are done. This page"
            " reloads itself every %d seconds.</p>\n",
            a->n_done, a->n_runs, REFRESH_SECONDS);
    fputs("<h1>Architectures compared</h1>\n<p>", html);
    fprintf(html, "%zu architectures", a->n_models);
    if (scale) {
        fputs(" at scale ", html);
        page_text_cut(html, scale, 40);
    }
    if (tokens > 0) fprintf(html, ", trained on the same %s tokens", digits_short(tokens, digits));
    if (steps > 0) fprintf(html, " in the same order over %s steps", digits_group(steps, digits));
    if (a->n_seeds > 0)
        fprintf(html, ", with %s%zu seed%s each", has_equal_seeds(a) ? "" : "up to ", a->n_seeds,
                a->n_seeds > 1 ? "s" : "");
    fputs(".</p>\n</header>\n", html);
}

/* The other architectures lead to the paper's own, DeepSeekMoE, so no other line has its colour. */
static size_t own_index(const ablation *a)
{
    size_t own = ablation_find(a, "deepseekmoe");
    return own < a->n_models ? own : a->n_models - 1;
}

enum { OTHER_TONES = PAGE_TONES - 1 };

static size_t place_among_others(const ablation *a, size_t index)
{
    return index > own_index(a) ? index - 1 : index;
}

static const char *tone(const ablation *a, size_t index)
{
    if (index == own_index(a)) return page_tone(1);
    size_t other = place_among_others(a, index) % OTHER_TONES;
    return page_tone(other == 0 ? 0 : other + 1);
}

/* There are more architectures than colours. A line that has the colour of an earlier one is dashed. */
static int dashes(const ablation *a, size_t index)
{
    if (index == own_index(a)) return 0;
    return place_among_others(a, index) < OTHER_TONES ? 0 : CHART_DASHED;
}

/* ---- final loss ----------------------------------------------------------------------------- */

static void put_final(FILE *html, const ablation *a)
{
    chart_row rows[ABLATION_MODELS], paper[ABLATION_MODELS];
    bool has_paper = false;
    for (size_t i = 0; i < a->n_models; i++) {
        const ablation_model *m = &a->models[i];
        rows[i] = (chart_row){m->label, tone(a, i), m->final, m->n_runs};
        paper[i] = (chart_row){m->label, tone(a, i), &m->paper_loss, 1};
        has_paper |= isfinite(m->paper_loss);
    }
    fputs("<div class=\"grid2\">\n", html);
    page_card_open(html, "Held-out loss",
                   "Nats per token on text that was not trained on: single seeds, their mean and"
                   " one standard deviation to each side. Lower is better.");
    chart_rows(html, "Held-out loss of each architecture", "nats per token", rows, a->n_models, 3);
    page_card_close(html);
    if (has_paper) {
        page_card_open(html, "The paper’s figures",
                       "Other data, other sizes and far more tokens (the Pile, 100B tokens, 2B"
                       " parameters): compare the order and the distances, not the numbers.");
        chart_rows(html, "Loss of each architecture in the paper", "loss on the Pile", paper,
                   a->n_models, 3);
        page_card_close(html);
    }
    fputs("</div>\n", html);
}

/* ---- curves --------------------------------------------------------------------------------- */

static void put_curve_chart(FILE *html, const chart_line *lines, size_t n, const char *x_name,
                            const char *title, double from)
{
    chart c = chart_make(title, x_name, "nats per token");
    c.lines = lines;
    c.n_lines = n;
    c.no_legend = true;
    if (from > 0) c.x_low = from;
    fprintf(html, "<figure><h3>%s</h3>\n", title);
    chart_put(html, &c);
    fputs("</figure>\n", html);
}

static void put_curves(FILE *html, const ablation *a)
{
    chart_line lines[ABLATION_MODELS];
    bool has_bands = a->n_models <= PAGE_TONES; /* more of them would cover the lines */
    double last = 0;
    for (size_t i = 0; i < a->n_models; i++) {
        const ablation_model *m = &a->models[i];
        int form = dashes(a, i) | (has_bands ? CHART_BAND : 0);
        lines[i] = (chart_line){m->label, tone(a, i), m->curve, m->n_curve, form};
        if (m->n_curve > 0) last = fmax(last, m->curve[m->n_curve - 1].x);
    }
    if (last <= 0) return;
    page_card_open(
        html, "Held-out loss while training",
        has_bands
            ? "On a part of the held-out text; the mean over the seeds, with its 95 %"
              " interval where there are several."
            : "On a part of the held-out text; the mean over the seeds. The intervals of so"
              " many architectures would hide the lines; those of their differences are below.");
    chart_legend(html, lines, a->n_models, NULL);
    fputs("<div class=\"maps two\">\n", html);
    put_curve_chart(html, lines, a->n_models, a->x_name, "From the start", 0);
    put_curve_chart(html, lines, a->n_models, a->x_name, "The second half", last / 2);
    fputs("</div>\n", html);
    page_card_close(html);
}

/* ---- probes --------------------------------------------------------------------------------- */

/* The colour and the name of an architecture, which may be missing in the list. */
static const char *tone_of(const ablation *a, const char *name)
{
    return tone(a, ablation_find(a, name));
}

/* Draws a chart of how the loss of some architectures changes with x. */
static void put_probe_lines(FILE *html, const ablation *a, const ablation_probe *probes, size_t n,
                            chart c)
{
    chart_line lines[ABLATION_PROBES];
    for (size_t i = 0; i < n; i++)
        lines[i] =
            (chart_line){ablation_label(a, probes[i].name), tone_of(a, probes[i].name),
                         probes[i].points, probes[i].n_points,
                         CHART_DOTS | CHART_BARS | dashes(a, ablation_find(a, probes[i].name))};
    c.lines = lines;
    c.n_lines = n;
    c.no_legend = true; /* a single line needs one too */
    chart_legend(html, lines, n, c.level_name);
    chart_put(html, &c);
}

static void put_mask_top(FILE *html, const ablation *a, const ablation_probe *probes, size_t n,
                         const char *title, const char *about)
{
    if (n == 0) return;
    chart c = chart_make("Loss when the best experts of each token are masked",
                         "share of the routed experts that is masked", "nats per token");
    c.x_percent = true;
    page_card_open(html, title, about);
    put_probe_lines(html, a, probes, n, c);
    page_card_close(html);
}

static void put_fewer_active(FILE *html, const ablation *a)
{
    if (a->n_fewer_active == 0) return;
    const ablation_probe *first = &a->fewer_active[0];
    char level[128], label[64];
    chart c =
        chart_make("Loss with fewer active experts", "routed experts per token", "nats per token");
    if (first->compare && isfinite(first->compare_loss)) {
        snprintf(level, sizeof level, "%s as trained",
                 page_shorten(ablation_label(a, first->compare), label, sizeof label));
        c.level_name = level;
        c.level = first->compare_loss;
    }
    page_card_open(html, "With fewer active experts",
                   "Each token uses fewer routed experts than in training, only its best ones; the"
                   " right end of a line is the model as trained. Bars: 95 % interval of the mean"
                   " over the seeds.");
    put_probe_lines(html, a, a->fewer_active, a->n_fewer_active, c);
    page_card_close(html);
}

static void put_paper_replacement(FILE *html, const ablation *a, const ablation_replacement *r)
{
    fputs("<p class=\"note\">In the paper, the loss of ", html);
    page_text_cut(html, ablation_label(a, r->name), 60);
    fprintf(html, " goes from %.3f to %.3f.</p>\n", r->paper_before, r->paper_after);
}

static void put_replace_shared(FILE *html, const ablation *a)
{
    if (a->n_replace_shared == 0) return;
    chart_row rows[2 * ABLATION_PROBES];
    size_t n = 0;
    for (size_t i = 0; i < a->n_replace_shared; i++) {
        const ablation_replacement *r = &a->replace_shared[i];
        rows[n++] =
            (chart_row){ablation_label(a, r->name), tone_of(a, r->name), r->before, r->n_before};
        rows[n++] = (chart_row){"… without it", tone_of(a, r->name), r->after, r->n_after};
    }
    page_card_open(html, "Without the shared expert",
                   "The shared expert is switched off, and each token uses one more routed expert"
                   " instead: single seeds, their mean and one standard deviation to each side.");
    chart_rows(html, "Loss with and without the shared expert", "nats per token", rows, n, 3);
    for (size_t i = 0; i < a->n_replace_shared; i++) {
        const ablation_replacement *r = &a->replace_shared[i];
        if (isfinite(r->paper_before) && isfinite(r->paper_after))
            put_paper_replacement(html, a, r);
    }
    page_card_close(html);
}

static void put_probes(FILE *html, const ablation *a)
{
    if (a->n_mask_top + a->n_fewer_active + a->n_replace_shared == 0) return;
    fputs("<div class=\"grid2\">\n", html);
    put_mask_top(
        html, a, a->mask_top, a->n_mask_top, "Without the best experts",
        "Each token’s highest-scoring routed experts are masked, and it takes the next best"
        " instead. The faster the loss rises, the less one expert can stand in for another."
        " Bars: 95 % interval of the mean over the seeds.");
    put_mask_top(html, a, a->mask_top_first, a->n_mask_top_first,
                 "Without the best experts, masked before the softmax",
                 "The same, but the scores of the other experts add up to 1. That changes nothing"
                 " where gate values are normalised, so such architectures are left out.");
    put_fewer_active(html, a);
    put_replace_shared(html, a);
    fputs("</div>\n", html);
}

/* ---- comparisons ---------------------------------------------------------------------------- */

static void put_signed(FILE *html, double value)
{
    if (isfinite(value))
        fprintf(html, "%+.4f", value);
    else
        fputs("–", html);
}

static void put_p(FILE *html, const char *column, double p)
{
    page_cell_open(html, column);
    if (!isfinite(p))
        fputs("–", html);
    else if (p < 0.001)
        fputs("&lt; 0.001", html);
    else
        fprintf(html, "%.3f", p);
    fputs("</td>", html);
}

/* What is compared, in words of the file if it has some. */
static void put_pair(FILE *html, const ablation *a, const ablation_comparison *c)
{
    if (c->pair) {
        page_text_cut(html, c->pair, 120);
        return;
    }
    page_text_cut(html, ablation_label(a, c->name), 60);
    fputs(" minus ", html);
    page_text_cut(html, ablation_label(a, c->to), 60);
}

static void put_comparison_row(FILE *html, const ablation *a, const ablation_comparison *c)
{
    char digits[DIGITS];
    fputs("<tr><th scope=\"row\">", html);
    put_pair(html, a, c);
    fputs("</th>", html);
    page_cell_open(html, "mean");
    put_signed(html, c->mean);
    fputs("</td>", html);
    page_cell_open(html, "95 % interval");
    put_signed(html, c->low);
    if (isfinite(c->low)) {
        fputs(" to ", html);
        put_signed(html, c->high);
    }
    fputs("</td>", html);
    put_p(html, "p", c->p);
    put_p(html, "p corrected", c->corrected_p);
    page_cell_open(html, "paper");
    put_signed(html, c->paper);
    fputs("</td>", html);
    page_cell_open(html, "seeds");
    fputs(digits_group(c->n, digits), html);
    fputs("</td></tr>\n", html);
}

static void put_comparisons(FILE *html, const ablation *a)
{
    if (a->n_comparisons == 0) return;
    page_card_open(
        html, "What the data support",
        "Differences in held-out loss, in nats per token, seed by seed: below 0 the first is ahead."
        " The interval contains the true mean difference in 95 of 100 such comparisons. p is"
        " two-sided, from Student’s t; the corrected p is Holm’s, for all rows of this table; a"
        " difference counts as found if it is below 0.05. “paper” is the paper’s difference.");
    fputs("<ul class=\"conclusions\">\n", html);
    for (size_t i = 0; i < a->n_comparisons; i++) {
        if (!a->comparisons[i].text) continue;
        fputs("<li>", html);
        page_text_cut(html, a->comparisons[i].text, 400);
        fputs(".</li>\n", html);
    }
    fputs(
        "</ul>\n<div class=\"wide\"><table class=\"full stack\">\n<thead><tr><th>difference</th>"
        "<th>mean</th><th>95 % interval</th><th>p</th><th>p corrected</th><th>paper</th><th>seeds</th></tr>"
        "</thead><tbody>\n",
        html);
    for (size_t i = 0; i < a->n_comparisons; i++) put_comparison_row(html, a, &a->comparisons[i]);
    fputs("</tbody></table></div>\n", html);
    page_card_close(html);
}

static const char no_difference[] = "no difference";

static void put_gap(FILE *html, const ablation *a, const ablation_comparison *c)
{
    char title[256], one[64], other[64];
    snprintf(title, sizeof title, "%s minus %s",
             page_shorten(ablation_label(a, c->name), one, sizeof one),
             page_shorten(ablation_label(a, c->to), other, sizeof other));
    chart_line line = {title, tone_of(a, c->name), c->gap, c->n_gap, CHART_BAND};
    chart g = chart_make(title, a->x_name, "nats per token");
    g.lines = &line;
    g.n_lines = 1;
    g.no_legend = true; /* there is one legend above all charts */
    g.level_name = no_difference;
    g.level = 0;
    fputs("<figure><h3>", html);
    page_text_cut(html, title, 120);
    fputs("</h3>\n", html);
    chart_put(html, &g);
    fputs("</figure>\n", html);
}

static void put_gaps(FILE *html, const ablation *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_comparisons; i++) n += a->comparisons[i].n_gap > 0;
    if (n == 0) return;
    page_card_open(html, "Differences while training",
                   "Each pair on a part of the held-out text, the mean over the seeds with its 95 %"
                   " interval at each point by itself: below 0 the first is ahead.");
    chart_legend(html, NULL, 0, no_difference);
    fputs("<div class=\"maps two\">\n", html);
    for (size_t i = 0; i < a->n_comparisons; i++)
        if (a->comparisons[i].n_gap > 0) put_gap(html, a, &a->comparisons[i]);
    fputs("</div>\n", html);
    page_card_close(html);
}

/* ---- the page ------------------------------------------------------------------------------- */

static void put_page(FILE *html, const void *context)
{
    const ablation *a = context;
    page_open(html, "Architectures compared", line_flag(a->root, "finished") ? 0 : REFRESH_SECONDS);
    put_head(html, a);
    put_comparisons(html, a);
    put_final(html, a);
    put_curves(html, a);
    put_gaps(html, a);
    put_probes(html, a);
    ablation_tables_put(html, a);
    page_close(html, NULL);
}

dsmoe_status dsmoe_report_ablation(const char *json_path, const char *html_path, dsmoe_error *error)
{
    ablation a;
    STATUS_TRY(ablation_read(&a, json_path, error));
    const char *slash = strrchr(html_path, '/');
    char *folder = slash ? strndup(html_path, slash == html_path ? 1 : (size_t)(slash - html_path))
                         : strdup(".");
    dsmoe_status status =
        folder ? page_write(folder, slash ? slash + 1 : html_path, put_page, &a, error)
               : status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", html_path);
    free(folder);
    ablation_free(&a);
    return status;
}
