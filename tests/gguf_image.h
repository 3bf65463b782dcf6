/* gguf_image.h - a GGUF file built byte by byte in memory, so that a test can break any of the format's
 * rules. */
#ifndef DSMOE_TESTS_GGUF_IMAGE_H
#define DSMOE_TESTS_GGUF_IMAGE_H

#include <stddef.h>
#include <stdint.h>

typedef struct gguf_image {
    unsigned char
        *bytes; /* to be freed; exactly `size` of them, so that a sanitizer sees the end */
    size_t size;
} gguf_image;

void put_bytes(gguf_image *image, const void *bytes, size_t size);
void put_u32(gguf_image *image, uint32_t value);
void put_u64(gguf_image *image, uint64_t value);
/* A length and that many bytes. */
void put_string(gguf_image *image, const char *text);
/* The magic number, version 3 and the counts. */
gguf_image begin_gguf(uint64_t n_tensors, uint64_t n_keys);
/* A key and the type of its value; the value must follow. */
void put_key(gguf_image *image, const char *name, uint32_t type);
void put_key_u32(gguf_image *image, const char *name, uint32_t value);
void put_key_u16(gguf_image *image, const char *name, uint16_t value);
void put_key_string(gguf_image *image, const char *name, const char *value);
/* A key whose value is an array: the elements must follow. */
void put_key_array(gguf_image *image, const char *name, uint32_t type, uint64_t count);
/* The description of a tensor. Its dimensions are in the file's order, the fastest first. */
void put_tensor(gguf_image *image, const char *name, uint32_t n_dims, const uint64_t *lengths,
                uint32_t type, uint64_t offset);
/* Zeros up to a multiple of the alignment. */
void put_padding(gguf_image *image, size_t alignment);
/* n bytes that count from `first`. */
void put_data(gguf_image *image, size_t n, unsigned char first);

/* A file with a key of every type and three tensors: "b" (F32, 2 x 3), "a" (Q8_0, 2 x 1 x 64) and "c"
 * (F16, 5). *data, unless `data` is NULL, is where the data begins. */
gguf_image example_gguf(size_t *data);

#endif
