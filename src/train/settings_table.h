/* settings_table.h - the one table of settings: what each may be, where it is kept, and whether a run
 * that has begun takes another value of it. */
#ifndef DSMOE_TRAIN_SETTINGS_TABLE_H
#define DSMOE_TRAIN_SETTINGS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "dsmoe.h"

typedef enum setting_kind {
    SETTING_INTEGER, /* int64_t in [min, max] */
    SETTING_NUMBER,  /* double in [min, max] */
    SETTING_FLAG,    /* bool */
    SETTING_TEXT,    /* char [size] */
    SETTING_TEXTS,   /* char [count][size], "" after the last; an array in the file */
} setting_kind;

typedef struct setting {
    const char *key;
    size_t offset;
    setting_kind kind;
    double min, max;
    size_t size; /* of a text, its NUL included */
    int count;
    bool or_minus_one; /* which then means: decide for me */
    bool may_change;
} setting;

extern const setting settings_table[];
extern const int settings_count;

/* The value as JSON. */
void settings_put_value(FILE *text, const setting *s, const dsmoe_run_settings *settings);

#endif
