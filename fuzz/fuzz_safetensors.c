/* fuzz_safetensors.c - any bytes as a safetensors file: refused, or every tensor can be used. */
#include "fuzz.h"

#include <string.h>

#include "base/checked.h"
#include "formats/safetensors.h"

/* Values read from a tensor end up here, so that the compiler does not remove the reads. */
static volatile float float_sink;
static volatile int64_t integer_sink;

static void use_tensor(const safetensors *file, const safetensors_tensor *tensor)
{
    require(safetensors_find(file, tensor->name) == tensor);
    size_t elements = 1, strides = safetensors_dtype_size(tensor->dtype);
    for (int i = 0; i < tensor->n_dims; i++) {
        size_t length = (size_t)tensor->shape[i];
        elements *= length;
        require(checked_mul_size(strides, length ? length : 1, &strides));
    }
    require(elements == tensor->n_elements);
    require(elements * safetensors_dtype_size(tensor->dtype) == tensor->size);
    for (size_t i = 0; i < tensor->size; i++) integer_sink = tensor->data[i];
    if (elements == 0) return;
    float real;
    int64_t integer;
    bool is_real = safetensors_tensor_read_f32(tensor, elements - 1, 1, &real);
    bool is_integer = safetensors_tensor_read_i64(tensor, elements - 1, 1, &integer);
    require(!is_real || !is_integer);
    if (is_real) float_sink = real;
    if (is_integer) integer_sink = integer;
}

static void try_bytes(const uint8_t *bytes, size_t size)
{
    safetensors *file;
    dsmoe_error error = {0};
    dsmoe_status status = safetensors_parse(bytes, size, "fuzz", &file, &error);
    if (status != DSMOE_OK) {
        require(file == NULL);
        require_error(status, &error);
        return;
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor *tensor = safetensors_at(file, i);
        require(i == 0 || strcmp(safetensors_at(file, i - 1)->name, tensor->name) < 0);
        require(tensor->data >= bytes && tensor->data + tensor->size <= bytes + size);
        use_tensor(file, tensor);
    }
    const char *value = safetensors_metadata(file, "k");
    if (value) integer_sink = (int64_t)strlen(value);
    safetensors_close(file);
}

/* Most changes to the header change its length, and the length check would stop all of those. So the bytes
 * are tried unchanged, and again with the length that ends the header at its last brace. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    enum { LENGTH_SIZE = 8 };
    try_bytes(bytes, size);
    if (size <= LENGTH_SIZE) return 0;
    uint8_t *mended = malloc(size);
    require(mended != NULL);
    memcpy(mended, bytes, size);
    uint64_t end = size;
    while (end > LENGTH_SIZE && mended[end - 1] != '}') end--;
    for (int i = 0; i < LENGTH_SIZE; i++) mended[i] = (uint8_t)((end - LENGTH_SIZE) >> (8 * i));
    try_bytes(mended, size);
    free(mended);
    return 0;
}
