/* ablate_table.c - the results of `dsmoe ablate` in tables, next to the paper's figures. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/ablate.h"
#include "cli/table.h"

/* ---- numbers over seeds ---------------------------------------------------------------------- */

/* The loss of a model over all seeds; with `other`, minus that model's loss for the same seed. */
static spread collect(const ablation *a, int entry, int which, int other, int other_which)
{
    double values[ABLATION_MAX_SEEDS];
    for (int seed = 0; seed < a->n_seeds; seed++) {
        double loss = a->entries[entry].runs[seed].losses[which];
        values[seed] = other < 0 ? loss : loss - a->entries[other].runs[seed].losses[other_which];
    }
    return spread_of(values, (size_t)a->n_seeds);
}

/* Mean and standard deviation; "-" if there is no value. */
static void put_statistic(text_table *table, spread s, bool is_difference)
{
    if (s.n == 0) {
        table_text(table, "-");
        return;
    }
    if (s.n == 1)
        table_text(table, is_difference ? "%+.4f" : "%.4f", s.mean);
    else
        table_text(table, is_difference ? "%+.4f +/- %.4f" : "%.4f +/- %.4f", s.mean, s.deviation);
}

static void put_paper(text_table *table, double loss)
{
    if (isnan(loss))
        table_text(table, "-");
    else
        table_text(table, "%.3f", loss);
}

/* ---- the tables ------------------------------------------------------------------------------ */

static void print_models(const ablation *a)
{
    static const char *const headers[] = {"model",         "experts",      "total", "active",
                                          "held-out loss", "minus gshard", "paper", "minus gshard"};
    text_table table = {.n_columns = 8, .n_headers = 1};
    int gshard = architecture_find("gshard");
    double paper_gshard = architectures[gshard].paper_loss;
    char cell[TABLE_CELL], experts[ARCHITECTURE_EXPERTS];
    for (int i = 0; i < 8; i++) table_text(&table, "%s", headers[i]);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const ablation_entry *e = &a->entries[i];
        if (!ablation_is_shown(a, i)) continue;
        table_text(&table, "%s", e->model->name);
        table_text(&table, "%s", architecture_experts(e->model, experts));
        table_text(&table, "%s", number_shorten(e->parameters.total, cell));
        table_text(&table, "%s", number_shorten(e->parameters.active, cell));
        put_statistic(&table, collect(a, i, LOSS_PLAIN, -1, 0), false);
        spread none = {0};
        put_statistic(&table, i == gshard ? none : collect(a, i, LOSS_PLAIN, gshard, LOSS_PLAIN),
                      true);
        put_paper(&table, e->model->paper_loss);
        if (i == gshard || isnan(e->model->paper_loss))
            table_text(&table, "-");
        else
            table_text(&table, "%+.3f", e->model->paper_loss - paper_gshard);
    }
    table_print(&table);
}

static void print_masked(const ablation *a, int which, const char *title)
{
    text_table table = {.n_columns = 1 + LOSS_N_MASKS, .n_headers = 1};
    table_text(&table, "%s", title);
    for (int i = 0; i < LOSS_N_MASKS; i++) table_text(&table, i ? "%d/16" : "none", i);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        if (!ablation_is_known(a, i, which + 1)) continue;
        table_text(&table, "%s", architectures[i].name);
        put_statistic(&table, collect(a, i, LOSS_PLAIN, -1, 0), false);
        for (int mask = 1; mask < LOSS_N_MASKS; mask++)
            put_statistic(&table, collect(a, i, which + mask, i, LOSS_PLAIN), true);
    }
    if (table.n_cells == table.n_columns) return;
    putchar('\n');
    table_print(&table);
    puts("(paper: the loss rises faster for DeepSeekMoE than for GShard x1.5)");
}

static void print_replaced(const ablation *a)
{
    text_table table = {.n_columns = 5, .n_headers = 1};
    static const char *const headers[] = {"shared expert replaced", "before", "after", "difference",
                                          "paper"};
    for (int i = 0; i < 5; i++) table_text(&table, "%s", headers[i]);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        if (!ablation_is_known(a, i, LOSS_REPLACED)) continue;
        table_text(&table, "%s", architectures[i].name);
        put_statistic(&table, collect(a, i, LOSS_PLAIN, -1, 0), false);
        put_statistic(&table, collect(a, i, LOSS_REPLACED, -1, 0), false);
        put_statistic(&table, collect(a, i, LOSS_REPLACED, i, LOSS_PLAIN), true);
        table_text(&table, i == architecture_find("deepseekmoe") ? "1.808 to 2.414" : "-");
    }
    if (table.n_cells == table.n_columns) return;
    putchar('\n');
    table_print(&table);
}

static void print_fewer(const ablation *a, int entry)
{
    int gshard = architecture_find("gshard");
    int64_t k = a->entries[entry].config.num_experts_per_tok;
    text_table table = {.n_columns = 3, .n_headers = 1};
    table_text(&table, "active routed experts of %s", architectures[entry].name);
    table_text(&table, "loss");
    table_text(&table, "minus gshard");
    for (int64_t active = k; active > 0; active--) {
        int which = active == k ? LOSS_PLAIN : LOSS_FEWER + (int)active - 1;
        table_text(&table, "%" PRId64, active);
        put_statistic(&table, collect(a, entry, which, -1, 0), false);
        put_statistic(&table, collect(a, entry, which, gshard, LOSS_PLAIN), true);
    }
    putchar('\n');
    table_print(&table);
    puts("(paper: with 4 active it equals GShard)");
}

/* Says in words what the data support. */
static void print_comparisons(const ablation *a)
{
    study_comparison comparisons[N_CLAIMS];
    int n = ablation_compare(a, comparisons);
    if (n > 0 && a->n_seeds > 1)
        puts("\nwhat the data support (95 % intervals of paired differences, p after Holm):");
    for (int i = 0; i < n && a->n_seeds > 1; i++) {
        fputs("  ", stdout);
        study_tell(stdout, &comparisons[i]);
        putchar('\n');
    }
}

/* Says which models have the same expert parameters. */
static void print_equal(const ablation *a)
{
    const architecture_parameters *p = &a->entries[architecture_find("gshard")].parameters;
    char all[TABLE_CELL], active[TABLE_CELL];
    bool first = true;
    fputs("\nequal expert parameters (", stdout);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        if (!architectures[i].is_equal) continue;
        printf("%s%s", first ? "" : ", ", architectures[i].name);
        first = false;
    }
    printf("): %s in all, %s for a token; only the router differs\n", number_group(p->experts, all),
           number_group(p->active_experts, active));
}

void ablate_print_tables(const ablation *a)
{
    char tokens[TABLE_CELL];
    printf("scale %s, %s tokens, %d seed%s%s\n\n", a->options.scale->name,
           number_group(a->options.steps * a->options.batch * a->options.seq, tokens), a->n_seeds,
           a->n_seeds == 1 ? "" : "s", a->n_seeds == 1 ? "" : ": mean +/- standard deviation");
    print_models(a);
    print_comparisons(a);
    print_equal(a);
    print_masked(a, LOSS_MASK, "top experts masked");
    print_masked(a, LOSS_MASK_FIRST, "... before the softmax");
    print_replaced(a);
    for (int i = 0; i < N_ARCHITECTURES; i++)
        if (ablation_is_known(a, i, LOSS_FEWER)) print_fewer(a, i);
}
