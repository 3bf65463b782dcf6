/* train_options.h - the command line of `dsmoe train`: the settings of the run and other options. */
#ifndef DSMOE_CLI_TRAIN_OPTIONS_H
#define DSMOE_CLI_TRAIN_OPTIONS_H

#include "dsmoe.h"

typedef struct train_options {
    dsmoe_run_settings settings; /* when resuming: the run's, overridden by the given ones */
    const char *settings_file;   /* that of --settings, or NULL */
    const char *resume;          /* the folder of a run to resume, or NULL */
    const char *const *given;    /* keys of the settings that were given */
    int n_given;
    int64_t show_data, stop_after, n_threads;
    const char *parallel_name; /* NULL: not given */
    dsmoe_parallel parallel;
    double time_limit;   /* seconds; 0: none */
    double peer_timeout; /* the same */
    bool quiet;
} train_options;

/* Returns -1 if the command should continue, otherwise the exit code. Pointers in `options` stay valid. */
int train_options_parse(int argc, char **argv, train_options *options);

/* The option that sets a setting, for messages; the key itself if there is none. */
const char *train_options_name(const char *key);

#endif
