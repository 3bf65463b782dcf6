/* stream.h - prints a text to stdout while it is being generated: only whole UTF-8 characters, and nothing of
 * a stop text. What might be the beginning of one is held back. */
#ifndef DSMOE_CLI_STREAM_H
#define DSMOE_CLI_STREAM_H

#include <stdbool.h>
#include <stddef.h>

typedef struct stream {
    const char *const *stops;
    int n_stops;
    char *text; /* all of it, of which `shown` bytes are printed; free with stream_free */
    size_t length, shown, capacity;
    bool failed; /* out of memory, or stdout cannot be written */
} stream;

/* Appends bytes and prints what can be printed. False if the text has ended: a stop text came, or
 * `failed`. */
bool stream_put(stream *s, const char *bytes, size_t length);
/* Prints what was held back, except for the beginning of an incomplete character. The text is then exactly
 * what was printed. */
void stream_end(stream *s);
void stream_free(stream *s);

#endif
