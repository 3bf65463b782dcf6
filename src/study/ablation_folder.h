/* ablation_folder.h - the files of a comparison: what ablation.c does not compute but reads and writes. */
#ifndef DSMOE_STUDY_ABLATION_FOLDER_H
#define DSMOE_STUDY_ABLATION_FOLDER_H

#include "study/ablation.h"

/* Names in the folder, and in a run in it, are no longer than this. */
enum { ABLATION_NAME = 96, ABLATION_PATH = DSMOE_PATH + ABLATION_NAME };

/* DIR/NAME; returns `path`. */
const char *ablation_path(const ablation *a, char path[ABLATION_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes the folder, or finds that what was trained there had the same settings; its files are taken then, and
 * the caller leaves them (ablation_share.h). */
dsmoe_status ablation_folder_open(ablation *a, dsmoe_error *error);
/* Whether something has been trained there, or measured: from then on its settings bind. */
bool ablation_folder_has_begun(const ablation *a);
/* Removes it again, if nothing was trained there. */
void ablation_folder_abandon(const ablation *a);
/* The hash of the data that its losses are of; 0: it has none. */
uint64_t ablation_folder_data_hash(const ablation *a);
/* Reads what is known of all runs: losses.tsv, and the metrics of each. */
dsmoe_status ablation_folder_read(ablation *a, dsmoe_error *error);
/* Notes the loss of a probe, there and in the state. */
dsmoe_status ablation_folder_add(ablation *a, int entry, int seed, int which, double loss,
                                 dsmoe_error *error);
/* Reads the curve of one run and whether it is finished, once more. */
dsmoe_status ablation_folder_read_run(ablation *a, int entry, int seed, dsmoe_error *error);

/* DIR/ablation.json and DIR/ablation.html, made again (ablation_json.c). */
dsmoe_status ablation_write(const ablation *a, dsmoe_error *error);

#endif
