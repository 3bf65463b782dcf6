/* adapter.h - a LoRA adapter of a model: W becomes W + scale·B·A for some of its matrices.
 *
 * Adapters have two forms: PEFT's folder (peft.h) and llama.cpp's GGUF file (gguf_adapter.h). Both are read
 * into items with the names and the order of rows of the public layout. adapter_finish checks the items
 * against the model and makes the table that products use (moe/low_rank.h), with rows in the model's order.
 * Numbers keep the type that they have in the file, so a token reads no more bytes than necessary. */
#ifndef DSMOE_ADAPT_ADAPTER_H
#define DSMOE_ADAPT_ADAPTER_H

#include "model/gguf_names.h"
#include "model/model.h"
#include "moe/low_rank.h"

/* A matrix of the public layout that can be adapted. */
typedef struct adapter_slot {
    char *name; /* with ".weight" */
    weight_role role;
    int64_t n_out, n_in;
    int32_t id;       /* of the model's matrix; 0: the model has it in another form */
    gguf_place place; /* in a GGUF file */
    int64_t
        paired; /* rows of a head whose halves the model interleaves; 0: it has the public order */
    int64_t item; /* the index of its item; -1: none */
} adapter_slot;

typedef struct adapter_item {
    const adapter_slot *slot;
    int64_t rank;
    float scale; /* alpha/rank or alpha/√rank */
    void *a;     /* [rank, n_in]; NULL until it is read */
    /* [n_out, rank]; after adapter_finish in panels, with rows in the model's order: see adapter_b */
    void *b;
    dsmoe_dtype a_type, b_type; /* plain types */
} adapter_item;

struct dsmoe_adapter {
    char *path; /* for messages */
    const dsmoe_model *model;
    adapter_slot *slots; /* [n_slots] in the order of weights_each */
    int64_t n_slots;
    adapter_item *items; /* [n_items] */
    int64_t n_items, capacity;
    adapter table;
    low_rank *of; /* [1 + tensors of the model] */
    void *memory; /* after adapter_finish: the numbers of all items */
    size_t memory_size, memory_used;
};

/* Makes an empty adapter; `path` names it in messages. */
dsmoe_status adapter_create(const dsmoe_model *model, const char *path, dsmoe_adapter **made,
                            dsmoe_error *error);
/* The matrix of that name, which ends with ".weight"; NULL if the model has none. */
adapter_slot *adapter_find(const dsmoe_adapter *adapter, const char *name);
/* The item of a slot, made if there is none; NULL if there is no memory. */
adapter_item *adapter_item_of(dsmoe_adapter *adapter, adapter_slot *slot);
/* Call it after the last item. Checks that items are complete and finite, and makes the table. */
dsmoe_status adapter_finish(dsmoe_adapter *adapter, dsmoe_error *error);

/* Row `row` of the public layout is row adapter_model_row(…) of the model's matrix. */
int64_t adapter_model_row(const adapter_slot *slot, int64_t row);

/* Numbers of A and B, by rows of the public layout. Call these after adapter_finish. */
void adapter_a(const adapter_item *item, int64_t r, int64_t column, int64_t n, float *out);
low_rank adapter_low_rank(const adapter_item *item);
float adapter_b(const adapter_item *item, int64_t row, int64_t r);
bool adapter_all_zero(dsmoe_dtype type, const void *numbers, int64_t n);

/* Whether a path is an adapter: a folder with an adapter_config.json, or a GGUF file of type "adapter". */
bool adapter_is_folder(const char *path);
bool adapter_is_gguf(const char *path);

#endif
