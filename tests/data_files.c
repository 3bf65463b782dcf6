/* data_files.c - a folder tree of files to learn from, made, opened and removed by a test. */
#include "data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/token_shard.h"
#include "scratch.h"

/* Removes a file, or a folder with its contents. */
static void remove_tree(const char *name)
{
    struct stat info;
    if (lstat(name, &info) != 0) return;
    DIR *folder = S_ISDIR(info.st_mode) ? opendir(name) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char inner[4096];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(inner, sizeof inner, "%.3800s/%s", name, entry->d_name);
        remove_tree(inner);
    }
    if (folder) closedir(folder);
    remove(name);
}

int empty_directory(void **state) { return make_directory(state); }

int clear_directory(void **state)
{
    (void)state;
    remove_tree(directory);
    return exists(".") ? -1 : 0;
}

const char *in_directory(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *made = paths[next++ % 8];
    snprintf(made, sizeof paths[0], "%s/%s", directory, name);
    return made;
}

void make_folder(const char *name) { assert_int_equal(mkdir(in_directory(name), 0700), 0); }

void write_data(const char *name, const void *bytes, size_t size)
{
    write_to(in_directory(name), bytes, size);
}

void write_text(const char *name, const char *text) { write_data(name, text, strlen(text)); }

void write_shard(const char *name, int32_t magic, int32_t version, int32_t count,
                 const uint32_t *tokens, size_t n, int token_size)
{
    size_t size = 1024 + n * (size_t)token_size;
    unsigned char *bytes = calloc(1, size);
    assert_non_null(bytes);
    int32_t fields[3] = {magic, version, count};
    memcpy(bytes, fields, sizeof fields);
    for (size_t i = 0; i < n; i++) /* the number is little-endian: its low bytes come first */
        memcpy(bytes + 1024 + i * (size_t)token_size, &tokens[i], (size_t)token_size);
    write_data(name, bytes, size);
    free(bytes);
}

unsigned char *read_data(const char *name, size_t *size)
{
    FILE *file = fopen(in_directory(name), "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

bool exists(const char *name)
{
    struct stat info;
    return lstat(in_directory(name), &info) == 0;
}

/* ---- data sets ------------------------------------------------------------------------------ */

static dsmoe_tokenizer *small;

const dsmoe_tokenizer *small_tokenizer(void)
{
    dsmoe_error error = {0};
    if (!small && dsmoe_tokenizer_open(TEST_DATA "/text_cli", &small, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    return small;
}

void small_tokenizer_free(void)
{
    dsmoe_tokenizer_free(small);
    small = NULL;
}

int small_tokenizer_teardown(void **state)
{
    (void)state;
    small_tokenizer_free();
    return 0;
}

dsmoe_dataset_options options_for(const char *name)
{
    static const char *given[1];
    static char named[1024];
    snprintf(named, sizeof named, "%s", in_directory(name));
    given[0] = named;
    return (dsmoe_dataset_options){.paths = given,
                                   .n_paths = 1,
                                   .tokenizer = small_tokenizer(),
                                   .cache = directory,
                                   .vocab_size = SMALL_VOCAB,
                                   .sequence_length = 4,
                                   .n_threads = 1};
}

dsmoe_dataset *open_data(const dsmoe_dataset_options *options)
{
    dsmoe_dataset *data;
    dsmoe_error error = {0};
    if (dsmoe_dataset_open(options, NULL, NULL, &data, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    return data;
}

dsmoe_dataset *open_name(const char *name)
{
    dsmoe_dataset_options options = options_for(name);
    return open_data(&options);
}

void assert_data_refused(const dsmoe_dataset_options *options, dsmoe_status status,
                         const char *says, const char *and_says)
{
    dsmoe_dataset *data = (dsmoe_dataset *)directory; /* any pointer but NULL */
    dsmoe_error error = {0};
    dsmoe_status found = dsmoe_dataset_open(options, NULL, NULL, &data, &error);
    if (found != status) fail_msg("status %d: %s", found, error.message);
    if (!strstr(error.message, says) || !strstr(error.message, and_says))
        fail_msg("'%s' does not say '%s' and '%s'", error.message, says, and_says);
    assert_null(data);
    assert_int_equal(dsmoe_dataset_open(options, NULL, NULL, &data, NULL), status);
    assert_false(exists("data.cache.partial"));
}

void assert_cached(const char *expected)
{
    char found[4096] = "";
    size_t size;
    unsigned char *bytes = read_data("data.cache", &size);
    token_shard shard;
    assert_int_equal(token_shard_parse_head(bytes, size, "", &shard, NULL), DSMOE_OK);
    for (size_t i = 0; i < shard.n_tokens; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%u", i ? " " : "",
                 token_shard_token(&shard, i));
    assert_string_equal(found, expected);
    free(bytes);
}
