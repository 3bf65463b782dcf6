/* adapted.c - the adapters of an engine, and which of them apply to a sequence. */
#include "engine/adapted.h"

#include <string.h>

#include "adapt/adapter.h"
#include "model/model.h"

/* Two kinds of tensors cannot be adapted here. Products of lm_head do not have the rows of the pass, and
 * kv_b_proj of latent attention is multiplied into the queries. */
static dsmoe_status check_item(const dsmoe_adapter *a, const adapter_item *item, dsmoe_error *error)
{
    const char *name = item->slot->name;
    if (item->rank > LOW_RANK_MOST)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: the rank of %s is %lld; it can be at most %d here, but dsmoe merge "
                           "accepts any rank",
                           a->path, name, (long long)item->rank, LOW_RANK_MOST);
    if (!strcmp(name, "lm_head.weight") || strstr(name, ".kv_b_proj."))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: it adapts %s, which only works in a merged model: see dsmoe merge",
                           a->path, name);
    return DSMOE_OK;
}

dsmoe_status adapted_check_scales(const double *scales, int64_t n, dsmoe_error *error)
{
    for (int64_t i = 0; i < n; i++)
        if (!((float)scales[i] - (float)scales[i] == 0.0f))
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "the scale of adapter %lld is not a finite number", (long long)i);
    return DSMOE_OK;
}

dsmoe_status adapted_check(const dsmoe_model *model, const dsmoe_engine_options *o,
                           dsmoe_error *error)
{
    if (o->n_adapters < 0 || o->n_adapters > DSMOE_ADAPTERS_MAX || (o->n_adapters && !o->adapters))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "an engine takes 0 to %d adapters, not %d",
                           DSMOE_ADAPTERS_MAX, o->n_adapters);
    if (o->n_adapters > 0 && model->adapter)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a model whose adapter is being trained can use no other adapters");
    if (o->n_adapters > 0 && model->peers)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "adapters cannot be used where ranks share the experts");
    for (int i = 0; i < o->n_adapters; i++) {
        const dsmoe_adapter *a = o->adapters[i];
        if (!a || a->model != model)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "adapter %d was opened for another model", i);
        for (int64_t j = 0; j < a->n_items; j++) STATUS_TRY(check_item(a, &a->items[j], error));
    }
    return o->adapter_scales ? adapted_check_scales(o->adapter_scales, o->n_adapters, error)
                             : DSMOE_OK;
}

adapted_engine adapted_open(const dsmoe_model *model, const dsmoe_engine_options *o)
{
    adapted_engine e = {.n = o->n_adapters};
    if (model->adapter) {
        e.tables[0] = model->adapter;
        e.first.scales[0] = 1.0f;
        e.n = 1;
    }
    for (int i = 0; i < o->n_adapters; i++) {
        e.tables[i] = &o->adapters[i]->table;
        e.first.scales[i] = o->adapter_scales ? (float)o->adapter_scales[i] : 1.0f;
    }
    return e;
}

/* The root of a combination of scales: a known or a new one. */
static page_id root_of(adapted_engine *e, const adapted_text *text, page_pool *pool)
{
    for (int i = 0; i < e->n_known; i++)
        if (!memcmp(e->known[i].scales, text->scales, sizeof text->scales)) return e->known[i].root;
    adapted_text *place = &e->known[e->n_known];
    if (e->n_known < ADAPTED_KNOWN) {
        e->n_known++;
    } else {
        place = &e->known[e->oldest];
        e->oldest = (e->oldest + 1) % ADAPTED_KNOWN;
    }
    *place = *text;
    return place->root = ++pool->last_id;
}

adapted_text adapted_begin(adapted_engine *e, const double *scales, page_pool *pool)
{
    adapted_text text = e->first;
    bool meets_any = false;
    for (int64_t i = 0; i < e->n; i++) {
        if (scales) text.scales[i] = (float)scales[i];
        if (text.scales[i] == 0.0f || e->tables[i]->most_rank == 0) text.scales[i] = 0.0f;
        meets_any |= text.scales[i] != 0.0f;
    }
    text.root = meets_any ? root_of(e, &text, pool) : PAGE_ID_NONE;
    return text;
}
