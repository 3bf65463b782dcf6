/* fuzz.h - what every fuzz target says: an entry for libFuzzer, and what must hold whatever the
 * input is. */
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

/* A failure has the status it returned and one printable line that is not empty. */
static inline void require_error(dsmoe_status status, const dsmoe_error *error)
{
    require(status != DSMOE_OK && error->status == status && error->message[0] != '\0');
    for (const char *c = error->message; *c; c++) require((unsigned char)*c >= 0x20);
}

#endif
