/* ablation_share.h - processes that were started with the same command share the runs of one comparison.
 *
 * They hold locks on single bytes of DIR/.lock to show what they are doing. A lock ends with its process. On
 * a file system without locks, every process gets every lock. */
#ifndef DSMOE_STUDY_ABLATION_SHARE_H
#define DSMOE_STUDY_ABLATION_SHARE_H

#include "study/ablation.h"

/* Joins the processes that work in the folder, which must exist. ablation_share_end leaves them. */
dsmoe_status ablation_share_begin(ablation *a, dsmoe_error *error);
void ablation_share_end(ablation *a);
/* Whether no other process is working in the folder. */
bool ablation_is_alone(const ablation *a);

/* Waits for the right to read and write the files of the folder. The files of a run belong to the process
 * that has the run. */
dsmoe_status ablation_take_files(const ablation *a, dsmoe_error *error);
void ablation_leave_files(const ablation *a);

/* Takes a run to train and measure it; false if another process has it. */
bool ablation_take_run(const ablation *a, int entry, int seed);
void ablation_leave_run(const ablation *a, int entry, int seed);

#endif
