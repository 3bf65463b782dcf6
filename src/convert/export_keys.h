/* export_keys.h - the metadata of a GGUF file: the model's configuration and its tokenizer. */
#ifndef DSMOE_CONVERT_EXPORT_KEYS_H
#define DSMOE_CONVERT_EXPORT_KEYS_H

#include "convert/gguf_export.h"
#include "formats/gguf_writer.h"

/* `most` is the type of most numbers in the file. */
dsmoe_status export_keys_write(const gguf_export *e, dsmoe_dtype most, gguf_writer *writer,
                               dsmoe_error *error);

#endif
