/* bpe.h - byte pair encoding: from a piece of text to tokens. */
#ifndef DSMOE_TEXT_BPE_H
#define DSMOE_TEXT_BPE_H

#include "formats/json.h"
#include "text/merges.h"
#include "text/vocabulary.h"

typedef struct bpe {
    vocabulary vocabulary;
    merges merges;
    int32_t unk_id;         /* stands for bytes without a token; -1: none */
    bool fuse_unk;          /* one unk_id for several such bytes in a row */
    bool ignore_merges;     /* a piece that is in the vocabulary becomes that token */
    int32_t replacement[3]; /* tokens of U+FFFD's bytes, in place of a byte without a token */
} bpe;

/* Reads the `model` of a tokenizer.json, which must be byte-level BPE. */
dsmoe_status bpe_read(bpe *b, const json_node *model, dsmoe_error *error);
/* Allowed on a zeroed model and after a failed read. */
void bpe_free(bpe *b);

typedef struct bpe_symbol bpe_symbol;

/* The working memory of an encoding: one for each thread, zeroed at first. It grows with the longest
 * piece. */
typedef struct bpe_workspace {
    bpe_symbol *symbols;
    size_t capacity;
    uint64_t *heap;
    size_t heap_count, heap_capacity;
} bpe_workspace;
void bpe_workspace_free(bpe_workspace *work);

/* Appends the tokens of a piece: its bytes, merged in the order of ranks and from left to right
 * within a rank. A byte without a token becomes unk_id, or else U+FFFD; if that has no tokens either,
 * it is an error. Takes n log n steps for n bytes. */
dsmoe_status bpe_encode(const bpe *b, bpe_workspace *work, const char *piece, size_t length,
                        id_buffer *ids, dsmoe_error *error);

#endif
