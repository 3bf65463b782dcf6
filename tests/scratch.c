/* scratch.c - a folder and a file in it for each test program. */
#include "scratch.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char directory[256], path[300];

int make_directory(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.200s/dsmoe-test-XXXXXX",
             base && *base ? base : "/tmp");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/test.safetensors", directory);
    return 0;
}

int remove_directory(void **state)
{
    (void)state;
    remove(path);
    return rmdir(directory);
}

void write_to(const char *file, const void *bytes, size_t size)
{
    FILE *stream = fopen(file, "wb");
    if (!stream) fail_msg("%s: cannot be created", file);
    assert_int_equal(fwrite(bytes, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
}

void write_bytes(const void *bytes, size_t size) { write_to(path, bytes, size); }
