/* octet_stores.c - room for the octets of a model's matrices. */
#include "model/octet_stores.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* A walk that first measures (without `stores`), then places. */
typedef struct place {
    octet_store *stores;
    octet_budget *budget;
    unsigned char *memory;
    size_t n, size; /* size with room for alignment */
    size_t bytes;
} place;

static void place_matrix(place *p, matrix *m, int64_t n_rows, int64_t k)
{
    const size_t alignment = 4096;
    int64_t n_octets = n_rows / BLOCK_OCTET;
    if (!dtype_is_block(m->type) || n_octets == 0) return;
    size_t bytes = (size_t)(n_octets * BLOCK_OCTET * m->stride);
    if (p->stores) {
        octet_store *store = &p->stores[p->n];
        *store = (octet_store){.memory = p->memory + p->size,
                               .n_octets = n_octets,
                               .k = k,
                               .size = bytes,
                               .budget = p->budget};
        m->home = &store->home;
    }
    p->size += (bytes + alignment - 1) / alignment * alignment;
    p->bytes += bytes;
    p->n++;
}

/* The embedding is only looked up, so it needs no octets. */
static dsmoe_status place_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    if (spec->n_dims == 2 && strcmp(spec->name, "model.embed_tokens.weight") != 0)
        place_matrix(context, spec->slot.matrix, spec->shape[0], spec->shape[1]);
    return DSMOE_OK;
}

static void place_all(place *p, const dsmoe_config *config, model_weights *weights)
{
    weights_each(config, weights, place_visit, p, NULL);
    if (config->tie_word_embeddings)
        place_matrix(p, &weights->lm_head, config->vocab_size, config->hidden_size);
}

void octet_stores_open(octet_stores *stores, const dsmoe_config *config, model_weights *weights)
{
    place all = {0};
    *stores = (octet_stores){0};
    place_all(&all, config, weights);
    if (all.n == 0) return;
    stores->stores = calloc(all.n, sizeof *stores->stores);
    stores->memory = stores->stores ? memory_reserve(all.size) : NULL;
    if (!stores->memory) return; /* slower, but correct */
    stores->size = all.size;
    stores->budget.total = all.bytes;
    stores->budget.available = memory_available;
    all = (place){.stores = stores->stores, .budget = &stores->budget, .memory = stores->memory};
    place_all(&all, config, weights);
}

void octet_stores_close(octet_stores *stores)
{
    free(stores->stores);
    memory_release(stores->memory, stores->size);
    *stores = (octet_stores){0};
}

void octet_stores_drop(octet_stores *stores, const matrix *m)
{
    if (m->home) stores->budget.total -= ((const octet_store *)m->home)->size;
}
