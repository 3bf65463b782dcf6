/* ablation_json.c - DIR/ablation.json, and the page that is made from it. */
#include <inttypes.h>
#include <math.h>

#include "formats/json_write.h"
#include "formats/partial_file.h"
#include "study/ablation_folder.h"

/* The paper's losses of DeepSeekMoE before and after its shared expert is replaced. */
static const double paper_before = 1.808, paper_after = 2.414;

static bool is_finished(const ablation *a)
{
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int seed = 0; seed < a->options.n_seeds; seed++)
            if (a->options.is_selected[i] && !ablation_is_measured(&a->entries[i], seed))
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

/* Writes one loss for each seed. */
static void put_losses(FILE *file, const ablation *a, int entry, int which)
{
    for (int seed = 0; seed < a->n_seeds; seed++) {
        fputs(seed ? ", " : "[", file);
        put_number(file, a->entries[entry].runs[seed].losses[which]);
    }
    fputs("]", file);
}

static void put_run(FILE *file, const ablation_run *run, int seed)
{
    fprintf(file, "{\"seed\": %d, \"held_out_loss\": ", seed + 1);
    put_number(file, run->losses[LOSS_PLAIN]);
    fputs(", \"curve\": [", file);
    for (int i = 0; i < run->n_curve; i++) {
        fprintf(file, "%s[%" PRId64 ", ", i ? ", " : "", run->curve[i].step);
        put_number(file, run->curve[i].loss);
        fputs("]", file);
    }
    fputs("]}", file);
}

static void put_choice(FILE *file, const study_choice *c)
{
    fprintf(file,
            ",\n   \"lr\": %.9g, \"norm_topk_prob\": %s, \"routed_scaling_factor\": %.9g, "
            "\"seq_aux\": %s, \"aux_loss_alpha\": %.9g, \"initializer_range\": %.9g",
            c->lr, c->norm_topk_prob ? "true" : "false",
            c->routed_scaling_factor ? c->routed_scaling_factor : 1, c->seq_aux ? "true" : "false",
            c->aux_loss_alpha, c->initializer_range);
}

static void put_model(FILE *file, const ablation *a, int entry)
{
    const ablation_entry *e = &a->entries[entry];
    char experts[ARCHITECTURE_EXPERTS];
    fprintf(file, "{\"name\": \"%s\", \"label\": \"%s\", \"paper_loss\": ", e->model->name,
            e->model->label);
    put_number(file, e->model->paper_loss);
    put_choice(file, &a->options.choices.of[entry]);
    fprintf(file,
            ", \"experts\": \"%s\",\n   \"total_parameters\": %" PRId64
            ", \"active_parameters\": %" PRId64 ", \"expert_parameters\": %" PRId64
            ", \"active_expert_parameters\": %" PRId64 ",\n   \"runs\": [",
            architecture_experts(e->model, experts), e->parameters.total, e->parameters.active,
            e->parameters.experts, e->parameters.active_experts);
    for (int seed = 0; seed < a->n_seeds; seed++) {
        if (seed) fputs(",\n    ", file);
        put_run(file, &e->runs[seed], seed);
    }
    fputs("]}", file);
}

/* ---- probes ---------------------------------------------------------------------------------- */

static void put_mask(FILE *file, const ablation *a, int entry, int which)
{
    fprintf(file, "{\"name\": \"%s\", \"share\": [", architectures[entry].name);
    for (int i = 0; i < LOSS_N_MASKS; i++) fprintf(file, "%s%.9g", i ? ", " : "", i / 16.0);
    fputs("],\n    \"losses\": [", file);
    for (int i = 0; i < LOSS_N_MASKS; i++) {
        if (i) fputs(", ", file);
        put_losses(file, a, entry, i ? which + i : LOSS_PLAIN);
    }
    fputs("]}", file);
}

static void put_masked(FILE *file, const ablation *a, int entry)
{
    put_mask(file, a, entry, LOSS_MASK);
}

static void put_masked_first(FILE *file, const ablation *a, int entry)
{
    put_mask(file, a, entry, LOSS_MASK_FIRST);
}

static void put_replaced(FILE *file, const ablation *a, int entry)
{
    fprintf(file, "{\"name\": \"%s\", \"before\": ", architectures[entry].name);
    put_losses(file, a, entry, LOSS_PLAIN);
    fputs(", \"after\": ", file);
    put_losses(file, a, entry, LOSS_REPLACED);
    bool is_the_papers = entry == architecture_find("deepseekmoe");
    fputs(", \"paper_before\": ", file);
    put_number(file, is_the_papers ? paper_before : NAN);
    fputs(", \"paper_after\": ", file);
    put_number(file, is_the_papers ? paper_after : NAN);
    fputs("}", file);
}

static void put_fewer(FILE *file, const ablation *a, int entry)
{
    int64_t k = a->entries[entry].config.num_experts_per_tok;
    fprintf(file, "{\"name\": \"%s\", \"k\": [", architectures[entry].name);
    for (int64_t i = k; i > 0; i--) fprintf(file, "%s%" PRId64, i < k ? ", " : "", i);
    fputs("],\n    \"losses\": [", file);
    for (int64_t i = k; i > 0; i--) {
        if (i < k) fputs(", ", file);
        put_losses(file, a, entry, i == k ? LOSS_PLAIN : LOSS_FEWER + (int)i - 1);
    }
    fputs("],\n    \"compare\": {\"name\": \"gshard\", \"losses\": ", file);
    put_losses(file, a, architecture_find("gshard"), LOSS_PLAIN);
    fputs("}}", file);
}

typedef void put_probe_fn(FILE *file, const ablation *a, int entry);

/* Writes the models whose loss `which` is known. */
static void put_probes(FILE *file, const ablation *a, const char *key, int which, put_probe_fn *put)
{
    bool first = true;
    fprintf(file, "  \"%s\": [", key);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        if (!ablation_is_known(a, i, which)) continue;
        fputs(first ? "\n   " : ",\n   ", file);
        put(file, a, i);
        first = false;
    }
    fputs("]", file);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* The loss of a run at a step of its curve; NAN if the curve does not have the step. */
static double loss_at(const ablation_run *run, int64_t step)
{
    for (int i = 0; i < run->n_curve; i++)
        if (run->curve[i].step == step) return run->curve[i].loss;
    return NAN;
}

static paired_difference gap_at(const ablation *a, int one, int other, int64_t step)
{
    double losses[2][ABLATION_MAX_SEEDS];
    for (int seed = 0; seed < a->n_seeds; seed++) {
        losses[0][seed] = loss_at(&a->entries[one].runs[seed], step);
        losses[1][seed] = loss_at(&a->entries[other].runs[seed], step);
    }
    return paired_compare(losses[0], losses[1], (size_t)a->n_seeds);
}

/* Writes the gap at the steps of the seed with the longest curve. */
static void put_gap(FILE *file, const ablation *a, const study_claim *claim)
{
    int one = architecture_find(claim->name), other = architecture_find(claim->other);
    const ablation_run *longest = &a->entries[one].runs[0];
    for (int seed = 1; seed < a->n_seeds; seed++)
        if (a->entries[one].runs[seed].n_curve > longest->n_curve)
            longest = &a->entries[one].runs[seed];
    bool first = true;
    fputs(",\n   \"gap\": [", file);
    for (int i = 0; i < longest->n_curve; i++) {
        paired_difference d = gap_at(a, one, other, longest->curve[i].step);
        if (d.n == 0) continue;
        fprintf(file, "%s[%" PRId64, first ? "" : ", ", longest->curve[i].step);
        const double numbers[] = {d.mean, d.low, d.high, (double)d.n};
        for (int j = 0; j < 4; j++) {
            fputs(", ", file);
            put_number(file, numbers[j]);
        }
        fputs("]", file);
        first = false;
    }
    fputs("]", file);
}

/* NAN: the paper has no number. */
static double paper_difference(const study_claim *claim, const architecture *one,
                               const architecture *other)
{
    if (claim->measure == STUDY_LOSS) return one->paper_loss - other->paper_loss;
    return claim->measure == STUDY_REPLACED ? paper_after - paper_before : NAN;
}

static void put_comparison(FILE *file, const ablation *a, const study_comparison *c)
{
    const paired_difference *d = &c->difference;
    const architecture *one = &architectures[architecture_find(c->claim->name)];
    const architecture *other = &architectures[architecture_find(c->claim->other)];
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"mean", d->mean},
                   {"low", d->low},
                   {"high", d->high},
                   {"p", d->p},
                   {"corrected_p", c->corrected_p},
                   {"paper", paper_difference(c->claim, one, other)}};
    fprintf(file, "{\"name\": \"%s\", \"to\": \"%s\", \"n\": %zu", one->name, other->name, d->n);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fprintf(file, ", \"%s\": ", numbers[i].key);
        put_number(file, numbers[i].value);
    }
    fputs(",\n   \"pair\": \"", file);
    study_tell_pair(file, c->claim);
    fputs("\", \"text\": \"", file);
    study_tell(file, c);
    fputs("\"", file);
    if (c->claim->measure == STUDY_LOSS) put_gap(file, a, c->claim);
    fputs("}", file);
}

static void put_comparisons(FILE *file, const ablation *a)
{
    study_comparison comparisons[N_CLAIMS];
    int n = ablation_compare(a, comparisons);
    fputs(" \"comparisons\": [", file);
    for (int i = 0; i < n; i++) {
        fputs(i ? ",\n  " : "\n  ", file);
        put_comparison(file, a, &comparisons[i]);
    }
    fputs("],\n", file);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_all(FILE *file, const void *context)
{
    const ablation *a = context;
    const ablation_options *o = &a->options;
    fprintf(file, "{\"scale\": \"%s\", \"data\": [", o->scale->name);
    for (int i = 0; i < o->n_data; i++) {
        if (i) fputs(", ", file);
        json_write_string(file, a->data[i]);
    }
    fprintf(file,
            "],\n \"tokens\": %" PRId64 ", \"steps\": %" PRId64 ", \"batch\": %" PRId64
            ", \"seq\": %" PRId64 ", \"lr\": %.9g, \"vocab_size\": %" PRId64 ", \"seeds\": [",
            o->steps * o->batch * o->seq, o->steps, o->batch, o->seq, o->choices.common.lr,
            o->vocab_size);
    for (int seed = 0; seed < a->n_seeds; seed++) fprintf(file, "%s%d", seed ? ", " : "", seed + 1);
    fprintf(file, "], \"finished\": %s,\n \"models\": [", is_finished(a) ? "true" : "false");
    bool first = true;
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        if (!ablation_is_shown(a, i)) continue;
        fputs(first ? "\n  " : ",\n  ", file);
        put_model(file, a, i);
        first = false;
    }
    fputs("],\n", file);
    put_comparisons(file, a);
    fputs(" \"probes\": {\n", file);
    put_probes(file, a, "mask_top", LOSS_MASK + 1, put_masked);
    fputs(",\n", file);
    put_probes(file, a, "mask_top_first", LOSS_MASK_FIRST + 1, put_masked_first);
    fputs(",\n", file);
    put_probes(file, a, "replace_shared", LOSS_REPLACED, put_replaced);
    fputs(",\n", file);
    put_probes(file, a, "fewer_active", LOSS_FEWER, put_fewer);
    fputs("}}\n", file);
}

dsmoe_status ablation_write(const ablation *a, dsmoe_error *error)
{
    char json[ABLATION_PATH], html[ABLATION_PATH];
    STATUS_TRY(partial_file_write_text(a->out, "ablation.json", put_all, a, error));
    return dsmoe_report_ablation(ablation_path(a, json, "ablation.json"),
                                 ablation_path(a, html, "ablation.html"), error);
}
