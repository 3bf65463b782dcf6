/* preload.h - reads the files of a model once, so that they are in memory when the first request comes. */
#ifndef DSMOE_CLI_PRELOAD_H
#define DSMOE_CLI_PRELOAD_H

#include <signal.h>
#include <stdbool.h>

/* Shows a bar. Files that cannot be read are left to the code that needs them. False if *interrupted is no
 * longer 0. */
bool preload_model(const char *path, const volatile sig_atomic_t *interrupted);

#endif
