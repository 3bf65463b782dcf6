/* fuzz_imatrix.c - any bytes as a file of importances: refused, or every matrix in it has a finite,
 * non-negative importance for each column. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "convert/imatrix.h"
#include "formats/gguf.h"

static int64_t elements(const gguf_tensor *tensor)
{
    int64_t n = 1;
    for (int i = 0; i < tensor->n_dims; i++) n *= tensor->shape[i];
    return n;
}

static void use_matrix(const imatrix *m, const char *name, int64_t n_matrices, int64_t n_in)
{
    int64_t n = n_matrices * n_in;
    bool found = false, known = false;
    float *out = malloc((size_t)n * sizeof *out);
    require(out != NULL);
    require(imatrix_knows(m, name, n_matrices, n_in, &known, NULL) == DSMOE_OK && known);
    require(imatrix_importance(m, name, n_matrices, n_in, out, &found, NULL) == DSMOE_OK);
    for (int64_t i = 0; found && i < n; i++) require(isfinite(out[i]) && out[i] >= 0);
    free(out);

    dsmoe_error error = {0};
    dsmoe_status status = imatrix_knows(m, name, n_matrices, n_in + 1, &known, &error);
    require_error(status, &error);
}

/* If the tensor holds the sums of a matrix, uses that matrix and returns 1; otherwise returns 0. */
static int64_t use_tensor(const imatrix *m, const gguf *file, const gguf_tensor *sums)
{
    char name[IMATRIX_NAME_SIZE], sums_name[IMATRIX_NAME_SIZE], counts_name[IMATRIX_NAME_SIZE];
    size_t length = strlen(sums->name), suffix = strlen(IMATRIX_SUMS);
    if (length <= suffix || strcmp(sums->name + length - suffix, IMATRIX_SUMS) != 0) return 0;
    memcpy(name, sums->name, length - suffix);
    name[length - suffix] = '\0';
    require(imatrix_names(name, sums_name, counts_name));
    const gguf_tensor *counts = gguf_find(file, counts_name);
    require(counts != NULL);
    use_matrix(m, name, elements(counts), elements(sums) / elements(counts));
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    imatrix *m;
    dsmoe_error error = {0};
    dsmoe_status status = imatrix_parse(bytes, size, "fuzz", &m, &error);
    if (status != DSMOE_OK) {
        require(m == NULL);
        require_error(status, &error);
        return 0;
    }
    gguf *file;
    require(gguf_parse(bytes, size, "fuzz", &file, NULL) == DSMOE_OK);
    int64_t count = 0;
    for (size_t i = 0; i < gguf_count(file); i++) count += use_tensor(m, file, gguf_at(file, i));
    require(count == imatrix_count(m));
    gguf_close(file);
    imatrix_close(m);
    return 0;
}
