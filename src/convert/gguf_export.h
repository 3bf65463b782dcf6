/* gguf_export.h - a model as a GGUF file, of architecture deepseek, or deepseek2 for latent attention. */
#ifndef DSMOE_CONVERT_GGUF_EXPORT_H
#define DSMOE_CONVERT_GGUF_EXPORT_H

#include "convert/imatrix.h"
#include "convert/mixture.h"

typedef struct gguf_export {
    const char *path;
    bool replace; /* an existing file of that name */
    source *source;
    mixture mixture;
    const char *name;            /* general.name */
    const char *tokenizer;       /* what dsmoe_tokenizer_open takes; NULL: none */
    const dsmoe_chat_form *form; /* how conversations are framed; NULL: the tokenizer's */
    const char *generation;      /* generation_config.json; NULL: none */
    size_t generation_length;
    int64_t file_type;      /* general.file_type of the source, kept if types are; -1: none */
    const imatrix *imatrix; /* NULL: none */
    int64_t *n_without_importance, *n_weighed; /* as in dsmoe_convert_options; may be NULL */
    dsmoe_type_changes *changes;               /* as in dsmoe_convert_options */
    int n_threads;                             /* at least 1 */
    dsmoe_progress_fn *progress;               /* may be NULL */
    void *context;
} gguf_export;

/* Refuses a model that such a file cannot express; the message names the key of config.json. The
 * caller has called dsmoe_output_check. A failure removes what was written. */
dsmoe_status gguf_export_write(const gguf_export *e, dsmoe_error *error);

#endif
