/* lines.c - the lines of metrics.jsonl one by one, as JSON. */
#include "report/lines.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/regular_file.h"

/* A line of a run with thousands of experts in each of a hundred layers has a few megabytes. */
static const size_t max_line = (size_t)16 << 20;

dsmoe_status line_reader_open(line_reader *reader, const char *path, dsmoe_error *error)
{
    *reader = (line_reader){0};
    regular_file file;
    STATUS_TRY(regular_file_open(&file, path, error));
    *reader = line_reader_of(fdopen(file.descriptor, "r"), file.size);
    if (reader->file) return DSMOE_OK;
    close(file.descriptor);
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

line_reader line_reader_of(FILE *file, size_t size)
{
    return (line_reader){.file = file, .left = size};
}

static void read_object(line_reader *reader)
{
    json_node_free(reader->object);
    reader->object = NULL;
    if (reader->length > max_line) return;
    json_node *node;
    if (json_node_parse(reader->text, reader->length, "", &node, NULL) != DSMOE_OK) return;
    if (json_node_kind(node) == JSON_KIND_OBJECT)
        reader->object = node;
    else
        json_node_free(node);
}

/* Puts a character into the text, unless the line is far too long. False if out of memory. */
static bool put(line_reader *reader, size_t at, char c)
{
    if (at > max_line) return true;
    if (at >= reader->capacity) {
        size_t capacity = reader->capacity ? 2 * reader->capacity : 4096;
        char *text = realloc(reader->text, capacity);
        if (!text) return false;
        reader->text = text;
        reader->capacity = capacity;
    }
    reader->text[at] = c;
    return true;
}

/* Reads up to the end of a line. If the file ends too early, it has become shorter since it was opened. */
static dsmoe_status read_line(line_reader *reader)
{
    reader->length = 0;
    reader->whole = false;
    while (reader->left > 0 && !reader->whole) {
        int c = getc_unlocked(reader->file);
        if (c == EOF) return DSMOE_ERROR_IO;
        if (!put(reader, reader->length, (char)c)) return DSMOE_ERROR_MEMORY;
        reader->left--;
        reader->whole = c == '\n';
        reader->length += !reader->whole;
    }
    return DSMOE_OK;
}

bool line_reader_next(line_reader *reader)
{
    while (reader->left > 0 && reader->status == DSMOE_OK) {
        reader->status = read_line(reader);
        if (reader->status != DSMOE_OK) return false;
        reader->number++;
        if (reader->length == 0) continue;
        read_object(reader);
        return true;
    }
    return false;
}

dsmoe_status line_reader_check(const line_reader *reader, const char *path, dsmoe_error *error)
{
    if (reader->status == DSMOE_OK) return DSMOE_OK;
    return status_fail(error, reader->status, "%s: %s", path,
                       reader->status == DSMOE_ERROR_MEMORY
                           ? "out of memory"
                           : "the file became shorter or could not be read");
}

json_node *line_reader_take(line_reader *reader)
{
    json_node *object = reader->object;
    reader->object = NULL;
    return object;
}

void line_reader_close(line_reader *reader)
{
    json_node_free(reader->object);
    free(reader->text);
    if (reader->file) fclose(reader->file);
    *reader = (line_reader){0};
}

static const json_node *member(const json_node *object, const char *key)
{
    return object ? json_node_member(object, key) : NULL;
}

static const json_node *of_kind(const json_node *node, json_kind kind)
{
    return node && json_node_kind(node) == kind ? node : NULL;
}

static double number_of(const json_node *node)
{
    if (!of_kind(node, JSON_KIND_INTEGER) && !of_kind(node, JSON_KIND_REAL)) return NAN;
    double number = json_node_number(node);
    return fabs(number) <= 1e30 ? number : NAN;
}

double line_number(const json_node *object, const char *key)
{
    return number_of(member(object, key));
}

const char *line_text(const json_node *object, const char *key)
{
    const json_node *node = of_kind(member(object, key), JSON_KIND_STRING);
    return node ? json_node_string(node, NULL) : NULL;
}

bool line_flag(const json_node *object, const char *key)
{
    const json_node *node = of_kind(member(object, key), JSON_KIND_BOOL);
    return node && json_node_bool(node);
}

const json_node *line_array(const json_node *object, const char *key)
{
    return of_kind(member(object, key), JSON_KIND_ARRAY);
}

const json_node *line_object(const json_node *object, const char *key)
{
    return of_kind(member(object, key), JSON_KIND_OBJECT);
}

static const json_node *item_of(const json_node *array, size_t index)
{
    return index < line_count(array) ? json_node_item(array, index) : NULL;
}

double line_item(const json_node *array, size_t index) { return number_of(item_of(array, index)); }

const json_node *line_item_array(const json_node *array, size_t index)
{
    return of_kind(item_of(array, index), JSON_KIND_ARRAY);
}

size_t line_count(const json_node *array) { return array ? json_node_count(array) : 0; }
