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

/* All ids of a text, to be freed. On failure the message, which names the word at fault and its line,
 * is printed and the exit code returned, otherwise CLI_OK. */
int ids_parse(ids_source source, const char *text, size_t length, int32_t **ids, size_t *n_ids);

/* Whether a model with this vocab_size has all the ids, which a tokenizer made of a text or someone
 * wrote down. */
dsmoe_status ids_check(const int32_t *ids, size_t n_ids, int64_t vocab_size, bool from_text,
                       dsmoe_error *error);

#endif
