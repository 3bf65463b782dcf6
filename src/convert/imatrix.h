/* imatrix.h - how large the inputs of every matrix are, column by column: what quantising should
 * take most care of.
 *
 * The file is GGUF, as llama.cpp writes and reads it: general.type "imatrix", and for each matrix
 * NAME of a model file two tensors of float32: NAME.in_sum2 [matrices, in], sums of squares over
 * the tokens that went through it, and NAME.counts [matrices, 1], how many those were. Stacked
 * experts are so many matrices. */
#ifndef DSMOE_CONVERT_IMATRIX_H
#define DSMOE_CONVERT_IMATRIX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "model/gguf_names.h"

#define IMATRIX_SUMS ".in_sum2"
#define IMATRIX_COUNTS ".counts"

enum { IMATRIX_NAME_SIZE = GGUF_PLACE_SIZE };

/* The names of the two tensors; false if they are too long for a file. */
static inline bool imatrix_names(const char *name, char sums[IMATRIX_NAME_SIZE],
                                 char counts[IMATRIX_NAME_SIZE])
{
    return snprintf(sums, IMATRIX_NAME_SIZE, "%s" IMATRIX_SUMS, name) < IMATRIX_NAME_SIZE &&
           snprintf(counts, IMATRIX_NAME_SIZE, "%s" IMATRIX_COUNTS, name) < IMATRIX_NAME_SIZE;
}

typedef struct imatrix imatrix;

/* Everything in the file is checked: sums and counts belong together and are finite and not
 * negative. */
dsmoe_status imatrix_open(const char *path, imatrix **made, dsmoe_error *error);
/* The same over bytes that the caller keeps alive; `name` stands for a path in messages. */
dsmoe_status imatrix_parse(const unsigned char *bytes, size_t size, const char *name,
                           imatrix **made, dsmoe_error *error);
void imatrix_close(imatrix *m); /* NULL is allowed */
const char *imatrix_path(const imatrix *m);
/* Fails once the file changed while it was in use: see gguf_check_intact. */
dsmoe_status imatrix_check_intact(const imatrix *m, dsmoe_error *error);
int64_t imatrix_count(const imatrix *m); /* of matrix names */

/* Whether the file knows a matrix; other sizes than its are an error. */
dsmoe_status imatrix_knows(const imatrix *m, const char *name, int64_t n_matrices, int64_t n_in,
                           bool *known, dsmoe_error *error);

/* The importance of each column for quantize_row, out [n_matrices, n_in]: the mean square of what
 * goes in. An expert leans on the mean of its layer's experts as if IMATRIX_PRIOR_TOKENS more
 * tokens had gone through it, so that one that no token chose has that mean. *found is false, and
 * `out` untouched, where the file knows nothing of `name`; other sizes than its are an error. */
enum { IMATRIX_PRIOR_TOKENS = 16 };
dsmoe_status imatrix_importance(const imatrix *m, const char *name, int64_t n_matrices,
                                int64_t n_in, float *out, bool *found, dsmoe_error *error);

#endif
