/* shares.c - tensors placed one after the other, cut into chunks, and dealt out to the ranks. */
#include "train/shares.h"

#include <stdio.h>
#include <stdlib.h>

#include "train/trainer.h"

enum {
    LINE = MEMORY_ALIGNMENT / sizeof(float),
    CHUNK = 32 << 10, /* numbers, at most */
};

static bool is_divided(const dsmoe_trainer *t, const parameter *p)
{
    return p->expert >= 0 && trainer_divides_experts(t);
}

static int home_of(const dsmoe_trainer *t, const parameter *p)
{
    int64_t n_ranks = peers_size(t->options.peers);
    return (int)(((p->expert + 1) * n_ranks - 1) / t->config.n_routed_experts);
}

/* ---- where the tensors lie --------------------------------------------------------------------- */

static int64_t take(int64_t *used, int64_t n)
{
    int64_t begin = *used;
    *used += (n + LINE - 1) / LINE * LINE;
    return begin;
}

/* Sections first, one after the other; then the experts that live here. */
static void place_tensors(dsmoe_trainer *t)
{
    int rank = peers_rank(t->options.peers);
    t->n_numbers = 0;
    for (size_t i = 0; i < t->n_parameters; i++) {
        parameter *p = &t->parameters[i];
        section *s = &t->shares.sections[p->section];
        if (is_divided(t, p)) continue;
        p->begin = take(&t->n_numbers, p->n);
        if (s->n == 0) s->begin = p->begin;
        s->n = t->n_numbers - s->begin;
    }
    for (size_t i = 0; i < t->n_parameters; i++) {
        parameter *p = &t->parameters[i];
        if (!is_divided(t, p)) continue;
        p->begin = home_of(t, p) == rank ? take(&t->n_numbers, p->n) : -1;
    }
}

/* ---- chunks ------------------------------------------------------------------------------------ */

static void cut_into_chunks(dsmoe_trainer *t)
{
    chunk *c = t->shares.chunks;
    for (size_t i = 0; i < t->n_parameters; i++) {
        parameter *p = &t->parameters[i];
        p->first_chunk = c - t->shares.chunks;
        for (int64_t first = 0; first < p->n; first += CHUNK)
            *c++ = (chunk){.begin = p->begin < 0 ? -1 : p->begin + first,
                           .own = -1,
                           .n = moe_min(CHUNK, p->n - first),
                           .owner = is_divided(t, p) ? home_of(t, p) : -1,
                           .decays = p->decays};
    }
}

/* Runs of chunks with about the same number of numbers each. */
static void deal_out(dsmoe_trainer *t)
{
    shares *s = &t->shares;
    int n_ranks = peers_size(t->options.peers);
    for (int64_t i = 0; i < s->n_sections; i++)
        for (int r = 0; r <= n_ranks; r++) s->sections[i].cuts[r] = r == 0 ? 0 : s->sections[i].n;
    for (size_t i = 0; i < t->n_parameters; i++) {
        const parameter *p = &t->parameters[i];
        section *of = &s->sections[p->section];
        for (int64_t j = 0; !is_divided(t, p) && j < moe_parts(p->n, CHUNK); j++) {
            chunk *c = &s->chunks[p->first_chunk + j];
            int64_t before = c->begin - of->begin;
            c->owner = (int32_t)(before * n_ranks / of->n);
            for (int r = c->owner; r > 0 && of->cuts[r] > before; r--) of->cuts[r] = before;
        }
    }
}

/* ---- what belongs to this rank ------------------------------------------------------------------- */

static void count_own(dsmoe_trainer *t)
{
    shares *s = &t->shares;
    int rank = peers_rank(t->options.peers);
    for (int64_t i = 0; i < s->n_sections; i++) {
        section *of = &s->sections[i];
        int64_t n = of->cuts[rank + 1] - of->cuts[rank];
        of->own = s->n_own;
        s->n_own += n;
        if (n > s->n_partial) s->n_partial = n;
        if (i > 0 && of->n > s->n_most) s->n_most = of->n;
    }
    const section *last = &s->sections[s->n_sections - 1];
    int64_t n_in_sections = last->begin + last->n, n_before_experts = s->n_own;
    s->n_own += t->n_numbers - n_in_sections;
    for (size_t i = 0; i < t->n_parameters; i++) {
        const parameter *p = &t->parameters[i];
        const section *of = &s->sections[p->section];
        int64_t to_own = is_divided(t, p) ? n_before_experts - n_in_sections
                                          : of->own - of->begin - of->cuts[rank];
        for (int64_t j = 0; j < moe_parts(p->n, CHUNK); j++) {
            chunk *c = &s->chunks[p->first_chunk + j];
            if (c->owner != rank) continue;
            c->own = c->begin + to_own;
            s->n_own_chunks++;
        }
    }
}

dsmoe_status shares_make(dsmoe_trainer *t, dsmoe_error *error)
{
    shares *s = &t->shares;
    size_t n_ranks = (size_t)peers_size(t->options.peers);
    s->n_sections = t->config.num_hidden_layers + 2;
    for (size_t i = 0; i < t->n_parameters; i++)
        s->n_chunks += moe_parts(t->parameters[i].n, CHUNK);
    s->sections = calloc((size_t)s->n_sections, sizeof *s->sections);
    s->cuts = calloc((size_t)s->n_sections * (n_ranks + 1), sizeof *s->cuts);
    s->chunks = calloc((size_t)s->n_chunks, sizeof *s->chunks);
    if (!s->sections || !s->cuts || !s->chunks)
        return status_fail(error, DSMOE_ERROR_MEMORY, "no memory to train this model");
    for (int64_t i = 0; i < s->n_sections; i++)
        s->sections[i].cuts = s->cuts + (size_t)i * (n_ranks + 1);
    place_tensors(t);
    cut_into_chunks(t);
    deal_out(t);
    count_own(t);
    return DSMOE_OK;
}

void shares_free(shares *s)
{
    free(s->sections);
    free(s->cuts);
    free(s->chunks);
}

share_range shares_range(const dsmoe_trainer *t, size_t parameter_index, int rank)
{
    const parameter *p = &t->parameters[parameter_index];
    share_range none = {0, 0}, all = {0, p->n};
    if (is_divided(t, p)) return home_of(t, p) == rank ? all : none;
    const section *s = &t->shares.sections[p->section];
    int64_t at = p->begin - s->begin, first = s->cuts[rank] - at, end = s->cuts[rank + 1] - at;
    if (first < 0) first = 0;
    if (end > p->n) end = p->n;
    return first < end ? (share_range){first, end} : none;
}
