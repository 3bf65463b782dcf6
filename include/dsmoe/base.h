/* dsmoe/base.h - what every other part needs: the version, status and error, progress. */
#ifndef DSMOE_BASE_H
#define DSMOE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DSMOE_API __attribute__((visibility("default")))
#else
#define DSMOE_API
#endif

#define DSMOE_VERSION "0.1.0"
DSMOE_API const char *dsmoe_version(void);

/* The numbers are part of the ABI: append, never renumber. */
typedef enum dsmoe_status {
    DSMOE_OK = 0,
    DSMOE_ERROR_ARGUMENT = 1,  /* the caller passed something impossible */
    DSMOE_ERROR_CONFIG = 2,    /* a configuration key has a value that cannot work */
    DSMOE_ERROR_MEMORY = 3,    /* out of memory, or a size that does not fit */
    DSMOE_ERROR_IO = 4,        /* a file cannot be opened, read or written */
    DSMOE_ERROR_FORMAT = 5,    /* a file's content breaks its format's rules */
    DSMOE_ERROR_NONFINITE = 6, /* a NaN or an infinity where a finite number is needed */
    DSMOE_ERROR_STOPPED = 7,   /* a callback of the caller ended the work: nothing is wrong */
    DSMOE_ERROR_PEER = 8,      /* another rank is lost, or does not match this one */
} dsmoe_status;

typedef struct dsmoe_error {
    dsmoe_status status;
    char message[512]; /* one line, no newline at its end */
} dsmoe_error;

/* "ok", "bad argument", …: the kind of failure in words. */
DSMOE_API const char *dsmoe_status_name(dsmoe_status status);

/* Called now and then during long work: `done` of `total` is done. Returning false stops the work, which then
 * fails with DSMOE_ERROR_STOPPED. */
typedef bool dsmoe_progress_fn(void *context, double done, double total);

/* Size of a path in a structure, including the NUL at its end. */
enum { DSMOE_PATH = 1024 };

#ifdef __cplusplus
}
#endif
#endif
