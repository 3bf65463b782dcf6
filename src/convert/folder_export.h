/* folder_export.h - a model as a folder in the public layout. */
#ifndef DSMOE_CONVERT_FOLDER_EXPORT_H
#define DSMOE_CONVERT_FOLDER_EXPORT_H

#include "convert/source.h"

typedef struct folder_export {
    const char *folder;
    const source *source;        /* made by source_of_model */
    bool as_is;                  /* matrices keep their types, which must be float types; */
    dsmoe_dtype type;            /* otherwise all numbers have this float type */
    const char *tokenizer;       /* what dsmoe_tokenizer_open takes; NULL: none */
    const dsmoe_chat_form *form; /* how conversations are framed; NULL: the tokenizer's */
    const char *generation;      /* generation_config.json; NULL: made from the configuration */
    size_t generation_length;
    size_t shard_size;           /* most bytes of tensors in one file */
    dsmoe_type_changes *changes; /* as in dsmoe_convert_options; may be NULL */
    int n_threads;               /* at least 1 */
    dsmoe_progress_fn *progress; /* may be NULL */
    void *context;
} folder_export;

/* Fails if the folder already holds a model, and leaves that alone. The caller has checked for other
 * files. A failure removes what was written. */
dsmoe_status folder_export_write(const folder_export *e, dsmoe_error *error);

#endif
