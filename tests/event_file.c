/* event_file.c - a decoder of TensorBoard's event files that shares only the checksum with the writer; the
 * checksum has tests of its own. */
#include "event_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

#include "report/events.h"

uint64_t take_little(span *s, size_t n)
{
    uint64_t value = 0;
    assert_true(s->size >= n);
    for (size_t i = 0; i < n; i++) value |= (uint64_t)s->at[i] << (8 * i);
    s->at += n;
    s->size -= n;
    return value;
}

static uint64_t take_varint(span *s)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint64_t byte = take_little(s, 1);
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    fail_msg("a varint without end");
    return 0;
}

bool take_field(span *message, field *f)
{
    if (message->size == 0) return false;
    uint64_t key = take_varint(message);
    *f = (field){.number = (int)(key >> 3), .wire = (int)(key & 7)};
    if (f->wire == 0)
        f->bits = take_varint(message);
    else if (f->wire == 1)
        f->bits = take_little(message, 8);
    else if (f->wire == 5)
        f->bits = take_little(message, 4);
    else {
        assert_int_equal(f->wire, 2);
        size_t size = take_varint(message);
        assert_true(size <= message->size);
        f->inner = (span){message->at, size};
        message->at += size;
        message->size -= size;
    }
    return true;
}

double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double as_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return (double)value;
}

static void check_crc(const unsigned char *bytes, size_t size, uint64_t masked)
{
    uint32_t turned = (uint32_t)masked - 0xa282ead8u;
    assert_int_equal(turned >> 17 | turned << 15, events_crc32c(bytes, size));
}

bool take_record(span *file, span *event)
{
    if (file->size == 0) return false;
    const unsigned char *start = file->at;
    size_t size = take_little(file, 8);
    check_crc(start, 8, take_little(file, 4));
    assert_true(size + 4 <= file->size);
    *event = (span){file->at, size};
    file->at += size;
    file->size -= size;
    check_crc(event->at, size, take_little(file, 4));
    return true;
}

seen read_event(span event)
{
    seen s = {0};
    for (field f; take_field(&event, &f);) {
        if (f.number == 1) s.wall_time = as_double(f.bits);
        if (f.number == 2) s.step = (int64_t)f.bits;
        if (f.number == 3) memcpy(s.version, f.inner.at, f.inner.size);
        if (f.number == 5) s.summary = f.inner;
        if (f.number == 7) {
            field status;
            s.session_start = take_field(&f.inner, &status) && status.number == 1 &&
                              status.wire == 0 && status.bits == 1;
        }
    }
    return s;
}

bool find_tag(span summary, const char *tag, double *value, span *histogram)
{
    for (field entry; take_field(&summary, &entry);) {
        bool found = false;
        assert_int_equal(entry.number, 1);
        for (field f; take_field(&entry.inner, &f);) {
            if (f.number == 1)
                found = f.inner.size == strlen(tag) && !memcmp(f.inner.at, tag, f.inner.size);
            if (found && f.number == 2) {
                assert_int_equal(f.wire, 5);
                *value = as_float(f.bits);
            }
            if (found && f.number == 5) *histogram = f.inner;
        }
        if (found) return true;
    }
    return false;
}
