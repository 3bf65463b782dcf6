/* names.h - the names that options take: presets, types of weights, schedules of the learning rate, what to
 * do with bad bytes, what ranks divide. */
#ifndef DSMOE_CLI_NAMES_H
#define DSMOE_CLI_NAMES_H

#include "dsmoe.h"

enum { N_PRESET_NAMES = 7, N_TYPE_NAMES = 11, N_SCHEDULE_NAMES = 3 };
extern const char *const preset_names[N_PRESET_NAMES];
extern const char *const type_names[N_TYPE_NAMES]; /* of weights in a GGUF file */
extern const char *const schedule_names[N_SCHEDULE_NAMES];

/* Whether there is such a preset, type or schedule: CLI_OK, or CLI_USAGE after a message that names the
 * option and lists what it takes. */
int names_check_preset(const char *command, const char *name);
int names_check_type(const char *command, const char *name);
int names_check_schedule(const char *command, const char *name);
/* The same for --bad-bytes; *bad_bytes is what the name means. */
int names_find_bad_bytes(const char *command, const char *name, dsmoe_bad_bytes *bad_bytes);
/* The same for --parallel; `name` NULL means that it was not given, and leaves *parallel as it is. */
int names_find_parallel(const char *command, const char *name, dsmoe_parallel *parallel);

#endif
