/* demo_folder.h - the folder of `dsmoe demo`: a training run, with the corpus it learns from. */
#ifndef DSMOE_CLI_DEMO_FOLDER_H
#define DSMOE_CLI_DEMO_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the folder for a demo of `steps` steps, or clears one that an earlier demo made and marked. Only what
 * a demo makes is removed; if its run was trained further, only with `force`. Any other folder that is not
 * empty is an error. Nothing is removed before all checks have passed. Returns CLI_OK, or an exit code after
 * a message. */
int demo_folder_prepare(const char *folder, int64_t steps, bool force);

#endif
