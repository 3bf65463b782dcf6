/* folder_writer.h - a model folder in the public layout, written front to back without holding it
 * in memory: safetensors of a bounded size, their index, generation_config.json, config.json.
 *
 * All tensors are declared first, which lays them out over files; then their bytes follow in that
 * order in pieces of any size. config.json comes last: a folder that has it has all of the
 * model. */
#ifndef DSMOE_MODEL_FOLDER_WRITER_H
#define DSMOE_MODEL_FOLDER_WRITER_H

#include <stddef.h>

#include "base/status.h"

/* Most bytes of tensors in one file of the released model. */
#define FOLDER_WRITER_SHARD_SIZE ((size_t)5000000000)

/* The name of a file of weights, counted from 1. */
enum { FOLDER_WRITER_NAME = 48 }; /* bytes */
#define FOLDER_WRITER_INDEX "model.safetensors.index.json"
void folder_writer_file_name(int file, int n_files, char name[FOLDER_WRITER_NAME]);

typedef struct folder_writer folder_writer;

/* Makes the folder, or sees that the one that is there has no model in it. A tensor larger than
 * shard_size has a file of its own. */
dsmoe_status folder_writer_create(const char *folder, size_t shard_size, folder_writer **writer,
                                  dsmoe_error *error);
/* Before the first byte of data: a matrix or a vector of a float type. Sizes of all tensors
 * together must fit. */
dsmoe_status folder_writer_declare(folder_writer *writer, const char *name, dsmoe_dtype dtype,
                                   int n_dims, const int64_t *shape, dsmoe_error *error);
/* A file (at most four, their names kept by the caller) that the caller puts into the folder beside
 * the weights: gone as well if the work is given up. */
void folder_writer_own(folder_writer *writer, const char *name);
/* Files that the declared tensors are laid out over. */
int folder_writer_file_count(const folder_writer *writer);
/* Bytes of all declared tensors: for progress bars. */
size_t folder_writer_data_size(const folder_writer *writer);

/* The next bytes of data, in the order of declaration, across tensors and files. */
dsmoe_status folder_writer_write(folder_writer *writer, const void *bytes, size_t size,
                                 dsmoe_error *error);
/* What is said of the weights beside them. */
typedef struct folder_writer_words {
    const dsmoe_config *config;
    dsmoe_dtype dtype;      /* that config.json names as the weights' type */
    const char *generation; /* the text of generation_config.json; NULL: made from `config` */
    size_t generation_length;
} folder_writer_words;
/* Completes the folder when every declared byte has been written. Frees; after a failure what was
 * written is removed. */
dsmoe_status folder_writer_finish(folder_writer *writer, const folder_writer_words *words,
                                  dsmoe_error *error);
/* Gives up: removes what was written, and the folder if it was made here and is empty now. Frees.
 * NULL is allowed. */
void folder_writer_abandon(folder_writer *writer);

#endif
