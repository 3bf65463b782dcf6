/* plan.h - the two halves of `dsmoe plan`. */
#ifndef DSMOE_CLI_PLAN_H
#define DSMOE_CLI_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* Explains the model of a config.json (or of the folder that holds it); returns an exit code. */
int plan_model(const char *config_or_folder, int64_t n_tokens, bool json);

#endif
