/* report.h - what a check reports to its caller: one line a tensor, and whether all were well. */
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

/* What every check asks of its arguments. */
dsmoe_status report_check_arguments(const char *path, double tolerance, int n_threads,
                                    dsmoe_error *error);

/* How a run over a file ended: why it failed, after the name of its source; or, whatever was
 * found, that the file is no longer whole. */
dsmoe_status report_outcome(const safetensors *file, const char *source, dsmoe_status status,
                            const dsmoe_error *why, dsmoe_error *error);

void report_difference(verify_report *report, const char *name, const difference *sum);
/* Nothing is reported where nothing is expected (NULL). */
void report_tensor(verify_report *report, const char *name, const float *ours,
                   const safetensors_tensor *expected);
void report_number(verify_report *report, const char *name, double ours,
                   const safetensors_tensor *expected);
/* Tokens that must not differ at all. */
void report_tokens(verify_report *report, const char *name, int64_t n_different, int64_t n_tokens);
/* Something expected that was not looked at. */
void report_skipped(verify_report *report, const char *name);

#endif
