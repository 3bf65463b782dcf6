/* adapted.h - the adapters of an engine, and which of them apply to a sequence.
 *
 * Keys and values depend on the adapters, so a page can only be shared by sequences with the same tokens,
 * adapters and scales. That is why each combination of scales has its own root: the page id before the first
 * page of a text. */
#ifndef DSMOE_ENGINE_ADAPTED_H
#define DSMOE_ENGINE_ADAPTED_H

#include "engine/page_pool.h"
#include "moe/low_rank.h"

/* The adapters of a sequence. */
typedef struct adapted_text {
    float scales[DSMOE_ADAPTERS_MAX];
    page_id root; /* PAGE_ID_NONE if no adapter applies */
} adapted_text;

/* How many combinations have a known root. After that, the oldest is forgotten. If it is used again it gets a
 * new root, with the only effect that its old pages are not found. */
enum { ADAPTED_KNOWN = 64 };

typedef struct adapted_engine {
    const adapter *tables[DSMOE_ADAPTERS_MAX]; /* [n] */
    int64_t n;
    adapted_text first; /* the scales that sequences begin with; adapted_begin sets the root */
    adapted_text known[ADAPTED_KNOWN];
    int n_known, oldest;
} adapted_engine;

/* Whether these adapters can be used with the model in an engine. */
dsmoe_status adapted_check(const dsmoe_model *model, const dsmoe_engine_options *options,
                           dsmoe_error *error);
dsmoe_status adapted_check_scales(const double *scales, int64_t n, dsmoe_error *error);
/* `options` must have been checked. */
adapted_engine adapted_open(const dsmoe_model *model, const dsmoe_engine_options *options);
/* The adapters of a sequence with these scales, which must have been checked; NULL: with the scales of the
 * engine. */
adapted_text adapted_begin(adapted_engine *engine, const double *scales, page_pool *pool);

#endif
