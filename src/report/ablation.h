/* ablation.h - the JSON of a comparison of architectures, as its page needs it.
 *
 *   scale, data [..], tokens, steps, batch, seq, vocab_size, seeds [..], finished
 *   models [{name, label, paper_loss, experts, total_parameters, active_parameters,
 *            expert_parameters, active_expert_parameters, lr, norm_topk_prob,
 *            routed_scaling_factor, seq_aux, aux_loss_alpha, initializer_range,
 *            runs [{seed, held_out_loss, curve [[step, held-out loss], ..]}]}]
 *   probes {mask_top [{name, share [..], losses [share][seed]}], mask_top_first, the same,
 *           replace_shared [{name, before [seed], after [seed], paper_before, paper_after}],
 *           fewer_active [{name, k [..], losses [k][seed], compare {name, losses [seed]}}]}
 *   comparisons [{name, to, pair, n, mean, low, high, p, corrected_p, paper, text,
 *                 gap [[step, mean, low, high, n], ..]}]
 *
 * Everything but the models may be missing, and so may every number. */
#ifndef DSMOE_REPORT_ABLATION_H
#define DSMOE_REPORT_ABLATION_H

#include "base/statistics.h"
#include "formats/json.h"
#include "report/series.h"

enum { ABLATION_MODELS = 16, ABLATION_SEEDS = 32, ABLATION_PROBES = 8, ABLATION_COMPARISONS = 24 };

typedef struct ablation_model {
    const json_node *object;            /* with the settings of its training */
    const char *name, *label, *experts; /* experts may be NULL */
    double total_parameters, active_parameters, expert_parameters, active_expert_parameters;
    double paper_loss;
    double final[ABLATION_SEEDS]; /* held-out loss of each seed; NAN: not known yet */
    size_t n_runs;
    series_point *curve; /* mean over the seeds; low and high are its 95 % interval */
    size_t n_curve;
} ablation_model;

/* The loss as a function of what the probe varies, in points like those of a curve. */
typedef struct ablation_probe {
    const char *name;
    series_point *points; /* by rising x */
    size_t n_points;
    const char *compare; /* another architecture, or NULL */
    double compare_loss; /* the mean loss of that architecture */
} ablation_probe;

typedef struct ablation_replacement {
    const char *name;
    double before[ABLATION_SEEDS], after[ABLATION_SEEDS];
    size_t n_before, n_after;
    double paper_before, paper_after;
} ablation_replacement;

/* The difference of two architectures, seed by seed: below 0 the first is ahead. */
typedef struct ablation_comparison {
    const char *name, *to, *pair, *text; /* pair and text may be NULL */
    double n, mean, low, high, p, corrected_p, paper;
    series_point *gap; /* the difference while training, with its 95 % interval */
    size_t n_gap;
} ablation_comparison;

typedef struct ablation {
    json_node *root;    /* names point into it */
    const char *x_name; /* of curves and gaps: "tokens", or "step" where tokens are not known */
    ablation_model models[ABLATION_MODELS];
    size_t n_models, n_seeds, n_runs, n_done;
    ablation_probe mask_top[ABLATION_PROBES], fewer_active[ABLATION_PROBES];
    size_t n_mask_top, n_fewer_active;
    ablation_replacement replace_shared[ABLATION_PROBES];
    size_t n_replace_shared;
    ablation_probe mask_top_first[ABLATION_PROBES];
    size_t n_mask_top_first;
    ablation_comparison comparisons[ABLATION_COMPARISONS];
    size_t n_comparisons;
} ablation;

dsmoe_status ablation_read(ablation *a, const char *path, dsmoe_error *error);
void ablation_free(ablation *a);

/* The index of the architecture of that name, or n_models. */
size_t ablation_find(const ablation *a, const char *name);
/* Its label, or `name` if it is not in the list. */
const char *ablation_label(const ablation *a, const char *name);

#endif
