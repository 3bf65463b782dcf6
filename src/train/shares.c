/* shares.c - tensors are placed one after the other, cut into chunks, and assigned to ranks. */
#include "train/shares.h"

#include <stdio.h>
#include <stdlib.h>

#include "moe/wave.h"
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
    int rank = 0, n_ranks = peers_size(t->options.peers);
    while (wave_held(t->config.n_routed_experts, rank, n_ranks).end <= p->expert) rank++;
    return rank;
}

/* ---- places of tensors ------------------------------------------------------------------------- */

static int64_t take(int64_t *used, int64_t n)
{
    int64_t begin = *used;
    *used += (n + LINE - 1) / LINE * LINE;
    return begin;
}

/* Places the sections first, one after the other, then the experts of this rank. */
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

/* ---- owners ------------------------------------------------------------------------------------ */

/* A chunk belongs to the rank in whose equal share of the section it begins. */
static int owner_of(const section *s, int64_t before, int n_ranks)
{
    return (int)(before * n_ranks / s->n);
}

/* Finds the cuts: where the chunks of each rank or a later one begin in a section. */
static void deal_out(dsmoe_trainer *t)
{
    shares *s = &t->shares;
    int n_ranks = peers_size(t->options.peers);
    for (int64_t i = 0; i < s->n_sections; i++)
        for (int r = 1; r <= n_ranks; r++) s->sections[i].cuts[r] = s->sections[i].n;
    for (size_t i = 0; n_ranks > 1 && i < t->n_parameters; i++) {
        const parameter *p = &t->parameters[i];
        section *of = &s->sections[p->section];
        for (int64_t first = 0; !is_divided(t, p) && first < p->n; first += CHUNK) {
            int64_t before = p->begin + first - of->begin;
            for (int r = owner_of(of, before, n_ranks); r > 0 && of->cuts[r] > before; r--)
                of->cuts[r] = before;
        }
    }
}

/* Counts the numbers that belong to this rank: its parts of the sections, then its experts. */
static void count_own(dsmoe_trainer *t)
{
    shares *s = &t->shares;
    int rank = peers_rank(t->options.peers);
    for (int64_t i = 0; i < s->n_sections; i++) {
        section *of = &s->sections[i];
        int64_t n = of->cuts[rank + 1] - of->cuts[rank];
        of->own = s->n_own;
        s->n_own += n;
        s->n_in_sections += of->n;
        if (n > s->n_partial) s->n_partial = n;
        if (i > 0 && of->n > s->n_most) s->n_most = of->n;
    }
    s->n_own_in_sections = s->n_own;
    s->n_own += t->n_numbers - s->n_in_sections;
}

/* ---- chunks ------------------------------------------------------------------------------------ */

/* The parameter that a chunk is part of. */
static const parameter *find(const dsmoe_trainer *t, int64_t index)
{
    size_t low = 0, high = t->n_parameters;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(t->parameters[middle].first_chunk <= index ? &low : &high) = middle;
    }
    return &t->parameters[low];
}

/* Converts a place in the weights to the place in gradients and moments. */
static int64_t own_place(const dsmoe_trainer *t, const parameter *p, int64_t place)
{
    const shares *s = &t->shares;
    const section *of = &s->sections[p->section];
    if (is_divided(t, p)) return place - s->n_in_sections + s->n_own_in_sections;
    return place - of->begin - of->cuts[peers_rank(t->options.peers)] + of->own;
}

chunk shares_chunk(const dsmoe_trainer *t, int64_t index)
{
    const parameter *p = find(t, index);
    const section *of = &t->shares.sections[p->section];
    int64_t first = (index - p->first_chunk) * CHUNK;
    chunk c = {.begin = p->begin < 0 ? -1 : p->begin + first,
               .own = -1,
               .n = moe_min(CHUNK, p->n - first),
               .decays = p->decays};
    c.owner = is_divided(t, p) ? home_of(t, p)
                               : owner_of(of, c.begin - of->begin, peers_size(t->options.peers));
    if (c.owner == peers_rank(t->options.peers)) c.own = own_place(t, p, c.begin);
    return c;
}

dsmoe_status shares_make(dsmoe_trainer *t, dsmoe_error *error)
{
    shares *s = &t->shares;
    size_t n_ranks = (size_t)peers_size(t->options.peers);
    s->n_sections = t->config.num_hidden_layers + 2;
    for (size_t i = 0; i < t->n_parameters; i++) {
        t->parameters[i].first_chunk = s->n_chunks;
        s->n_chunks += moe_parts(t->parameters[i].n, CHUNK);
    }
    s->sections = calloc((size_t)s->n_sections, sizeof *s->sections);
    s->cuts = calloc((size_t)s->n_sections * (n_ranks + 1), sizeof *s->cuts);
    if (!s->sections || !s->cuts)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to train this model");
    for (int64_t i = 0; i < s->n_sections; i++)
        s->sections[i].cuts = s->cuts + (size_t)i * (n_ranks + 1);
    place_tensors(t);
    deal_out(t);
    count_own(t);
    return DSMOE_OK;
}

void shares_free(shares *s)
{
    free(s->sections);
    free(s->cuts);
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

int64_t shares_own(const dsmoe_trainer *t, size_t parameter_index, int64_t number)
{
    const parameter *p = &t->parameters[parameter_index];
    return own_place(t, p, p->begin + number);
}

bool shares_is_divided(const dsmoe_trainer *t, size_t parameter_index)
{
    return is_divided(t, &t->parameters[parameter_index]);
}
