/* tokenizer_files.c - the two texts of a tokenizer: files of a folder, one file alone, or made from
 * the metadata of a GGUF file. */
#include "text/tokenizer_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/gguf_magic.h"
#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "text/template_file.h"

static const char json_name[] = "tokenizer.json", config_name[] = "tokenizer_config.json";

enum {
    TOKENIZER_MAX_SIZE =
        128 << 20,             /* bytes of a tokenizer.json; the largest public one has 33 MB */
    CONFIG_MAX_SIZE = 8 << 20, /* of a tokenizer_config.json, which may list all added tokens */
};

static dsmoe_status out_of_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

static dsmoe_status read_text(const char *path, size_t max_size, whole_file *file,
                              tokenizer_text *text, dsmoe_error *error)
{
    STATUS_TRY(whole_file_read(file, path, max_size, error));
    *text = (tokenizer_text){file->bytes, file->size, path};
    return DSMOE_OK;
}

static dsmoe_status open_gguf(tokenizer_files *files, const char *path, dsmoe_error *error)
{
    gguf *file;
    STATUS_TRY(gguf_open(path, &file, error));
    dsmoe_status status = gguf_tokenizer_text_make(file, &files->made, error);
    if (status == DSMOE_OK) status = gguf_check_intact(file, error);
    gguf_close(file);
    STATUS_TRY(status);
    if (asprintf(&files->names[0], "%s: tokenizer", path) < 0) {
        files->names[0] = NULL;
        return out_of_memory(path, error);
    }
    const gguf_tokenizer_text *made = &files->made;
    files->text = (tokenizer_text){made->json, made->json_length, files->names[0]};
    files->config = (tokenizer_text){made->config, made->config_length, files->names[0]};
    return DSMOE_OK;
}

/* Moonlight's folders have a tokenizer of another kind. */
static dsmoe_status check_other_kind(const char *path, dsmoe_error *error)
{
    struct stat info;
    char *name = mapped_file_path(path, "tiktoken.model");
    if (!name) return out_of_memory(path, error);
    bool is_there = stat(name, &info) == 0;
    free(name);
    if (!is_there) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO,
                       "%s: the tokenizer is a tiktoken.model, which is not supported: the folder"
                       " needs a tokenizer.json, or use a .gguf file of the model",
                       path);
}

static dsmoe_status read_config(tokenizer_files *files, const char *folder, dsmoe_error *error)
{
    struct stat info;
    STATUS_TRY(
        read_text(files->names[1], CONFIG_MAX_SIZE, &files->config_file, &files->config, error));
    char *path = mapped_file_path(folder, TEMPLATE_FILE_NAME);
    if (!path) return out_of_memory(folder, error);
    size_t length;
    dsmoe_status status = DSMOE_OK;
    if (stat(path, &info) == 0)
        status = template_file_put(path, &files->config, &files->with_template, &length, error);
    free(path);
    if (files->with_template)
        files->config = (tokenizer_text){files->with_template, length, files->names[1]};
    return status;
}

static dsmoe_status open_folder(tokenizer_files *files, const char *path, dsmoe_error *error)
{
    struct stat info;
    files->names[0] = mapped_file_path(path, json_name);
    files->names[1] = mapped_file_path(path, config_name);
    if (!files->names[0] || !files->names[1]) return out_of_memory(path, error);
    if (stat(files->names[0], &info) != 0) STATUS_TRY(check_other_kind(path, error));
    STATUS_TRY(read_text(files->names[0], TOKENIZER_MAX_SIZE, &files->file, &files->text, error));
    if (stat(files->names[1], &info) != 0) return DSMOE_OK;
    return read_config(files, path, error);
}

dsmoe_status tokenizer_files_open(tokenizer_files *files, const char *path, dsmoe_error *error)
{
    *files = (tokenizer_files){0};
    struct stat info;
    if (stat(path, &info) != 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    dsmoe_status status;
    if (S_ISDIR(info.st_mode))
        status = open_folder(files, path, error);
    else if (gguf_magic_at(path))
        status = open_gguf(files, path, error);
    else
        status = read_text(path, TOKENIZER_MAX_SIZE, &files->file, &files->text, error);
    if (status != DSMOE_OK) tokenizer_files_close(files);
    return status;
}

void tokenizer_files_close(tokenizer_files *files)
{
    whole_file_free(&files->file);
    whole_file_free(&files->config_file);
    free(files->with_template);
    gguf_tokenizer_text_free(&files->made);
    free(files->names[0]);
    free(files->names[1]);
    *files = (tokenizer_files){0};
}

static void put_text(FILE *text, const void *context)
{
    const tokenizer_text *from = context;
    fwrite(from->bytes, 1, from->length, text);
}

/* tokenizer.json is written last: a folder that has it has the whole tokenizer. */
dsmoe_status tokenizer_files_write(const tokenizer_files *files, const char *folder,
                                   dsmoe_error *error)
{
    if (files->config.bytes)
        STATUS_TRY(partial_file_write_text(folder, config_name, put_text, &files->config, error));
    return partial_file_write_text(folder, json_name, put_text, &files->text, error);
}
