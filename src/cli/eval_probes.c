/* eval_probes.c - `dsmoe eval --probes`: the paper's probes side by side. */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/eval.h"
#include "formats/json_write.h"
#include "model/model.h"
#include "study/probe_set.h"

typedef struct probe_row {
    dsmoe_config config; /* with the probe applied */
    double cross_entropy, error;
} probe_row;

typedef struct probe_set {
    int n_rows, n_done;
    int64_t n_scored; /* tokens of each row */
    probe_choice choices[PROBE_SET_MOST];
    probe_row rows[PROBE_SET_MOST];
} probe_set;

/* ---- one probe ------------------------------------------------------------------------------- */

bool eval_is_probed(const dsmoe_probe *probe)
{
    return probe->mask_top != 0 || probe->replace_shared || probe->num_experts_per_tok != 0;
}

const char *eval_format_experts(const dsmoe_probe *probe, const dsmoe_config *c,
                                char out[TABLE_CELL])
{
    int64_t n_left = c->n_routed_experts - probe_count_masked(probe, c->n_routed_experts);
    snprintf(out, TABLE_CELL, "%" PRId64 " + %" PRId64 " of %" PRId64, c->n_shared_experts,
             c->num_experts_per_tok, n_left);
    return out;
}

void eval_print_json_probe(const dsmoe_probe *probe, const dsmoe_config *c)
{
    printf("\"mask_top\": %.9g, \"n_masked\": %" PRId64 ", \"replace_shared\": %s, "
           "\"n_shared_experts\": %" PRId64 ", \"num_experts_per_tok\": %" PRId64,
           probe->mask_top, probe_count_masked(probe, c->n_routed_experts),
           probe->replace_shared ? "true" : "false", c->n_shared_experts, c->num_experts_per_tok);
}

/* ---- the set --------------------------------------------------------------------------------- */

static int run_row(evaluation *e, const dsmoe_model *model, probe_set *set)
{
    probe_row *row = &set->rows[set->n_done];
    const probe_choice *choice = &set->choices[set->n_done];
    dsmoe_error error;
    dsmoe_model *probed;
    if (dsmoe_model_probe(model, &choice->probe, &probed, &error) != DSMOE_OK)
        return cli_failure("eval", "%s: %s", e->options->model, error.message);
    char label[TABLE_CELL + 40];
    snprintf(label, sizeof label, "%d of %d, %s", set->n_done + 1, set->n_rows, choice->label);
    int exit_code = eval_run(e, probed, label);
    if (exit_code == CLI_OK && !e->result.interrupted) {
        text_loss_numbers numbers = text_loss_compute(&e->result);
        row->cross_entropy = numbers.cross_entropy;
        row->error = numbers.error;
        row->config = e->config;
        set->n_scored = e->result.n_scored;
        set->n_done++;
    }
    dsmoe_model_free(probed);
    return exit_code;
}

/* ---- the outcome ----------------------------------------------------------------------------- */

static void print_table(const evaluation *e, const probe_set *set)
{
    text_table table = {.n_columns = 4, .n_headers = 1};
    char cell[TABLE_CELL];
    table_text(&table, "probe");
    table_text(&table, "experts");
    table_text(&table, "cross entropy");
    table_text(&table, "difference");
    for (int i = 0; i < set->n_done; i++) {
        const probe_row *row = &set->rows[i];
        table_text(&table, "%s", set->choices[i].label);
        table_text(&table, "%s", eval_format_experts(&set->choices[i].probe, &row->config, cell));
        table_text(&table, "%.4f", row->cross_entropy);
        if (i == 0)
            table_text(&table, "%s", "");
        else
            table_text(&table, "%+.4f", row->cross_entropy - set->rows[0].cross_entropy);
    }
    table_print(&table);
    printf("\nnats per token, %s tokens of %s; +/- %.4f without a probe\n"
           "experts: shared + chosen of those a token may choose from\n",
           number_group(set->n_scored, cell), cli_input_name(e->options->file), set->rows[0].error);
}

static void print_json(const evaluation *e, const probe_set *set, double seconds)
{
    eval_print_json_source(e);
    printf(" \"scored\": %" PRId64 ", \"probes\": [", set->n_scored);
    for (int i = 0; i < set->n_done; i++) {
        const probe_row *row = &set->rows[i];
        printf("%s\n  {\"name\": ", i ? "," : "");
        json_write_string(stdout, set->choices[i].label);
        fputs(", ", stdout);
        eval_print_json_probe(&set->choices[i].probe, &row->config);
        printf(",\n   \"cross_entropy\": %.9g, \"standard_error\": %.4g, \"difference\": %.9g}",
               row->cross_entropy, row->error, row->cross_entropy - set->rows[0].cross_entropy);
    }
    printf("],\n \"seconds\": %.3f, \"interrupted\": %s}\n", seconds,
           set->n_done < set->n_rows ? "true" : "false");
}

int eval_probes(evaluation *e, const dsmoe_model *model)
{
    probe_set set = {0};
    set.n_rows = probe_set_choose(dsmoe_model_config(model), set.choices);
    double start = cli_seconds();
    while (set.n_done < set.n_rows && !e->result.interrupted) {
        int exit_code = run_row(e, model, &set);
        if (exit_code != CLI_OK) return exit_code;
    }
    if (e->result.interrupted)
        fprintf(stderr, "dsmoe eval: interrupted after %d of %d probes\n", set.n_done, set.n_rows);
    if (e->options->json)
        print_json(e, &set, cli_seconds() - start);
    else if (set.n_done > 0)
        print_table(e, &set);
    return e->result.interrupted ? CLI_INTERRUPTED : CLI_OK;
}
