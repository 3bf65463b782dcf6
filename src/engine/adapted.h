/* adapted.h - the adapters of an engine, and which of them a sequence meets.
 *
 * Keys and values depend on them, so a page belongs to its tokens and to the adapters and scales it was made with: the
 * first page of a text follows a root, which is another one for each combination of scales. */
#ifndef DSMOE_ENGINE_ADAPTED_H
#define DSMOE_ENGINE_ADAPTED_H

#include "engine/page_pool.h"
#include "moe/low_rank.h"

/* Of a sequence. */
typedef struct adapted_text {
    float scales[DSMOE_ADAPTERS_MAX];
    page_id root; /* PAGE_ID_NONE: no adapter */
} adapted_text;

/* Combinations whose roots are known. One that is forgotten, the oldest first, gets another root if it comes again: its
 * pages are not found any more, and that is all. */
enum { ADAPTED_KNOWN = 64 };

typedef struct adapted_engine {
    const adapter *tables[DSMOE_ADAPTERS_MAX]; /* [n] */
    int64_t n;
    adapted_text first; /* that sequences begin with; its root is found when one does */
    adapted_text known[ADAPTED_KNOWN];
    int n_known, oldest;
} adapted_engine;

/* Whether these adapters can be used with the model in an engine. */
dsmoe_status adapted_check(const dsmoe_model *model, const dsmoe_engine_options *options,
                           dsmoe_error *error);
dsmoe_status adapted_check_scales(const double *scales, int64_t n, dsmoe_error *error);
/* Of checked options. */
adapted_engine adapted_open(const dsmoe_model *model, const dsmoe_engine_options *options);
/* What a sequence with these (checked) scales meets; NULL: the engine's. */
adapted_text adapted_begin(adapted_engine *engine, const double *scales, page_pool *pool);

#endif
