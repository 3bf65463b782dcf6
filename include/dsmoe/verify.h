/* dsmoe/verify.h - checking this build against reference tensors. */
#ifndef DSMOE_VERIFY_H
#define DSMOE_VERIFY_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One compared tensor. For routing, `max_abs` counts tokens whose expert sets differ. */
typedef struct dsmoe_check {
    const char *name; /* "infer y", "grad.gate.weight", … */
    double max_abs;   /* largest absolute difference */
    double max_rel;   /* the same over the largest magnitude of the expected tensor */
    double tolerance; /* largest max_rel allowed; ten times the given one after optimizer steps */
    bool ok;
    bool skipped; /* in the file but not checked: neither right nor wrong */
} dsmoe_check;
typedef void dsmoe_check_fn(void *context, const dsmoe_check *check);

/* Runs a reference layer file (safetensors; see docs/verify.md) through inference, training forward
 * and backward and reports each tensor. DSMOE_OK means that the file could be run, `all_ok` that
 * every tensor was within tolerance (relative to its largest magnitude). */
DSMOE_API dsmoe_status dsmoe_verify_layer_file(const char *path, double tolerance, int n_threads,
                                               dsmoe_check_fn *report, void *context, bool *all_ok,
                                               dsmoe_error *error);

/* The same for a folder with a model and its expected.safetensors: logits of the whole prompt, in odd pieces
 * and token by token, loss, balance loss, greedy continuation and gradients; and the training steps of
 * train.safetensors, if there is one. Tensors that cannot be checked are reported with `skipped`. */
DSMOE_API dsmoe_status dsmoe_verify_model_folder(const char *path, double tolerance, int n_threads,
                                                 dsmoe_check_fn *report, void *context,
                                                 bool *all_ok, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
