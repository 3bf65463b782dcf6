/* dsmoe/output.h - which files may be overwritten. */
#ifndef DSMOE_OUTPUT_H
#define DSMOE_OUTPUT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file that is going to be written. The rules: it is none of the inputs, under any name. If the file
 * exists (or PATH.partial, if the writer uses that name on the way), it must be empty, or of the same kind
 * and `replace` set. Its folder must exist and be writable. Functions that write for a long time check this
 * first, and so should a program. */
typedef enum dsmoe_output_kind {
    DSMOE_OUTPUT_MODEL = 0,        /* a GGUF file with a model */
    DSMOE_OUTPUT_IMATRIX = 1,      /* a GGUF file of dsmoe_imatrix_make, or of llama.cpp */
    DSMOE_OUTPUT_PAGE = 2,         /* HTML that dsmoe made */
    DSMOE_OUTPUT_CONVERSATION = 3, /* JSON messages that dsmoe saved */
    DSMOE_OUTPUT_TOKENIZER = 4,    /* tokenizer.json or tokenizer_config.json */
    DSMOE_OUTPUT_ADAPTER = 5,      /* a GGUF file with an adapter */
    DSMOE_OUTPUT_EXPERTS = 6,      /* a choice of experts: expert_cfg.json */
} dsmoe_output_kind;
typedef struct dsmoe_output {
    const char *path;
    dsmoe_output_kind kind;
    bool replace;              /* replace an existing file of that kind; --force of the commands */
    const char *const *inputs; /* [n_inputs] files that are read for it; NULL and "" are ignored */
    int n_inputs;
} dsmoe_output;
DSMOE_API dsmoe_status dsmoe_output_check(const dsmoe_output *output, dsmoe_error *error);
/* The same for a folder that is going to be filled. It must be new, or empty except for the names in `own`
 * [n_own], their partial files, and names that begin with a dot. */
DSMOE_API dsmoe_status dsmoe_output_folder_check(const char *path, const char *const *own,
                                                 int n_own, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
