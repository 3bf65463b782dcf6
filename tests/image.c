/* image.c - a safetensors file in memory, which tests change in one place. */
#include "image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"

file_image image_load(const char *source)
{
    file_image image = {0};
    snprintf(image.source, sizeof image.source, "%s", source);
    FILE *file = fopen(image.source, "rb");
    if (!file) fail_msg("no %s", source);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    image.size = (size_t)ftell(file);
    rewind(file);
    image.bytes = malloc(image.size);
    assert_non_null(image.bytes);
    assert_int_equal(fread(image.bytes, 1, image.size, file), image.size);
    fclose(file);
    return image;
}

void image_replace(file_image *image, const char *from, const char *to)
{
    assert_int_equal(strlen(from), strlen(to));
    char *found = memmem(image->bytes, image->size, from, strlen(from));
    if (!found) fail_msg("no %s in %s", from, image->source);
    memcpy(found, to, strlen(to));
}

char *image_tensor(const file_image *image, const char *name)
{
    safetensors *file;
    assert_int_equal(safetensors_open(image->source, &file, NULL), DSMOE_OK);
    size_t data_size = 0;
    const unsigned char *data = safetensors_at(file, 0)->data;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor *tensor = safetensors_at(file, i);
        data_size += tensor->size;
        if (tensor->data < data) data = tensor->data;
    }
    const safetensors_tensor *tensor = safetensors_find(file, name);
    if (!tensor) fail_msg("no tensor %s in %s", name, image->source);
    char *place = image->bytes + image->size - data_size + (tensor->data - data);
    safetensors_close(file);
    return place;
}

void image_add(const file_image *image, const char *name, size_t element, float change)
{
    float value;
    char *place = image_tensor(image, name) + element * sizeof value;
    memcpy(&value, place, sizeof value);
    value += change;
    memcpy(place, &value, sizeof value);
}
