/* octet_stores.h - room for the octets of a model's matrices (see moe/octets.h). */
#ifndef DSMOE_MODEL_OCTET_STORES_H
#define DSMOE_MODEL_OCTET_STORES_H

#include "moe/octets.h"
#include "model/weights.h"

typedef struct octet_stores {
    octet_store *stores;
    unsigned char *memory; /* reserved; pages become real as octets are made */
    size_t size;
    octet_budget budget;
} octet_stores;

/* Gives every matrix of a block type that products are made with a home. The stores must stay where they
 * are. */
void octet_stores_open(octet_stores *stores, const dsmoe_config *config, model_weights *weights);
void octet_stores_close(octet_stores *stores);

/* This matrix will not be used: memory need not suffice for its octets. */
void octet_stores_drop(octet_stores *stores, const matrix *m);

#endif
