/* tokenizer_hash.h - a hash that distinguishes tokenizers by what they do. */
#ifndef DSMOE_TRAIN_TOKENIZER_HASH_H
#define DSMOE_TRAIN_TOKENIZER_HASH_H

#include "base/hash.h"
#include "base/status.h"

/* Two tokenizers with the same hash make the same tokens from the same text, wherever they were read from. */
dsmoe_status tokenizer_hash(const dsmoe_tokenizer *tokenizer, hash_kind kind, uint64_t *hash,
                            dsmoe_error *error);

#endif
