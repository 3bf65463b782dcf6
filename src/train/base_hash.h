/* base_hash.h - whether a model is still the one that a run was started with. */
#ifndef DSMOE_TRAIN_BASE_HASH_H
#define DSMOE_TRAIN_BASE_HASH_H

#include "base/hash.h"
#include "model/model.h"

/* Hashes the names, shapes and types of all tensors, and some bytes of every megabyte: reading all of ten
 * gigabytes would take longer than a short run. Never 0. */
uint64_t base_hash(const dsmoe_model *model, hash_kind kind);

#endif
