/* stream.c - prints a text while it is being generated. */
#include "cli/stream.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static bool append(stream *s, const char *bytes, size_t length)
{
    if (length > s->capacity - s->length) {
        size_t capacity = s->capacity + length + s->capacity / 2 + 256;
        char *larger = realloc(s->text, capacity);
        if (!larger) return false;
        s->text = larger;
        s->capacity = capacity;
    }
    if (length > 0) memcpy(s->text + s->length, bytes, length);
    s->length += length;
    return true;
}

/* Whether a stop text begins at `at`: a whole one, or one that the text's end cuts short. */
static bool stop_begins(const stream *s, size_t at, bool whole)
{
    size_t left = s->length - at;
    for (int i = 0; i < s->n_stops; i++) {
        size_t length = strlen(s->stops[i]);
        if ((length <= left) != whole) continue;
        if (!memcmp(s->text + at, s->stops[i], whole ? length : left)) return true;
    }
    return false;
}

/* Where the first such stop text begins in what has not been shown; the text's length if nowhere. */
static size_t find_stop(const stream *s, bool whole)
{
    size_t at = s->shown;
    while (at < s->length && !stop_begins(s, at, whole)) at++;
    return at;
}

static void show(stream *s, size_t end)
{
    if (end == s->shown) return;
    end = s->shown + dsmoe_utf8_complete(s->text + s->shown, end - s->shown);
    size_t n = end - s->shown;
    if (!cli_print_text(s->text + s->shown, n) || !cli_flush()) s->failed = true;
    s->shown = end;
}

bool stream_put(stream *s, const char *bytes, size_t length)
{
    if (!append(s, bytes, length)) {
        s->failed = true;
        return false;
    }
    size_t end = find_stop(s, true);
    bool stopped = end < s->length;
    if (stopped) s->length = end;
    show(s, stopped ? end : find_stop(s, false));
    return !stopped && !s->failed;
}

void stream_end(stream *s)
{
    show(s, s->length);
    s->length = s->shown;
}

void stream_free(stream *s)
{
    free(s->text);
    s->text = NULL;
    s->length = s->shown = s->capacity = 0;
}
