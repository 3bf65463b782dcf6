/* load.h - finds the tensors of a model in files of any form, checks them and points to them. */
#ifndef DSMOE_MODEL_LOAD_H
#define DSMOE_MODEL_LOAD_H

#include "model/model.h"

/* A tensor of the model as its files hold it. */
typedef struct stored_tensor {
    size_t index; /* of the tensor in the files that it is, or that it is a part of */
    dsmoe_dtype type;
    const void *data;
} stored_tensor;

/* Finds the tensor of a spec in the files of a model that was opened from `path`. A tensor that is
 * missing, or does not match the configuration, is an error that names the file and the tensor. */
typedef dsmoe_status load_find_fn(const dsmoe_model *model, const char *path,
                                  const weight_spec *spec, stored_tensor *tensor,
                                  dsmoe_error *error);

/* The files of a model, and how to find tensors in them. */
typedef struct load_files {
    const char *path;
    size_t n_stored; /* tensors */
    load_find_fn *find;
    bool kv_b_split; /* as in model_weights */
} load_files;

/* Fills in the model's weights, the list of its tensors and the list of extras, for a (checked)
 * configuration. */
dsmoe_status load_tensors(dsmoe_model *model, const load_files *files, dsmoe_error *error);

/* Compares a shape with the one that the configuration requires; `by` names the configuration. */
typedef struct load_shape {
    int n_dims;
    const int64_t *at;
} load_shape;
dsmoe_status load_check_shape(const char *path, const char *name, load_shape found,
                              load_shape wanted, const char *by, dsmoe_error *error);

#endif
