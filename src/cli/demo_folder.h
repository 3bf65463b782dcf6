/* demo_folder.h - the folder of `dsmoe demo`: a training run, with the corpus it learns from. */
#ifndef DSMOE_CLI_DEMO_FOLDER_H
#define DSMOE_CLI_DEMO_FOLDER_H

/* Makes the folder, or clears one that an earlier demo made and marked: only what a demo makes goes,
 * and any other folder that is not empty is refused. Prints its message and returns the exit code, or
 * CLI_OK. */
int demo_folder_prepare(const char *folder);

#endif
