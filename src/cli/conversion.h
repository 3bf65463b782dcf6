/* conversion.h - what commands that write a model share: a bar, a check for room on the disk before, and a
 * summary. */
#ifndef DSMOE_CLI_CONVERSION_H
#define DSMOE_CLI_CONVERSION_H

#include "cli/progress.h"
#include "dsmoe.h"

/* What is merged into a model while it is written. */
typedef struct conversion_merge {
    const char *path;
    double scale;
} conversion_merge;

typedef struct conversion {
    const char *command; /* for messages */
    const char *target;  /* a .gguf file or a folder */
    /* Called once before the first byte is written, with the number of bytes; may be NULL. */
    void (*announce)(const void *context, double bytes);
    const void *context;
    progress bar;
    double start;
    bool started;
    double needed, available;      /* bytes, if the disk has too little room; otherwise 0 */
    const conversion_merge *merge; /* NULL: nothing */
} conversion;

/* Begins to catch Ctrl-C. `label` is the text of the bar, such as "converting". */
conversion conversion_start(const char *command, const char *label, const char *target);

/* A dsmoe_progress_fn whose context is the conversion. */
bool conversion_progress(void *context, double done, double total);

/* Runs dsmoe_convert or dsmoe_merge with a bar, and prints a summary or the reason of a failure. Returns the
 * exit code. */
int conversion_run(conversion *c, const char *from, dsmoe_convert_options options);

/* Prints why it failed, and returns the exit code. */
int conversion_failure(conversion *c, const dsmoe_error *error);
/* Prints what was written: bytes, bits per weight, types, time. Returns the exit code. */
int conversion_summary(conversion *c);

/* The type that most bytes of a model have. */
dsmoe_dtype conversion_main_type(const dsmoe_model *model);

/* Whether a target is a .gguf file, not a folder. */
bool conversion_to_gguf(const char *target);

#endif
