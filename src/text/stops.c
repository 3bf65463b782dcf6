/* stops.c - finds where a text must end because of a stop text. */
#include <stdbool.h>
#include <string.h>

#include "dsmoe.h"

/* The index of the stop text that begins at `text`: a whole one, or (`whole` is false) one that is cut short
 * by the end of the text; -1: none. */
static int stop_at(const char *text, size_t length, const char *const *stops, int n_stops,
                   bool whole)
{
    for (int i = 0; i < n_stops; i++) {
        size_t size = strlen(stops[i]);
        if ((size <= length) == whole && !memcmp(text, stops[i], whole ? size : length)) return i;
    }
    return -1;
}

size_t dsmoe_stop_find(const char *text, size_t length, size_t from, const char *const *stops,
                       int n_stops, int *stopped)
{
    *stopped = -1;
    for (size_t at = from; at < length; at++)
        if ((*stopped = stop_at(text + at, length - at, stops, n_stops, true)) >= 0) return at;
    for (size_t at = from; at < length; at++)
        if (stop_at(text + at, length - at, stops, n_stops, false) >= 0) return at;
    return length;
}
