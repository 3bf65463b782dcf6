/* report.c - what a check reports to its caller. */
#include "verify/report.h"

#include "base/status.h"

dsmoe_status report_check_arguments(const char *path, double tolerance, int n_threads,
                                    dsmoe_error *error)
{
    if (!path) return status_fail(error, DSMOE_ERROR_ARGUMENT, "path is NULL");
    if (!(tolerance >= 0))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "tolerance is %g, not 0 or more",
                           tolerance);
    if (n_threads < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "n_threads is %d, not 1 or more",
                           n_threads);
    return DSMOE_OK;
}

static void tell(verify_report *report, dsmoe_check check)
{
    check.tolerance = report->tolerance;
    report->all_ok = report->all_ok && (check.ok || check.skipped);
    if (report->visit) report->visit(report->context, &check);
}

dsmoe_status report_outcome(const safetensors *file, const char *source, dsmoe_status status,
                            const dsmoe_error *why, dsmoe_error *error)
{
    if (status != DSMOE_OK) status_fail(error, status, "%s: %s", source, why->message);
    dsmoe_status lost = safetensors_check_intact(file, error);
    return lost != DSMOE_OK ? lost : status;
}

void report_difference(verify_report *report, const char *name, const difference *sum)
{
    tell(report, difference_check(sum, name, report->tolerance));
}

void report_tensor(verify_report *report, const char *name, const float *ours,
                   const safetensors_tensor *expected)
{
    if (!expected) return;
    difference sum = {0};
    difference_add_tensor(&sum, ours, expected);
    report_difference(report, name, &sum);
}

void report_number(verify_report *report, const char *name, double ours,
                   const safetensors_tensor *expected)
{
    if (!expected) return;
    float number;
    difference sum = {0};
    safetensors_tensor_read_f32(expected, 0, 1, &number);
    difference_add(&sum, ours, number);
    report_difference(report, name, &sum);
}

void report_tokens(verify_report *report, const char *name, int64_t n_different, int64_t n_tokens)
{
    tell(report, (dsmoe_check){.name = name,
                               .max_abs = (double)n_different,
                               .max_rel = (double)n_different / (double)n_tokens,
                               .ok = n_different == 0});
}

void report_skipped(verify_report *report, const char *name)
{
    tell(report, (dsmoe_check){.name = name, .skipped = true});
}
