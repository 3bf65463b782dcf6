/* eval.h - `dsmoe eval`: one evaluation of a model on a text, the paper's probes, a comparison of two models,
 * and questions. */
#ifndef DSMOE_CLI_EVAL_H
#define DSMOE_CLI_EVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/corpus.h"
#include "cli/lora.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "dsmoe.h"
#include "study/text_loss.h"

enum { EVAL_MOST_TASKS = 64 };

typedef struct eval_options {
    const char *model, *against, *file;
    const char *kv_type_name;
    dsmoe_dtype kv_type;
    int64_t n_ctx, stride, n_threads;
    bool ids, json, probes, answers;
    dsmoe_probe probe;
    option_words tasks;
    lora_list lora;
} eval_options;

typedef struct evaluation {
    const eval_options *options;
    const corpus *text;
    dsmoe_config config; /* of the model that runs */
    int64_t n_ctx, stride;
    progress bar;
    text_loss result;
} evaluation;

/* Runs all windows through a model and fills in the result. On failure the message is printed and the
 * exit code returned, otherwise CLI_OK, even after Ctrl-C. */
int eval_run(evaluation *e, const dsmoe_model *model, const char *label);

/* Prints the beginning of the JSON: the members that do not depend on the results. */
void eval_print_json_source(const evaluation *e);

/* ---- probes ---------------------------------------------------------------------------------- */

bool eval_is_probed(const dsmoe_probe *probe);
/* "1 + 7 of 63": shared experts, those that a token chooses, those it may choose from. `config` is
 * that of the model with the probe applied. Returns `out`. */
const char *eval_format_experts(const dsmoe_probe *probe, const dsmoe_config *config,
                                char out[TABLE_CELL]);
/* Prints the same as members of JSON, without brackets around them. */
void eval_print_json_probe(const dsmoe_probe *probe, const dsmoe_config *config);

/* Prints that the model cannot take the probe, with the options that ask for it. Returns the exit code. */
int eval_refuse_probe(const eval_options *options, const dsmoe_error *error);

/* Evaluates the standard set of probes and prints its table or JSON. Returns the exit code. */
int eval_probes(evaluation *e, const dsmoe_model *model);

/* ---- against another model ------------------------------------------------------------------- */

/* Opens options->against, runs both models over the text and prints how far they are apart. Returns
 * the exit code. */
int eval_against(const eval_options *options, const corpus *text, const dsmoe_model *model);

/* ---- questions ------------------------------------------------------------------------------- */

/* Asks the model, with the probe of the options, the questions of options->tasks and prints the scores.
 * Returns the exit code. */
int eval_tasks(const eval_options *options, const dsmoe_model *model);

#endif
