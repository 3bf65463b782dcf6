/* training.h - checks training against a model folder: the gradients of one batch, and a short run of the
 * optimizer. */
#ifndef DSMOE_VERIFY_TRAINING_H
#define DSMOE_VERIFY_TRAINING_H

#include "verify/expected.h"
#include "verify/report.h"

/* Checks every grad.PARAM of the file: gradients of loss + aux_loss over its input_ids, which are in
 * `tokens`. */
dsmoe_status training_check_gradients(const dsmoe_model *model, const expected_file *expected,
                                      const int32_t *tokens, int n_threads, verify_report *report,
                                      dsmoe_error *error);

/* Checks FOLDER/train.safetensors, if there is one: loss, aux_loss and grad_norm of each step of AdamW
 * over its input_ids [steps, sequences, tokens] with the learning rates `lr`, and the weights final.PARAM. */
dsmoe_status training_check_run(const char *folder, const dsmoe_model *model, int n_threads,
                                verify_report *report, dsmoe_error *error);

#endif
