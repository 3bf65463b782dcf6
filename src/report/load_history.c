/* load_history.c - the load of every expert over time. */
#include "report/load_history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/lines.h"

enum {
    MAX_EXPERTS = 32768, /* of all layers */
    MAX_CELLS = 64000,   /* of all layers and columns: a few bytes each in the page */
    MIN_COLUMNS = 8,     /* even if that makes more cells */
    MAX_COLUMNS = 128,
};

static size_t row_size(const load_history *h) { return h->n_layers * h->n_experts; }

static bool shape(load_history *h, const json_node *load)
{
    size_t n_layers = line_count(load), n_experts = line_count(line_item_array(load, 0));
    if (n_layers == 0 || n_experts == 0) return true;
    if (n_layers > MAX_EXPERTS || n_experts > MAX_EXPERTS || n_layers * n_experts > MAX_EXPERTS) {
        h->too_large = true;
        return true;
    }
    size_t columns = MAX_CELLS / (n_layers * n_experts) / 2 * 2;
    columns = columns < MIN_COLUMNS ? MIN_COLUMNS : columns > MAX_COLUMNS ? MAX_COLUMNS : columns;
    h->values = calloc(columns * n_layers * n_experts, sizeof *h->values);
    h->steps = calloc(columns, sizeof *h->steps);
    h->weights = calloc(columns, sizeof *h->weights);
    if (!h->values || !h->steps || !h->weights) return false;
    h->n_layers = n_layers;
    h->n_experts = n_experts;
    h->capacity = columns;
    h->per_column = 1;
    return true;
}

static bool has_shape(const load_history *h, const json_node *load)
{
    if (line_count(load) != h->n_layers) return false;
    for (size_t l = 0; l < h->n_layers; l++)
        if (line_count(line_item_array(load, l)) != h->n_experts) return false;
    return true;
}

/* Adds a column of `weight` lines to another column, which becomes the mean of all their lines. */
static void merge(load_history *h, size_t into, const double *other, double step, double weight)
{
    double share = weight / (h->weights[into] + weight);
    double *values = h->values + into * row_size(h);
    for (size_t i = 0; i < row_size(h); i++) values[i] += (other[i] - values[i]) * share;
    h->weights[into] += weight;
    h->steps[into] = step;
}

static void halve(load_history *h)
{
    size_t kept = 0, n = row_size(h);
    for (size_t c = 0; c < h->n_columns; c += 2, kept++) {
        if (kept != c) memcpy(h->values + kept * n, h->values + c * n, n * sizeof *h->values);
        h->steps[kept] = h->steps[c];
        h->weights[kept] = h->weights[c];
        if (c + 1 < h->n_columns)
            merge(h, kept, h->values + (c + 1) * n, h->steps[c + 1], h->weights[c + 1]);
    }
    h->n_columns = kept;
    h->per_column *= 2;
}

bool load_history_add(load_history *h, double step, const json_node *load)
{
    if (!load || !isfinite(step) || h->too_large) return true;
    if (h->capacity == 0 && !shape(h, load)) return false;
    if (h->capacity == 0 || !has_shape(h, load)) return true;
    if (h->n_columns > 0 && !(step > h->steps[h->n_columns - 1])) return true;
    double *fresh = calloc(row_size(h), sizeof *fresh);
    if (!fresh) return false;
    for (size_t l = 0; l < h->n_layers; l++)
        for (size_t e = 0; e < h->n_experts; e++) {
            double value = line_item(line_item_array(load, l), e);
            fresh[l * h->n_experts + e] = value >= 0 ? value : 0; /* 0 for NAN, too */
        }
    if (h->n_columns == h->capacity && h->weights[h->n_columns - 1] >= h->per_column) halve(h);
    size_t last = h->n_columns ? h->n_columns - 1 : 0;
    if (h->n_columns > 0 && h->weights[last] < h->per_column)
        merge(h, last, fresh, step, 1);
    else
        merge(h, h->n_columns++, fresh, step, 1); /* the new column has a weight of 0 */
    free(fresh);
    return true;
}

void load_history_free(load_history *h)
{
    free(h->values);
    free(h->steps);
    free(h->weights);
    *h = (load_history){0};
}

double load_history_at(const load_history *h, size_t column, size_t layer, size_t expert)
{
    return h->values[(column * h->n_layers + layer) * h->n_experts + expert];
}
