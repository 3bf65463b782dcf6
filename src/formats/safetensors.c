/* safetensors.c - opens a safetensors file and checks every rule of the format before any of its
 * offsets is used. All of it is untrusted: numbers are compared before they are added. */
#include "formats/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"
#include "formats/json.h"
#include "formats/mapped_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are little-endian and used in place");

enum { LENGTH_SIZE = 8, MAX_HEADER_SIZE = 100000000 };

struct safetensors {
    char *path;
    mapped_file mapping; /* zero if the bytes are the caller's */
    const unsigned char *bytes;
    size_t size;
    const char *text; /* the header without its padding */
    size_t text_size;
    const unsigned char *data; /* after the header */
    size_t data_size;
    json_node *header;         /* owns the names and the metadata */
    const json_node *metadata; /* or NULL */
    safetensors_tensor *tensors;
    size_t n_tensors;
};

/* ---- types -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [SAFETENSORS_BOOL] = {"BOOL", 1},       [SAFETENSORS_U8] = {"U8", 1},
    [SAFETENSORS_I8] = {"I8", 1},           [SAFETENSORS_F8_E5M2] = {"F8_E5M2", 1},
    [SAFETENSORS_F8_E4M3] = {"F8_E4M3", 1}, [SAFETENSORS_I16] = {"I16", 2},
    [SAFETENSORS_U16] = {"U16", 2},         [SAFETENSORS_F16] = {"F16", 2},
    [SAFETENSORS_BF16] = {"BF16", 2},       [SAFETENSORS_I32] = {"I32", 4},
    [SAFETENSORS_U32] = {"U32", 4},         [SAFETENSORS_F32] = {"F32", 4},
    [SAFETENSORS_F64] = {"F64", 8},         [SAFETENSORS_I64] = {"I64", 8},
    [SAFETENSORS_U64] = {"U64", 8},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

const char *safetensors_dtype_name(safetensors_dtype dtype) { return dtypes[dtype].name; }
size_t safetensors_dtype_size(safetensors_dtype dtype) { return dtypes[dtype].size; }

bool safetensors_dtype_as(safetensors_dtype from, dsmoe_dtype *to)
{
    switch (from) {
    case SAFETENSORS_F32: *to = DSMOE_F32; return true;
    case SAFETENSORS_F16: *to = DSMOE_F16; return true;
    case SAFETENSORS_BF16: *to = DSMOE_BF16; return true;
    default: return false;
    }
}

safetensors_dtype safetensors_dtype_for(dsmoe_dtype type)
{
    switch (type) {
    case DSMOE_F16: return SAFETENSORS_F16;
    case DSMOE_BF16: return SAFETENSORS_BF16;
    default: return SAFETENSORS_F32;
    }
}
/* ---- one entry of the header -------------------------------------------------------------- */

static dsmoe_status entry_member(const safetensors *file, const char *name, const json_node *entry,
                                 const char *key, json_kind kind, const json_node **member,
                                 dsmoe_error *error)
{
    *member = json_node_member(entry, key);
    if (!*member)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor '%.128s' has no '%s'", file->path,
                           name, key);
    if (json_node_kind(*member) != kind)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%.128s': '%s' must be %s, not %s", file->path, name, key,
                           json_kind_name(kind), json_kind_name(json_node_kind(*member)));
    return DSMOE_OK;
}

static dsmoe_status read_dtype(const safetensors *file, const json_node *entry,
                               safetensors_tensor *tensor, dsmoe_error *error)
{
    const json_node *member;
    STATUS_TRY(entry_member(file, tensor->name, entry, "dtype", JSON_KIND_STRING, &member, error));
    const char *dtype = json_node_string(member, NULL);
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtype, dtypes[i].name) == 0) {
            tensor->dtype = (safetensors_dtype)i;
            return DSMOE_OK;
        }
    }
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor '%.128s': unknown dtype '%.32s'",
                       file->path, tensor->name, dtype);
}

/* Reads an item that must be a non-negative integer. */
static dsmoe_status read_natural(const safetensors *file, const char *name, const char *key,
                                 const json_node *item, int64_t *number, dsmoe_error *error)
{
    if (json_node_kind(item) != JSON_KIND_INTEGER)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%.128s': '%s' must hold integers, not %s", file->path, name,
                           key, json_kind_name(json_node_kind(item)));
    *number = json_node_integer(item);
    if (*number < 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: tensor '%.128s': '%s' holds %lld",
                           file->path, name, key, (long long)*number);
    return DSMOE_OK;
}

static dsmoe_status read_shape(const safetensors *file, const json_node *entry,
                               safetensors_tensor *tensor, dsmoe_error *error)
{
    const json_node *member;
    STATUS_TRY(entry_member(file, tensor->name, entry, "shape", JSON_KIND_ARRAY, &member, error));
    size_t n_dims = json_node_count(member);
    if (n_dims > SAFETENSORS_MAX_DIMS)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%.128s' has %zu dimensions, at most %d are supported",
                           file->path, tensor->name, n_dims, SAFETENSORS_MAX_DIMS);
    tensor->n_dims = (int)n_dims;
    size_t size = safetensors_dtype_size(tensor->dtype);
    bool empty = false, fits = true;
    for (size_t i = 0; i < n_dims; i++) {
        STATUS_TRY(read_natural(file, tensor->name, "shape", json_node_item(member, i),
                                &tensor->shape[i], error));
        /* A zero must not hide an overflow of the other dimensions: strides may be computed. */
        if (tensor->shape[i] == 0)
            empty = true;
        else
            fits = fits && checked_mul_size(size, (size_t)tensor->shape[i], &size);
    }
    if (!fits)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%.128s': its shape does not fit into memory", file->path,
                           tensor->name);
    tensor->size = empty ? 0 : size;
    tensor->n_elements = tensor->size / safetensors_dtype_size(tensor->dtype);
    return DSMOE_OK;
}

static dsmoe_status read_offsets(const safetensors *file, const json_node *entry,
                                 safetensors_tensor *tensor, dsmoe_error *error)
{
    const char *name = tensor->name, *key = "data_offsets";
    const json_node *member;
    int64_t begin = 0, end = 0;
    STATUS_TRY(entry_member(file, name, entry, key, JSON_KIND_ARRAY, &member, error));
    if (json_node_count(member) != 2)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%.128s': '%s' must hold two integers, not %zu items",
                           file->path, name, key, json_node_count(member));
    STATUS_TRY(read_natural(file, name, key, json_node_item(member, 0), &begin, error));
    STATUS_TRY(read_natural(file, name, key, json_node_item(member, 1), &end, error));
    if (begin > end)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%.128s': it begins at %lld, after its end at %lld",
                           file->path, name, (long long)begin, (long long)end);
    if ((uint64_t)end > file->data_size)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: tensor '%.128s' ends at %lld, but the file has only %zu bytes of data", file->path,
            name, (long long)end, file->data_size);
    if ((uint64_t)(end - begin) != tensor->size)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: tensor '%.128s': its offsets span %lld bytes, its shape and dtype need %zu",
            file->path, name, (long long)(end - begin), tensor->size);
    tensor->data = file->data + begin;
    return DSMOE_OK;
}

static dsmoe_status visit_metadata(void *context, const char *key, const json_node *value,
                                   dsmoe_error *error)
{
    const safetensors *file = context;
    if (json_node_kind(value) != JSON_KIND_STRING)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: '__metadata__' key '%.128s' must be a string, not %s", file->path,
                           key, json_kind_name(json_node_kind(value)));
    return DSMOE_OK;
}

static dsmoe_status visit_entry(void *context, const char *key, const json_node *value,
                                dsmoe_error *error)
{
    safetensors *file = context;
    if (json_node_kind(value) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: header entry '%.128s' must be an object, not %s", file->path, key,
                           json_kind_name(json_node_kind(value)));
    if (strcmp(key, "__metadata__") == 0) {
        file->metadata = value;
        return json_node_each(value, visit_metadata, file, error);
    }
    safetensors_tensor *tensor = &file->tensors[file->n_tensors++];
    tensor->name = key;
    STATUS_TRY(read_dtype(file, value, tensor, error));
    STATUS_TRY(read_shape(file, value, tensor, error));
    return read_offsets(file, value, tensor, error);
}

/* ---- the file ----------------------------------------------------------------------------- */

/* Finds header and data, and checks that the header looks like one. */
static dsmoe_status find_header(safetensors *file, dsmoe_error *error)
{
    const unsigned char *bytes = file->bytes;
    if (file->size < LENGTH_SIZE)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: %zu bytes are too few for a safetensors file", file->path,
                           file->size);
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_SIZE; i++) length |= (uint64_t)bytes[i] << (8 * i);
    size_t behind = file->size - LENGTH_SIZE;
    if (length > MAX_HEADER_SIZE)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: header length %llu at offset 0 exceeds %d: not a safetensors file?",
                           file->path, (unsigned long long)length, MAX_HEADER_SIZE);
    if (length > behind)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: header length %llu at offset 0, but only %zu bytes follow: file cut short?",
            file->path, (unsigned long long)length, behind);
    file->text = (const char *)bytes + LENGTH_SIZE;
    file->text_size = (size_t)length;
    file->data = bytes + LENGTH_SIZE + length;
    file->data_size = behind - (size_t)length;
    if (length == 0 || file->text[0] != '{')
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the header does not start with '{'",
                           file->path);
    while (file->text[file->text_size - 1] == ' ') file->text_size--; /* stops at the '{' */
    size_t last = LENGTH_SIZE + file->text_size - 1;
    if (bytes[last] != '}')
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: the header must end with '}' and spaces, not with byte 0x%02x at "
                           "offset %zu",
                           file->path, bytes[last], last);
    return DSMOE_OK;
}

/* JSON allows the integer -0, but the format has no numbers with a sign. Other negative numbers have
 * been refused before, with the tensor's name. */
static dsmoe_status check_no_minus(const safetensors *file, dsmoe_error *error)
{
    const char *text = file->text;
    bool in_string = false;
    for (size_t i = 0; i < file->text_size; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (text[i] == '-' && !in_string)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: a negative number in the header at offset %zu", file->path,
                               LENGTH_SIZE + i);
    }
    return DSMOE_OK;
}

static int compare_places(const void *left, const void *right)
{
    const safetensors_tensor *a = left, *b = right;
    if (a->data != b->data) return a->data < b->data ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size); /* empty tensors come before others */
}

static int compare_names(const void *left, const void *right)
{
    const safetensors_tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Checks that tensors cover the data without gap or overlap. Leaves them sorted by their place. */
static dsmoe_status check_tiling(safetensors *file, dsmoe_error *error)
{
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, compare_places);
    size_t end = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const safetensors_tensor *tensor = &file->tensors[i];
        size_t begin = (size_t)(tensor->data - file->data);
        if (begin < end)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: tensor '%.128s' begins at %zu, inside tensor '%.128s'",
                               file->path, tensor->name, begin, tensor[-1].name);
        if (begin > end)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: no tensor has the data from %zu to %zu, before tensor '%.128s'",
                               file->path, end, begin, tensor->name);
        end += tensor->size;
    }
    if (end < file->data_size)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: %zu bytes after the last tensor belong to no tensor", file->path,
                           file->data_size - end);
    return DSMOE_OK;
}

static dsmoe_status read_header(safetensors *file, dsmoe_error *error)
{
    STATUS_TRY(find_header(file, error));
    STATUS_TRY(json_node_parse(file->text, file->text_size, file->path, &file->header, error));
    /* A complete value that starts with '{' is an object. */
    size_t n_entries = json_node_count(file->header);
    file->tensors = calloc(n_entries + 1, sizeof *file->tensors); /* + 1: never of size 0 */
    if (!file->tensors)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", file->path);
    STATUS_TRY(json_node_each(file->header, visit_entry, file, error));
    STATUS_TRY(check_no_minus(file, error));
    STATUS_TRY(check_tiling(file, error));
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, compare_names);
    return DSMOE_OK;
}

dsmoe_status safetensors_parse(const unsigned char *bytes, size_t size, const char *source,
                               safetensors **file, dsmoe_error *error)
{
    *file = NULL;
    safetensors *parsed = calloc(1, sizeof *parsed);
    dsmoe_status status;
    if (!parsed || !(parsed->path = strdup(source))) {
        status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", source);
        goto fail;
    }
    parsed->bytes = bytes;
    parsed->size = size;
    status = read_header(parsed, error);
    if (status != DSMOE_OK) goto fail;
    *file = parsed;
    return DSMOE_OK;
fail:
    safetensors_close(parsed);
    return status;
}

dsmoe_status safetensors_open(const char *path, safetensors **file, dsmoe_error *error)
{
    *file = NULL;
    mapped_file mapping;
    STATUS_TRY(mapped_file_open(&mapping, path, error));
    dsmoe_status status = safetensors_parse(mapping.bytes, mapping.size, path, file, error);
    /* If pages were lost, that is the error, whatever the check found in their place. */
    if (!mapped_file_intact(&mapping)) {
        safetensors_close(*file);
        *file = NULL;
        status = mapped_file_lost(path, error);
    }
    if (status == DSMOE_OK)
        (*file)->mapping = mapping; /* safetensors_close() closes it */
    else
        mapped_file_close(&mapping);
    return status;
}

void safetensors_close(safetensors *file)
{
    if (!file) return;
    free(file->tensors);
    json_node_free(file->header);
    mapped_file_close(&file->mapping);
    free(file->path);
    free(file);
}

const char *safetensors_path(const safetensors *file) { return file->path; }

dsmoe_status safetensors_check_intact(const safetensors *file, dsmoe_error *error)
{
    if (mapped_file_intact(&file->mapping)) return DSMOE_OK;
    return mapped_file_lost(file->path, error);
}

size_t safetensors_mapped_size(const safetensors *file) { return file->size; }

size_t safetensors_count(const safetensors *file) { return file->n_tensors; }

const safetensors_tensor *safetensors_at(const safetensors *file, size_t index)
{
    assert(index < file->n_tensors);
    return &file->tensors[index];
}

const safetensors_tensor *safetensors_find(const safetensors *file, const char *name)
{
    safetensors_tensor key = {.name = name};
    return bsearch(&key, file->tensors, file->n_tensors, sizeof key, compare_names);
}

const char *safetensors_metadata(const safetensors *file, const char *key)
{
    const json_node *value = file->metadata ? json_node_member(file->metadata, key) : NULL;
    return value ? json_node_string(value, NULL) : NULL;
}

/* ---- values ------------------------------------------------------------------------------- */

/* The fixed-size copy, and a type that is constant over the loop, make this fast enough. */
static float element_f32(const unsigned char *bytes, safetensors_dtype dtype)
{
    uint16_t half;
    double wide;
    if (dtype == SAFETENSORS_F64) {
        memcpy(&wide, bytes, sizeof wide);
        return (float)wide;
    }
    memcpy(&half, bytes, sizeof half);
    return dtype == SAFETENSORS_F16 ? half_from_f16(half) : half_from_bf16(half);
}

bool safetensors_tensor_read_f32(const safetensors_tensor *tensor, size_t first, size_t count,
                                 float *out)
{
    assert(first <= tensor->n_elements && count <= tensor->n_elements - first);
    safetensors_dtype dtype = tensor->dtype;
    size_t size = safetensors_dtype_size(dtype);
    const unsigned char *bytes = tensor->data + first * size;
    switch (dtype) {
    case SAFETENSORS_F32: memcpy(out, bytes, count * size); return true;
    case SAFETENSORS_F64:
    case SAFETENSORS_F16:
    case SAFETENSORS_BF16:
        for (size_t i = 0; i < count; i++) out[i] = element_f32(bytes + i * size, dtype);
        return true;
    default: return false;
    }
}

/* A little-endian integer of 1, 2, 4 or 8 bytes, its sign extended if it has one. */
static int64_t element_i64(const unsigned char *bytes, size_t size, bool is_signed)
{
    uint64_t value = 0;
    memcpy(&value, bytes, size);
    uint64_t sign = (uint64_t)1 << (8 * size - 1);
    if (is_signed) value = (value ^ sign) - sign;
    return (int64_t)value;
}

bool safetensors_tensor_read_i64(const safetensors_tensor *tensor, size_t first, size_t count,
                                 int64_t *out)
{
    assert(first <= tensor->n_elements && count <= tensor->n_elements - first);
    bool is_signed;
    switch (tensor->dtype) {
    case SAFETENSORS_I8:
    case SAFETENSORS_I16:
    case SAFETENSORS_I32:
    case SAFETENSORS_I64: is_signed = true; break;
    case SAFETENSORS_U8:
    case SAFETENSORS_U16:
    case SAFETENSORS_U32: is_signed = false; break;
    default: return false;
    }
    size_t size = safetensors_dtype_size(tensor->dtype);
    const unsigned char *bytes = tensor->data + first * size;
    for (size_t i = 0; i < count; i++) out[i] = element_i64(bytes + i * size, size, is_signed);
    return true;
}
