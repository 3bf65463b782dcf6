/* bpe_train.h - the files of a trained tokenizer. */
#ifndef DSMOE_TEXT_BPE_TRAIN_H
#define DSMOE_TEXT_BPE_TRAIN_H

#include "text/train_merges.h"

/* The special tokens after those that were learned; names of the DeepSeek family. */
enum { TRAIN_SPECIAL = 2 };
extern const char *const train_special_tokens[TRAIN_SPECIAL]; /* BOS, EOS */

/* How a text is cut into words: the `pre_tokenizer` of tokenizer.json, as JSON. Training reads it
 * like any reader of the file will. */
extern const char train_pre_tokenizer[];

/* Writes tokenizer.json and tokenizer_config.json; of what was not there before nothing stays if that
 * fails. */
dsmoe_status train_write(const char *folder, const train_vocabulary *v, dsmoe_error *error);

#endif
