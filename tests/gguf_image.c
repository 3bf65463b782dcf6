/* gguf_image.c - a GGUF file built byte by byte in memory. */
#include "gguf_image.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

void put_bytes(gguf_image *image, const void *bytes, size_t size)
{
    if (size == 0) return;
    image->bytes = realloc(image->bytes, image->size + size);
    assert_non_null(image->bytes);
    memcpy(image->bytes + image->size, bytes, size);
    image->size += size;
}

void put_u32(gguf_image *image, uint32_t value) { put_bytes(image, &value, sizeof value); }
void put_u64(gguf_image *image, uint64_t value) { put_bytes(image, &value, sizeof value); }

void put_string(gguf_image *image, const char *text)
{
    put_u64(image, strlen(text));
    put_bytes(image, text, strlen(text));
}

gguf_image begin_gguf(uint64_t n_tensors, uint64_t n_keys)
{
    gguf_image image = {0};
    put_bytes(&image, "GGUF", 4);
    put_u32(&image, 3);
    put_u64(&image, n_tensors);
    put_u64(&image, n_keys);
    return image;
}

void put_key(gguf_image *image, const char *name, uint32_t type)
{
    put_string(image, name);
    put_u32(image, type);
}

void put_key_u32(gguf_image *image, const char *name, uint32_t value)
{
    put_key(image, name, 4);
    put_u32(image, value);
}

void put_key_u16(gguf_image *image, const char *name, uint16_t value)
{
    put_key(image, name, 2);
    put_bytes(image, &value, sizeof value);
}

void put_key_string(gguf_image *image, const char *name, const char *value)
{
    put_key(image, name, 8);
    put_string(image, value);
}

void put_key_array(gguf_image *image, const char *name, uint32_t type, uint64_t count)
{
    put_key(image, name, 9);
    put_u32(image, type);
    put_u64(image, count);
}

void put_tensor(gguf_image *image, const char *name, uint32_t n_dims, const uint64_t *lengths,
                uint32_t type, uint64_t offset)
{
    put_string(image, name);
    put_u32(image, n_dims);
    put_bytes(image, lengths, n_dims * sizeof *lengths);
    put_u32(image, type);
    put_u64(image, offset);
}

void put_padding(gguf_image *image, size_t alignment)
{
    while (image->size % alignment) put_bytes(image, "", 1);
}

void put_data(gguf_image *image, size_t n, unsigned char first)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)(first + i);
        put_bytes(image, &byte, 1);
    }
}

gguf_image example_gguf(size_t *data)
{
    static const struct {
        const char *name;
        uint32_t type;
        size_t size;
        unsigned char value[8];
    } numbers[] = {
        {"u8", 0, 1, {200}},
        {"i8", 1, 1, {0xfe}},
        {"u16", 2, 2, {1, 0xff}},
        {"i16", 3, 2, {0xfd, 0xff}},
        {"u32", 4, 4, {0, 0, 0, 0x80}},
        {"i32", 5, 4, {0, 0, 0, 0x80}},
        {"f32", 6, 4, {0, 0, 0xc0, 0x3f}},
        {"bool", 7, 1, {1}},
        {"u64", 10, 8, {0, 0, 0, 0, 0, 0, 0, 0x40}},
        {"too large", 10, 8, {0, 0, 0, 0, 0, 0, 0, 0x80}},
        {"i64", 11, 8, {0, 0, 0, 0, 0, 0, 0, 0x80}},
        {"f64", 12, 8, {0, 0, 0, 0, 0, 0, 0xf8, 0xbf}},
    };
    static const int32_t integers[] = {1, -2, 3};
    enum { N_NUMBERS = sizeof numbers / sizeof *numbers };
    gguf_image image = begin_gguf(3, N_NUMBERS + 5);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        put_key(&image, numbers[i].name, numbers[i].type);
        put_bytes(&image, numbers[i].value, numbers[i].size);
    }
    put_key_string(&image, "general.architecture", "deepseek");
    put_key_array(&image, "i32s", 5, 3);
    put_bytes(&image, integers, sizeof integers);
    put_key_array(&image, "strings", 8, 3);
    put_string(&image, "one");
    put_string(&image, "");
    put_string(&image, "drei \xff");
    put_key_array(&image, "nothing", 8, 0);
    put_key_array(&image, "bools", 7, 2);
    put_bytes(&image, "\0\1", 2);
    put_tensor(&image, "b", 2, (uint64_t[]){3, 2}, 0, 0);
    put_tensor(&image, "a", 3, (uint64_t[]){64, 1, 2}, 8, 32);
    put_tensor(&image, "c", 1, (uint64_t[]){5}, 1, 192);
    put_padding(&image, 32);
    if (data) *data = image.size;
    put_data(&image, 24, 0);
    put_padding(&image, 32);
    put_data(&image, 136, 24);
    put_padding(&image, 32);
    put_data(&image, 10, 160);
    return image;
}
