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

/* Gives a home to every quantised matrix that is used in products. The struct must stay where it is. */
void octet_stores_open(octet_stores *stores, const dsmoe_config *config, model_weights *weights);
void octet_stores_close(octet_stores *stores);

/* Call for a matrix that will not be used: no memory is counted for its octets then. */
void octet_stores_drop(octet_stores *stores, const matrix *m);

#endif
