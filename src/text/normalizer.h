/* normalizer.h - changes a text before it is cut into pieces: the `normalizer` of tokenizer.json. */
#ifndef DSMOE_TEXT_NORMALIZER_H
#define DSMOE_TEXT_NORMALIZER_H

#include "text/pattern.h"

typedef struct normalizer_step normalizer_step;

typedef struct normalizer {
    normalizer_step *steps;
    size_t n_steps; /* 0: texts stay as they are */
} normalizer;

/* Reads NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend and Sequences of them;
 * another type is an error that names it. `node` may be NULL: there is none. */
dsmoe_status normalizer_read(normalizer *n, const json_node *node, dsmoe_error *error);
/* Allowed on a zeroed normalizer and after a failed read. */
void normalizer_free(normalizer *n);

/* Appends the normalised text. Bytes that are in no character stay where they are. A result that is
 * far longer than the text is an error. */
dsmoe_status normalizer_run(const normalizer *n, regex_scratch *scratch, const char *text,
                            size_t length, byte_buffer *out, dsmoe_error *error);

#endif
