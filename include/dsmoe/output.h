/* dsmoe/output.h - what may be overwritten. */
#ifndef DSMOE_OUTPUT_H
#define DSMOE_OUTPUT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file that is going to be written. The rule: never one of the inputs, under whatever name; a file
 * that is there (as PATH.partial too, where a writer uses that name on the way) only if it is of the same
 * kind (or empty) and may be replaced; and its folder must be there and writable. Functions that write for
 * long ask this first, and so should a program. */
typedef enum dsmoe_output_kind {
    DSMOE_OUTPUT_MODEL = 0,        /* a GGUF file with a model */
    DSMOE_OUTPUT_IMATRIX = 1,      /* a GGUF file of dsmoe_imatrix_make, or of llama.cpp */
    DSMOE_OUTPUT_PAGE = 2,         /* HTML that dsmoe made */
    DSMOE_OUTPUT_CONVERSATION = 3, /* JSON messages that dsmoe saved */
    DSMOE_OUTPUT_TOKENIZER = 4,    /* tokenizer.json or tokenizer_config.json */
    DSMOE_OUTPUT_ADAPTER = 5,      /* a GGUF file with an adapter */
} dsmoe_output_kind;
typedef struct dsmoe_output {
    const char *path;
    dsmoe_output_kind kind;
    bool replace;              /* a file of that kind that is there; the command's --force */
    const char *const *inputs; /* [n_inputs] files that are read for it; NULL and "" are none */
    int n_inputs;
} dsmoe_output;
DSMOE_API dsmoe_status dsmoe_output_check(const dsmoe_output *output, dsmoe_error *error);
/* The same of a folder that is going to be filled: it is new, or empty except for the names in `own`
 * [n_own], for what a writer left half-written of those, and for names that begin with a dot. */
DSMOE_API dsmoe_status dsmoe_output_folder_check(const char *path, const char *const *own,
                                                 int n_own, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
