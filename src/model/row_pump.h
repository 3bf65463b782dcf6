/* row_pump.h - makes rows of tensors and writes them to a file: all threads make rows, and one writes
 * them in order. It needs memory for two pieces of some megabytes, whatever the size of the model:
 * while one piece is written, the next is made. */
#ifndef DSMOE_MODEL_ROW_PUMP_H
#define DSMOE_MODEL_ROW_PUMP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Makes one row at `out`; several threads call it at the same time. `scratch` has room for `longest`
 * floats. False if the row cannot be made. */
typedef bool row_pump_make_fn(void *context, int64_t row, float *scratch, void *out);
/* Writes the next bytes, which never span two tensors. */
typedef dsmoe_status row_pump_write_fn(void *to, const void *bytes, size_t size,
                                       dsmoe_error *error);

typedef struct row_pump_options {
    const char *path; /* what is written, for messages */
    row_pump_write_fn *write;
    void *to;
    int n_threads;               /* at least 1 */
    int64_t longest;             /* numbers of the longest row */
    size_t total;                /* bytes of all tensors, for `progress` */
    dsmoe_progress_fn *progress; /* may be NULL; false stops the work: DSMOE_ERROR_STOPPED */
    void *context;
} row_pump_options;

typedef struct row_pump_tensor {
    int64_t n_rows, n; /* rows, and numbers of one */
    size_t row_size;   /* bytes of one */
    row_pump_make_fn *make;
    void *context;
} row_pump_tensor;

typedef struct row_pump row_pump;

/* Calls `progress` once before anything is written. */
dsmoe_status row_pump_create(const row_pump_options *options, row_pump **pump, dsmoe_error *error);
/* Makes and writes the rows of one tensor; the last ones may be written later. *bad_row receives the
 * first row that could not be made, which ends the work, or -1. */
dsmoe_status row_pump_run(row_pump *pump, const row_pump_tensor *tensor, int64_t *bad_row,
                          dsmoe_error *error);
/* Writes the rows that are not written yet. */
dsmoe_status row_pump_flush(row_pump *pump, dsmoe_error *error);
void row_pump_free(row_pump *pump); /* NULL is allowed */

#endif
