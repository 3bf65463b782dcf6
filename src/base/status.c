/* status.c - one line that says what went wrong. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *dsmoe_version(void) { return DSMOE_VERSION; }

const char *dsmoe_status_name(dsmoe_status status)
{
    switch (status) {
    case DSMOE_OK: return "ok";
    case DSMOE_ERROR_ARGUMENT: return "bad argument";
    case DSMOE_ERROR_CONFIG: return "bad configuration";
    case DSMOE_ERROR_MEMORY: return "out of memory";
    case DSMOE_ERROR_IO: return "input/output error";
    case DSMOE_ERROR_FORMAT: return "bad file format";
    case DSMOE_ERROR_NONFINITE: return "not a finite number";
    case DSMOE_ERROR_STOPPED: return "stopped";
    case DSMOE_ERROR_PEER: return "another rank failed";
    }
    return "unknown status";
}

dsmoe_status status_fail(dsmoe_error *error, dsmoe_status status, const char *format, ...)
{
    if (!error) return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    /* Names from untrusted files may end up here: keep it one printable line. */
    for (char *c = error->message; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return status;
}
