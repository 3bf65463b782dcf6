/* made_gguf.h - the small models of made_model.h as GGUF files, with faults where a test wants them. Keys,
 * names and the order of rows are written down here a second time, independently of the library. */
#ifndef DSMOE_TESTS_MADE_GGUF_H
#define DSMOE_TESTS_MADE_GGUF_H

#include "made_keys.h"
#include "made_model.h"

typedef struct made_gguf_options {
    dsmoe_dtype type;      /* of all matrices except routers, if has_type */
    bool has_type;         /* otherwise the types of the made tensors */
    const char *tokenizer; /* the path for dsmoe_tokenizer_open; NULL: none */
    const char *left_out;  /* a tensor's name in the GGUF file */
    const char *extra;     /* a tensor that no model has, or the name of an existing one */
    const char *quantised; /* a vector that gets a quantised type, against the rules */
    const char *longer;    /* a tensor whose slowest dimension is one more */
    const made_key *keys;  /* [n_keys] */
    int n_keys;
} made_gguf_options;

/* `options` may be NULL. */
void made_gguf_write(const made_model *model, const char *to, const made_gguf_options *options);

/* Writes the tensor's name in the file; returns the number of the expert, or -1. */
int made_gguf_name(const char *name, char out[64]);

/* The path of a GGUF file in the scratch folder, next to the files of made_model_write; set-up and
 * tear-down of a group of tests. */
extern char made_file[320];
int made_gguf_set_up(void **state);
int made_gguf_tear_down(void **state);

#endif
