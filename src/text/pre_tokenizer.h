/* pre_tokenizer.h - cuts a text into the pieces within which BPE may merge: the `pre_tokenizer` of
 * tokenizer.json, which must end in ByteLevel. */
#ifndef DSMOE_TEXT_PRE_TOKENIZER_H
#define DSMOE_TEXT_PRE_TOKENIZER_H

#include "text/pattern.h"

typedef struct pre_tokenizer_stage pre_tokenizer_stage;

typedef struct pre_tokenizer {
    pre_tokenizer_stage *stages;
    size_t n_stages;
} pre_tokenizer;

/* Reads Split, Digits, ByteLevel and Sequences of them; another type is an error that names it. */
dsmoe_status pre_tokenizer_read(pre_tokenizer *p, const json_node *node, dsmoe_error *error);
/* Allowed on a zeroed pre_tokenizer and after a failed read. */
void pre_tokenizer_free(pre_tokenizer *p);

typedef dsmoe_status pre_tokenizer_piece_fn(void *context, const char *piece, size_t length,
                                            dsmoe_error *error);

/* Passes the pieces of a text to `piece` in order. The text may have any bytes: the expressions see its
 * valid parts, and each byte that is in no character is a piece of its own. */
dsmoe_status pre_tokenizer_run(const pre_tokenizer *p, regex_scratch *scratch, const char *text,
                               size_t length, pre_tokenizer_piece_fn *piece, void *context,
                               dsmoe_error *error);

#endif
