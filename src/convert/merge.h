/* merge.h - what fine-tuning changed about a model: an adapter, or some tensors that take the place of the base's.
 *
 * Rows are asked for one by one while a model is written (source.h), in the order of the public layout. */
#ifndef DSMOE_CONVERT_MERGE_H
#define DSMOE_CONVERT_MERGE_H

#include "adapt/adapter.h"
#include "formats/shards.h"

typedef struct merge {
    dsmoe_adapter *adapter; /* or */
    shards *tensors;        /* of a folder that has the changed ones */
    float scale;            /* of the adapter */
} merge;

/* The change of one tensor; all NULL: none. */
typedef struct merge_change {
    const adapter_item *add;
    float scale;
    const safetensors_tensor *instead;
} merge_change;

/* Opens an adapter or a folder of tensors, and checks that the model has them all, in the same shapes. */
dsmoe_status merge_open(merge *m, const char *path, double scale, const dsmoe_model *model,
                        dsmoe_error *error);
void merge_close(merge *m); /* allowed on zeros */
dsmoe_status merge_check_intact(const merge *m, dsmoe_error *error);

/* The change of the tensor of that name; k_b_proj and v_b_proj have that of kv_b_proj. */
merge_change merge_find(const merge *m, const char *name);
static inline bool merge_changes(const merge_change *c) { return c->add || c->instead; }

/* Changes a row of the tensor, numbers [column, column + n) of row `row`. */
void merge_row(const merge_change *c, int64_t row, int64_t column, int64_t n, float *out);

#endif
