/* choices.c - the settings that each architecture of a comparison can have its own value of. */
#include "study/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

typedef struct choice_row {
    size_t offset;
    bool is_routed;         /* it concerns routed experts: no effect on a dense model */
    const char *words[2];   /* of a flag: false, true; NULL for a number */
    double min, max, paper; /* the range of a number; the paper's value */
} choice_row;

#define AT(member) offsetof(study_choice, member)
enum { LR, NORM_TOPK_PROB, ROUTED_SCALING_FACTOR, BALANCE, AUX_LOSS_ALPHA, INIT_STD };
const char *const choice_names[N_CHOICES] = {
    [LR] = "lr",
    [NORM_TOPK_PROB] = "norm-topk-prob",
    [ROUTED_SCALING_FACTOR] = "routed-scaling-factor",
    [BALANCE] = "balance",
    [AUX_LOSS_ALPHA] = "aux-loss-alpha",
    [INIT_STD] = "init-std",
};
static const choice_row rows[N_CHOICES] = {
    [LR] = {.offset = AT(lr), .min = 1e-9, .max = 10},
    [NORM_TOPK_PROB] = {.offset = AT(norm_topk_prob), .is_routed = true, .words = {"no", "yes"}},
    [ROUTED_SCALING_FACTOR] = {.offset = AT(routed_scaling_factor),
                               .is_routed = true,
                               .min = 1e-3,
                               .max = 1e3},
    [BALANCE] = {.offset = AT(seq_aux),
                 .is_routed = true,
                 .words = {"batch", "sequence"},
                 .paper = 1},
    [AUX_LOSS_ALPHA] = {.offset = AT(aux_loss_alpha),
                        .is_routed = true,
                        .max = 1000,
                        .paper = 0.01},
    [INIT_STD] = {.offset = AT(initializer_range), .max = 10, .paper = 0.02},
};

/* Found by short runs: see docs/ablation.md. */
static const double fair_dense_rate = 0.5, fair_single_scale = 4;

static double get(const study_choice *choice, int name)
{
    const char *at = (const char *)choice + rows[name].offset;
    return rows[name].words[0] ? *(const bool *)at : *(const double *)at;
}

static void set(study_choice *choice, int name, double value)
{
    char *at = (char *)choice + rows[name].offset;
    if (rows[name].words[0])
        *(bool *)at = value != 0;
    else
        *(double *)at = value;
}

static void set_all(study_choices *c, int name, double value)
{
    set(&c->common, name, value);
    for (int i = 0; i < N_ARCHITECTURES; i++) set(&c->of[i], name, value);
}

study_choices choices_paper(double lr)
{
    study_choices c = {0};
    for (int name = 0; name < N_CHOICES; name++)
        set_all(&c, name, name == LR ? lr : rows[name].paper);
    return c;
}

study_choices choices_fair(double lr)
{
    study_choices c = choices_paper(lr);
    set_all(&c, NORM_TOPK_PROB, true);
    set_all(&c, BALANCE, false);
    c.of[architecture_find("dense")].lr = lr * fair_dense_rate;
    for (int i = 0; i < N_ARCHITECTURES; i++)
        if (architecture_routed(&architectures[i]) == 1)
            c.of[i].routed_scaling_factor = fair_single_scale;
    return c;
}

/* ---- reading ------------------------------------------------------------------------------- */

static dsmoe_status read_value(int name, const char *text, double *value, dsmoe_error *error)
{
    const choice_row *row = &rows[name];
    char *end;
    if (row->words[0]) {
        for (int i = 0; i < 2; i++)
            if (!strcmp(text, row->words[i])) {
                *value = i;
                return DSMOE_OK;
            }
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "must be %s or %s, not '%.40s'",
                           row->words[1], row->words[0], text);
    }
    *value = strtod(text, &end);
    if (end != text && !*end && *value >= row->min && *value <= row->max) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "must be a number from %g to %g, not '%.40s'",
                       row->min, row->max, text);
}

/* Finds the architecture before '='; -1 if the value is for all. */
static dsmoe_status read_owner(const char *text, int *owner, const char **value, dsmoe_error *error)
{
    char name[32];
    const char *equals = strchr(text, '=');
    *owner = -1;
    *value = equals ? equals + 1 : text;
    if (!equals) return DSMOE_OK;
    snprintf(name, sizeof name, "%.*s", (int)(equals - text < 31 ? equals - text : 31), text);
    *owner = architecture_find(name);
    if (*owner >= 0) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT, "there is no model '%s'", name);
}

dsmoe_status choices_take(study_choices *choices, int name, const char *const *texts, int n_texts,
                          dsmoe_error *error)
{
    for (int own = 0; own < 2; own++)
        for (int i = 0; i < n_texts; i++) {
            int owner;
            const char *text;
            double value = 0;
            STATUS_TRY(read_owner(texts[i], &owner, &text, error));
            STATUS_TRY(read_value(name, text, &value, error));
            if (own && owner >= 0)
                set(&choices->of[owner], name, value);
            else if (!own && owner < 0)
                set_all(choices, name, value);
        }
    return DSMOE_OK;
}

/* ---- choices without effect ---------------------------------------------------------------- */

/* Why a choice has no effect on an architecture; NULL if it has an effect. */
static const char *find_idle(const architecture *a, const study_choice *choice, int name)
{
    bool normalises = choice->norm_topk_prob && architecture_routed(a) > 1;
    if (rows[name].is_routed && a->k_active == 0) return "it has no routed experts";
    if (name == NORM_TOPK_PROB && architecture_routed(a) == 1)
        return "its tokens take one routed expert, and a single gate value is not normalised";
    if (name == ROUTED_SCALING_FACTOR && normalises) return "its gate values are normalised";
    return NULL;
}

dsmoe_status choices_settle(study_choices *choices, dsmoe_error *error)
{
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int name = 0; name < N_CHOICES; name++) {
            const char *why = find_idle(&architectures[i], &choices->of[i], name);
            if (!why) continue;
            if (get(&choices->of[i], name) != get(&choices->common, name))
                return status_fail(error, DSMOE_ERROR_ARGUMENT, "--%s %s=… has no effect: %s",
                                   choice_names[name], architectures[i].name, why);
            if (name == ROUTED_SCALING_FACTOR || name == NORM_TOPK_PROB)
                set(&choices->of[i], name, 0);
        }
    return DSMOE_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */

static void put_value(FILE *file, int name, double value)
{
    if (rows[name].words[0])
        fprintf(file, "%s\n", rows[name].words[value != 0]);
    else
        fprintf(file, "%.9g\n", value);
}

void choices_put(FILE *file, const study_choices *choices)
{
    for (int name = 0; name < N_CHOICES; name++) {
        double common = get(&choices->common, name);
        if (name == LR || common != rows[name].paper) {
            fprintf(file, "--%s ", choice_names[name]);
            put_value(file, name, common);
        }
        for (int i = 0; i < N_ARCHITECTURES; i++) {
            double own = get(&choices->of[i], name);
            if (own == common || find_idle(&architectures[i], &choices->of[i], name)) continue;
            fprintf(file, "--%s %s=", choice_names[name], architectures[i].name);
            put_value(file, name, own);
        }
    }
}
