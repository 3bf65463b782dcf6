/* model_view.h - the shape of a model and the costs of its parts, as `plan --config` and `inspect` show
 * them. */
#ifndef DSMOE_CLI_MODEL_VIEW_H
#define DSMOE_CLI_MODEL_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "dsmoe.h"

enum { MODEL_PARTS = 9 };

/* A part of the model and what it costs. */
typedef struct model_part {
    const char *name, *key;
    int64_t parameters, active;
    int64_t multiplied; /* by every token */
    double flops;
} model_part;

typedef struct model_view {
    dsmoe_config config;
    int64_t n_tokens; /* of the sequence whose FLOPs are counted */
    dsmoe_model_plan plan;
    model_part parts[MODEL_PARTS];
    double flops, causal_flops; /* attention over the full square, and over its causal half */
} model_view;

dsmoe_status model_view_make(const dsmoe_config *config, int64_t n_tokens, model_view *view,
                             dsmoe_error *error);

/* Prints two or three lines about the layers. */
void model_view_print_shape(const model_view *view);
/* The table of parts. */
void model_view_print_parts(const model_view *view, bool with_flops);
/* The same as members of a JSON object: from "num_hidden_layers" to "parts". */
void model_view_print_json(const model_view *view, bool with_flops);

/* The unit in which a number of FLOPs is best read. */
double flops_unit(double flops, const char **name);

#endif
