/* settings_table.h - the table of settings: what values each may have, where it is stored, and whether a
 * run that has begun accepts another value. */
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
    size_t size; /* of a text, with its NUL */
    int count;
    bool or_minus_one; /* -1 is allowed and means: not set */
    bool may_change;
} setting;

extern const setting settings_table[];
extern const int settings_count;

/* The value as JSON. */
void settings_put_value(FILE *text, const setting *s, const dsmoe_run_settings *settings);

#endif
