/* travel.c - runs the experts of a layer over the rows of one unit, whichever rank holds them. */
#include "moe/travel.h"

#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "peers/peers.h"

enum { TOKENS_PER_TASK = 16 };

/* ---- memory -------------------------------------------------------------------------------- */

/* If all experts are chosen equally often, a rank receives most_tokens·k rows, less those of its own tokens.
 * With half as many again, most loads need one round only. A single unit always fits, even if all its rows go
 * to one rank. */
int64_t travel_capacity(const dsmoe_layer *layer, int64_t most_tokens)
{
    int64_t n_rows = most_tokens * layer->config.num_experts_per_tok;
    return n_rows + n_rows / 2;
}

/* If all experts are chosen equally often, a rank has most_tokens·k rows, guests included. Backward computes
 * g and u again for units that do not fit. Every layer needs this memory at the same time, so the margin is
 * smaller than above. */
int64_t travel_kept_rows(const dsmoe_layer *layer)
{
    int64_t n_rows = layer->most_tokens * layer->config.num_experts_per_tok;
    return n_rows + n_rows / 4;
}

static parcel parcel_place(arena *a, int64_t hidden, int64_t n_tokens, int64_t n_rows,
                           bool backward)
{
    size_t before = a->used;
    parcel p = {.x = arena_take(a, n_tokens * hidden, sizeof(float))};
    if (backward) {
        p.dy = arena_take(a, n_tokens * hidden, sizeof(float));
        p.weight = arena_take(a, n_rows, sizeof(float));
    }
    p.token = arena_take(a, n_rows, sizeof(int32_t));
    p.bytes = (dsmoe_bytes){a->base ? a->base + before : NULL, a->used - before};
    return p;
}

size_t travel_parcel_size(const dsmoe_layer *layer, int64_t n_tokens, int64_t n_rows, bool backward)
{
    arena measure = arena_over(NULL);
    return parcel_place(&measure, layer->config.hidden_size, n_tokens, n_rows, backward).bytes.size;
}

/* Memory for the parcels to or from all ranks, which together have n_tokens tokens and n_rows rows. */
static char *parcels_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int64_t n_rows,
                           bool backward)
{
    arena parcels = arena_over(NULL);
    parcel_place(&parcels, layer->config.hidden_size, n_tokens, n_rows, backward);
    for (int i = 0; i < layer->peers->size; i++) /* each may leave parts of cache lines unused */
        parcel_place(&parcels, 1, 1, 1, backward);
    a->overflow = a->overflow || parcels.overflow;
    return arena_take(a, 1, arena_size(&parcels));
}

static void guests_place(arena *a, travel *t, const dsmoe_layer *layer, travel_use use,
                         int n_threads)
{
    const dsmoe_layer_config *c = &layer->config;
    int64_t hidden = c->hidden_size, width = c->moe_intermediate_size;
    int64_t n_rows = t->wave.capacity;
    t->experts = experts_place(a, layer->kernels, hidden,
                               (layer->held.end - layer->held.first) * layer->peers->size, n_rows);
    t->h = arena_take(a, n_rows * width, sizeof(float));
    t->out = arena_take(a, n_rows * hidden, sizeof(float));
    if (use == TRAVEL_INFER) return;
    t->g = arena_take(a, n_rows * width, sizeof(float));
    t->u = arena_take(a, n_rows * width, sizeof(float));
    t->d_weight = arena_take(a, n_rows, sizeof(float));
    t->experts.fold = arena_take(a, n_threads * experts_fold_size(hidden, width), sizeof(float));
}

travel travel_place(arena *a, const dsmoe_layer *layer, int64_t n_tokens, int64_t most_tokens,
                    travel_use use, int n_threads)
{
    if (!layer->peers) return (travel){0};
    int n_ranks = layer->peers->size;
    int64_t k = layer->config.num_experts_per_tok, capacity = travel_capacity(layer, most_tokens);
    bool backward = use == TRAVEL_TRAIN;
    travel t = {
        .wave = wave_place(a, layer, capacity),
        .last_rank = arena_take(a, n_tokens, sizeof(int32_t)),
        .place = arena_take(a, n_tokens, sizeof(int32_t)),
        .n_sent = arena_take(a, n_ranks, sizeof(int64_t)),
        .sent_token = arena_take(a, n_tokens * k, sizeof(int32_t)),
        .row_place = arena_take(a, n_tokens * k, sizeof(int32_t)),
        .leaving = arena_take(a, n_ranks, sizeof(parcel)),
        .leaving_memory =
            parcels_place(a, layer, n_tokens * moe_min(k, n_ranks - 1), n_tokens * k, backward),
        .coming = arena_take(a, n_ranks, sizeof(parcel)),
        .sources = arena_take(a, n_ranks, sizeof(token_source)),
        .coming_memory = parcels_place(a, layer, capacity, capacity, backward),
        .guest_row = arena_take(a, n_ranks, sizeof(int64_t)),
        .kept_row = arena_take(a, n_ranks, sizeof(int64_t)),
        .send = arena_take(a, n_ranks, sizeof(dsmoe_bytes)),
        .receive = arena_take(a, n_ranks, sizeof(dsmoe_bytes)),
    };
    guests_place(a, &t, layer, use, n_threads);
    return t;
}

/* ---- sending ------------------------------------------------------------------------------- */

/* Lists the tokens for each rank, in the order in which they first occur in its rows. */
static void list_tokens(const travel *t, const dispatch *d, int64_t n_tokens)
{
    const dsmoe_peers *peers = t->wave.peers;
    int32_t *sent = t->sent_token;
    for (int64_t i = 0; i < n_tokens; i++) t->last_rank[i] = -1;
    for (int rank = 0; rank < peers->size; rank++) {
        expert_range held = wave_held(t->wave.n_experts, rank, peers->size);
        int32_t n = 0;
        for (int64_t r = d->offsets[held.first]; r < d->offsets[held.end] && rank != peers->rank;
             r++) {
            int32_t token = d->row_token[r];
            if (t->last_rank[token] != rank) {
                t->last_rank[token] = rank;
                t->place[token] = n;
                sent[n++] = token;
            }
            t->row_place[r] = t->place[token];
        }
        t->n_sent[rank] = n;
        sent += n;
    }
}

dsmoe_status travel_agree(travel *t, const dsmoe_layer *layer, const dispatch *d, int64_t n_tokens,
                          bool has_more, dsmoe_status mine, dsmoe_error *error)
{
    if (!layer->peers) return mine;
    list_tokens(t, d, n_tokens);
    wave_say(&t->wave, mine, n_tokens, has_more, d->offsets, t->n_sent);
    double start = clock_seconds();
    dsmoe_status status = wave_gather(&t->wave, mine, error);
    t->waiting += clock_seconds() - start;
    return status;
}

typedef struct packing_job {
    const travel *travel;
    const unit_pass *pass;
    int64_t n_sent; /* to all ranks */
} packing_job;

static void pack_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const packing_job *j = context;
    const travel *t = j->travel;
    int64_t hidden = j->pass->layer->config.hidden_size;
    size_t size = (size_t)hidden * sizeof(float);
    int64_t end = moe_min(j->n_sent, (task + 1) * TOKENS_PER_TASK), before = 0;
    int rank = 0;
    for (int64_t i = task * TOKENS_PER_TASK; i < end; i++) {
        while (i - before >= t->n_sent[rank]) before += t->n_sent[rank++];
        const parcel *p = &t->leaving[rank];
        int64_t from = t->sent_token[i] * hidden, to = (i - before) * hidden;
        memcpy(p->x + to, j->pass->x + from, size);
        if (p->dy) memcpy(p->dy + to, j->pass->dy + from, size);
    }
}

/* Copies this rank's rows for other ranks into parcels. */
static void pack(const travel *t, const unit_pass *p)
{
    const wave *w = &t->wave;
    arena a = arena_over(t->leaving_memory);
    packing_job job = {t, p, 0};
    for (int rank = 0; rank < w->peers->size; rank++) {
        bool stays = rank == w->peers->rank;
        int64_t first = wave_first_row(w, w->peers->rank, rank);
        int64_t n_rows = stays ? 0 : wave_rows(w, w->peers->rank, rank);
        parcel *to = &t->leaving[rank];
        *to = parcel_place(&a, p->layer->config.hidden_size, t->n_sent[rank], n_rows, p->dy);
        memcpy(to->token, t->row_place + first, (size_t)n_rows * sizeof *to->token);
        if (p->dy) memcpy(to->weight, p->rows->weight + first, (size_t)n_rows * sizeof *to->weight);
        job.n_sent += t->n_sent[rank];
    }
    threads_for(p->experts->n_threads, moe_parts(job.n_sent, TOKENS_PER_TASK), pack_task, &job);
}

/* ---- messages ------------------------------------------------------------------------------ */

static bool is_in(unit_range round, int unit) { return round.first <= unit && unit < round.end; }

/* Places the parcels that will arrive in this round. */
static void expect(const travel *t, const unit_pass *p, unit_range round)
{
    const wave *w = &t->wave;
    arena a = arena_over(t->coming_memory);
    int64_t row = 0;
    for (int unit = round.first; unit < round.end; unit++) {
        bool is_own = unit == w->peers->rank;
        int64_t n_rows = is_own ? 0 : wave_rows(w, unit, w->peers->rank);
        int64_t n_tokens = is_own ? 0 : wave_sent(w, unit, w->peers->rank);
        parcel *from = &t->coming[unit];
        *from = parcel_place(&a, p->layer->config.hidden_size, n_tokens, n_rows, p->dy);
        t->sources[unit] = (token_source){.x = from->x, .dy = from->dy, .n_tokens = n_tokens};
        t->guest_row[unit] = row;
        row += n_rows;
    }
}

static dsmoe_status begin_exchange(travel *t, double start, dsmoe_error *error)
{
    dsmoe_status status = peers_exchange_begin(t->wave.peers, t->send, t->receive, error);
    t->sending += clock_seconds() - start;
    return status;
}

static dsmoe_status begin_leaving(travel *t, const unit_pass *p, unit_range round,
                                  dsmoe_error *error)
{
    const dsmoe_peers *peers = t->wave.peers;
    bool sends = is_in(round, peers->rank);
    double start = clock_seconds();
    if (sends) pack(t, p);
    expect(t, p, round);
    for (int rank = 0; rank < peers->size; rank++) {
        t->send[rank] = sends ? t->leaving[rank].bytes : (dsmoe_bytes){0};
        t->receive[rank] = is_in(round, rank) ? t->coming[rank].bytes : (dsmoe_bytes){0};
    }
    return begin_exchange(t, start, error);
}

/* Begins to send back results of `width` numbers a row: from `guests` on this rank to `home` on the rank of
 * each guest. */
static dsmoe_status begin_return(travel *t, unit_range round, float *guests, float *home,
                                 int64_t width, dsmoe_error *error)
{
    const wave *w = &t->wave;
    const dsmoe_peers *peers = w->peers;
    size_t size = (size_t)width * sizeof(float);
    double start = clock_seconds();
    for (int rank = 0; rank < peers->size; rank++) {
        t->send[rank] = t->receive[rank] = (dsmoe_bytes){0};
        if (rank == peers->rank) continue;
        if (is_in(round, rank))
            t->send[rank] = (dsmoe_bytes){guests + t->guest_row[rank] * width,
                                          (size_t)wave_rows(w, rank, peers->rank) * size};
        if (is_in(round, peers->rank))
            t->receive[rank] = (dsmoe_bytes){home + wave_first_row(w, peers->rank, rank) * width,
                                             (size_t)wave_rows(w, peers->rank, rank) * size};
    }
    return begin_exchange(t, start, error);
}

static dsmoe_status arrive(travel *t, dsmoe_error *error)
{
    double start = clock_seconds();
    dsmoe_status status = peers_exchange_end(t->wave.peers, error);
    t->sending += clock_seconds() - start;
    return status;
}

/* ---- guests -------------------------------------------------------------------------------- */

/* Decides for which units g and u are kept, after those of this rank's own rows. Forward and backward decide
 * the same. */
static void place_kept(const travel *t, const unit_pass *p)
{
    const wave *w = &t->wave;
    int64_t room = p->rows->g.routed ? travel_kept_rows(p->layer) : 0;
    int64_t used = wave_rows(w, w->peers->rank, w->peers->rank);
    for (int unit = 0; unit < w->peers->size; unit++) {
        int64_t n_rows = unit == w->peers->rank ? 0 : wave_rows(w, unit, w->peers->rank);
        bool fits = used + n_rows <= room;
        t->kept_row[unit] = fits ? used : -1;
        if (fits) used += n_rows;
    }
}

static float *row_of(float *array, int64_t row, int64_t width)
{
    return array ? array + row * width : NULL;
}

static group guest_group(const travel *t, const unit_pass *p, int unit, int64_t expert)
{
    const int32_t *offsets = wave_offsets(&t->wave, unit);
    const parcel *from = &t->coming[unit];
    const expert_rows *home = p->rows;
    bool is_kept = t->kept_row[unit] >= 0;
    int64_t width = p->layer->config.moe_intermediate_size;
    int64_t at = offsets[expert] - offsets[p->layer->held.first], row = t->guest_row[unit] + at;
    int64_t kept = is_kept ? t->kept_row[unit] + at : row;
    group g = {.weights = p->layer->weights.experts[expert],
               .width = width,
               .n_rows = offsets[expert + 1] - offsets[expert],
               .from = &t->sources[unit],
               .token = from->token + at,
               .weight = row_of(from->weight, at, 1),
               .d_weight = row_of(t->d_weight, row, 1),
               .g = row_of(is_kept ? home->g.routed : t->g, kept, width),
               .u = row_of(is_kept ? home->u.routed : t->u, kept, width),
               .h = t->h + row * width,
               .out = t->out + row * p->layer->config.hidden_size};
    if (home->gradients) g.gradients = home->gradients->experts[expert];
    return g;
}

/* Whether a unit gets groups in a list of experts. */
typedef bool unit_choice(const travel *t, int unit);

static bool is_guest(const travel *t, int unit) { return unit != t->wave.peers->rank; }

static bool is_not_kept(const travel *t, int unit)
{
    return is_guest(t, unit) && t->kept_row[unit] < 0;
}

/* Whether a unit adds to the gradients. A unit without tokens adds nothing, not even zeros. A unit with
 * tokens but without rows for an expert does add zeros, as on a single machine. If no rank has tokens, unit 0
 * alone adds zeros. */
static bool is_there(const travel *t, int unit)
{
    bool any = false;
    for (int i = 0; i < t->wave.peers->size; i++) any = any || wave_tokens(&t->wave, i) > 0;
    return wave_tokens(&t->wave, unit) > 0 || (unit == 0 && !any);
}

/* Lists groups by expert, and for each expert by unit: the order in which gradients are added. */
static experts *assign(travel *t, const unit_pass *p, unit_range round, unit_choice *choose)
{
    experts *e = &t->experts;
    experts_begin(e, p->n_tokens);
    for (int64_t i = p->layer->held.first; i < p->layer->held.end; i++)
        for (int unit = round.first; unit < round.end; unit++) {
            if (!choose(t, unit)) continue;
            group g = is_guest(t, unit) ? guest_group(t, p, unit, i)
                                        : experts_routed(p->layer, p->dispatch, i, p->rows);
            g.only_gradients = !is_guest(t, unit);
            experts_add(e, g);
        }
    return e;
}

/* ---- forward ------------------------------------------------------------------------------- */

static experts *assign_home(const unit_pass *p)
{
    experts_begin(p->experts, p->n_tokens);
    experts_add_routed(p->experts, p->layer, p->dispatch, p->rows);
    return p->experts;
}

static experts *assign_shared(const unit_pass *p)
{
    experts_begin(p->experts, p->n_tokens);
    experts_add_shared(p->experts, p->layer, p->rows);
    return p->experts;
}

static experts *assign_all(const unit_pass *p)
{
    assign_shared(p);
    experts_add_routed(p->experts, p->layer, p->dispatch, p->rows);
    return p->experts;
}

static void begin_pass(travel *t, const unit_pass *p)
{
    place_kept(t, p);
    t->experts.threads = p->experts->threads;
    t->experts.n_threads = p->experts->n_threads;
    t->experts.watch = p->experts->watch;
}

static dsmoe_status forward_round(travel *t, const unit_pass *p, unit_range round,
                                  dsmoe_error *error)
{
    STATUS_TRY(begin_leaving(t, p, round, error));
    if (round.first == 0) experts_forward(assign_home(p), p->x);
    STATUS_TRY(arrive(t, error));
    experts_forward(assign(t, p, round, is_guest), p->x);
    STATUS_TRY(
        begin_return(t, round, t->out, p->rows->out.routed, p->layer->config.hidden_size, error));
    if (round.end == t->wave.peers->size) experts_forward(assign_shared(p), p->x);
    return arrive(t, error);
}

dsmoe_status travel_forward(travel *t, const unit_pass *p, dsmoe_error *error)
{
    if (!p->layer->peers) {
        (p->again ? experts_hidden : experts_forward)(assign_all(p), p->x);
        return DSMOE_OK;
    }
    begin_pass(t, p);
    for (unit_range round = {0, 0}; wave_next_round(&t->wave, &round);)
        STATUS_TRY(forward_round(t, p, round, error));
    return DSMOE_OK;
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Whether units of earlier rounds of this wave have added to the gradients. */
static bool has_begun(const travel *t, unit_range round)
{
    for (int unit = 0; unit < round.first; unit++)
        if (is_there(t, unit)) return true;
    return false;
}

static dsmoe_status backward_round(travel *t, const unit_pass *p, unit_range round, bool accumulate,
                                   dsmoe_error *error)
{
    STATUS_TRY(begin_leaving(t, p, round, error));
    if (round.first == 0) experts_backward_rows(assign_home(p), p->x, p->dy);
    STATUS_TRY(arrive(t, error));
    experts_hidden(assign(t, p, round, is_not_kept), p->x);
    experts *guests = assign(t, p, round, is_there);
    experts_backward_rows(guests, p->x, p->dy);
    STATUS_TRY(
        begin_return(t, round, t->out, p->rows->out.routed, p->layer->config.hidden_size, error));
    experts_backward_weights(guests, p->x, p->dy, accumulate || has_begun(t, round));
    if (round.end == t->wave.peers->size) experts_backward(assign_shared(p), p->x, p->dy, false);
    STATUS_TRY(arrive(t, error));
    STATUS_TRY(begin_return(t, round, t->d_weight, p->rows->d_weight, 1, error));
    return arrive(t, error);
}

dsmoe_status travel_backward(travel *t, const unit_pass *p, bool accumulate, dsmoe_error *error)
{
    if (!p->layer->peers) {
        experts_backward(assign_all(p), p->x, p->dy, accumulate);
        return DSMOE_OK;
    }
    begin_pass(t, p);
    list_tokens(t, p->dispatch, p->n_tokens);
    for (unit_range round = {0, 0}; wave_next_round(&t->wave, &round);)
        STATUS_TRY(backward_round(t, p, round, accumulate, error));
    return DSMOE_OK;
}
