/* made_keys.c - metadata of a made GGUF file. */
#include "made_keys.h"

#include <stdio.h>
#include <string.h>

#include "support.h"

static bool is_given(const made_keys *k, const char *key)
{
    for (int i = 0; i < k->n_given; i++)
        if (!strcmp(k->given[i].key, key)) return true;
    return false;
}

void made_keys_int(const made_keys *k, const char *key, int64_t value)
{
    if (!is_given(k, key)) gguf_writer_u32(k->writer, key, (uint32_t)value);
}

void made_keys_number(const made_keys *k, const char *key, double value)
{
    if (!is_given(k, key)) gguf_writer_f32(k->writer, key, (float)value);
}

void made_keys_flag(const made_keys *k, const char *key, bool value)
{
    if (!is_given(k, key)) gguf_writer_bool(k->writer, key, value);
}

void made_keys_text(const made_keys *k, const char *key, const char *value)
{
    if (!is_given(k, key)) gguf_writer_string(k->writer, key, value, strlen(value));
}

void made_keys_given(const made_keys *k)
{
    for (int i = 0; i < k->n_given; i++) {
        const made_key *given = &k->given[i];
        switch (given->kind) {
        case MADE_ABSENT: break;
        case MADE_U32: gguf_writer_u32(k->writer, given->key, (uint32_t)given->number); break;
        case MADE_I32: /* made_keys_sign changes its type later */
            gguf_writer_u32(k->writer, given->key, (uint32_t)(int32_t)given->number);
            break;
        case MADE_F32: gguf_writer_f32(k->writer, given->key, (float)given->number); break;
        case MADE_BOOL: gguf_writer_bool(k->writer, given->key, given->number != 0); break;
        case MADE_STRING:
            gguf_writer_string(k->writer, given->key, given->text, strlen(given->text));
            break;
        }
    }
}

/* The writer has no signed integers, so this changes the type after the key in the file. */
static void make_signed(const char *to, const char *key)
{
    FILE *file = fopen(to, "r+b");
    assert_non_null(file);
    char bytes[65536];
    char counted[80] = {0}; /* the key with its length before it */
    size_t size = fread(bytes, 1, sizeof bytes, file), length = 8 + strlen(key);
    counted[0] = (char)strlen(key);
    memcpy(counted + 8, key, strlen(key));
    char *at = memmem(bytes, size, counted, length);
    assert_non_null(at);
    assert_int_equal(at[length], GGUF_U32);
    assert_int_equal(fseek(file, at + length - bytes, SEEK_SET), 0);
    fputc(GGUF_I32, file);
    assert_int_equal(fclose(file), 0);
}

void made_keys_sign(const made_keys *k, const char *path)
{
    for (int i = 0; i < k->n_given; i++)
        if (k->given[i].kind == MADE_I32) make_signed(path, k->given[i].key);
}
