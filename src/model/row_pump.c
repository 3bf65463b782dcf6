/* row_pump.c - pieces of rows: one piece is made while the piece before it is written. */
#include "model/row_pump.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/threads.h"

enum {
    PIECE = 8 << 20, /* bytes that are made and written together; a longer row is a piece too */
    TASK = 64 << 10, /* numbers that one thread makes at a time */
};

struct row_pump {
    row_pump_options options;
    float *scratch; /* [n_threads, longest] */
    unsigned char *pieces[2];
    size_t piece_size;
    int turn;       /* the piece being made */
    size_t pending; /* bytes of pieces[!turn] that are not written yet */
    size_t done;    /* bytes written */
};

static dsmoe_status report(const row_pump *pump, dsmoe_error *error)
{
    const row_pump_options *o = &pump->options;
    if (!o->progress || o->progress(o->context, (double)pump->done, (double)o->total))
        return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_STOPPED, "%s: stopped", o->path);
}

dsmoe_status row_pump_create(const row_pump_options *options, row_pump **pump, dsmoe_error *error)
{
    *pump = NULL;
    row_pump *made = calloc(1, sizeof *made);
    if (!made) goto fail;
    made->options = *options;
    /* No type of weights takes more memory than float32. */
    size_t row, scratch;
    if (!checked_mul_size((size_t)options->longest, sizeof(float), &row) ||
        !checked_mul_size(row, (size_t)options->n_threads, &scratch))
        goto fail;
    made->piece_size = row > PIECE ? row : PIECE;
    if (made->piece_size > options->total) made->piece_size = options->total;
    made->scratch = memory_alloc(scratch);
    for (int i = 0; i < 2; i++) made->pieces[i] = memory_alloc(made->piece_size);
    if (!made->scratch || !made->pieces[0] || !made->pieces[1]) goto fail;
    dsmoe_status status = report(made, error);
    if (status == DSMOE_OK)
        *pump = made;
    else
        row_pump_free(made);
    return status;
fail:
    row_pump_free(made);
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", options->path);
}

void row_pump_free(row_pump *pump)
{
    if (!pump) return;
    free(pump->scratch);
    free(pump->pieces[0]);
    free(pump->pieces[1]);
    free(pump);
}

/* Some rows of a tensor, cut into tasks. */
typedef struct piece_job {
    row_pump *pump;
    const row_pump_tensor *tensor;
    int64_t first, n_rows, task_rows;
    _Atomic int64_t bad_row; /* the first bad row; n_rows of the tensor if there is none */
    dsmoe_status status;     /* of writing the previous piece */
    dsmoe_error *error;
} piece_job;

static dsmoe_status write_pending(row_pump *pump, dsmoe_error *error)
{
    size_t size = pump->pending;
    pump->pending = 0;
    pump->done += size;
    if (size == 0) return DSMOE_OK;
    return pump->options.write(pump->options.to, pump->pieces[!pump->turn], size, error);
}

static void note_bad_row(piece_job *job, int64_t row)
{
    int64_t first = atomic_load(&job->bad_row);
    while (row < first && !atomic_compare_exchange_weak(&job->bad_row, &first, row)) continue;
}

/* Task 0 writes the previous piece. It comes first, since writing to the disk takes longest. */
static void piece_task(void *context, int64_t task, int thread)
{
    piece_job *job = context;
    row_pump *pump = job->pump;
    const row_pump_tensor *t = job->tensor;
    if (task == 0) {
        job->status = write_pending(pump, job->error);
        return;
    }
    int64_t row = (task - 1) * job->task_rows, end = row + job->task_rows;
    if (end > job->n_rows) end = job->n_rows;
    float *scratch = pump->scratch + thread * pump->options.longest;
    for (; row < end; row++) {
        unsigned char *out = pump->pieces[pump->turn] + (size_t)row * t->row_size;
        if (!t->make(t->context, job->first + row, scratch, out))
            note_bad_row(job, job->first + row);
    }
}

dsmoe_status row_pump_run(row_pump *pump, const row_pump_tensor *tensor, int64_t *bad_row,
                          dsmoe_error *error)
{
    int64_t most = (int64_t)(pump->piece_size / tensor->row_size);
    piece_job job = {.pump = pump, .tensor = tensor, .error = error};
    atomic_init(&job.bad_row, tensor->n_rows);
    job.task_rows = tensor->n < TASK ? TASK / tensor->n : 1;
    *bad_row = -1;
    for (; job.first < tensor->n_rows; job.first += job.n_rows) {
        job.n_rows = tensor->n_rows - job.first < most ? tensor->n_rows - job.first : most;
        int64_t n_tasks = (job.n_rows + job.task_rows - 1) / job.task_rows;
        threads_for(pump->options.n_threads, 1 + n_tasks, piece_task, &job);
        STATUS_TRY(job.status);
        pump->pending = (size_t)job.n_rows * tensor->row_size;
        pump->turn = !pump->turn;
        int64_t bad = atomic_load(&job.bad_row);
        if (bad < tensor->n_rows) {
            *bad_row = bad;
            return DSMOE_OK;
        }
        STATUS_TRY(report(pump, error));
    }
    return DSMOE_OK;
}

dsmoe_status row_pump_flush(row_pump *pump, dsmoe_error *error)
{
    STATUS_TRY(write_pending(pump, error));
    return report(pump, error);
}
