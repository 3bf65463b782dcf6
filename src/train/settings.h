/* settings.h - the settings of a run as text. One table says what values each may have; reading, writing
 * and checking use it. */
#ifndef DSMOE_TRAIN_SETTINGS_H
#define DSMOE_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* Checks that every setting is in its range, and that they make sense together. The message begins with
 * `source` and names the key. Afterwards steps · accumulate · batch · seq fits int64. */
dsmoe_status settings_check(const dsmoe_run_settings *settings, const char *source,
                            dsmoe_error *error);

/* Like dsmoe_run_settings_read, but from a text; messages call it `source`. */
dsmoe_status settings_parse(const char *text, size_t length, const char *source,
                            dsmoe_run_settings *settings, dsmoe_error *error);

/* Writes FOLDER/settings.json, completely or not at all. The settings must have been checked. */
dsmoe_status settings_write(const char *folder, const dsmoe_run_settings *settings,
                            dsmoe_error *error);

/* Writes the same object on one line. */
void settings_put(FILE *text, const dsmoe_run_settings *settings);

/* For a run that has begun: sets `key` to the given value. Fails for a setting that cannot change, unless
 * the value is the same; the message calls the setting `name`. */
dsmoe_status settings_change(dsmoe_run_settings *settings, const dsmoe_run_settings *given,
                             const char *key, const char *name, dsmoe_error *error);
/* The value of an existing key as JSON, or "not set". The caller frees it. NULL if there is no memory. */
char *settings_describe(const dsmoe_run_settings *settings, const char *key);

/* What differs: whether anything does; as {"key":[before,after],…}; and as "key before -> after, …", which
 * the caller frees, NULL if there is no memory. There, `name` gives the name of a key; NULL: the key
 * itself. */
bool settings_differ(const dsmoe_run_settings *before, const dsmoe_run_settings *after);
void settings_put_changes(FILE *text, const dsmoe_run_settings *before,
                          const dsmoe_run_settings *after);
char *settings_describe_changes(const dsmoe_run_settings *before, const dsmoe_run_settings *after,
                                const char *(*name)(const char *key));

/* The schedule and the type of the checkpoints' weights that the settings ask for. */
dsmoe_schedule settings_schedule(const dsmoe_run_settings *settings);
dsmoe_dtype settings_dtype(const dsmoe_run_settings *settings);
/* Which part of the model is trained. */
dsmoe_train_what settings_train(const dsmoe_run_settings *settings);
/* What is done with bytes that are not UTF-8. */
dsmoe_bad_bytes settings_bad_bytes(const dsmoe_run_settings *settings);
/* Whether some text is held out, and what share of the data it is: 0 if it is given separately. */
bool settings_holds_out(const dsmoe_run_settings *settings);
double settings_share(const dsmoe_run_settings *settings);

#endif
