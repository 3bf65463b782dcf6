/* routing.h - counts which experts of a model a text uses. The text goes through the model once. Every token
 * counts once; BOS tokens do not count. */
#ifndef DSMOE_STUDY_ROUTING_H
#define DSMOE_STUDY_ROUTING_H

#include <stdint.h>
#include <stdio.h>

#include "report/routing.h"
#include "study/token_text.h"

typedef struct routing_options {
    int64_t n_ctx; /* positions of a window, BOS included */
    int n_threads;
    dsmoe_progress_fn *progress; /* may be NULL; counts tokens. False interrupts */
    void *context;
} routing_options;

/* Runs the text, whose tokens must be below vocab_size, in windows, one after the other. An interruption is
 * not a failure: the report then covers what was read. The caller sets model_path, text_path and tokenizer of
 * the report, which this function leaves alone. Call routing_free in any case. */
dsmoe_status routing_collect(const dsmoe_model *model, const token_text *text,
                             const routing_options *options, routing_report *report,
                             dsmoe_error *error);
void routing_free(routing_report *report);

/* Writes the scores of the experts on this text, [num_hidden_layers, n_experts], by which the experts to
 * train are chosen: see dsmoe_expert_score. Leaves the scores of layers without experts as they are. */
void routing_scores(const routing_report *report, dsmoe_expert_score kind, double *scores);

/* Writes the report as a JSON object. */
void routing_put_json(const routing_report *report, FILE *file);

#endif
