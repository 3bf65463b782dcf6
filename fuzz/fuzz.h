/* fuzz.h - what the fuzz targets share: the entry for libFuzzer, and checks that must hold for every
 * input. */
#ifndef DSMOE_FUZZ_FUZZ_H
#define DSMOE_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "dsmoe.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Stops the run and keeps the input. */
static inline void require(bool holds)
{
    if (!holds) abort();
}

/* A failure returns the status it stores, and its message is one non-empty printable line. */
static inline void require_error(dsmoe_status status, const dsmoe_error *error)
{
    require(status != DSMOE_OK && error->status == status && error->message[0] != '\0');
    for (const char *c = error->message; *c; c++) require((unsigned char)*c >= 0x20);
}

#endif
