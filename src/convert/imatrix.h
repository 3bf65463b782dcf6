/* imatrix.h - how large the inputs of every matrix are, column by column. Quantising takes most care of
 * columns with large inputs.
 *
 * The file is GGUF, as llama.cpp writes and reads it: general.type "imatrix", and for each matrix
 * NAME of a model file two tensors of float32: NAME.in_sum2 [matrices, in], sums of squares over
 * the tokens that went through it, and NAME.counts [matrices, 1], the number of those tokens.
 * Each of the stacked experts is a matrix. */
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

/* Checks everything in the file: sums and counts belong together, are finite and not negative. */
dsmoe_status imatrix_open(const char *path, imatrix **made, dsmoe_error *error);
/* The same for bytes that the caller keeps alive; messages use `name` as the path. */
dsmoe_status imatrix_parse(const unsigned char *bytes, size_t size, const char *name,
                           imatrix **made, dsmoe_error *error);
void imatrix_close(imatrix *m); /* NULL is allowed */
const char *imatrix_path(const imatrix *m);
/* Fails if the file has changed while it was in use: see gguf_check_intact. */
dsmoe_status imatrix_check_intact(const imatrix *m, dsmoe_error *error);
int64_t imatrix_count(const imatrix *m); /* of matrix names */

/* Whether the file has a matrix. Fails if its sizes there are different. */
dsmoe_status imatrix_knows(const imatrix *m, const char *name, int64_t n_matrices, int64_t n_in,
                           bool *known, dsmoe_error *error);

/* The importance of each column for quantize_row, out [n_matrices, n_in]: the mean square of its
 * inputs. An expert gets IMATRIX_PRIOR_TOKENS extra tokens with the mean of its layer's experts,
 * so that an expert that no token chose has that mean. If the file has no tokens for `name`,
 * *found is false and `out` unchanged. Fails if the sizes there are different. */
enum { IMATRIX_PRIOR_TOKENS = 16 };
dsmoe_status imatrix_importance(const imatrix *m, const char *name, int64_t n_matrices,
                                int64_t n_in, float *out, bool *found, dsmoe_error *error);

#endif
