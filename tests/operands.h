/* operands.h - what the tests of kernels and of products share: matrices placed so that access out of
 * bounds is noticed, and sums in double to compare with. */
#ifndef DSMOE_TESTS_OPERANDS_H
#define DSMOE_TESTS_OPERANDS_H

#include "support.h"

#include "kernels/kernels.h"

/* Runs a test on every set of kernels this processor has. */
typedef void set_test(const kernels *set);
void for_each_set(set_test *test);

/* ---- rows of floats ------------------------------------------------------------------------- */

/* Random rows `gap` floats apart, in another order if `gather`, with nothing after the last row. */
typedef struct operand {
    floats data;
    int32_t *index;
    rows rows;
} operand;

operand operand_make(int64_t n, int64_t columns, int gap, bool gather, uint64_t seed);
void operand_free(operand *o);

/* ---- weights as they are stored ------------------------------------------------------------- */

/* Weights as in a mapped file: at any address, with the last row ending `spare` bytes before a page that
 * must not be touched. Bytes between and before the rows are NaN. */
typedef struct stored {
    matrix matrix;
    int64_t n, columns;
    unsigned char *pages;
    size_t size; /* of pages */
} stored;

enum { SPREAD = 65536 };

/* Random rows `gap` bytes apart. */
stored stored_random(dsmoe_dtype type, int64_t n, int64_t columns, int gap, int spare,
                     uint64_t seed);
/* Rows without gaps, SPREAD numbers in all: every 16-bit number, or 32-bit numbers of each sign and
 * exponent. */
stored stored_spread(dsmoe_dtype type, int64_t columns, int spare);
void stored_free(stored *s);

/* The same weights as float32, converted by the specification. */
operand stored_widened(const stored *s);

/* Whether the bits are the same. For F16 all NaNs count as the same, as their bits depend on the
 * hardware. */
bool same_number(dsmoe_dtype type, float a, float b);

/* ---- sums in double ------------------------------------------------------------------------- */

/* A sum, and the sum of its terms' magnitudes. */
typedef struct exact {
    double value, magnitude;
} exact;

exact exact_add(exact sum, double term);
/* The error may be a few units in the last place of the sum of magnitudes. */
void assert_near(const char *what, const kernels *set, double ours, exact expected);

/* ---- results -------------------------------------------------------------------------------- */

/* A result of m by n with guards between its rows, which result_free checks. */
typedef struct result {
    floats data;
    int64_t m, n, stride;
} result;

result result_make(int64_t m, int64_t n);
void result_fill(result *r, float value);
void result_free(result *r);

#endif
