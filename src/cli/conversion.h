/* conversion.h - what `convert`, `quantize` and `init` share: a bar while a model is written, room
 * on the disk looked for before, and what came of it. */
#ifndef DSMOE_CLI_CONVERSION_H
#define DSMOE_CLI_CONVERSION_H

#include "cli/progress.h"
#include "dsmoe.h"

/* What is merged into a model on its way. */
typedef struct conversion_merge {
    const char *path;
    double scale;
} conversion_merge;

typedef struct conversion {
    const char *command; /* for messages */
    const char *target;  /* a .gguf file or a folder */
    /* Called once, with the bytes to come, when everything is known to be in order; may be NULL. */
    void (*announce)(const void *context, double bytes);
    const void *context;
    progress bar;
    double start;
    bool started;
    double needed, available;      /* bytes, if the disk has not enough; otherwise 0 */
    const conversion_merge *merge; /* NULL: nothing */
} conversion;

/* Ctrl-C is caught from here on. `label` is what the bar says: "converting". */
conversion conversion_start(const char *command, const char *label, const char *target);

/* A dsmoe_progress_fn whose context is the conversion. */
bool conversion_progress(void *context, double done, double total);

/* dsmoe_convert, or dsmoe_merge, with a bar and a summary, or the reason why not. Returns the exit code. */
int conversion_run(conversion *c, const char *from, dsmoe_convert_options options);

/* Prints why it failed, and returns the exit code. */
int conversion_failure(conversion *c, const dsmoe_error *error);
/* Prints what was written: bytes, bits per weight, types, time. Returns the exit code. */
int conversion_summary(conversion *c);

/* The type of most bytes of a model. */
dsmoe_dtype conversion_main_type(const dsmoe_model *model);

/* Whether a target is a file rather than a folder. */
bool conversion_to_gguf(const char *target);

#endif
