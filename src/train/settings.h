/* settings.h - the settings of a run as text. One table says what each may be: reading, writing and
 * checking go by it. */
#ifndef DSMOE_TRAIN_SETTINGS_H
#define DSMOE_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* Whether every setting is in its range, and they make sense together. The message begins with
 * `source` and names the key. Afterwards steps · accumulate · batch · seq fits int64. */
dsmoe_status settings_check(const dsmoe_run_settings *settings, const char *source,
                            dsmoe_error *error);

/* The same as dsmoe_run_settings_read, of a text; `source` names it in messages. */
dsmoe_status settings_parse(const char *text, size_t length, const char *source,
                            dsmoe_run_settings *settings, dsmoe_error *error);

/* FOLDER/settings.json, at once or not at all. The settings must be checked ones. */
dsmoe_status settings_write(const char *folder, const dsmoe_run_settings *settings,
                            dsmoe_error *error);

/* The same object on one line. */
void settings_put(FILE *text, const dsmoe_run_settings *settings);

/* For a run that has begun: the value of `key` becomes the given one. One that cannot change is refused,
 * unless it is the same; the message calls the setting `name`. */
dsmoe_status settings_change(dsmoe_run_settings *settings, const dsmoe_run_settings *given,
                             const char *key, const char *name, dsmoe_error *error);
/* The value of a key, which must be one, as JSON, or "not set"; to be freed. NULL if there is no memory. */
char *settings_describe(const dsmoe_run_settings *settings, const char *key);

/* What differs: at all; as {"key":[before,after],…}; and as "key before -> after, …", to be freed, NULL
 * if there is no memory. `name` says what to call a key there; NULL: itself. */
bool settings_differ(const dsmoe_run_settings *before, const dsmoe_run_settings *after);
void settings_put_changes(FILE *text, const dsmoe_run_settings *before,
                          const dsmoe_run_settings *after);
char *settings_describe_changes(const dsmoe_run_settings *before, const dsmoe_run_settings *after,
                                const char *(*name)(const char *key));

/* The schedule, and the type of the checkpoints' weights, that they ask for. */
dsmoe_schedule settings_schedule(const dsmoe_run_settings *settings);
dsmoe_dtype settings_dtype(const dsmoe_run_settings *settings);
/* What of the model is trained. */
dsmoe_train_what settings_train(const dsmoe_run_settings *settings);
/* What becomes of bytes that are not UTF-8. */
dsmoe_bad_bytes settings_bad_bytes(const dsmoe_run_settings *settings);
/* Whether some text is held out, and what share of the data it is: 0 if it is given apart. */
bool settings_holds_out(const dsmoe_run_settings *settings);
double settings_share(const dsmoe_run_settings *settings);

#endif
