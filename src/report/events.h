/* events.h - a TensorBoard event file: scalars and histograms by step.
 *
 * A record is its length (8 bytes, little-endian), the masked CRC-32C of these, the bytes of an
 * Event in protocol buffers' encoding, and their masked CRC-32C. */
#ifndef DSMOE_REPORT_EVENTS_H
#define DSMOE_REPORT_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct events events;

/* A new file events.out.tfevents.TIME.dsmoe in the folder. Of older files there TensorBoard forgets
 * what they tell of steps after `step`. */
dsmoe_status events_open(const char *folder, int64_t step, events **e, dsmoe_error *error);
void events_close(events *e); /* NULL is allowed */
/* What was written so far has reached the disk. */
dsmoe_status events_sync(events *e, dsmoe_error *error);

/* What is put between begin and end is one Event of that step; end writes it to the file. */
void events_begin(events *e, int64_t step);
void events_scalar(events *e, const char *tag, double value);
void events_histogram(events *e, const char *tag, const double *values, size_t n);
dsmoe_status events_end(events *e, dsmoe_error *error);

uint32_t events_crc32c(const void *bytes, size_t size);

#endif
