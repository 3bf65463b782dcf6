/* outline.c - a training step in outline. The walk follows units.c, step.c, fold.c, travel.c, adamw.c
 * and arrival.c. */
#include "train/outline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "moe/travel.h"
#include "train/units.h"

typedef struct walk {
    const outline *o;
    const outline_watch *watch;
    dsmoe_peers self; /* the rank's table */
    bool is_there;    /* whether it has a unit in this wave */
    int64_t first;    /* first unit of the wave */
    bool is_first;    /* whether it is the step's first wave */
    int64_t under_way;
    int64_t n_arrived;      /* sections whose weights are here */
    bool is_arriving;       /* the weights of the next one are being sent */
    size_t *send, *receive; /* [n_ranks] */
    dsmoe_error *error;
} walk;

/* ---- computation --------------------------------------------------------------------------------- */

static const dsmoe_config *config_of(const walk *k) { return &k->o->small->config; }

static double n_tokens(const walk *k)
{
    const dsmoe_trainer_options *o = &k->o->small->options;
    return k->is_there ? (double)(o->n_sequences * o->sequence_length) : 0.0;
}

static dsmoe_status compute(const walk *k, outline_work work, double amount)
{
    if (amount == 0.0) return DSMOE_OK;
    return k->watch->compute(k->watch->context, work, amount, k->error);
}

/* `times` the multiply-adds of forward: 1 for forward, 2 for backward. */
static dsmoe_status attention(const walk *k, int64_t layer, double times)
{
    const dsmoe_config *c = config_of(k);
    const dsmoe_model_plan *p = &k->o->plan;
    double seen = (double)k->o->small->options.sequence_length / 2;
    double flops = 2.0 * (double)p->attention / (double)c->num_hidden_layers +
                   2.0 * seen * (double)c->num_attention_heads *
                       (double)(config_head_dim(c) + config_value_dim(c));
    if (k->o->small->model->layers[layer])
        flops += 2.0 * (double)c->hidden_size * (double)c->n_routed_experts;
    return compute(k, OUTLINE_ATTENTION, times * n_tokens(k) * flops);
}

/* FLOPs for one row of an expert with `width` intermediate numbers. */
static double row_flops(const walk *k, int64_t width)
{
    return 6.0 * (double)config_of(k)->hidden_size * (double)width;
}

static dsmoe_status routed(const walk *k, double n_rows, double times)
{
    return compute(k, OUTLINE_EXPERTS,
                   times * n_rows * row_flops(k, config_of(k)->moe_intermediate_size));
}

static dsmoe_status shared(const walk *k, double times)
{
    const dsmoe_config *c = config_of(k);
    int64_t width = c->n_shared_experts * c->moe_intermediate_size;
    return compute(k, OUTLINE_EXPERTS, times * n_tokens(k) * row_flops(k, width));
}

/* The head computes its gradients in forward. */
static dsmoe_status head(const walk *k)
{
    const dsmoe_config *c = config_of(k);
    return compute(k, OUTLINE_HEAD,
                   6.0 * n_tokens(k) * (double)c->hidden_size * (double)c->vocab_size);
}

/* ---- sections of gradients, as fold.c sends them --------------------------------------------------- */

static int n_there(const walk *k)
{
    int64_t left = k->o->n_units - k->first;
    return left < k->o->n_ranks ? (int)left : k->o->n_ranks;
}

/* Reads every rank's gradient of this rank's part, and reads and writes the sum. */
static dsmoe_status add_up(const walk *k, int64_t index)
{
    const section *s = &k->o->small->shares.sections[index];
    return compute(k, OUTLINE_MEMORY,
                   (double)section_part(s, k->self.rank) * (n_there(k) + (k->is_first ? 1 : 2)));
}

static dsmoe_status end_section(walk *k)
{
    int64_t index = k->under_way;
    if (index < 0) return DSMOE_OK;
    k->under_way = -1;
    STATUS_TRY(k->watch->end(k->watch->context, k->error));
    return add_up(k, index);
}

static dsmoe_status begin_section(walk *k, int64_t index)
{
    const section *s = &k->o->small->shares.sections[index];
    for (int r = 0; r < k->o->n_ranks; r++) {
        bool is_other = r != k->self.rank;
        k->send[r] = is_other && k->is_there ? section_part(s, r) : 0;
        k->receive[r] = is_other && r < n_there(k) ? section_part(s, k->self.rank) : 0;
    }
    k->under_way = index;
    return k->watch->begin(k->watch->context, OUTLINE_GRADIENTS, k->send, k->receive, k->error);
}

static dsmoe_status send_section(walk *k, int64_t index)
{
    const dsmoe_trainer *t = k->o->small;
    if (!t->options.peers) return k->is_first ? DSMOE_OK : add_up(k, index);
    STATUS_TRY(end_section(k));
    STATUS_TRY(begin_section(k, index));
    return trainer_divides_experts(t) ? end_section(k) : DSMOE_OK;
}

/* ---- sections of weights, as arrival.c sends them --------------------------------------------------- */

static dsmoe_status begin_arrival(walk *k)
{
    const section *s = &k->o->small->shares.sections[k->n_arrived];
    for (int r = 0; r < k->o->n_ranks; r++) {
        bool is_own = r == k->self.rank;
        k->send[r] = is_own ? 0 : section_part(s, k->self.rank);
        k->receive[r] = is_own ? 0 : section_part(s, r);
    }
    k->is_arriving = true;
    return k->watch->begin(k->watch->context, OUTLINE_WEIGHTS, k->send, k->receive, k->error);
}

/* Waits for all sections up to this one and begins to receive the next. */
static dsmoe_status await_section(walk *k, int64_t index)
{
    while (k->n_arrived <= index) {
        if (!k->is_arriving) STATUS_TRY(begin_arrival(k));
        STATUS_TRY(k->watch->end(k->watch->context, k->error));
        k->is_arriving = false;
        k->n_arrived++;
    }
    bool more = k->n_arrived < k->o->small->shares.n_sections && !k->is_arriving;
    return more ? begin_arrival(k) : DSMOE_OK;
}

static dsmoe_status await_all(walk *k)
{
    return await_section(k, k->o->small->shares.n_sections - 1);
}

/* ---- rows of experts, as travel.c sends them --------------------------------------------------------- */

static const outline_rows *rows_of(const walk *k, int64_t layer)
{
    int64_t before = 0;
    for (int64_t i = 0; i < layer; i++) before += k->o->small->model->layers[i] != NULL;
    return &k->o->rows[n_there(k) < k->o->n_ranks][before % k->o->n_tables];
}

static wave wave_of(const walk *k, const outline_rows *table)
{
    return (wave){
        .peers = &k->self, .n_experts = config_of(k)->n_routed_experts, .said = table->said};
}

static bool is_in(unit_range round, int unit) { return round.first <= unit && unit < round.end; }

static size_t sum_of(const walk *k, const size_t *sizes)
{
    size_t sum = 0;
    for (int r = 0; r < k->o->n_ranks; r++) sum += sizes[r];
    return sum;
}

static dsmoe_status begin_rows(const walk *k)
{
    return k->watch->begin(k->watch->context, OUTLINE_ROWS, k->send, k->receive, k->error);
}

static dsmoe_status end_rows(const walk *k) { return k->watch->end(k->watch->context, k->error); }

static dsmoe_status begin_leaving(const walk *k, int64_t layer, const wave *w, unit_range round,
                                  bool backward)
{
    const dsmoe_layer *moe = k->o->small->model->layers[layer];
    int own = k->self.rank;
    for (int r = 0; r < k->o->n_ranks; r++) {
        k->send[r] = k->receive[r] = 0;
        if (r == own) continue;
        if (is_in(round, own))
            k->send[r] =
                travel_parcel_size(moe, wave_sent(w, own, r), wave_rows(w, own, r), backward);
        if (is_in(round, r))
            k->receive[r] =
                travel_parcel_size(moe, wave_sent(w, r, own), wave_rows(w, r, own), backward);
    }
    STATUS_TRY(compute(k, OUTLINE_MEMORY, 2.0 * (double)sum_of(k, k->send)));
    return begin_rows(k);
}

/* Sends back `size` bytes for each row. */
static dsmoe_status begin_return(const walk *k, const wave *w, unit_range round, size_t size)
{
    int own = k->self.rank;
    for (int r = 0; r < k->o->n_ranks; r++) {
        k->send[r] = k->receive[r] = 0;
        if (r == own) continue;
        if (is_in(round, r)) k->send[r] = (size_t)wave_rows(w, r, own) * size;
        if (is_in(round, own)) k->receive[r] = (size_t)wave_rows(w, own, r) * size;
    }
    return begin_rows(k);
}

static double guest_rows(const walk *k, const wave *w, unit_range round)
{
    double n = 0;
    for (int r = round.first; r < round.end; r++)
        if (r != k->self.rank) n += (double)wave_rows(w, r, k->self.rank);
    return n;
}

static double home_rows(const walk *k, const wave *w)
{
    return (double)wave_rows(w, k->self.rank, k->self.rank);
}

static dsmoe_status gather_counts(const walk *k)
{
    for (int r = 0; r < k->o->n_ranks; r++)
        k->send[r] = wave_said_size(k->o->n_ranks, config_of(k)->n_routed_experts);
    return k->watch->gather(k->watch->context, OUTLINE_WORDS, k->send, k->error);
}

static dsmoe_status travel_out(const walk *k, int64_t layer)
{
    const outline_rows *table = rows_of(k, layer);
    wave w = wave_of(k, table);
    size_t row = (size_t)config_of(k)->hidden_size * sizeof(float);
    STATUS_TRY(gather_counts(k));
    for (int i = 0; i < table->n_rounds; i++) {
        unit_range round = table->rounds[i];
        STATUS_TRY(begin_leaving(k, layer, &w, round, false));
        if (i == 0) STATUS_TRY(routed(k, home_rows(k, &w), 1));
        STATUS_TRY(end_rows(k));
        STATUS_TRY(routed(k, guest_rows(k, &w, round), 1));
        STATUS_TRY(begin_return(k, &w, round, row));
        if (i == table->n_rounds - 1) STATUS_TRY(shared(k, 1));
        STATUS_TRY(end_rows(k));
    }
    return DSMOE_OK;
}

/* Rows whose g and u were not kept by forward; two thirds of forward are computed again for them. */
static double rows_again(const walk *k, int64_t layer, const wave *w, unit_range round)
{
    double kept = (double)travel_kept_rows(k->o->small->model->layers[layer]);
    double n = guest_rows(k, w, round), before = home_rows(k, w);
    before += guest_rows(k, w, (unit_range){0, round.first});
    return fmin(n, fmax(0, before + n - kept));
}

static dsmoe_status travel_back(const walk *k, int64_t layer)
{
    const outline_rows *table = rows_of(k, layer);
    wave w = wave_of(k, table);
    size_t row = (size_t)config_of(k)->hidden_size * sizeof(float);
    for (int i = 0; i < table->n_rounds; i++) {
        unit_range round = table->rounds[i];
        bool has_own = is_in(round, k->self.rank);
        double guests = guest_rows(k, &w, round), home = home_rows(k, &w);
        STATUS_TRY(begin_leaving(k, layer, &w, round, true));
        if (i == 0) STATUS_TRY(routed(k, home, 1));
        STATUS_TRY(end_rows(k));
        STATUS_TRY(routed(k, rows_again(k, layer, &w, round), 2.0 / 3));
        STATUS_TRY(routed(k, guests, 1));
        STATUS_TRY(begin_return(k, &w, round, row));
        STATUS_TRY(routed(k, guests + (has_own ? home : 0), 1)); /* gradients of the weights */
        if (i == table->n_rounds - 1) STATUS_TRY(shared(k, 2));
        STATUS_TRY(end_rows(k));
        STATUS_TRY(begin_return(k, &w, round, sizeof(float)));
        STATUS_TRY(end_rows(k));
    }
    return DSMOE_OK;
}

/* ---- layers ------------------------------------------------------------------------------------------ */

static dsmoe_status ffn(const walk *k, int64_t layer, bool back)
{
    const dsmoe_config *c = config_of(k);
    double times = back ? 2 : 1;
    if (!k->o->small->model->layers[layer])
        return compute(k, OUTLINE_EXPERTS,
                       times * n_tokens(k) * row_flops(k, c->intermediate_size));
    if (k->o->n_tables) return back ? travel_back(k, layer) : travel_out(k, layer);
    STATUS_TRY(routed(k, n_tokens(k) * (double)c->num_experts_per_tok, times));
    return shared(k, times);
}

static dsmoe_status layer_forward_outline(walk *k, int64_t layer)
{
    STATUS_TRY(await_section(k, layer + 1));
    STATUS_TRY(attention(k, layer, 1));
    return ffn(k, layer, false);
}

static dsmoe_status layer_backward_outline(walk *k, int64_t layer)
{
    bool is_gone = k->o->small->options.recompute && layer + 1 < config_of(k)->num_hidden_layers;
    if (is_gone) STATUS_TRY(layer_forward_outline(k, layer));
    STATUS_TRY(ffn(k, layer, true));
    return attention(k, layer, 2);
}

/* ---- the step ------------------------------------------------------------------------------------------ */

static dsmoe_status gather_reports(const walk *k)
{
    if (!k->o->small->options.peers) return DSMOE_OK;
    for (int r = 0; r < k->o->n_ranks; r++) k->send[r] = units_report_size(k->o->small);
    return k->watch->gather(k->watch->context, OUTLINE_WORDS, k->send, k->error);
}

static dsmoe_status walk_wave(walk *k)
{
    int64_t n_layers = config_of(k)->num_hidden_layers;
    if (trainer_divides_experts(k->o->small) || !k->is_there) STATUS_TRY(await_all(k));
    STATUS_TRY(await_section(k, 0));
    for (int64_t i = 0; i < n_layers; i++) STATUS_TRY(layer_forward_outline(k, i));
    STATUS_TRY(await_all(k));
    STATUS_TRY(head(k));
    STATUS_TRY(gather_reports(k));
    STATUS_TRY(send_section(k, n_layers + 1));
    for (int64_t i = n_layers - 1; i >= 0; i--) {
        STATUS_TRY(layer_backward_outline(k, i));
        STATUS_TRY(send_section(k, i + 1));
    }
    STATUS_TRY(send_section(k, 0));
    return end_section(k);
}

static dsmoe_status walk_update(walk *k)
{
    double own = k->o->n_own[k->self.rank];
    STATUS_TRY(compute(k, OUTLINE_MEMORY, OUTLINE_NORM_BYTES * own));
    if (k->o->small->options.peers)
        STATUS_TRY(k->watch->gather(k->watch->context, OUTLINE_WORDS, k->o->norms, k->error));
    STATUS_TRY(compute(k, OUTLINE_MEMORY, OUTLINE_UPDATE_BYTES * own));
    if (!k->o->small->options.peers || !k->o->waits) return DSMOE_OK;
    k->n_arrived = 0;
    return await_all(k);
}

dsmoe_status outline_walk(const outline *o, int rank, const outline_watch *watch,
                          dsmoe_error *error)
{
    size_t *sizes = calloc(2 * (size_t)o->n_ranks, sizeof *sizes);
    walk k = {.o = o,
              .watch = watch,
              .self = {.rank = rank, .size = o->n_ranks},
              .under_way = -1,
              .n_arrived = o->small->options.peers && !o->waits ? 0 : o->small->shares.n_sections,
              .send = sizes,
              .receive = sizes + o->n_ranks,
              .error = error};
    if (!sizes)
        return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for %d ranks", o->n_ranks);
    dsmoe_status status = DSMOE_OK;
    for (int64_t first = 0; status == DSMOE_OK && first < o->n_units; first += o->n_ranks) {
        k.first = first;
        k.is_first = first == 0;
        k.is_there = rank < n_there(&k);
        status = walk_wave(&k);
    }
    if (status == DSMOE_OK) status = walk_update(&k);
    free(sizes);
    return status;
}
