/* load_history.h - the load of every expert over time, in a bounded number of columns. When all columns are
 * taken, each pair of neighbours becomes one column. */
#ifndef DSMOE_REPORT_LOAD_HISTORY_H
#define DSMOE_REPORT_LOAD_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/json.h"

typedef struct load_history {
    size_t n_layers, n_experts; /* of the first line; 0 before there is one */
    size_t n_columns, capacity;
    double per_column;
    double *values;  /* [capacity][n_layers][n_experts], load over the mean */
    double *steps;   /* [capacity], the last step of each column */
    double *weights; /* [capacity], how many lines went into each column */
    bool too_large;  /* more experts than a page can show */
} load_history;

/* Adds the "load" of a line: [layer][expert]. A load with another shape than the first one is left out. False
 * if out of memory. */
bool load_history_add(load_history *history, double step, const json_node *load);
void load_history_free(load_history *history);

double load_history_at(const load_history *history, size_t column, size_t layer, size_t expert);

#endif
