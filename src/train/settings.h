/* settings.h - the settings of a run as text. One table says what each may be: reading, writing and
 * checking go by it. */
#ifndef DSMOE_TRAIN_SETTINGS_H
#define DSMOE_TRAIN_SETTINGS_H

#include <stdio.h>

#include "base/status.h"

/* Whether every setting is in its range, and they make sense together. The message begins with
 * `source` and names the key. Afterwards steps · accumulate · batch · seq fits int64. */
dsmoe_status settings_check(const dsmoe_run_settings *settings, const char *source,
                            dsmoe_error *error);

/* FOLDER/settings.json, at once or not at all. The settings must be checked ones. */
dsmoe_status settings_write(const char *folder, const dsmoe_run_settings *settings,
                            dsmoe_error *error);

/* The same object on one line. */
void settings_put(FILE *text, const dsmoe_run_settings *settings);

/* The schedule, and the type of the checkpoints' weights, that they ask for. */
dsmoe_schedule settings_schedule(const dsmoe_run_settings *settings);
dsmoe_dtype settings_dtype(const dsmoe_run_settings *settings);

#endif
