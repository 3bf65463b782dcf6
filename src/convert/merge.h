/* merge.h - the changes that fine-tuning made to a model: an adapter, or tensors that replace the base's.
 *
 * Rows are changed one by one while a model is written (source.h), in the order of the public layout. */
#ifndef DSMOE_CONVERT_MERGE_H
#define DSMOE_CONVERT_MERGE_H

#include "adapt/adapter.h"
#include "formats/shards.h"

typedef struct merge {
    dsmoe_adapter *adapter; /* either this, */
    shards *tensors;        /* or a folder with the changed tensors */
    float scale;            /* of the adapter */
} merge;

/* The change of one tensor; `add` and `instead` are NULL: none. */
typedef struct merge_change {
    const adapter_item *add;
    float scale;
    const safetensors_tensor *instead;
} merge_change;

/* Opens an adapter or a folder of tensors, and checks that the model has all of them in the same shapes. */
dsmoe_status merge_open(merge *m, const char *path, double scale, const dsmoe_model *model,
                        dsmoe_error *error);
void merge_close(merge *m); /* allowed on a zeroed one */
dsmoe_status merge_check_intact(const merge *m, dsmoe_error *error);

/* The change of the tensor with that name; for k_b_proj and v_b_proj, the change of kv_b_proj. */
merge_change merge_find(const merge *m, const char *name);
static inline bool merge_changes(const merge_change *c) { return c->add || c->instead; }

/* Changes `out`, which holds numbers [column, column + n) of row `row`. */
void merge_row(const merge_change *c, int64_t row, int64_t column, int64_t n, float *out);

#endif
