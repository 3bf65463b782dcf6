/* model_path.h - a model as a user names it: its folder, a .gguf file, or the folder of a training run, which
 * means the run's latest checkpoint.
 *
 * The commands do this, not the library, because they can say which checkpoint they take. A program that
 * opened a run through the library while it is training would get another model each time without knowing. */
#ifndef DSMOE_CLI_MODEL_PATH_H
#define DSMOE_CLI_MODEL_PATH_H

#include "dsmoe.h"

typedef struct model_path {
    char text[DSMOE_PATH + 64];
} model_path;

/* Replaces the name of a run by the path of its latest checkpoint, kept in `found`, and says so on stderr.
 * Other names are left as they are. On failure the message is printed and the exit code returned, otherwise
 * CLI_OK. */
int model_path_find(const char *command, const char **path, model_path *found);

#endif
