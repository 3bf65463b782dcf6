/* ablation.c - the JSON of a comparison of architectures, as its page needs it. */
#include "report/ablation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/lines.h"

enum { MAX_POINTS = 4096 }; /* of a curve */

/* An item of an array as an object; NULL if it is not an object. */
static const json_node *object_at(const json_node *array, size_t index)
{
    const json_node *item = json_node_item(array, index);
    return json_node_kind(item) == JSON_KIND_OBJECT ? item : NULL;
}

static size_t at_most(size_t n, size_t limit) { return n < limit ? n : limit; }

static size_t read_numbers(const json_node *array, double values[ABLATION_SEEDS])
{
    size_t n = at_most(line_count(array), ABLATION_SEEDS);
    for (size_t i = 0; i < n; i++) values[i] = line_item(array, i);
    return n;
}

/* Makes the point for the mean over the seeds; false if no seed has a value. */
static bool make_point(double x, const double *values, size_t n, series_point *point)
{
    spread s = spread_of(values, n);
    double reach = s.n > 1 ? interval_reach(s) : 0;
    *point = (series_point){x, s.mean, s.mean - reach, s.mean + reach, (double)s.n};
    return s.n > 0 && isfinite(x);
}

/* ---- models --------------------------------------------------------------------------------- */

static const json_node *longest_curve(const json_node *runs, size_t n_runs)
{
    const json_node *longest = NULL;
    for (size_t i = 0; i < n_runs; i++) {
        const json_node *curve = line_array(object_at(runs, i), "curve");
        if (line_count(curve) > line_count(longest)) longest = curve;
    }
    return longest;
}

/* The seeds may have come to different steps. A point is the mean over the seeds that have reached it. */
static bool read_curve(ablation_model *model, const json_node *runs)
{
    const json_node *steps = longest_curve(runs, model->n_runs);
    size_t n = at_most(line_count(steps), MAX_POINTS);
    model->curve = calloc(n ? n : 1, sizeof *model->curve);
    if (!model->curve) return false;
    for (size_t i = 0; i < n; i++) {
        double step = line_item(line_item_array(steps, i), 0), values[ABLATION_SEEDS];
        size_t n_values = 0;
        for (size_t r = 0; r < model->n_runs; r++) {
            const json_node *pair = line_item_array(line_array(object_at(runs, r), "curve"), i);
            if (line_item(pair, 0) == step) values[n_values++] = line_item(pair, 1);
        }
        bool forward = model->n_curve == 0 || step > model->curve[model->n_curve - 1].x;
        if (forward && make_point(step, values, n_values, &model->curve[model->n_curve]))
            model->n_curve++;
    }
    return true;
}

static bool read_model(ablation *a, const json_node *object)
{
    ablation_model *model = &a->models[a->n_models++];
    const json_node *runs = line_array(object, "runs");
    *model = (ablation_model){.object = object,
                              .name = line_text(object, "name"),
                              .label = line_text(object, "label"),
                              .experts = line_text(object, "experts"),
                              .total_parameters = line_number(object, "total_parameters"),
                              .active_parameters = line_number(object, "active_parameters"),
                              .expert_parameters = line_number(object, "expert_parameters"),
                              .active_expert_parameters =
                                  line_number(object, "active_expert_parameters"),
                              .paper_loss = line_number(object, "paper_loss"),
                              .n_runs = at_most(line_count(runs), ABLATION_SEEDS)};
    if (!model->name) model->name = "?";
    if (!model->label) model->label = model->name;
    for (size_t i = 0; i < model->n_runs; i++) {
        model->final[i] = line_number(object_at(runs, i), "held_out_loss");
        a->n_done += isfinite(model->final[i]);
        a->n_runs++;
    }
    return read_curve(model, runs);
}

/* ---- probes --------------------------------------------------------------------------------- */

static int by_x(const void *one, const void *other)
{
    double a = ((const series_point *)one)->x, b = ((const series_point *)other)->x;
    return (a > b) - (a < b);
}

static bool read_probe(const json_node *object, const char *x_key, ablation_probe *probe)
{
    const json_node *x = line_array(object, x_key), *losses = line_array(object, "losses");
    size_t n = at_most(line_count(x), MAX_POINTS);
    const json_node *compare = line_object(object, "compare");
    double values[ABLATION_SEEDS];
    *probe = (ablation_probe){.name = line_text(object, "name"),
                              .points = calloc(n ? n : 1, sizeof *probe->points),
                              .compare = line_text(compare, "name")};
    if (!probe->points) return false;
    if (!probe->name) probe->name = "?";
    for (size_t i = 0; i < n; i++) {
        size_t n_values = read_numbers(line_item_array(losses, i), values);
        if (make_point(line_item(x, i), values, n_values, &probe->points[probe->n_points]))
            probe->n_points++;
    }
    qsort(probe->points, probe->n_points, sizeof *probe->points, by_x);
    size_t n_values = read_numbers(line_array(compare, "losses"), values);
    probe->compare_loss = spread_of(values, n_values).mean;
    return true;
}

/* False if out of memory. */
static bool read_probes(const json_node *array, const char *x_key, ablation_probe *probes,
                        size_t *n_probes)
{
    size_t n = at_most(line_count(array), ABLATION_PROBES);
    for (size_t i = 0; i < n; i++)
        if (!read_probe(object_at(array, i), x_key, &probes[(*n_probes)++])) return false;
    return true;
}

static void read_replacements(ablation *a, const json_node *array)
{
    a->n_replace_shared = at_most(line_count(array), ABLATION_PROBES);
    for (size_t i = 0; i < a->n_replace_shared; i++) {
        const json_node *object = object_at(array, i);
        ablation_replacement *r = &a->replace_shared[i];
        r->name = line_text(object, "name");
        if (!r->name) r->name = "?";
        r->n_before = read_numbers(line_array(object, "before"), r->before);
        r->n_after = read_numbers(line_array(object, "after"), r->after);
        r->paper_before = line_number(object, "paper_before");
        r->paper_after = line_number(object, "paper_after");
    }
}

/* ---- comparisons ---------------------------------------------------------------------------- */

static bool read_gap(ablation_comparison *c, const json_node *gap)
{
    size_t n = at_most(line_count(gap), MAX_POINTS);
    c->gap = calloc(n ? n : 1, sizeof *c->gap);
    if (!c->gap) return false;
    for (size_t i = 0; i < n; i++) {
        const json_node *at = line_item_array(gap, i);
        double x = line_item(at, 0), mean = line_item(at, 1);
        double low = line_item(at, 2), high = line_item(at, 3);
        bool forward = c->n_gap == 0 || x > c->gap[c->n_gap - 1].x;
        if (!isfinite(x) || !isfinite(mean) || !forward) continue;
        c->gap[c->n_gap++] = (series_point){x, mean, isfinite(low) ? low : mean,
                                            isfinite(high) ? high : mean, line_item(at, 4)};
    }
    return true;
}

static bool read_comparisons(ablation *a, const json_node *array)
{
    size_t n = at_most(line_count(array), ABLATION_COMPARISONS);
    for (size_t i = 0; i < n; i++) {
        const json_node *object = object_at(array, i);
        ablation_comparison *c = &a->comparisons[a->n_comparisons++];
        *c = (ablation_comparison){.name = line_text(object, "name"),
                                   .to = line_text(object, "to"),
                                   .pair = line_text(object, "pair"),
                                   .text = line_text(object, "text"),
                                   .n = line_number(object, "n"),
                                   .mean = line_number(object, "mean"),
                                   .low = line_number(object, "low"),
                                   .high = line_number(object, "high"),
                                   .p = line_number(object, "p"),
                                   .corrected_p = line_number(object, "corrected_p"),
                                   .paper = line_number(object, "paper")};
        if (!c->name) c->name = "?";
        if (!c->to) c->to = "?";
        if (!read_gap(c, line_array(object, "gap"))) return false;
    }
    return true;
}

/* ---- file ----------------------------------------------------------------------------------- */

static void scale_points(series_point *points, size_t n, double factor)
{
    for (size_t i = 0; i < n; i++) points[i].x *= factor;
}

/* Converts the x of all curves from steps to tokens. */
static void scale_curves(ablation *a)
{
    double tokens = line_number(a->root, "tokens"), steps = line_number(a->root, "steps");
    a->x_name = "step";
    if (!(tokens > 0 && steps > 0 && tokens < 1e18)) return;
    a->x_name = "tokens";
    for (size_t i = 0; i < a->n_models; i++)
        scale_points(a->models[i].curve, a->models[i].n_curve, tokens / steps);
    for (size_t i = 0; i < a->n_comparisons; i++)
        scale_points(a->comparisons[i].gap, a->comparisons[i].n_gap, tokens / steps);
}

static bool read_all(ablation *a, const json_node *models)
{
    size_t n = at_most(line_count(models), ABLATION_MODELS);
    for (size_t i = 0; i < n; i++)
        if (!read_model(a, object_at(models, i))) return false;
    a->n_seeds = at_most(line_count(line_array(a->root, "seeds")), ABLATION_SEEDS);
    const json_node *probes = line_object(a->root, "probes");
    read_replacements(a, line_array(probes, "replace_shared"));
    return read_comparisons(a, line_array(a->root, "comparisons")) &&
           read_probes(line_array(probes, "mask_top_first"), "share", a->mask_top_first,
                       &a->n_mask_top_first) &&
           read_probes(line_array(probes, "mask_top"), "share", a->mask_top, &a->n_mask_top) &&
           read_probes(line_array(probes, "fewer_active"), "k", a->fewer_active,
                       &a->n_fewer_active);
}

dsmoe_status ablation_read(ablation *a, const char *path, dsmoe_error *error)
{
    *a = (ablation){0};
    dsmoe_status status = json_node_read(path, (size_t)256 << 20, &a->root, error);
    if (status != DSMOE_OK) return status;
    const json_node *models =
        json_node_kind(a->root) == JSON_KIND_OBJECT ? line_array(a->root, "models") : NULL;
    if (line_count(models) == 0)
        status =
            status_fail(error, DSMOE_ERROR_FORMAT,
                        "%s: not a comparison of architectures: there are no \"models\"", path);
    else if (!read_all(a, models))
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    if (status != DSMOE_OK)
        ablation_free(a);
    else
        scale_curves(a);
    return status;
}

void ablation_free(ablation *a)
{
    for (size_t i = 0; i < a->n_models; i++) free(a->models[i].curve);
    for (size_t i = 0; i < a->n_mask_top; i++) free(a->mask_top[i].points);
    for (size_t i = 0; i < a->n_mask_top_first; i++) free(a->mask_top_first[i].points);
    for (size_t i = 0; i < a->n_comparisons; i++) free(a->comparisons[i].gap);
    for (size_t i = 0; i < a->n_fewer_active; i++) free(a->fewer_active[i].points);
    json_node_free(a->root);
    *a = (ablation){0};
}

size_t ablation_find(const ablation *a, const char *name)
{
    size_t i = 0;
    while (i < a->n_models && strcmp(a->models[i].name, name)) i++;
    return i;
}

const char *ablation_label(const ablation *a, const char *name)
{
    size_t index = ablation_find(a, name);
    return index < a->n_models ? a->models[index].label : name;
}
