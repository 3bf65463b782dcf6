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
    int stopped;
    size_t end = dsmoe_stop_find(s->text, s->length, s->shown, s->stops, s->n_stops, &stopped);
    if (stopped >= 0) s->length = end;
    show(s, end);
    return stopped < 0 && !s->failed;
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
