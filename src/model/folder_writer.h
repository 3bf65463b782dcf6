/* folder_writer.h - a model folder in the public layout, written front to back without holding it
 * in memory: safetensors of a bounded size, their index, generation_config.json, config.json.
 *
 * All tensors are declared first, which lays them out over files; then their bytes follow in that
 * order in pieces of any size. config.json is written last: a folder that has it has the whole model. */
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

/* Creates the folder, or checks that an existing one has no model in it. A tensor larger than
 * shard_size gets its own file. */
dsmoe_status folder_writer_create(const char *folder, size_t shard_size, folder_writer **writer,
                                  dsmoe_error *error);
/* Call before the first byte of data, for a matrix or a vector of a float type. The sizes of all
 * tensors together must fit size_t. */
dsmoe_status folder_writer_declare(folder_writer *writer, const char *name, dsmoe_dtype dtype,
                                   int n_dims, const int64_t *shape, dsmoe_error *error);
/* Names a file that the caller writes to the folder (at most four; the caller keeps the name). It is
 * removed as well if the work is given up. */
void folder_writer_own(folder_writer *writer, const char *name);
/* The number of files that the declared tensors are laid out over. */
int folder_writer_file_count(const folder_writer *writer);
/* Bytes of all declared tensors: for progress bars. */
size_t folder_writer_data_size(const folder_writer *writer);

/* Writes the next bytes of data, in the order of declaration. One call may span tensors and files. */
dsmoe_status folder_writer_write(folder_writer *writer, const void *bytes, size_t size,
                                 dsmoe_error *error);
/* The contents of the JSON files. */
typedef struct folder_writer_words {
    const dsmoe_config *config;
    dsmoe_dtype dtype;      /* that config.json names as the weights' type */
    const char *generation; /* the text of generation_config.json; NULL: made from `config` */
    size_t generation_length;
} folder_writer_words;
/* Completes the folder: every declared byte must have been written. Frees. After a failure, removes
 * what was written. */
dsmoe_status folder_writer_finish(folder_writer *writer, const folder_writer_words *words,
                                  dsmoe_error *error);
/* Gives up: removes what was written, and the folder if it was created here and is empty now. Frees.
 * NULL is allowed. */
void folder_writer_abandon(folder_writer *writer);

#endif
