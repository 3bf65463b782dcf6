/* dsmoe/report.h - HTML pages of runs and comparisons. */
#ifndef DSMOE_REPORT_H
#define DSMOE_REPORT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes FOLDER/report.html from FOLDER/metrics.jsonl: one page that needs no other file. */
DSMOE_API dsmoe_status dsmoe_report_run(const char *folder, dsmoe_error *error);
/* Makes the page of a comparison of architectures from its JSON (see docs/ablation.md). */
DSMOE_API dsmoe_status dsmoe_report_ablation(const char *json_path, const char *html_path,
                                             dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
