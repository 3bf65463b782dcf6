/* events.h - a TensorBoard event file: scalars and histograms by step.
 *
 * A record is the length of an Event (8 bytes, little-endian), the masked CRC-32C of the length, the Event in
 * protocol buffers' encoding, and the masked CRC-32C of the Event. */
#ifndef DSMOE_REPORT_EVENTS_H
#define DSMOE_REPORT_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct events events;

/* Makes a new file events.out.tfevents.TIME.dsmoe in the folder. TensorBoard then ignores what older files
 * there have for steps after `step`. */
dsmoe_status events_open(const char *folder, int64_t step, events **e, dsmoe_error *error);
void events_close(events *e); /* NULL is allowed */
/* Returns when what was written so far has reached the disk. */
dsmoe_status events_sync(events *e, dsmoe_error *error);

/* The values between events_begin and events_end are one Event of that step, which events_end writes. */
void events_begin(events *e, int64_t step);
void events_scalar(events *e, const char *tag, double value);
void events_histogram(events *e, const char *tag, const double *values, size_t n);
dsmoe_status events_end(events *e, dsmoe_error *error);

uint32_t events_crc32c(const void *bytes, size_t size);

#endif
