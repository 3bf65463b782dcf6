/* events.c - a TensorBoard event file, written without TensorBoard's libraries. The numbers of fields are
 * those of event.proto and summary.proto. */
#include "report/events.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "report/append_file.h"

/* ---- growing bytes ------------------------------------------------------------------------- */

typedef struct byte_row {
    unsigned char *at;
    size_t size, capacity;
    bool failed; /* out of memory; row_clear() resets it */
} byte_row;

static void row_put(byte_row *row, const void *bytes, size_t size)
{
    size_t needed;
    if (!checked_add_size(row->size, size, &needed)) row->failed = true;
    if (row->failed) return;
    if (needed > row->capacity) {
        size_t capacity = 2 * needed + 64;
        unsigned char *grown = realloc(row->at, capacity);
        if (!grown) {
            row->failed = true;
            return;
        }
        row->at = grown;
        row->capacity = capacity;
    }
    if (size) memcpy(row->at + row->size, bytes, size);
    row->size = needed;
}

static void row_clear(byte_row *row)
{
    row->size = 0;
    row->failed = false;
}

static void row_put_little(byte_row *row, uint64_t bits, int n_bytes)
{
    unsigned char bytes[8];
    for (int i = 0; i < n_bytes; i++) bytes[i] = (unsigned char)(bits >> (8 * i));
    row_put(row, bytes, (size_t)n_bytes);
}

static void row_put_bits(byte_row *row, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    row_put_little(row, bits, 8);
}

/* ---- protocol buffers ---------------------------------------------------------------------- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put_varint(byte_row *row, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) bytes[n++] = (unsigned char)(value | 0x80);
    bytes[n++] = (unsigned char)value;
    row_put(row, bytes, n);
}

static void put_key(byte_row *row, int field, int wire)
{
    put_varint(row, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_integer(byte_row *row, int field, int64_t value)
{
    put_key(row, field, WIRE_VARINT);
    put_varint(row, (uint64_t)value);
}

static void put_double(byte_row *row, int field, double value)
{
    put_key(row, field, WIRE_64);
    row_put_bits(row, value);
}

static void put_float(byte_row *row, int field, double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    put_key(row, field, WIRE_32);
    row_put_little(row, bits, 4);
}

static void put_bytes(byte_row *row, int field, const void *bytes, size_t size)
{
    put_key(row, field, WIRE_BYTES);
    put_varint(row, size);
    row_put(row, bytes, size);
}

static void put_message(byte_row *row, int field, const byte_row *message)
{
    put_bytes(row, field, message->at, message->size);
    row->failed |= message->failed;
}

static void put_doubles(byte_row *row, int field, const double *values, size_t n)
{
    put_key(row, field, WIRE_BYTES);
    put_varint(row, n * sizeof(double));
    for (size_t i = 0; i < n; i++) row_put_bits(row, values[i]);
}

/* ---- records ------------------------------------------------------------------------------- */

struct events {
    append_file file;
    int64_t step;
    byte_row summary, value, inner, event, record;
};

uint32_t events_crc32c(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* The file has checksums rotated and with a constant added: a checksum of data that has checksums is weak. */
static uint32_t masked_crc(const void *bytes, size_t size)
{
    uint32_t crc = events_crc32c(bytes, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { EVENT_SESSION_LOG = 7, SESSION_LOG_STATUS = 1, SESSION_LOG_START = 1 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTOGRAM = 5 };
enum { HISTOGRAM_MIN = 1, HISTOGRAM_MAX = 2, HISTOGRAM_COUNT = 3, HISTOGRAM_SUM = 4 };
enum { HISTOGRAM_SUM_SQUARES = 5, HISTOGRAM_LIMITS = 6, HISTOGRAM_BUCKETS = 7 };

static void start_event(events *e, int64_t step)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    row_clear(&e->event);
    put_double(&e->event, EVENT_WALL_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_integer(&e->event, EVENT_STEP, step);
}

static dsmoe_status write_event(events *e, dsmoe_error *error)
{
    byte_row *record = &e->record;
    row_clear(record);
    row_put_little(record, e->event.size, 8);
    if (!record->failed) row_put_little(record, masked_crc(record->at, 8), 4);
    row_put(record, e->event.at, e->event.size);
    row_put_little(record, masked_crc(e->event.at, e->event.size), 4);
    if (record->failed || e->event.failed)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", e->file.path);
    return append_file_write(&e->file, record->at, record->size, error);
}

/* Writes the format of the file, then an event that makes the later steps of older files void. */
static dsmoe_status write_opening(events *e, int64_t step, dsmoe_error *error)
{
    static const char version[] = "brain.Event:2";
    start_event(e, 0);
    put_bytes(&e->event, EVENT_FILE_VERSION, version, sizeof version - 1);
    STATUS_TRY(write_event(e, error));
    row_clear(&e->inner);
    put_integer(&e->inner, SESSION_LOG_STATUS, SESSION_LOG_START);
    start_event(e, step > 0 ? step + 1 : 0);
    put_message(&e->event, EVENT_SESSION_LOG, &e->inner);
    return write_event(e, error);
}

/* Two runs that begin within a second need two names. */
static dsmoe_status open_new(events *e, const char *folder, dsmoe_error *error)
{
    long long now = (long long)time(NULL);
    dsmoe_status status = DSMOE_OK;
    for (int i = 0; i < 1000; i++) {
        char *path, suffix[16] = "";
        if (i > 0) snprintf(suffix, sizeof suffix, ".%d", i);
        if (asprintf(&path, "%s/events.out.tfevents.%lld.dsmoe%s", folder, now, suffix) < 0)
            path = NULL;
        status = append_file_open(&e->file, path, true, error);
        if (status != DSMOE_ERROR_IO || errno != EEXIST) return status;
        append_file_close(&e->file);
    }
    return status;
}

dsmoe_status events_open(const char *folder, int64_t step, events **out, dsmoe_error *error)
{
    *out = NULL;
    events *e = calloc(1, sizeof *e);
    if (!e) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    dsmoe_status status = open_new(e, folder, error);
    if (status == DSMOE_OK) status = write_opening(e, step, error);
    if (status != DSMOE_OK) {
        events_close(e);
        return status;
    }
    *out = e;
    return DSMOE_OK;
}

dsmoe_status events_sync(events *e, dsmoe_error *error)
{
    return append_file_sync(&e->file, error);
}

void events_close(events *e)
{
    if (!e) return;
    append_file_close(&e->file);
    byte_row *rows[] = {&e->summary, &e->value, &e->inner, &e->event, &e->record};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) free(rows[i]->at);
    free(e);
}

/* ---- values of a step ---------------------------------------------------------------------- */

void events_begin(events *e, int64_t step)
{
    e->step = step;
    row_clear(&e->summary);
}

void events_scalar(events *e, const char *tag, double value)
{
    row_clear(&e->value);
    put_bytes(&e->value, VALUE_TAG, tag, strlen(tag));
    put_float(&e->value, VALUE_SIMPLE, value);
    put_message(&e->summary, SUMMARY_VALUE, &e->value);
}

/* Puts buckets of equal width from the smallest to the largest value. */
static void put_buckets(byte_row *row, const double *values, size_t n, double low, double high)
{
    enum { N_BUCKETS = 30 };
    double limits[N_BUCKETS], counts[N_BUCKETS] = {0}, width = (high - low) / N_BUCKETS;
    int n_buckets = width > 0 ? N_BUCKETS : 1;
    for (int b = 0; b < n_buckets; b++) limits[b] = low + (b + 1) * width;
    limits[n_buckets - 1] = high;
    for (size_t i = 0; i < n; i++) {
        double place = width > 0 ? (values[i] - low) / width : 0;
        int b = place < n_buckets ? (int)place : n_buckets - 1;
        counts[b]++;
    }
    put_doubles(row, HISTOGRAM_LIMITS, limits, (size_t)n_buckets);
    put_doubles(row, HISTOGRAM_BUCKETS, counts, (size_t)n_buckets);
}

void events_histogram(events *e, const char *tag, const double *values, size_t n)
{
    double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) return; /* no bucket can have it */
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
        sum += values[i];
        squares += values[i] * values[i];
    }
    if (n == 0) return;
    row_clear(&e->inner);
    put_double(&e->inner, HISTOGRAM_MIN, low);
    put_double(&e->inner, HISTOGRAM_MAX, high);
    put_double(&e->inner, HISTOGRAM_COUNT, (double)n);
    put_double(&e->inner, HISTOGRAM_SUM, sum);
    put_double(&e->inner, HISTOGRAM_SUM_SQUARES, squares);
    put_buckets(&e->inner, values, n, low, high);
    row_clear(&e->value);
    put_bytes(&e->value, VALUE_TAG, tag, strlen(tag));
    put_message(&e->value, VALUE_HISTOGRAM, &e->inner);
    put_message(&e->summary, SUMMARY_VALUE, &e->value);
}

dsmoe_status events_end(events *e, dsmoe_error *error)
{
    start_event(e, e->step);
    put_message(&e->event, EVENT_SUMMARY, &e->summary);
    return write_event(e, error);
}
