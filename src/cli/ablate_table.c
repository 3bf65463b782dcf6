/* ablate_table.c - the outcome of `dsmoe ablate` in tables, beside the paper's figures. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/ablate.h"
#include "cli/table.h"

/* ---- numbers over seeds ---------------------------------------------------------------------- */

/* A loss, or a difference of two, over the seeds of which it is known. */
typedef struct statistic {
    int n;
    double sum, sum_squares;
} statistic;

static void add(statistic *s, double value)
{
    if (isnan(value)) return;
    s->n++;
    s->sum += value;
    s->sum_squares += value * value;
}

/* Of a model, less that of another with the same seed if there is one. */
static statistic collect(const ablation *a, int entry, int which, int other, int other_which)
{
    statistic s = {0};
    for (int seed = 0; seed < a->n_seeds; seed++) {
        double loss = a->entries[entry].runs[seed].losses[which];
        add(&s, other < 0 ? loss : loss - a->entries[other].runs[seed].losses[other_which]);
    }
    return s;
}

/* Mean and standard deviation; "-" of nothing. */
static void put_statistic(text_table *table, statistic s, bool is_difference)
{
    if (s.n == 0) {
        table_text(table, "-");
        return;
    }
    double mean = s.sum / s.n, deviation = 0;
    if (s.n > 1) deviation = sqrt(fmax(0, (s.sum_squares - s.n * mean * mean) / (s.n - 1)));
    if (s.n == 1)
        table_text(table, is_difference ? "%+.4f" : "%.4f", mean);
    else
        table_text(table, is_difference ? "%+.4f +/- %.4f" : "%.4f +/- %.4f", mean, deviation);
}

static void put_paper(text_table *table, double loss)
{
    if (isnan(loss))
        table_text(table, "-");
    else
        table_text(table, "%.3f", loss);
}

static bool is_known(const ablation *a, int entry, int which)
{
    return ablate_has_loss(&a->entries[entry], which) && collect(a, entry, which, -1, 0).n > 0;
}

/* ---- the tables ------------------------------------------------------------------------------ */

static void print_models(const ablation *a)
{
    static const char *const headers[] = {"model",         "experts",   "total", "active",
                                          "held-out loss", "to gshard", "paper", "to gshard"};
    text_table table = {.n_columns = 8, .n_headers = 1};
    int gshard = ablate_model_find("gshard");
    double paper_gshard = ablate_models[gshard].paper_loss;
    char cell[TABLE_CELL], experts[ABLATE_EXPERTS];
    for (int i = 0; i < 8; i++) table_text(&table, "%s", headers[i]);
    for (int i = 0; i < ABLATE_N_MODELS; i++) {
        const ablate_entry *e = &a->entries[i];
        if (!ablate_is_shown(a, i)) continue;
        table_text(&table, "%s", e->model->name);
        table_text(&table, "%s", ablate_model_experts(e->model, experts));
        table_text(&table, "%s", number_shorten(e->parameters.total, cell));
        table_text(&table, "%s", number_shorten(e->parameters.active, cell));
        put_statistic(&table, collect(a, i, ABLATE_PLAIN, -1, 0), false);
        statistic none = {0};
        put_statistic(&table,
                      i == gshard ? none : collect(a, i, ABLATE_PLAIN, gshard, ABLATE_PLAIN), true);
        put_paper(&table, e->model->paper_loss);
        if (i == gshard || isnan(e->model->paper_loss))
            table_text(&table, "-");
        else
            table_text(&table, "%+.3f", e->model->paper_loss - paper_gshard);
    }
    table_print(&table);
}

static void print_masked(const ablation *a)
{
    text_table table = {.n_columns = 1 + ABLATE_N_MASKS, .n_headers = 1};
    table_text(&table, "top experts masked");
    for (int i = 0; i < ABLATE_N_MASKS; i++) table_text(&table, i ? "%d/16" : "none", i);
    for (int i = 0; i < ABLATE_N_MODELS; i++) {
        if (!is_known(a, i, ABLATE_MASK + 1)) continue;
        table_text(&table, "%s", ablate_models[i].name);
        put_statistic(&table, collect(a, i, ABLATE_PLAIN, -1, 0), false);
        for (int mask = 1; mask < ABLATE_N_MASKS; mask++)
            put_statistic(&table, collect(a, i, ABLATE_MASK + mask, i, ABLATE_PLAIN), true);
    }
    if (table.n_cells == table.n_columns) return;
    putchar('\n');
    table_print(&table);
    puts("(paper: it rises faster for DeepSeekMoE than for GShard x1.5)");
}

static void print_replaced(const ablation *a)
{
    text_table table = {.n_columns = 5, .n_headers = 1};
    static const char *const headers[] = {"shared expert replaced", "before", "after", "difference",
                                          "paper"};
    for (int i = 0; i < 5; i++) table_text(&table, "%s", headers[i]);
    for (int i = 0; i < ABLATE_N_MODELS; i++) {
        if (!is_known(a, i, ABLATE_REPLACED)) continue;
        table_text(&table, "%s", ablate_models[i].name);
        put_statistic(&table, collect(a, i, ABLATE_PLAIN, -1, 0), false);
        put_statistic(&table, collect(a, i, ABLATE_REPLACED, -1, 0), false);
        put_statistic(&table, collect(a, i, ABLATE_REPLACED, i, ABLATE_PLAIN), true);
        table_text(&table, i == ablate_model_find("deepseekmoe") ? "1.808 to 2.414" : "-");
    }
    if (table.n_cells == table.n_columns) return;
    putchar('\n');
    table_print(&table);
}

static void print_fewer(const ablation *a, int entry)
{
    int gshard = ablate_model_find("gshard");
    int64_t k = a->entries[entry].config.num_experts_per_tok;
    text_table table = {.n_columns = 3, .n_headers = 1};
    table_text(&table, "active routed experts of %s", ablate_models[entry].name);
    table_text(&table, "loss");
    table_text(&table, "to gshard");
    for (int64_t active = k; active > 0; active--) {
        int which = active == k ? ABLATE_PLAIN : ABLATE_FEWER + (int)active - 1;
        table_text(&table, "%" PRId64, active);
        put_statistic(&table, collect(a, entry, which, -1, 0), false);
        put_statistic(&table, collect(a, entry, which, gshard, ABLATE_PLAIN), true);
    }
    putchar('\n');
    table_print(&table);
    puts("(paper: with 4 active it equals GShard)");
}

/* That what should be equal is. */
static void print_equal(const ablation *a)
{
    const ablate_parameters *p = &a->entries[ablate_model_find("gshard")].parameters;
    char all[TABLE_CELL], active[TABLE_CELL];
    bool first = true;
    fputs("\nequal expert parameters (", stdout);
    for (int i = 0; i < ABLATE_N_MODELS; i++) {
        if (!ablate_models[i].is_equal) continue;
        printf("%s%s", first ? "" : ", ", ablate_models[i].name);
        first = false;
    }
    printf("): %s in all, %s for a token; only the router differs\n", number_group(p->experts, all),
           number_group(p->active_experts, active));
}

void ablate_print_tables(const ablation *a)
{
    char tokens[TABLE_CELL];
    printf("scale %s, %s tokens, %d seed%s%s\n\n", a->scale->name,
           number_group(a->steps * a->batch * a->seq, tokens), a->n_seeds,
           a->n_seeds == 1 ? "" : "s", a->n_seeds == 1 ? "" : ": mean +/- standard deviation");
    print_models(a);
    print_equal(a);
    print_masked(a);
    print_replaced(a);
    for (int i = 0; i < ABLATE_N_MODELS; i++)
        if (is_known(a, i, ABLATE_FEWER)) print_fewer(a, i);
}
