/* run_show.c - shows what will be learned, before training starts. */
#include <stdlib.h>

#include "train/run.h"

dsmoe_status run_show_data(run *r, dsmoe_error *error)
{
    size_t length = (size_t)r->settings.seq;
    int32_t *arrays = malloc(3 * length * sizeof *arrays);
    if (!arrays) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a sequence");
    int32_t *tokens = arrays, *targets = arrays + length, *positions = arrays + 2 * length;
    const dsmoe_batch batch = {.tokens = tokens, .targets = targets, .positions = positions};
    dsmoe_run_sequence shown = {
        .tokenizer = r->tokenizer, .batch = &batch, .length = r->settings.seq};
    shown.total = r->options.show_data < r->data.n_train ? r->options.show_data : r->data.n_train;
    dsmoe_status status = DSMOE_OK;
    for (int64_t i = 0; i < shown.total && status == DSMOE_OK && !run_asks_stop(r); i++) {
        dsmoe_dataset_train(r->dataset, i, 1, tokens, targets, positions);
        status = dsmoe_dataset_check(r->dataset, error);
        shown.number = i + 1;
        dsmoe_run_event event = run_event(r, DSMOE_RUN_SEQUENCE);
        event.sequence = &shown;
        if (status == DSMOE_OK) run_emit(r, &event);
    }
    free(arrays);
    return status;
}
