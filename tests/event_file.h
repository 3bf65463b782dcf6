/* event_file.h - a decoder of TensorBoard's event files, down to the wire format of protocol buffers.
 * Malformed files fail the test. */
#ifndef DSMOE_TESTS_EVENT_FILE_H
#define DSMOE_TESTS_EVENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct span {
    const unsigned char *at;
    size_t size;
} span;

/* One field of a message: numbers in `bits`, bytes in `inner`. */
typedef struct field {
    int number, wire;
    uint64_t bits;
    span inner;
} field;

/* Each takes something off the front; take_field returns false at the end. */
bool take_field(span *message, field *f);
uint64_t take_little(span *s, size_t n);
/* The next Event of the file; checks both checksums. */
bool take_record(span *file, span *event);

double as_double(uint64_t bits);

/* Everything a test asks of an Event. */
typedef struct seen {
    int64_t step;
    double wall_time;
    char version[32];
    bool session_start;
    span summary;
} seen;
seen read_event(span event);

/* The value of a tag in a summary: its number, or its histogram in *histogram. */
bool find_tag(span summary, const char *tag, double *value, span *histogram);

#endif
