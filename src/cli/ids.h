/* ids.h - token ids as people write them: decimal numbers between blanks, newlines or commas. */
#ifndef DSMOE_CLI_IDS_H
#define DSMOE_CLI_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsmoe.h"

/* Where ids come from, for messages. */
typedef struct ids_source {
    const char *command;
    const char *name; /* of the file, or of the option */
} ids_source;

/* Parses all ids of a text, to be freed. On failure a message that names the wrong word and its line is
 * printed and the exit code returned, otherwise CLI_OK. */
int ids_parse(ids_source source, const char *text, size_t length, int32_t **ids, size_t *n_ids);

/* Checks that all ids are below vocab_size. `from_text`: a tokenizer made them; otherwise a person wrote
 * them. */
dsmoe_status ids_check(const int32_t *ids, size_t n_ids, int64_t vocab_size, bool from_text,
                       dsmoe_error *error);

#endif
