/* ablate_json.c - DIR/ablation.json, and the page that is made from it. */
#include <inttypes.h>
#include <math.h>

#include "cli/ablate.h"
#include "cli/cli.h"
#include "cli/replace_file.h"

/* What the paper measured for DeepSeekMoE with its shared expert replaced. */
static const double paper_before = 1.808, paper_after = 2.414;

bool ablate_is_shown(const ablation *a, int entry)
{
    const ablate_entry *e = &a->entries[entry];
    for (int seed = 0; seed < a->n_seeds; seed++)
        if (!isnan(e->runs[seed].losses[ABLATE_PLAIN])) return true;
    return e->is_selected;
}

static bool is_known(const ablation *a, int entry, int which)
{
    if (!ablate_has_loss(&a->entries[entry], which)) return false;
    for (int seed = 0; seed < a->n_seeds; seed++)
        if (!isnan(a->entries[entry].runs[seed].losses[which])) return true;
    return false;
}

static bool is_finished(const ablation *a)
{
    for (int i = 0; i < ABLATE_N_MODELS; i++)
        for (int seed = 0; seed < a->options->n_seeds; seed++)
            if (a->entries[i].is_selected && !ablate_is_measured(&a->entries[i], seed))
                return false;
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void put_number(FILE *file, double number)
{
    if (isfinite(number))
        fprintf(file, "%.9g", number);
    else
        fputs("null", file);
}

/* One loss for each seed. */
static void put_losses(FILE *file, const ablation *a, int entry, int which)
{
    for (int seed = 0; seed < a->n_seeds; seed++) {
        fputs(seed ? ", " : "[", file);
        put_number(file, a->entries[entry].runs[seed].losses[which]);
    }
    fputs("]", file);
}

static void put_run(FILE *file, const ablate_run *run, int seed)
{
    fprintf(file, "{\"seed\": %d, \"held_out_loss\": ", seed + 1);
    put_number(file, run->losses[ABLATE_PLAIN]);
    fputs(", \"curve\": [", file);
    for (int i = 0; i < run->n_curve; i++) {
        fprintf(file, "%s[%" PRId64 ", ", i ? ", " : "", run->curve[i].step);
        put_number(file, run->curve[i].loss);
        fputs("]", file);
    }
    fputs("]}", file);
}

static void put_model(FILE *file, const ablation *a, int entry)
{
    const ablate_entry *e = &a->entries[entry];
    char experts[ABLATE_EXPERTS];
    fprintf(file, "{\"name\": \"%s\", \"label\": \"%s\", \"paper_loss\": ", e->model->name,
            e->model->label);
    put_number(file, e->model->paper_loss);
    fprintf(file,
            ", \"experts\": \"%s\",\n   \"total_parameters\": %" PRId64
            ", \"active_parameters\": %" PRId64 ", \"expert_parameters\": %" PRId64
            ", \"active_expert_parameters\": %" PRId64 ",\n   \"runs\": [",
            ablate_model_experts(e->model, experts), e->parameters.total, e->parameters.active,
            e->parameters.experts, e->parameters.active_experts);
    for (int seed = 0; seed < a->n_seeds; seed++) {
        if (seed) fputs(",\n    ", file);
        put_run(file, &e->runs[seed], seed);
    }
    fputs("]}", file);
}

/* ---- probes ---------------------------------------------------------------------------------- */

static void put_masked(FILE *file, const ablation *a, int entry)
{
    fprintf(file, "{\"name\": \"%s\", \"share\": [", ablate_models[entry].name);
    for (int i = 0; i < ABLATE_N_MASKS; i++) fprintf(file, "%s%.9g", i ? ", " : "", i / 16.0);
    fputs("],\n    \"losses\": [", file);
    for (int i = 0; i < ABLATE_N_MASKS; i++) {
        if (i) fputs(", ", file);
        put_losses(file, a, entry, ABLATE_MASK + i);
    }
    fputs("]}", file);
}

static void put_replaced(FILE *file, const ablation *a, int entry)
{
    fprintf(file, "{\"name\": \"%s\", \"before\": ", ablate_models[entry].name);
    put_losses(file, a, entry, ABLATE_PLAIN);
    fputs(", \"after\": ", file);
    put_losses(file, a, entry, ABLATE_REPLACED);
    bool is_the_papers = entry == ablate_model_find("deepseekmoe");
    fputs(", \"paper_before\": ", file);
    put_number(file, is_the_papers ? paper_before : NAN);
    fputs(", \"paper_after\": ", file);
    put_number(file, is_the_papers ? paper_after : NAN);
    fputs("}", file);
}

static void put_fewer(FILE *file, const ablation *a, int entry)
{
    int64_t k = a->entries[entry].config.num_experts_per_tok;
    fprintf(file, "{\"name\": \"%s\", \"k\": [", ablate_models[entry].name);
    for (int64_t i = k; i > 0; i--) fprintf(file, "%s%" PRId64, i < k ? ", " : "", i);
    fputs("],\n    \"losses\": [", file);
    for (int64_t i = k; i > 0; i--) {
        if (i < k) fputs(", ", file);
        put_losses(file, a, entry, i == k ? ABLATE_PLAIN : ABLATE_FEWER + (int)i - 1);
    }
    fputs("],\n    \"compare\": {\"name\": \"gshard\", \"losses\": ", file);
    put_losses(file, a, ablate_model_find("gshard"), ABLATE_PLAIN);
    fputs("}}", file);
}

typedef void put_probe_fn(FILE *file, const ablation *a, int entry);

/* The models of which the loss `which` is known. */
static void put_probes(FILE *file, const ablation *a, const char *key, int which, put_probe_fn *put)
{
    bool first = true;
    fprintf(file, "  \"%s\": [", key);
    for (int i = 0; i < ABLATE_N_MODELS; i++) {
        if (!is_known(a, i, which)) continue;
        fputs(first ? "\n   " : ",\n   ", file);
        put(file, a, i);
        first = false;
    }
    fputs("]", file);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_all(FILE *file, const ablation *a)
{
    fprintf(file, "{\"scale\": \"%s\", \"data\": [", a->scale->name);
    for (int i = 0; i < a->n_data; i++) {
        if (i) fputs(", ", file);
        cli_print_json_string(file, a->data[i]);
    }
    fprintf(file,
            "],\n \"tokens\": %" PRId64 ", \"steps\": %" PRId64 ", \"batch\": %" PRId64
            ", \"seq\": %" PRId64 ", \"lr\": %.9g, \"vocab_size\": %" PRId64 ", \"seeds\": [",
            a->steps * a->batch * a->seq, a->steps, a->batch, a->seq, a->lr, a->vocab_size);
    for (int seed = 0; seed < a->n_seeds; seed++) fprintf(file, "%s%d", seed ? ", " : "", seed + 1);
    fprintf(file, "], \"finished\": %s,\n \"models\": [", is_finished(a) ? "true" : "false");
    bool first = true;
    for (int i = 0; i < ABLATE_N_MODELS; i++) {
        if (!ablate_is_shown(a, i)) continue;
        fputs(first ? "\n  " : ",\n  ", file);
        put_model(file, a, i);
        first = false;
    }
    fputs("],\n \"probes\": {\n", file);
    put_probes(file, a, "mask_top", ABLATE_MASK + 1, put_masked);
    fputs(",\n", file);
    put_probes(file, a, "replace_shared", ABLATE_REPLACED, put_replaced);
    fputs(",\n", file);
    put_probes(file, a, "fewer_active", ABLATE_FEWER, put_fewer);
    fputs("}}\n", file);
}

int ablate_write(const ablation *a)
{
    char json[ABLATE_PATH], html[ABLATE_PATH];
    replace_file out;
    dsmoe_error error;
    if (!ablate_path(a, json, "ablation.json") || !ablate_path(a, html, "ablation.html"))
        return CLI_FAILURE;
    int exit_code = replace_file_begin("ablate", json, &out);
    if (exit_code != CLI_OK) return exit_code;
    put_all(out.file, a);
    exit_code = replace_file_end("ablate", &out);
    if (exit_code != CLI_OK) return exit_code;
    if (dsmoe_report_ablation(json, html, &error) != DSMOE_OK)
        return cli_failure("ablate", "%s", error.message);
    return CLI_OK;
}
