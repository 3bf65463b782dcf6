/* report.h - what a check reports to its caller: one line for each tensor, and whether all were ok. */
#ifndef DSMOE_VERIFY_REPORT_H
#define DSMOE_VERIFY_REPORT_H

#include <stdint.h>

#include "dsmoe.h"
#include "verify/compare.h"

typedef struct verify_report {
    double tolerance;
    dsmoe_check_fn *visit; /* may be NULL */
    void *context;
    bool all_ok; /* starts as true */
} verify_report;

/* Checks the arguments that all checks have in common. */
dsmoe_status report_check_arguments(const char *path, double tolerance, int n_threads,
                                    dsmoe_error *error);

/* The result of a run over a file: if it failed, the reason with `source` in front. If the file is no
 * longer whole, that is the error instead. */
dsmoe_status report_outcome(const safetensors *file, const char *source, dsmoe_status status,
                            const dsmoe_error *why, dsmoe_error *error);

void report_difference(verify_report *report, const char *name, const difference *sum);
/* Report nothing if `expected` is NULL. */
void report_tensor(verify_report *report, const char *name, const float *ours,
                   const safetensors_tensor *expected);
void report_number(verify_report *report, const char *name, double ours,
                   const safetensors_tensor *expected);
/* Reports how many tokens differ; none may. */
void report_tokens(verify_report *report, const char *name, int64_t n_different, int64_t n_tokens);
/* Reports something expected that was not checked. */
void report_skipped(verify_report *report, const char *name);

#endif
