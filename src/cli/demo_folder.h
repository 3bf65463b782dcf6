/* demo_folder.h - the folder of `dsmoe demo`: a training run, with the corpus it learns from. */
#ifndef DSMOE_CLI_DEMO_FOLDER_H
#define DSMOE_CLI_DEMO_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the folder for a demo of so many steps, or clears one that an earlier demo made and marked: only
 * what a demo makes goes, one whose run was trained further only by force, and any other folder that is
 * not empty is refused. Nothing is removed before all is known to be in order. Prints its message and
 * returns the exit code, or CLI_OK. */
int demo_folder_prepare(const char *folder, int64_t steps, bool force);

#endif
