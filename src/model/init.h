/* init.h - writes a fresh model to disk, with an option for tests that the public function fixes. */
#ifndef DSMOE_MODEL_INIT_H
#define DSMOE_MODEL_INIT_H

#include "base/status.h"
#include "model/weights.h"

typedef struct init_options {
    dsmoe_dtype dtype;
    uint64_t seed;
    int n_threads;     /* at least 1 */
    size_t shard_size; /* most bytes of tensors in one file; a larger tensor has its own file */
    dsmoe_progress_fn *progress; /* may be NULL */
    void *context;
} init_options;

dsmoe_status init_folder(const char *folder, const dsmoe_config *config,
                         const init_options *options, dsmoe_error *error);

/* The random stream (see base/rng.h) of a tensor. */
uint64_t init_stream(const char *name);
/* Numbers [first, first + n) of a fresh tensor. */
void init_numbers(const dsmoe_config *config, uint64_t seed, const char *name, weight_role role,
                  int64_t first, int64_t n, float *out);

#endif
