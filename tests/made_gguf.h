/* made_gguf.h - the small models of made_model.h as GGUF files, faults included where a test wants
 * them. Keys, names and the order of rows are written down here a second time, independent of the
 * library's. */
#ifndef DSMOE_TESTS_MADE_GGUF_H
#define DSMOE_TESTS_MADE_GGUF_H

#include "made_keys.h"
#include "made_model.h"

typedef struct made_gguf_options {
    dsmoe_dtype type;      /* of the matrices but routers, if not that of the made tensors */
    bool has_type;         /* whether it is so */
    const char *tokenizer; /* what dsmoe_tokenizer_open takes; NULL: none */
    const char *left_out;  /* a tensor's name in the file */
    const char *extra;     /* a tensor that no model has, or that one has twice */
    const char *quantised; /* a vector that is made a block type, against the rules */
    const char *longer;    /* a tensor whose slowest dimension is one more */
    const made_key *keys;  /* [n_keys] */
    int n_keys;
} made_gguf_options;

/* `options` may be NULL. */
void made_gguf_write(const made_model *model, const char *to, const made_gguf_options *options);

/* The name in the file; the number of the expert, or -1. */
int made_gguf_name(const char *name, char out[64]);

/* A place for one in the scratch folder, beside the files of a made_model_write: set-up and
 * tear-down of a group of tests. */
extern char made_file[320];
int made_gguf_set_up(void **state);
int made_gguf_tear_down(void **state);

#endif
