/* gguf_tensors.c - the descriptions of the tensors in a GGUF file, and where their data lies.
 *
 * Tensors must lie in the order of their descriptions, each padded to the alignment. Like llama.cpp,
 * this refuses any other file, which excludes overlaps as well as gaps. Bytes after the last tensor
 * are ignored. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/gguf_parts.h"

/* ---- unsupported types --------------------------------------------------------------------- */

/* Names of public types by their numbers, for messages. */
static const char *const foreign_types[] = {
    [3] = "Q4_1",     [4] = "Q4_2",   [5] = "Q4_3",      [7] = "Q5_1",      [9] = "Q8_1",
    [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",     [16] = "IQ2_XXS",  [17] = "IQ2_XS",
    [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL",   [21] = "IQ3_S",    [22] = "IQ2_S",
    [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",      [26] = "I32",      [27] = "I64",
    [28] = "F64",     [29] = "IQ1_M", [31] = "Q4_0_4_4", [32] = "Q4_0_4_8", [33] = "Q4_0_8_8",
    [34] = "TQ1_0",   [35] = "TQ2_0", [39] = "MXFP4",    [40] = "NVFP4",
};

static dsmoe_status refuse_type(const gguf_part *part, const gguf_tensor *tensor, uint32_t type,
                                dsmoe_error *error)
{
    const char *name =
        type < sizeof foreign_types / sizeof *foreign_types ? foreign_types[type] : NULL;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: tensor '%s' has type %u (%s), which is not supported", part->path,
                       tensor->name, type, name ? name : "unknown");
}

/* ---- one description ----------------------------------------------------------------------- */

static dsmoe_status cut_short(const gguf_cursor *cursor, const gguf_tensor *tensor,
                              dsmoe_error *error)
{
    return status_fail(
        error, DSMOE_ERROR_FORMAT,
        "%s: the file ends in the description of tensor '%s' at offset %zu: file cut "
        "short?",
        cursor->path, tensor->name, cursor->at);
}

static dsmoe_status read_name(gguf_part *part, gguf_cursor *cursor, size_t index,
                              gguf_tensor *tensor, dsmoe_error *error)
{
    gguf_string name;
    size_t begin = cursor->at;
    STATUS_TRY(gguf_cursor_name(cursor, "tensor", index, GGUF_NAME_SIZE - 1, &name, error));
    memcpy(part->names[index], name.bytes, name.length); /* the rest is zero */
    tensor->name = part->names[index];
    if (!gguf_name_leads_away(tensor->name)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: tensor '%s' at offset %zu: its name has a '/' or '..' in it",
                       part->path, tensor->name, begin);
}

static dsmoe_status read_shape(const gguf_part *part, gguf_cursor *cursor, gguf_tensor *tensor,
                               dsmoe_error *error)
{
    uint32_t n_dims;
    if (!gguf_cursor_u32(cursor, &n_dims)) return cut_short(cursor, tensor, error);
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%s' has %u dimensions at offset %zu, outside 1 to %d",
                           part->path, tensor->name, n_dims, cursor->at - 4, GGUF_MAX_DIMS);
    tensor->n_dims = (int)n_dims;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) tensor->shape[i] = 1;
    for (uint32_t i = n_dims; i-- > 0;) { /* the file has the fastest dimension first */
        uint64_t length;
        if (!gguf_cursor_u64(cursor, &length)) return cut_short(cursor, tensor, error);
        if (length == 0 || length > INT64_MAX)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: tensor '%s' has a dimension of length %lld at offset %zu",
                               part->path, tensor->name, (long long)length, cursor->at - 8);
        tensor->shape[i] = (int64_t)length;
    }
    return DSMOE_OK;
}

/* Computes the size in bytes from shape and type. */
static dsmoe_status measure(const gguf_part *part, gguf_tensor *tensor, dsmoe_error *error)
{
    const dtype_info *type = &dtype_table[tensor->type];
    int64_t row = tensor->shape[tensor->n_dims - 1];
    if (row % type->block != 0)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: tensor '%s' has rows of %lld numbers, which must be a multiple of %d (%s)",
            part->path, tensor->name, (long long)row, type->block, type->name);
    int64_t numbers = 1, size;
    bool fits = true;
    for (int i = 0; i < tensor->n_dims; i++)
        fits = fits && checked_mul_i64(numbers, tensor->shape[i], &numbers);
    fits = fits && checked_mul_i64(numbers / type->block, type->bytes, &size);
    if (!fits || (uint64_t)size > part->size)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%s' has a shape (%lld x %lld x %lld x %lld, %s) that does "
                           "not fit into a file of %zu bytes",
                           part->path, tensor->name, (long long)tensor->shape[0],
                           (long long)tensor->shape[1], (long long)tensor->shape[2],
                           (long long)tensor->shape[3], type->name, part->size);
    tensor->size = (size_t)size;
    return DSMOE_OK;
}

/* Checks that the tensor's data begins at *end, then moves *end to where the next one must begin.
 * Offsets count from the first byte of data. */
static dsmoe_status check_offset(const gguf_part *part, const gguf_tensor *tensor, uint64_t offset,
                                 size_t alignment, size_t *end, dsmoe_error *error)
{
    const char *name = tensor->name;
    if (offset % alignment != 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%s' begins at %llu, which is not a multiple of the "
                           "alignment %zu",
                           part->path, name, (unsigned long long)offset, alignment);
    if (offset < *end)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%s' begins at %llu, but the tensors before it end at %zu",
                           part->path, name, (unsigned long long)offset, *end);
    if (offset > *end)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%s' begins at %llu, but the tensors before it end at %zu: "
                           "there must be no gap",
                           part->path, name, (unsigned long long)offset, *end);
    size_t padding = (alignment - tensor->size % alignment) % alignment;
    if (!checked_add_size(*end, tensor->size, end) || !checked_add_size(*end, padding, end))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: tensor '%s' does not fit after the tensors before it", part->path,
                           name);
    return DSMOE_OK;
}

static dsmoe_status read_tensor(gguf_part *part, gguf_cursor *cursor, size_t index,
                                size_t alignment, size_t *end, dsmoe_error *error)
{
    gguf_tensor *tensor = &part->tensors[index];
    uint32_t type;
    uint64_t offset;
    STATUS_TRY(read_name(part, cursor, index, tensor, error));
    STATUS_TRY(read_shape(part, cursor, tensor, error));
    if (!gguf_cursor_u32(cursor, &type) || !gguf_cursor_u64(cursor, &offset))
        return cut_short(cursor, tensor, error);
    if (!dtype_from_gguf(type, &tensor->type)) return refuse_type(part, tensor, type, error);
    STATUS_TRY(measure(part, tensor, error));
    return check_offset(part, tensor, offset, alignment, end, error);
}

/* ---- all tensors --------------------------------------------------------------------------- */

static dsmoe_status read_alignment(const gguf_part *part, size_t *alignment, dsmoe_error *error)
{
    static const char name[] = "general.alignment";
    enum { LARGEST = 1 << 20 };
    *alignment = GGUF_ALIGNMENT;
    const gguf_key *key = gguf_part_find(part, name);
    if (!key) return DSMOE_OK;
    if (key->type != GGUF_U32)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: key '%s' must be U32", part->path, name);
    int64_t value = 0;
    STATUS_TRY(gguf_part_get_int(part, name, &value, NULL, error));
    if (value < 8 || value > LARGEST || (value & (value - 1)) != 0)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: key '%s' is %lld: it must be a power of two from 8 to %d",
                           part->path, name, (long long)value, LARGEST);
    *alignment = (size_t)value;
    return DSMOE_OK;
}

/* Points every tensor to its data, which begins after the padding at the cursor. */
static dsmoe_status place_data(gguf_part *part, const gguf_cursor *cursor, size_t alignment,
                               dsmoe_error *error)
{
    size_t begin = cursor->at + (alignment - cursor->at % alignment) % alignment;
    for (size_t i = 0; i < part->n_tensors; i++) {
        gguf_tensor *tensor = &part->tensors[i];
        if (begin > part->size || tensor->size > part->size - begin)
            return status_fail(
                error, DSMOE_ERROR_FORMAT,
                "%s: tensor '%s' needs %zu bytes at offset %zu, but the file has only "
                "%zu: file cut short?",
                part->path, tensor->name, tensor->size, begin, part->size);
        tensor->data = part->bytes + begin;
        begin += tensor->size;
        begin += (alignment - begin % alignment) % alignment;
    }
    return DSMOE_OK;
}

dsmoe_status gguf_part_read_tensors(gguf_part *part, gguf_cursor *cursor, uint64_t n_tensors,
                                    dsmoe_error *error)
{
    enum { SMALLEST = 8 + 1 + 4 + 8 + 4 + 8 };
    size_t left = cursor->size - cursor->at, alignment = 0, end = 0;
    if (n_tensors > GGUF_MAX_TENSORS || n_tensors > left / SMALLEST)
        return status_fail(
            error, DSMOE_ERROR_FORMAT,
            "%s: %llu tensors at offset 8 are too many for the %zu bytes that follow "
            "the metadata, or more than %d",
            part->path, (unsigned long long)n_tensors, left, GGUF_MAX_TENSORS);
    STATUS_TRY(read_alignment(part, &alignment, error));
    part->tensors = calloc(n_tensors + 1, sizeof *part->tensors); /* + 1: never of size 0 */
    part->names = calloc(n_tensors + 1, sizeof *part->names);
    if (!part->tensors || !part->names)
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", part->path);
    for (size_t i = 0; i < n_tensors; i++)
        STATUS_TRY(read_tensor(part, cursor, i, alignment, &end, error));
    part->n_tensors = n_tensors;
    return place_data(part, cursor, alignment, error);
}
