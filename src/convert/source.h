/* source.h - the tensors of the model that is converted, by the names of the public layout: those of an
 * open model in any type, or those of a fresh model, whose numbers are made when they are needed. */
#ifndef DSMOE_CONVERT_SOURCE_H
#define DSMOE_CONVERT_SOURCE_H

#include "convert/merge.h"
#include "model/gguf_names.h"
#include "model/model.h"

/* How a tensor is made from the model's tensors: see kv_b.h. */
typedef enum source_way {
    SOURCE_AS_IS,
    SOURCE_KEYS,   /* k_b_proj, from the columns of `weight`, kv_b_proj */
    SOURCE_VALUES, /* v_b_proj, from some rows of kv_b_proj */
    SOURCE_HALVES, /* kv_b_proj, from k_b_proj and v_b_proj of `layer` */
} source_way;

typedef struct source_tensor {
    char *name;
    weight_role role;
    int n_dims;
    int64_t n_rows, n_in; /* a vector is one row */
    gguf_place place;     /* in a GGUF file */
    source_way way;
    int64_t layer; /* unless SOURCE_AS_IS */
    /* Of an open model: */
    matrix weight;       /* n_dims 2 */
    const float *vector; /* n_dims 1 */
    dsmoe_dtype stored;  /* the type in its files; for a matrix that of `weight` */
    merge_change change; /* of its numbers */
} source_tensor;

typedef struct source {
    const char *name; /* for messages */
    dsmoe_config config;
    const dsmoe_model *model; /* NULL: a fresh model */
    uint64_t seed;            /* of a fresh model */
    bool as_gguf;             /* rows of q and k are in the order of GGUF files */
    source_tensor *tensors;   /* in the order of the computation */
    size_t n_tensors;
    int64_t longest;                 /* numbers of the longest row */
    unsigned char *stocks[N_DTYPES]; /* of a fresh model: see source_stock */
    const merge *changes;            /* NULL: none */
} source;

/* The model must outlive the source. `for_gguf`: its tensors are those of a GGUF file, in which
 * kv_b_proj is split; otherwise those of a folder. */
dsmoe_status source_of_model(const char *name, const dsmoe_model *model, bool for_gguf, source *s,
                             dsmoe_error *error);
/* A fresh model for a GGUF file. `config` has been checked. */
dsmoe_status source_fresh(const char *name, const dsmoe_config *config, uint64_t seed, source *s,
                          dsmoe_error *error);
/* Applies these changes to the rows made after this. The changes must outlive the source. */
void source_change(source *s, const merge *changes);
/* Fails if a file that rows come from has changed while it was in use. */
dsmoe_status source_check_intact(const source *s, dsmoe_error *error);
void source_free(source *s); /* allowed on a zeroed one */

/* For a fresh model in a block type: makes the quantised blocks from which rows are drawn, once for each
 * type. Otherwise does nothing. */
dsmoe_status source_stock(source *s, dsmoe_dtype type, int n_threads, dsmoe_error *error);

/* The type of the numbers; float32 for vectors, for a fresh model, and if halves of different types
 * are put together. */
dsmoe_dtype source_dtype(const source *s, const source_tensor *t);
/* The type of a tensor when types are kept: source_dtype, or float16 if its rows are made from columns of a
 * block type. Columns are not whole blocks, and float16 is far finer. */
dsmoe_dtype source_kept_dtype(const source *s, const source_tensor *t);

/* The form in which to make a row. */
typedef struct source_form {
    bool as_gguf; /* rows of q and k in the order of GGUF files */
    dsmoe_dtype type;
    const float *importance; /* [n_in] of the columns, for quantize_row; may be NULL */
} source_form;
/* Makes row `row` of the target's tensor; `scratch` holds n_in floats. A row that already has the right type
 * is copied byte by byte. Blocks of a fresh model come from source_stock. False if the type cannot hold a
 * number of the row: block types have no NaN or infinity, and a number may be too large for float16. Any
 * number of threads may call this. */
bool source_make_row(const source *s, const source_tensor *t, int64_t row, source_form form,
                     float *scratch, void *out);
/* Fails with the message for a row that could not be made. */
dsmoe_status source_fail_row(const source *s, const source_tensor *t, int64_t row, dsmoe_dtype type,
                             dsmoe_error *error);

/* Whether a float type holds all numbers of a tensor exactly; `scratch` holds n_in floats. */
bool source_fits(const source *s, const source_tensor *t, dsmoe_dtype type, float *scratch);

#endif
