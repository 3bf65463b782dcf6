/* outline_open.c - what a step in outline knows beforehand: the trainer's sizes, how much each rank owns,
 * and which rows will be sent. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "moe/travel.h"
#include "train/outline.h"

enum { RANKS_MAX = 1 << 16 };

static dsmoe_status out_of_memory(int n_ranks, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for %d ranks", n_ranks);
}

/* ---- ownership ------------------------------------------------------------------------------------ */

static void count_shares(outline *o)
{
    const dsmoe_trainer *t = o->small;
    for (int64_t i = 0; i < t->shares.n_chunks; i++) {
        chunk c = shares_chunk(t, i);
        o->norms[c.owner] += sizeof(double);
        o->n_own[c.owner] += (double)c.n;
    }
}

/* ---- rows that are sent -------------------------------------------------------------------------- */

/* Distributes n_rows rows over experts by how often they are chosen, with at most n_tokens rows for an
 * expert. What is too much for one expert goes to those after it, and then to any. */
static void spread_rows(const double *loads, int64_t n_experts, int64_t n_tokens, int64_t n_rows,
                        int32_t *offsets)
{
    double sum = 0, so_far = 0;
    for (int64_t e = 0; e < n_experts; e++) sum += loads ? loads[e] : 1;
    int64_t carried = 0, before = 0, placed = 0;
    for (int64_t e = 0; e < n_experts; e++) {
        so_far += loads ? loads[e] : 1;
        int64_t up_to = (int64_t)floor((double)n_rows * so_far / sum + 0.5);
        int64_t n = up_to - before + carried, fits = moe_min(n, n_tokens);
        carried = n - fits;
        before = up_to;
        offsets[e] = (int32_t)fits; /* counts first */
    }
    for (int64_t e = 0; carried > 0 && e < n_experts; e++) {
        int64_t more = moe_min(carried, n_tokens - offsets[e]);
        offsets[e] += (int32_t)more;
        carried -= more;
    }
    for (int64_t e = 0; e < n_experts; e++) {
        int64_t n = offsets[e];
        offsets[e] = (int32_t)placed;
        placed += n;
    }
    offsets[n_experts] = (int32_t)placed;
}

/* How many different tokens `part` of all rows come from, if each token chooses k of n experts
 * independently. A token uses none of the rank's experts with the probability of drawing all k from the
 * others. */
static int64_t expect_tokens(int64_t n_tokens, int64_t n_rows, double part, int64_t n_experts,
                             int64_t k)
{
    double none = 1, others = (double)n_experts * (1 - part);
    for (int64_t j = 0; j < k; j++) none *= fmax(0, others - (double)j) / (double)(n_experts - j);
    int64_t n = (int64_t)ceil((double)n_tokens * (1 - none) - 1e-9);
    int64_t least = moe_parts(n_rows, k);
    return moe_min(n < least ? least : n, moe_min(n_rows, n_tokens));
}

/* Writes the report of a unit, as rank `unit` would. */
static void say(const outline *o, const outline_rows *table, int unit, const int32_t *offsets,
                int64_t n_tokens, int64_t *n_sent)
{
    const dsmoe_config *c = &o->small->config;
    dsmoe_peers speaker = {.rank = unit, .size = o->n_ranks};
    wave w = {.peers = &speaker, .n_experts = c->n_routed_experts, .said = table->said};
    int64_t n_all = offsets[c->n_routed_experts];
    for (int r = 0; r < o->n_ranks; r++) {
        expert_range held = wave_held(c->n_routed_experts, r, o->n_ranks);
        int64_t n = offsets[held.end] - offsets[held.first];
        n_sent[r] = r == unit || n == 0
                        ? 0
                        : expect_tokens(n_tokens, n, (double)n / (double)n_all, c->n_routed_experts,
                                        c->num_experts_per_tok);
    }
    wave_say(&w, DSMOE_OK, n_tokens, false, offsets, n_sent);
}

void outline_find_rounds(const outline *o, outline_rows *table)
{
    const dsmoe_trainer *t = o->small;
    const dsmoe_layer *layer = NULL;
    for (int64_t i = 0; i < t->config.num_hidden_layers && !layer; i++) layer = t->model->layers[i];
    wave w = {.peers = &o->peers,
              .n_experts = t->config.n_routed_experts,
              .capacity = travel_capacity(layer, layer->most_tokens),
              .said = table->said,
              .load = o->load};
    table->n_rounds = 0;
    for (unit_range round = {0, 0}; wave_next_round(&w, &round);)
        table->rounds[table->n_rounds++] = round;
}

/* Fills one table, for a row of loads and for the ranks that have a unit. */
static void fill_rows(const outline *o, const double *loads, int n_there, outline_rows *table,
                      int32_t *offsets)
{
    const dsmoe_config *c = &o->small->config;
    int64_t n_tokens = o->small->options.n_sequences * o->small->options.sequence_length;
    for (int unit = 0; unit < o->n_ranks; unit++) {
        int64_t n = unit < n_there ? n_tokens : 0;
        spread_rows(loads, c->n_routed_experts, n, n * c->num_experts_per_tok, offsets);
        say(o, table, unit, offsets, n, o->load);
    }
    outline_find_rounds(o, table);
}

static bool allocate_rows(outline *o)
{
    size_t size =
        (size_t)o->n_ranks * wave_said_size(o->n_ranks, o->small->config.n_routed_experts);
    for (int last = 0; last < 2; last++) {
        o->rows[last] = calloc((size_t)o->n_tables, sizeof *o->rows[last]);
        for (int64_t i = 0; o->rows[last] && i < o->n_tables; i++) {
            o->rows[last][i].said = malloc(size);
            o->rows[last][i].rounds = calloc((size_t)o->n_ranks, sizeof(unit_range));
            if (!o->rows[last][i].said || !o->rows[last][i].rounds) return false;
        }
        if (!o->rows[last]) return false;
    }
    return true;
}

static dsmoe_status make_rows(outline *o, outline_loads loads, dsmoe_error *error)
{
    int64_t n_experts = o->small->config.n_routed_experts;
    int n_last = (int)((o->n_units - 1) % o->n_ranks) + 1;
    if (!trainer_divides_experts(o->small) || o->small->n_moe_layers == 0) return DSMOE_OK;
    o->n_tables = loads.loads ? loads.n_layers : 1;
    int32_t *offsets = calloc((size_t)n_experts + 1, sizeof *offsets);
    bool enough = offsets && allocate_rows(o);
    for (int64_t i = 0; enough && i < o->n_tables; i++) {
        const double *of = loads.loads ? loads.loads + i * n_experts : NULL;
        fill_rows(o, of, o->n_ranks, &o->rows[0][i], offsets);
        fill_rows(o, of, n_last, &o->rows[1][i], offsets);
    }
    free(offsets);
    return enough ? DSMOE_OK : out_of_memory(o->n_ranks, error);
}

/* ---- opening and closing ----------------------------------------------------------------------------- */

static dsmoe_status check(int n_ranks, int64_t n_units, outline_loads loads, int64_t n_experts,
                          dsmoe_error *error)
{
    if (n_ranks < 1 || n_ranks > RANKS_MAX)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "ranks must be 1 to %d, not %d", RANKS_MAX,
                           n_ranks);
    if (loads.loads && loads.n_layers < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no loads of layers are given");
    if (n_units < 1) return status_fail(error, DSMOE_ERROR_ARGUMENT, "a step needs a batch");
    for (int64_t i = 0; loads.loads && n_experts > 0 && i < loads.n_layers; i++) {
        double sum = 0;
        for (int64_t e = 0; e < n_experts; e++) {
            double load = loads.loads[i * n_experts + e];
            if (!(load >= 0) || !isfinite(load))
                return status_fail(error, DSMOE_ERROR_ARGUMENT,
                                   "an expert cannot be chosen %g times", load);
            sum += load;
        }
        if (!(sum > 0))
            return status_fail(error, DSMOE_ERROR_ARGUMENT, "no expert of a layer is ever chosen");
    }
    return DSMOE_OK;
}

static dsmoe_status fill(outline *o, const dsmoe_config *config,
                         const dsmoe_trainer_options *options, outline_loads loads,
                         dsmoe_error *error)
{
    dsmoe_trainer_options own = *options;
    own.peers = &o->peers;
    if (own.n_threads == 0) own.n_threads = 1;
    STATUS_TRY(dsmoe_model_plan_make(config, options->sequence_length, &o->plan, error));
    STATUS_TRY(trainer_open_small(config, &own, &o->small, error));
    o->norms = calloc((size_t)o->n_ranks, sizeof *o->norms);
    o->n_own = calloc((size_t)o->n_ranks, sizeof *o->n_own);
    o->load = calloc((size_t)o->n_ranks, sizeof *o->load);
    if (!o->norms || !o->n_own || !o->load) return out_of_memory(o->n_ranks, error);
    count_shares(o);
    return make_rows(o, loads, error);
}

dsmoe_status outline_open(const dsmoe_config *config, const dsmoe_trainer_options *options,
                          int n_ranks, int64_t n_units, outline_loads loads, outline **out,
                          dsmoe_error *error)
{
    *out = NULL;
    STATUS_TRY(check(n_ranks, n_units, loads, config->n_routed_experts, error));
    outline *o = calloc(1, sizeof *o);
    if (!o) return out_of_memory(n_ranks, error);
    o->n_ranks = n_ranks;
    o->n_units = n_units;
    o->peers = (dsmoe_peers){.rank = 0, .size = n_ranks, .host = ""};
    dsmoe_status status = fill(o, config, options, loads, error);
    if (status != DSMOE_OK) {
        outline_close(o);
        return status;
    }
    *out = o;
    return DSMOE_OK;
}

void outline_close(outline *o)
{
    if (!o) return;
    for (int last = 0; last < 2; last++) {
        for (int64_t i = 0; o->rows[last] && i < o->n_tables; i++) {
            free(o->rows[last][i].said);
            free(o->rows[last][i].rounds);
        }
        free(o->rows[last]);
    }
    dsmoe_trainer_free(o->small);
    free(o->norms);
    free(o->n_own);
    free(o->load);
    free(o);
}
