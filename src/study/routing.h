/* routing.h - counts what a text does with the experts of a model. The text goes through the model once; every
 * token counts once, BOS tokens do not count. */
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

/* Runs the text, tokens below vocab_size, in windows side by side. An interruption is not a failure: the report then
 * covers what was read. model_path, text_path and tokenizer of the report are the caller's, and stay. Call
 * routing_free in any case. */
dsmoe_status routing_collect(const dsmoe_model *model, const token_text *text,
                             const routing_options *options, routing_report *report,
                             dsmoe_error *error);
void routing_free(routing_report *report);

/* The scores of the experts on this text, [num_hidden_layers, n_experts], by which those to train are chosen: see
 * dsmoe_expert_score. Layers without experts are left as they are. */
void routing_scores(const routing_report *report, dsmoe_expert_score kind, double *scores);

/* All of it as a JSON object. */
void routing_put_json(const routing_report *report, FILE *file);

#endif
