/* status.h - how a function fails: a status, and one line that says why. */
#ifndef DSMOE_BASE_STATUS_H
#define DSMOE_BASE_STATUS_H

#include "dsmoe.h"

/* Fills *error (which may be NULL) and returns `status`, so that failing is one statement:
 * return status_fail(error, DSMOE_ERROR_CONFIG, "%s must be positive", key); */
dsmoe_status status_fail(dsmoe_error *error, dsmoe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the calling function with the status of a call that failed. */
#define STATUS_TRY(call)                                                                           \
    do {                                                                                           \
        dsmoe_status status_try_ = (call);                                                         \
        if (status_try_ != DSMOE_OK) return status_try_;                                           \
    } while (0)

#endif
