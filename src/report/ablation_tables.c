/* ablation_tables.c - the tables of a comparison's page: all numbers, how the models were trained, probes. */
#include "report/ablation_tables.h"

#include <math.h>
#include <stdbool.h>

#include "report/digits.h"
#include "report/lines.h"
#include "report/page.h"

enum { MAX_SOURCES = 20 };

/* ---- all numbers ---------------------------------------------------------------------------- */

static void put_cell(FILE *html, const char *column, const char *text)
{
    page_cell_open(html, column);
    fprintf(html, "%s</td>", text);
}

static void put_spread(FILE *html, const double *values, size_t n)
{
    char digits[DIGITS];
    spread s = spread_of(values, n);
    page_cell_open(html, "held-out loss");
    fputs(digits_fixed(s.mean, 4, digits), html);
    if (s.n > 1) fprintf(html, " ± %s", digits_fixed(s.deviation, 4, digits));
    fputs("</td>", html);
}

static const char *seed_name(const ablation *a, size_t i, char out[2 * DIGITS])
{
    char digits[DIGITS];
    double seed = line_item(line_array(a->root, "seeds"), i);
    snprintf(out, 2 * DIGITS, "seed %s", digits_group(seed, digits));
    return out;
}

static void put_model_row(FILE *html, const ablation *a, const ablation_model *m)
{
    char digits[DIGITS], seed[2 * DIGITS];
    fputs("<tr><th scope=\"row\">", html);
    page_text_cut(html, m->label, 60);
    fputs("</th>", html);
    page_cell_open(html, "experts");
    page_text_cut(html, m->experts ? m->experts : "–", 40);
    fputs("</td>", html);
    put_cell(html, "parameters", digits_short(m->total_parameters, digits));
    put_cell(html, "active for a token", digits_short(m->active_parameters, digits));
    put_cell(html, "in experts", digits_short(m->expert_parameters, digits));
    put_cell(html, "active in experts", digits_short(m->active_expert_parameters, digits));
    put_spread(html, m->final, m->n_runs);
    for (size_t i = 0; i < a->n_seeds; i++)
        put_cell(html, seed_name(a, i, seed),
                 digits_fixed(i < m->n_runs ? m->final[i] : NAN, 4, digits));
    put_cell(html, "paper", digits_fixed(m->paper_loss, 3, digits));
    fputs("</tr>\n", html);
}

static void put_models(FILE *html, const ablation *a)
{
    char seed[2 * DIGITS];
    page_card_open(html, "All numbers",
                   "Parameters of the whole model and of its experts, and how many of them are"
                   " active for a token. Held-out loss: the mean over the seeds ± one standard"
                   " deviation. The paper’s losses are on other data.");
    fputs("<div class=\"wide\"><table class=\"full stack\">\n<thead><tr><th>architecture</th>"
          "<th>experts</th><th>parameters</th><th>active for a token</th>"
          "<th>in experts</th><th>active in experts</th>"
          "<th>held-out loss</th>",
          html);
    for (size_t i = 0; i < a->n_seeds; i++) fprintf(html, "<th>%s</th>", seed_name(a, i, seed));
    fputs("<th>paper</th></tr></thead><tbody>\n", html);
    for (size_t i = 0; i < a->n_models; i++) put_model_row(html, a, &a->models[i]);
    fputs("</tbody></table></div>\n", html);
    page_card_close(html);
}

/* ---- how they were trained -------------------------------------------------------------------- */

static bool is_dense(const ablation_model *m)
{
    return m->expert_parameters == m->active_expert_parameters;
}

/* How the scores of the chosen experts become factors of their outputs. */
static void put_gate(FILE *html, const ablation_model *m)
{
    char digits[DIGITS];
    double scale = line_number(m->object, "routed_scaling_factor");
    page_cell_open(html, "gate values");
    fputs(line_flag(m->object, "norm_topk_prob") ? "add up to 1" : "softmax", html);
    if (scale > 0 && scale != 1) fprintf(html, " × %s", digits_plain(scale, 3, digits));
    fputs("</td>", html);
}

static void put_balance(FILE *html, const ablation_model *m)
{
    char digits[DIGITS];
    double alpha = line_number(m->object, "aux_loss_alpha");
    page_cell_open(html, "balance loss");
    if (alpha > 0)
        fprintf(html, "%s, over a %s", digits_plain(alpha, 3, digits),
                line_flag(m->object, "seq_aux") ? "sequence" : "batch");
    else
        fputs("–", html);
    fputs("</td>", html);
}

static void put_setting(FILE *html, const char *column, double value)
{
    char digits[DIGITS];
    put_cell(html, column, isfinite(value) ? digits_plain(value, 3, digits) : "–");
}

static void put_training_row(FILE *html, const ablation_model *m)
{
    fputs("<tr><th scope=\"row\">", html);
    page_text_cut(html, m->label, 60);
    fputs("</th>", html);
    put_setting(html, "learning rate", line_number(m->object, "lr"));
    if (is_dense(m)) {
        put_cell(html, "gate values", "–");
        put_cell(html, "balance loss", "–");
    } else {
        put_gate(html, m);
        put_balance(html, m);
    }
    put_setting(html, "initial deviation", line_number(m->object, "initializer_range"));
    fputs("</tr>\n", html);
}

static void put_data(FILE *html, const ablation *a)
{
    char digits[DIGITS];
    const json_node *data = line_array(a->root, "data");
    double batch = line_number(a->root, "batch"), seq = line_number(a->root, "seq");
    double words = line_number(a->root, "vocab_size");
    fputs("<p class=\"about\">", html);
    if (batch > 0 && seq > 0) {
        fprintf(html, "A step is %s sequence%s", digits_group(batch, digits), batch > 1 ? "s" : "");
        fprintf(html, " of %s tokens. ", digits_group(seq, digits));
    }
    if (words > 0) fprintf(html, "The vocabulary has %s tokens. ", digits_group(words, digits));
    size_t n = 0;
    for (size_t i = 0; i < line_count(data) && i < MAX_SOURCES; i++) {
        const json_node *source = json_node_item(data, i);
        if (json_node_kind(source) != JSON_KIND_STRING) continue;
        fputs(n++ ? ", " : "Text: ", html);
        page_text_cut(html, json_node_string(source, NULL), 80);
    }
    fputs(n > 0 ? ".</p>\n" : "</p>\n", html);
}

/* What was not the same for all architectures has to be seen beside their losses. */
static void put_training(FILE *html, const ablation *a)
{
    bool known = false;
    for (size_t i = 0; i < a->n_models; i++)
        known |= isfinite(line_number(a->models[i].object, "lr"));
    if (!known) return;
    page_card_open(html, "How they were trained", NULL);
    put_data(html, a);
    fputs("<div class=\"wide\"><table class=\"full stack\">\n<thead><tr><th>architecture</th>"
          "<th>learning rate, highest</th><th>gate values</th><th>balance loss, factor</th>"
          "<th>initial weights, deviation</th></tr></thead><tbody>\n",
          html);
    for (size_t i = 0; i < a->n_models; i++) put_training_row(html, &a->models[i]);
    fputs("</tbody></table></div>\n", html);
    page_card_close(html);
}

/* ---- probes ------------------------------------------------------------------------------------ */

/* The mean over the seeds, and its interval in a cell of its own. */
static void put_mean(FILE *html, double mean, double reach)
{
    char digits[DIGITS];
    put_cell(html, "held-out loss", digits_fixed(mean, 4, digits));
    page_cell_open(html, "95 % interval");
    fputs(digits_fixed(reach > 0 ? mean - reach : NAN, 4, digits), html);
    if (reach > 0) fprintf(html, " to %s", digits_fixed(mean + reach, 4, digits));
    fputs("</td></tr>\n", html);
}

static void put_probe_rows(FILE *html, const ablation *a, const char *what,
                           const ablation_probe *probes, size_t n, bool percent)
{
    char digits[DIGITS];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < probes[i].n_points; j++) {
            const series_point *p = &probes[i].points[j];
            fputs("<tr><th scope=\"row\">", html);
            page_text_cut(html, ablation_label(a, probes[i].name), 60);
            fputs("</th>", html);
            page_cell_open(html, "probe");
            fprintf(html, "%s %s%s</td>", what,
                    digits_plain(percent ? 100 * p->x : p->x, 4, digits), percent ? " %" : "");
            put_mean(html, p->y, p->y - p->low);
        }
}

static void put_probes(FILE *html, const ablation *a)
{
    if (a->n_mask_top + a->n_fewer_active + a->n_replace_shared == 0) return;
    fputs(
        "<details class=\"card\"><summary>Numbers of the probes</summary>\n"
        "<div class=\"wide\"><table class=\"stack\">\n<thead><tr><th>architecture</th><th>probe</th>"
        "<th>held-out loss</th><th>95 % interval</th></tr></thead><tbody>\n",
        html);
    put_probe_rows(html, a, "best masked:", a->mask_top, a->n_mask_top, true);
    put_probe_rows(html, a, "best masked before the softmax:", a->mask_top_first,
                   a->n_mask_top_first, true);
    put_probe_rows(html, a, "routed experts:", a->fewer_active, a->n_fewer_active, false);
    for (size_t i = 0; i < a->n_replace_shared; i++) {
        const ablation_replacement *r = &a->replace_shared[i];
        for (int after = 0; after < 2; after++) {
            fputs("<tr><th scope=\"row\">", html);
            page_text_cut(html, ablation_label(a, r->name), 60);
            fputs("</th>", html);
            put_cell(html, "probe",
                     after ? "one more routed expert instead of the shared one"
                           : "with the shared expert");
            spread s = spread_of(after ? r->after : r->before, after ? r->n_after : r->n_before);
            put_mean(html, s.mean, interval_reach(s));
        }
    }
    fputs("</tbody></table></div></details>\n", html);
}

void ablation_tables_put(FILE *html, const ablation *a)
{
    put_models(html, a);
    put_training(html, a);
    put_probes(html, a);
}
