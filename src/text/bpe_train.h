/* bpe_train.h - the files of a trained tokenizer. */
#ifndef DSMOE_TEXT_BPE_TRAIN_H
#define DSMOE_TEXT_BPE_TRAIN_H

#include "text/train_merges.h"

/* The special tokens, which follow the learned ones; named as in the DeepSeek family. */
enum { TRAIN_SPECIAL = 2 };
extern const char *const train_special_tokens[TRAIN_SPECIAL]; /* BOS, EOS */

/* How a text is cut into words: the `pre_tokenizer` of tokenizer.json, as JSON. Training reads it as
 * every reader of the file does. */
extern const char train_pre_tokenizer[];

/* Writes tokenizer.json and tokenizer_config.json. After a failure, removes those that did not exist
 * before. */
dsmoe_status train_write(const char *folder, const train_vocabulary *v, dsmoe_error *error);

#endif
