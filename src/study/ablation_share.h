/* ablation_share.h - several processes on one comparison: started with the same command, they share its runs.
 *
 * DIR/.lock says who does what, by locks on single bytes that end with the process that holds them. A file
 * system without locks lets everybody do everything. */
#ifndef DSMOE_STUDY_ABLATION_SHARE_H
#define DSMOE_STUDY_ABLATION_SHARE_H

#include "study/ablation.h"

/* Joins those who work in the folder; it must be there. ablation_share_end leaves them. */
dsmoe_status ablation_share_begin(ablation *a, dsmoe_error *error);
void ablation_share_end(ablation *a);
/* Whether nobody else is working there. */
bool ablation_is_alone(const ablation *a);

/* Waits until no other process reads and writes the files of the folder, apart from those of its own run. */
dsmoe_status ablation_take_files(const ablation *a, dsmoe_error *error);
void ablation_leave_files(const ablation *a);

/* Takes a run, to train and to measure it; false if another process has it. */
bool ablation_take_run(const ablation *a, int entry, int seed);
void ablation_leave_run(const ablation *a, int entry, int seed);

#endif
