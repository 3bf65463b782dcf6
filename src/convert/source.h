/* source.h - the tensors of the model that is converted, by the names of the public layout: those
 * of an open model in any type, or the numbers of a fresh one that lies nowhere. */
#ifndef DSMOE_CONVERT_SOURCE_H
#define DSMOE_CONVERT_SOURCE_H

#include "convert/merge.h"
#include "model/gguf_names.h"
#include "model/model.h"

/* How a tensor is made from those of the model, if it is not one of them: see kv_b.h. */
typedef enum source_way {
    SOURCE_AS_IS,
    SOURCE_KEYS,   /* k_b_proj, from the columns of `weight`, kv_b_proj */
    SOURCE_VALUES, /* v_b_proj, from some rows of it */
    SOURCE_HALVES, /* kv_b_proj, from k_b_proj and v_b_proj of `layer` */
} source_way;

typedef struct source_tensor {
    char *name;
    weight_role role;
    int n_dims;
    int64_t n_rows, n_in; /* a vector is one row */
    gguf_place place;     /* in a GGUF file */
    source_way way;
    int64_t layer; /* unless it is as it is */
    /* Of an open model: */
    matrix weight;       /* n_dims 2 */
    const float *vector; /* n_dims 1 */
    dsmoe_dtype stored;  /* the type in its files; that of `weight`, if there is one */
    merge_change change; /* of its numbers */
} source_tensor;

typedef struct source {
    const char *name; /* for messages */
    dsmoe_config config;
    const dsmoe_model *model; /* NULL: a fresh one */
    uint64_t seed;            /* of a fresh one */
    bool as_gguf;             /* rows of q and k lie as in GGUF files */
    source_tensor *tensors;   /* in the order of the computation */
    size_t n_tensors;
    int64_t longest;                 /* numbers of the longest row */
    unsigned char *stocks[N_DTYPES]; /* blocks of a fresh one: see source_stock */
    const merge *changes;            /* NULL: none */
} source;

/* The model must outlive the source. `for_gguf`: its tensors are those of a GGUF file, in which
 * kv_b_proj is split; otherwise those of a folder. */
dsmoe_status source_of_model(const char *name, const dsmoe_model *model, bool for_gguf, source *s,
                             dsmoe_error *error);
/* For a GGUF file. `config` is a checked one. */
dsmoe_status source_fresh(const char *name, const dsmoe_config *config, uint64_t seed, source *s,
                          dsmoe_error *error);
/* From now on rows are those of the model with these changes, which must outlive the source. */
void source_change(source *s, const merge *changes);
/* Fails once a file that rows come from changed while it was in use. */
dsmoe_status source_check_intact(const source *s, dsmoe_error *error);
void source_free(source *s); /* allowed on a zeroed one */

/* A fresh model that is to be written in a block type: makes the blocks that its rows are drawn
 * from, once for each type. Nothing to do for any other. */
dsmoe_status source_stock(source *s, dsmoe_dtype type, int n_threads, dsmoe_error *error);

/* The type of the numbers; float32 for vectors and for a fresh model, and where halves of different
 * types are put together. */
dsmoe_dtype source_dtype(const source *s, const source_tensor *t);
/* The type that such a tensor can be written in as it is: that of its numbers, but that columns of
 * blocks are not blocks, and become float16, which is far finer. */
dsmoe_dtype source_kept_dtype(const source *s, const source_tensor *t);

/* How a row is wanted. */
typedef struct source_form {
    bool as_gguf; /* rows of q and k lie as in GGUF files */
    dsmoe_dtype type;
    const float *importance; /* [n_in] of the columns, for quantize_row; may be NULL */
} source_form;
/* Row `row` of the target's tensor; `scratch` holds n_in floats. What has the right type already is
 * copied byte by byte; blocks of a fresh model are those of source_stock. False if the type cannot
 * hold a number of the row: of a NaN or an infinity there are no blocks, and one may be too large
 * for float16. Any number of threads may ask. */
bool source_make_row(const source *s, const source_tensor *t, int64_t row, source_form form,
                     float *scratch, void *out);
/* The error to that. */
dsmoe_status source_fail_row(const source *s, const source_tensor *t, int64_t row, dsmoe_dtype type,
                             dsmoe_error *error);

/* Whether a float type holds all numbers of a tensor exactly as they are; `scratch` holds n_in
 * floats. */
bool source_fits(const source *s, const source_tensor *t, dsmoe_dtype type, float *scratch);

#endif
