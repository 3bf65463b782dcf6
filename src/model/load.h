/* load.h - the tensors of a model found in files of whatever form, checked, and pointed at. */
#ifndef DSMOE_MODEL_LOAD_H
#define DSMOE_MODEL_LOAD_H

#include "model/model.h"

/* A tensor of the model as its files hold it. */
typedef struct stored_tensor {
    size_t index; /* of the files' tensor it is, or is a part of */
    dsmoe_dtype type;
    const void *data;
} stored_tensor;

/* Finds what a spec asks for in the files of a model, which was opened from `path`. A tensor that
 * is not there, or is not what the configuration says, is an error that names the file and the
 * tensor. */
typedef dsmoe_status load_find_fn(const dsmoe_model *model, const char *path,
                                  const weight_spec *spec, stored_tensor *tensor,
                                  dsmoe_error *error);

/* What is known of files before their tensors are looked for. */
typedef struct load_files {
    const char *path;
    size_t n_stored; /* tensors */
    load_find_fn *find;
    bool kv_b_split; /* as in model_weights */
} load_files;

/* Fills the model's weights, the list of its tensors and that of the extras, for a (checked)
 * configuration. */
dsmoe_status load_tensors(dsmoe_model *model, const load_files *files, dsmoe_error *error);

/* A shape as it is and as the configuration, which is what `by` names, wants it. */
typedef struct load_shape {
    int n_dims;
    const int64_t *at;
} load_shape;
dsmoe_status load_check_shape(const char *path, const char *name, load_shape found,
                              load_shape wanted, const char *by, dsmoe_error *error);

#endif
