/* imatrix.c - reads a file of importances. */
#include "convert/imatrix.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"

struct imatrix {
    gguf *file;
    int64_t count;
};

/* The two tensors of a matrix. */
typedef struct entry {
    const gguf_tensor *sums, *counts;
    int64_t n_matrices, n_in;
} entry;

const char *imatrix_path(const imatrix *m) { return gguf_path(m->file); }

dsmoe_status imatrix_check_intact(const imatrix *m, dsmoe_error *error)
{
    return gguf_check_intact(m->file, error);
}

int64_t imatrix_count(const imatrix *m) { return m->count; }

static int64_t elements(const gguf_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->shape[i];
    return n;
}

static float number_at(const gguf_tensor *t, int64_t index)
{
    float value;
    memcpy(&value, t->data + (size_t)index * sizeof value, sizeof value);
    return value;
}

/* ---- opening --------------------------------------------------------------------------------- */

static dsmoe_status check_numbers(const imatrix *m, const gguf_tensor *t, dsmoe_error *error)
{
    if (t->type != DSMOE_F32)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s has type %s, not f32",
                           imatrix_path(m), t->name, dsmoe_dtype_name(t->type));
    int64_t n = elements(t);
    for (int64_t i = 0; i < n; i++) {
        float value = number_at(t, i);
        if (!(value >= 0 && isfinite(value)))
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: number %lld of %s is %g; sums and counts must be finite and "
                               "not negative",
                               imatrix_path(m), (long long)i, t->name, (double)value);
    }
    return DSMOE_OK;
}

/* False if one of the two tensors is missing. */
static bool find_entry(const imatrix *m, const char *name, entry *e)
{
    char sums[IMATRIX_NAME_SIZE], counts[IMATRIX_NAME_SIZE];
    if (!imatrix_names(name, sums, counts)) return false;
    e->sums = gguf_find(m->file, sums);
    e->counts = gguf_find(m->file, counts);
    if (!e->sums || !e->counts) return false;
    e->n_matrices = elements(e->counts);
    e->n_in = elements(e->sums) / e->n_matrices;
    return true;
}

static dsmoe_status check_tensor(imatrix *m, const gguf_tensor *t, dsmoe_error *error)
{
    static const char suffix[] = IMATRIX_SUMS;
    size_t length = strlen(t->name), n = sizeof suffix - 1;
    STATUS_TRY(check_numbers(m, t, error));
    if (length <= n || strcmp(t->name + length - n, suffix)) return DSMOE_OK;
    char name[IMATRIX_NAME_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(length - n), t->name);
    entry e;
    if (!find_entry(m, name, &e))
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s has no tensor of counts",
                           imatrix_path(m), t->name);
    if (e.n_in * e.n_matrices != elements(t))
        return status_fail(
            error, DSMOE_ERROR_FORMAT, "%s: %s has %lld numbers, which %lld counts do not divide",
            imatrix_path(m), t->name, (long long)elements(t), (long long)e.n_matrices);
    m->count++;
    return DSMOE_OK;
}

static dsmoe_status check_file(imatrix *m, dsmoe_error *error)
{
    gguf_string type = {"", 0};
    bool found;
    STATUS_TRY(gguf_get_string(m->file, "general.type", &type, &found, error));
    if (!gguf_string_is(type, "imatrix"))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: not a file of importances: general.type is not \"imatrix\"",
                           imatrix_path(m));
    for (size_t i = 0; i < gguf_count(m->file); i++)
        STATUS_TRY(check_tensor(m, gguf_at(m->file, i), error));
    return DSMOE_OK;
}

/* Takes over `file`, even on failure. */
static dsmoe_status make_imatrix(gguf *file, imatrix **made, dsmoe_error *error)
{
    imatrix *m = calloc(1, sizeof *m);
    dsmoe_status status = DSMOE_OK;
    if (!m) {
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", gguf_path(file));
        gguf_close(file);
        return status;
    }
    m->file = file;
    status = check_file(m, error);
    if (status == DSMOE_OK)
        *made = m;
    else
        imatrix_close(m);
    return status;
}

dsmoe_status imatrix_open(const char *path, imatrix **made, dsmoe_error *error)
{
    gguf *file;
    *made = NULL;
    STATUS_TRY(gguf_open(path, &file, error));
    return make_imatrix(file, made, error);
}

dsmoe_status imatrix_parse(const unsigned char *bytes, size_t size, const char *name,
                           imatrix **made, dsmoe_error *error)
{
    gguf *file;
    *made = NULL;
    STATUS_TRY(gguf_parse(bytes, size, name, &file, error));
    return make_imatrix(file, made, error);
}

void imatrix_close(imatrix *m)
{
    if (!m) return;
    gguf_close(m->file);
    free(m);
}

/* ---- queries --------------------------------------------------------------------------------- */

/* The tokens of all matrices together. */
static double total_count(const entry *e)
{
    double n = 0;
    for (int64_t i = 0; i < e->n_matrices; i++) n += (double)number_at(e->counts, i);
    return n;
}

static void column_importance(const entry *e, double n_tokens, int64_t column, float *out)
{
    double sum = 0;
    for (int64_t i = 0; i < e->n_matrices; i++)
        sum += (double)number_at(e->sums, i * e->n_in + column);
    double mean = sum / n_tokens, prior = e->n_matrices > 1 ? IMATRIX_PRIOR_TOKENS : 0;
    for (int64_t i = 0; i < e->n_matrices; i++) {
        double own = (double)number_at(e->sums, i * e->n_in + column);
        double n = (double)number_at(e->counts, i);
        double importance = (own + prior * mean) / (n + prior);
        /* The count in a file may be tiny. */
        out[i * e->n_in + column] = (float)fmin(importance, FLT_MAX);
    }
}

static dsmoe_status find_checked(const imatrix *m, const char *name, int64_t n_matrices,
                                 int64_t n_in, entry *e, bool *found, dsmoe_error *error)
{
    *found = find_entry(m, name, e);
    if (!*found || (e->n_matrices == n_matrices && e->n_in == n_in)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: made for another model: %s has %lld x %lld columns there, %lld x %lld "
                       "here",
                       imatrix_path(m), name, (long long)e->n_matrices, (long long)e->n_in,
                       (long long)n_matrices, (long long)n_in);
}

dsmoe_status imatrix_knows(const imatrix *m, const char *name, int64_t n_matrices, int64_t n_in,
                           bool *known, dsmoe_error *error)
{
    entry e;
    return find_checked(m, name, n_matrices, n_in, &e, known, error);
}

dsmoe_status imatrix_importance(const imatrix *m, const char *name, int64_t n_matrices,
                                int64_t n_in, float *out, bool *found, dsmoe_error *error)
{
    entry e;
    STATUS_TRY(find_checked(m, name, n_matrices, n_in, &e, found, error));
    if (!*found) return DSMOE_OK;
    double n_tokens = total_count(&e);
    *found = n_tokens > 0;
    for (int64_t column = 0; *found && column < n_in; column++)
        column_importance(&e, n_tokens, column, out);
    return DSMOE_OK;
}
