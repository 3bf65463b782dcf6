/* added_tokens.h - tokens that are found in a text by their literal content, before anything else: the
 * `added_tokens` of tokenizer.json. */
#ifndef DSMOE_TEXT_ADDED_TOKENS_H
#define DSMOE_TEXT_ADDED_TOKENS_H

#include "text/normalizer.h"
#include "text/vocabulary.h"

typedef struct added_token {
    int32_t id;
    bool special;
    bool single_word;    /* only where no letter or digit touches it */
    bool lstrip, rstrip; /* takes the whitespace before it, after it */
} added_token;

/* A node of a tree of bytes, with its first child and its next sibling. */
typedef struct added_node {
    uint32_t child, sibling; /* 0: none */
    uint32_t token;          /* number of the token that ends here, plus 1 */
    unsigned char byte;
} added_node;

typedef struct added_tree {
    added_node *nodes; /* nodes[0] is unused, since 0 means none */
    size_t count, capacity;
    uint32_t roots[256]; /* by first byte; 0: none */
} added_tree;

typedef struct added_tokens {
    added_token *tokens;
    size_t n_tokens;
    added_tree raw;        /* tokens to find in the original text */
    added_tree normalized; /* tokens to find in the normalised text */
} added_tokens;

/* Reads the tokens and adds them to the vocabulary as well. `list` may be NULL: there are none. */
dsmoe_status added_tokens_read(added_tokens *a, const json_node *list, const normalizer *normalize,
                               vocabulary *v, dsmoe_error *error);
/* Allowed on zeroed added_tokens and after a failed read. */
void added_tokens_free(added_tokens *a);

typedef struct added_match {
    size_t start, end;
    int32_t id;
} added_match;

/* The leftmost token at `from` or later, the longest of those that begin there. Special tokens are
 * only found if asked for. */
bool added_tokens_find(const added_tokens *a, const added_tree *tree, const char *text,
                       size_t length, size_t from, bool special, added_match *match);

#endif
