/* operands.c - operands and results for the tests of kernels and of products. */
#include "operands.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void for_each_set(set_test *test)
{
    const kernels *const *list;
    int n = kernels_all(&list);
    assert_true(n >= 1);
    assert_ptr_equal(list[0], &kernels_scalar);
    for (int i = 0; i < n; i++) test(list[i]);
}

/* ---- rows of floats ------------------------------------------------------------------------- */

operand operand_make(int64_t n, int64_t columns, int gap, bool gather, uint64_t seed)
{
    int64_t stride = columns + gap;
    operand o = {.data = floats_random(n ? (n - 1) * stride + columns : 0, gap + 1, seed)};
    o.rows = (rows){.data = o.data.at, .stride = stride};
    if (!gather || n == 0) return o;
    o.index = malloc((size_t)n * sizeof *o.index);
    assert_non_null(o.index);
    for (int64_t i = 0; i < n; i++) o.index[i] = (int32_t)((i * 11 + 3) % n);
    o.rows.index = o.index;
    return o;
}

void operand_free(operand *o)
{
    floats_free(o->data);
    free(o->index);
}

/* ---- weights as they are stored ------------------------------------------------------------- */

static stored stored_make(dsmoe_dtype type, int64_t n, int64_t columns, int gap, int spare)
{
    stored s = {.n = n, .columns = columns};
    int64_t row = dtype_bytes(type, columns);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = (size_t)((n ? (n - 1) * (row + gap) + row : 0) + spare);
    size_t open = (used + page - 1) / page * page;
    s.size = open + page;
    s.pages = mmap(NULL, s.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(s.pages != MAP_FAILED);
    assert_int_equal(mprotect(s.pages + open, page, PROT_NONE), 0);
    memset(s.pages, 0xff, open);
    s.matrix = (matrix){.data = s.pages + open - used, .stride = row + gap, .type = type};
    return s;
}

static void stored_set(stored *s, int64_t row, int64_t column, uint32_t bits)
{
    unsigned char *at = s->pages + (matrix_at(s->matrix, row, column) - s->pages);
    uint16_t half = (uint16_t)bits;
    if (s->matrix.type == DSMOE_F32)
        memcpy(at, &bits, sizeof bits);
    else
        memcpy(at, &half, sizeof half);
}

/* The bits of a number close to `value`, which must not be large. */
static uint32_t bits_near(dsmoe_dtype type, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type == DSMOE_F32) return bits;
    if (type == DSMOE_BF16) return bits >> 16;
    uint32_t exponent = bits >> 23 & 255; /* biased by 127; in F16 by 15 */
    exponent = exponent > 112 ? exponent - 112 : 0;
    return (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 1023);
}

stored stored_random(dsmoe_dtype type, int64_t n, int64_t columns, int gap, int spare,
                     uint64_t seed)
{
    stored s = stored_make(type, n, columns, gap, spare);
    floats values = floats_random(n * columns, 0, seed);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < columns; j++)
            stored_set(&s, i, j, bits_near(type, values.at[i * columns + j]));
    floats_free(values);
    return s;
}

stored stored_spread(dsmoe_dtype type, int64_t columns, int spare)
{
    stored s = stored_make(type, SPREAD / columns, columns, 0, spare);
    for (uint32_t i = 0; i < SPREAD; i++)
        stored_set(&s, i / columns, i % columns,
                   type == DSMOE_F32 ? i << 16 | (i * 40503 & 0xffff) : i);
    return s;
}

void stored_free(stored *s) { assert_int_equal(munmap(s->pages, s->size), 0); }

operand stored_widened(const stored *s)
{
    operand o = {.data = floats_make(s->n * s->columns, 1)};
    o.rows = (rows){.data = o.data.at, .stride = s->columns};
    for (int64_t i = 0; i < s->n; i++)
        kernels_scalar.dtypes[s->matrix.type].widen(s->columns, matrix_at(s->matrix, i, 0),
                                                    o.data.at + i * s->columns);
    return o;
}

bool same_number(dsmoe_dtype type, float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (type == DSMOE_F16 && isnan(a) && isnan(b));
}

/* ---- sums in double ------------------------------------------------------------------------- */

exact exact_add(exact sum, double term)
{
    return (exact){sum.value + term, sum.magnitude + fabs(term)};
}

void assert_near(const char *what, const kernels *set, double ours, exact expected)
{
    if (!(fabs(ours - expected.value) <= 8 * FLT_EPSILON * expected.magnitude + FLT_MIN))
        fail_msg("%s of %s: %.9g, where %.9g is expected", what, set->name, ours, expected.value);
}

/* ---- results -------------------------------------------------------------------------------- */

result result_make(int64_t m, int64_t n)
{
    result r = {.m = m, .n = n, .stride = n + 3};
    r.data = floats_make(m ? (m - 1) * r.stride + n : 0, 1);
    return r;
}

void result_fill(result *r, float value)
{
    for (int64_t i = 0; i < r->m; i++)
        for (int64_t j = 0; j < r->n; j++) r->data.at[i * r->stride + j] = value;
}

void result_free(result *r)
{
    for (int64_t i = 0; i + 1 < r->m; i++)
        for (int64_t j = r->n; j < r->stride; j++)
            if (!is_guard(r->data.at[i * r->stride + j]))
                fail_msg("column %d of row %d lies after the result and was written", (int)j,
                         (int)i);
    floats_free(r->data);
}
