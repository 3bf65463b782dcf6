/* model_path.h - a model as a person names it: its folder, a .gguf file, or the folder of a training run, which
 * stands for the latest checkpoint of it.
 *
 * That is the command's business: it can say which checkpoint it takes. A program that calls the library
 * and opens a run while that is training would get another model each time without knowing. */
#ifndef DSMOE_CLI_MODEL_PATH_H
#define DSMOE_CLI_MODEL_PATH_H

#include "dsmoe.h"

typedef struct model_path {
    char text[DSMOE_PATH + 64];
} model_path;

/* Replaces the name of a run by the path of its latest checkpoint, kept in `found`, and says so on stderr;
 * others stay. On failure the message is printed and the exit code returned, otherwise CLI_OK. */
int model_path_find(const char *command, const char **path, model_path *found);

#endif
