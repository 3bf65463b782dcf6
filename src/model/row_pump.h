/* row_pump.h - rows of tensors from wherever they come to a file: all threads make them, one writes
 * them in order. The memory is that of two pieces of some megabytes, whatever the size of the
 * model: while one is written the next is made. */
#ifndef DSMOE_MODEL_ROW_PUMP_H
#define DSMOE_MODEL_ROW_PUMP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Makes one row at `out`, from several threads at once; `scratch` holds `longest` floats. False if
 * the row cannot be made. */
typedef bool row_pump_make_fn(void *context, int64_t row, float *scratch, void *out);
/* Takes the next bytes, which never belong to two tensors. */
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

/* Before anything is written, `progress` is told of the bytes to come. */
dsmoe_status row_pump_create(const row_pump_options *options, row_pump **pump, dsmoe_error *error);
/* The rows of one tensor. *bad_row receives the first that could not be made, or -1; then the work
 * is over. Their last bytes may be written later. */
dsmoe_status row_pump_run(row_pump *pump, const row_pump_tensor *tensor, int64_t *bad_row,
                          dsmoe_error *error);
/* Writes what is still to be written. */
dsmoe_status row_pump_flush(row_pump *pump, dsmoe_error *error);
void row_pump_free(row_pump *pump); /* NULL is allowed */

#endif
