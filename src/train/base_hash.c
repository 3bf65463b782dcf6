/* base_hash.c - a hash of a model that reads little of it. */
#include "train/base_hash.h"

#include <string.h>

enum {
    SAMPLE = 64,     /* bytes of a sample */
    APART = 1 << 20, /* bytes from one sample to the next; the last bytes are hashed too */
};

static void add_bytes(hash_state *hash, const unsigned char *bytes, size_t size)
{
    for (size_t at = 0; at < size; at += APART)
        hash_add(hash, bytes + at, size - at < SAMPLE ? size - at : SAMPLE);
    if (size > SAMPLE) hash_add(hash, bytes + size - SAMPLE, SAMPLE);
}

static dsmoe_status hash_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    hash_state *hash = context;
    bool is_matrix = spec->n_dims == 2;
    const matrix *m = is_matrix ? spec->slot.matrix : NULL;
    int64_t about[3] = {spec->shape[0], spec->shape[1], is_matrix ? (int64_t)m->type : -1};
    hash_add(hash, spec->name, strlen(spec->name) + 1);
    hash_add(hash, about, sizeof about);
    if (is_matrix)
        add_bytes(hash, m->data, (size_t)(m->stride * spec->shape[0]));
    else
        add_bytes(hash, (const unsigned char *)*spec->slot.vector,
                  (size_t)spec->shape[0] * sizeof(float));
    return DSMOE_OK;
}

uint64_t base_hash(const dsmoe_model *model, hash_kind kind)
{
    hash_state hash;
    hash_begin_as(&hash, kind, 0);
    weights_each(&model->config, model->weights, hash_visit, &hash, NULL);
    uint64_t all = hash_end(&hash);
    return all ? all : 1;
}
