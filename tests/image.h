/* image.h - a safetensors file in memory, which a test changes in one place and writes elsewhere. */
#ifndef DSMOE_TESTS_IMAGE_H
#define DSMOE_TESTS_IMAGE_H

#include <stddef.h>

typedef struct file_image {
    char *bytes; /* to be freed */
    size_t size;
    char source[512];
} file_image;

file_image image_load(const char *source);
/* Replaces a text in the header by one of the same length. */
void image_replace(file_image *image, const char *from, const char *to);
/* Where the data of a tensor begins in the image. */
char *image_tensor(const file_image *image, const char *name);
/* Adds to an element of a float32 tensor. */
void image_add(const file_image *image, const char *name, size_t element, float change);

#endif
