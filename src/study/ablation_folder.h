/* ablation_folder.h - the files of a comparison, which ablation.c reads and writes with these functions. */
#ifndef DSMOE_STUDY_ABLATION_FOLDER_H
#define DSMOE_STUDY_ABLATION_FOLDER_H

#include "study/ablation.h"

/* The longest name relative to the folder, including names inside the folder of a run. */
enum { ABLATION_NAME = 96, ABLATION_PATH = DSMOE_PATH + ABLATION_NAME };

/* Writes DIR/NAME into `path` and returns it. */
const char *ablation_path(const ablation *a, char path[ABLATION_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes the folder, or checks that what was trained there had the same settings. Takes the folder's files,
 * which the caller must leave (ablation_share.h). */
dsmoe_status ablation_folder_open(ablation *a, dsmoe_error *error);
/* Whether something has been trained or measured in the folder. From then on its settings cannot change. */
bool ablation_folder_has_begun(const ablation *a);
/* Removes what was made of the folder, unless something was trained there or another process works there. */
void ablation_folder_abandon(const ablation *a);
/* The hash of the data on which the losses of the folder were measured; 0 if there are no losses. */
uint64_t ablation_folder_data_hash(const ablation *a);
/* Reads the known results of all runs: losses.tsv, and the metrics of each run. */
dsmoe_status ablation_folder_read(ablation *a, dsmoe_error *error);
/* Adds a loss to losses.tsv and to `a`. */
dsmoe_status ablation_folder_add(ablation *a, int entry, int seed, int which, double loss,
                                 dsmoe_error *error);
/* Reads again the curve of one run and whether the run is finished. */
dsmoe_status ablation_folder_read_run(ablation *a, int entry, int seed, dsmoe_error *error);

/* Writes DIR/ablation.json and DIR/ablation.html again (ablation_json.c). */
dsmoe_status ablation_write(const ablation *a, dsmoe_error *error);

#endif
