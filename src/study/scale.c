/* scale.c - predicts from the outline of a training step how long the step takes on several ranks.
 *
 * A rank takes amount / speed for what it computes. An exchange takes all ranks
 *
 *     seconds = largest bytes that a rank sends or receives / (PAYLOAD · bandwidth)
 *               + hops · latency + messages of a rank · MESSAGE
 *
 * from the moment when the last rank comes to it. A rank computes during the exchange, and continues when
 * both its computing and the exchange are done, so the longer one hides the shorter one. Every rank has a
 * clock. Its idle time counts as waiting until the last rank comes, and as sending after that. Ranks that
 * have nothing to send or receive do not stop. docs/machines.md compares the prediction with a simulation of
 * the messages themselves. */
#include <math.h>
#include <stdlib.h>

#include "moe/wave.h"
#include "train/outline.h"

/* The share of a cable's bandwidth that carries content when ranks send both ways over Open MPI's TCP. With
 * this value, real runs of 2 and 4 ranks and simulated ones agree, see bench/scale. */
static const double PAYLOAD = 0.75;
/* mpi.c sends small data in one message, inside a head. Larger data follows the head in a second message,
 * before which MPI asks whether the receiver is ready. */
enum { SMALL_MESSAGE = 2024, SMALL_HOPS = 1, LARGE_HOPS = 4 };
static const double MESSAGE = 5e-6; /* processor seconds per message, for sender and receiver */

typedef enum moment_kind { MOMENT_BEGIN, MOMENT_END, MOMENT_GATHER } moment_kind;

/* A point where ranks meet: what one rank has computed since its previous moment, and what it exchanges. */
typedef struct moment {
    moment_kind kind;
    double computing;  /* seconds */
    double bytes;      /* sent or received, whichever is more */
    double n_messages; /* sent and received */
    bool has_large;
} moment;

typedef struct prediction {
    const dsmoe_scale_options *options;
    int rank;
    moment *moments; /* [capacity] of this rank */
    int64_t n_moments, capacity;
    double computing; /* since the last moment */
    double sent[OUTLINE_GOODS];
} prediction;

/* ---- a rank by itself ------------------------------------------------------------------------------ */

static dsmoe_status note_work(void *context, outline_work work, double amount, dsmoe_error *error)
{
    (void)error;
    prediction *p = context;
    const dsmoe_training_speed *s = &p->options->speed;
    const double speeds[OUTLINE_WORKS] = {s->attention, s->experts, s->head, s->memory};
    p->computing += amount / speeds[work];
    return DSMOE_OK;
}

static dsmoe_status note_moment(prediction *p, moment m, dsmoe_error *error)
{
    if (p->n_moments == p->capacity) {
        int64_t capacity = 2 * p->capacity + 64;
        moment *larger = realloc(p->moments, (size_t)capacity * sizeof *larger);
        if (!larger) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a plan");
        p->moments = larger;
        p->capacity = capacity;
    }
    m.computing = p->computing;
    p->computing = 0;
    p->moments[p->n_moments++] = m;
    return DSMOE_OK;
}

static void add_message(moment *m, size_t size, double *bytes)
{
    if (size == 0) return;
    bool is_large = size > SMALL_MESSAGE;
    *bytes += (double)size;
    m->n_messages += is_large ? 2 : 1;
    m->has_large = m->has_large || is_large;
}

static dsmoe_status note_begin(void *context, outline_goods goods, const size_t *send,
                               const size_t *receive, dsmoe_error *error)
{
    prediction *p = context;
    moment m = {.kind = MOMENT_BEGIN};
    double out = 0, in = 0;
    for (int r = 0; r < p->options->n_ranks; r++) {
        add_message(&m, send[r], &out);
        add_message(&m, receive[r], &in);
    }
    p->sent[goods] += out;
    m.bytes = fmax(out, in);
    return note_moment(p, m, error);
}

static dsmoe_status note_end(void *context, dsmoe_error *error)
{
    return note_moment(context, (moment){.kind = MOMENT_END}, error);
}

static dsmoe_status note_gather(void *context, outline_goods goods, const size_t *parts,
                                dsmoe_error *error)
{
    prediction *p = context;
    moment m = {.kind = MOMENT_GATHER};
    double out = 0, in = 0;
    for (int r = 0; r < p->options->n_ranks; r++) {
        if (r == p->rank) continue;
        add_message(&m, parts[p->rank], &out);
        add_message(&m, parts[r], &in);
    }
    p->sent[goods] += out;
    m.bytes = fmax(out, in);
    return note_moment(p, m, error);
}

/* ---- all ranks together ------------------------------------------------------------------------------ */

typedef struct clocks {
    const prediction *ranks;
    const dsmoe_scale_options *options;
    double *now;        /* [n_ranks] */
    double came;        /* when the last rank came to the current exchange */
    double takes;       /* how long the exchange takes after that */
    int64_t exchange;   /* the moment at which the exchange began */
    dsmoe_scale *scale; /* sums over the ranks */
} clocks;

static bool takes_part(const moment *m) { return m->n_messages > 0; }

/* Finds when the last rank comes to the exchange of a moment, and how long the exchange takes after that. */
static void begin(clocks *c, int64_t at)
{
    const dsmoe_scale_options *o = c->options;
    moment most = {0};
    c->came = 0;
    c->exchange = at;
    for (int r = 0; r < o->n_ranks; r++) {
        const moment *m = &c->ranks[r].moments[at];
        if (!takes_part(m)) continue;
        c->came = fmax(c->came, c->now[r]);
        most.bytes = fmax(most.bytes, m->bytes);
        most.n_messages = fmax(most.n_messages, m->n_messages);
        most.has_large = most.has_large || m->has_large;
    }
    c->takes = most.bytes / (PAYLOAD * o->bandwidth) + most.n_messages * MESSAGE +
               (most.has_large ? LARGE_HOPS : SMALL_HOPS) * o->latency;
}

static void end(clocks *c)
{
    for (int r = 0; r < c->options->n_ranks; r++) {
        if (!takes_part(&c->ranks[r].moments[c->exchange])) continue;
        double idle = fmax(0, c->came + c->takes - c->now[r]);
        double waiting = fmin(idle, fmax(0, c->came - c->now[r])), sending = idle - waiting;
        c->now[r] += idle;
        c->scale->waiting += waiting;
        c->scale->sending += sending;
        c->scale->hidden += fmax(0, c->takes - sending);
    }
}

static void run_clocks(clocks *c)
{
    int n_ranks = c->options->n_ranks;
    double last = 0;
    for (int64_t i = 0; i < c->ranks[0].n_moments; i++) {
        moment_kind kind = c->ranks[0].moments[i].kind;
        for (int r = 0; r < n_ranks; r++) c->now[r] += c->ranks[r].moments[i].computing;
        if (kind != MOMENT_END) begin(c, i);
        if (kind != MOMENT_BEGIN) end(c);
    }
    for (int r = 0; r < n_ranks; r++) {
        c->now[r] += c->ranks[r].computing;
        last = fmax(last, c->now[r]);
    }
    for (int r = 0; r < n_ranks; r++) c->scale->waiting += last - c->now[r];
    c->scale->step = last;
}

static void add_up(const prediction *ranks, int n_ranks, dsmoe_scale *scale)
{
    for (int r = 0; r < n_ranks; r++) {
        scale->computing += ranks[r].computing;
        for (int64_t i = 0; i < ranks[r].n_moments; i++)
            scale->computing += ranks[r].moments[i].computing;
        scale->gradients += ranks[r].sent[OUTLINE_GRADIENTS] / n_ranks;
        scale->weights += ranks[r].sent[OUTLINE_WEIGHTS] / n_ranks;
        scale->rows += ranks[r].sent[OUTLINE_ROWS] / n_ranks;
        scale->words += ranks[r].sent[OUTLINE_WORDS] / n_ranks;
    }
    scale->computing /= n_ranks;
    scale->waiting /= n_ranks;
    scale->sending /= n_ranks;
    scale->hidden /= n_ranks;
}

static dsmoe_status walk_ranks(const outline *o, prediction *ranks, dsmoe_error *error)
{
    for (int r = 0; r < o->n_ranks; r++) {
        outline_watch watch = {&ranks[r], note_work, note_begin, note_end, note_gather};
        STATUS_TRY(outline_walk(o, r, &watch, error));
    }
    return DSMOE_OK;
}

static dsmoe_status predict_time(const outline *o, const dsmoe_scale_options *options,
                                 dsmoe_scale *scale, dsmoe_error *error)
{
    size_t n = (size_t)options->n_ranks;
    prediction *ranks = calloc(n, sizeof *ranks);
    double *now = calloc(n, sizeof *now);
    dsmoe_status status = DSMOE_OK;
    if (!ranks || !now)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a plan");
    for (size_t r = 0; r < n && status == DSMOE_OK; r++)
        ranks[r] = (prediction){.options = options, .rank = (int)r};
    if (status == DSMOE_OK) status = walk_ranks(o, ranks, error);
    if (status == DSMOE_OK) {
        clocks c = {.ranks = ranks, .options = options, .now = now, .scale = scale};
        run_clocks(&c);
        add_up(ranks, options->n_ranks, scale);
    }
    for (size_t r = 0; ranks && r < n; r++) free(ranks[r].moments);
    free(ranks);
    free(now);
    return status;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static size_t total(const dsmoe_trainer_memory *m)
{
    return m->weights + m->gradients + m->moments + m->activations + m->workspace;
}

/* Finds the memory that each rank's trainer would take. */
static dsmoe_status measure_memory(const dsmoe_config *config, const dsmoe_scale_options *o,
                                   dsmoe_scale *scale, dsmoe_error *error)
{
    for (int r = 0; r < o->n_ranks; r++) {
        dsmoe_peers peers = {.rank = r, .size = o->n_ranks, .host = ""};
        dsmoe_trainer_options trainer = o->trainer;
        trainer.peers = &peers;
        dsmoe_trainer_memory m = dsmoe_trainer_memory_size(config, &trainer);
        size_t all = total(&m);
        if (all == 0)
            return status_fail(
                error, DSMOE_ERROR_MEMORY,
                "a batch of %lld x %lld tokens of this model does not fit into any memory",
                (long long)trainer.n_sequences, (long long)trainer.sequence_length);
        if (all > scale->most_memory) {
            scale->most_memory = all;
            scale->memory = m;
        }
        if (r == 0 || all < scale->least_memory) scale->least_memory = all;
    }
    return DSMOE_OK;
}

/* ---- work ------------------------------------------------------------------------------------------------ */

static dsmoe_status sum_work(void *context, outline_work work, double amount, dsmoe_error *error)
{
    (void)error;
    ((double *)context)[work] += amount;
    return DSMOE_OK;
}

/* Sums the work of a single rank in a step of n_units batches, and finds how many numbers its model has. */
static dsmoe_status sum_up(const dsmoe_config *config, const dsmoe_trainer_options *options,
                           int64_t n_units, double sums[OUTLINE_WORKS], double *n_numbers,
                           dsmoe_error *error)
{
    outline *o;
    outline_watch watch = {.context = sums, .compute = sum_work};
    for (int i = 0; i < OUTLINE_WORKS; i++) sums[i] = 0;
    STATUS_TRY(outline_open(config, options, 1, n_units, (outline_loads){0}, &o, error));
    dsmoe_status status = outline_walk(o, 0, &watch, error);
    *n_numbers = o->n_own[0];
    outline_close(o);
    return status;
}

static dsmoe_status find_useful(const dsmoe_config *config, const dsmoe_scale_options *o,
                                double *useful, dsmoe_error *error)
{
    dsmoe_trainer_options once = o->trainer;
    double sums[OUTLINE_WORKS], n_numbers;
    once.recompute = false;
    STATUS_TRY(sum_up(config, &once, 1, sums, &n_numbers, error));
    double unit = sums[OUTLINE_ATTENTION] / o->speed.attention +
                  sums[OUTLINE_EXPERTS] / o->speed.experts + sums[OUTLINE_HEAD] / o->speed.head;
    *useful = unit * (double)o->n_units / o->n_ranks;
    return DSMOE_OK;
}

/* ---- prediction ------------------------------------------------------------------------------------------ */

static bool is_positive(double x) { return x > 0 && isfinite(x); }

static dsmoe_status check(const dsmoe_scale_options *o, dsmoe_error *error)
{
    const dsmoe_training_speed *s = &o->speed;
    if (o->n_ranks < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%d ranks cannot train", o->n_ranks);
    if (!is_positive(s->attention) || !is_positive(s->experts) || !is_positive(s->head) ||
        !is_positive(s->memory))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "the speed of a rank is not positive");
    if (!is_positive(o->bandwidth) || !(o->latency >= 0) || !isfinite(o->latency))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "there is no network of %g bytes/s with a latency of %g s", o->bandwidth,
                           o->latency);
    if (!(o->imbalance >= 0) || !isfinite(o->imbalance))
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a rank cannot have %g times the mean load",
                           o->imbalance);
    return DSMOE_OK;
}

/* Gives the experts of the middle rank `imbalance` times the mean load, but at most the whole load. */
static void fill_loads(const dsmoe_scale_options *o, double *loads, int64_t n_experts)
{
    expert_range busy = wave_held(n_experts, o->n_ranks / 2, o->n_ranks);
    double n_busy = (double)(busy.end - busy.first), n = (double)n_experts;
    double high = o->imbalance > 0 ? fmin(o->imbalance, n / fmax(n_busy, 1)) : 1;
    double low = n > n_busy ? (n - high * n_busy) / (n - n_busy) : 1;
    for (int64_t e = 0; e < n_experts; e++) loads[e] = busy.first <= e && e < busy.end ? high : low;
}

static dsmoe_status predict(const dsmoe_config *config, const dsmoe_scale_options *o,
                            dsmoe_scale *scale, dsmoe_error *error)
{
    outline *of;
    double *made = calloc((size_t)config->n_routed_experts + 1, sizeof *made);
    if (!made) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for a plan");
    fill_loads(o, made, config->n_routed_experts);
    outline_loads loads = {made, 1};
    if (o->loads) loads = (outline_loads){o->loads, o->n_load_layers};
    dsmoe_status status =
        outline_open(config, &o->trainer, o->n_ranks, o->n_units, loads, &of, error);
    if (status == DSMOE_OK) status = predict_time(of, o, scale, error);
    outline_close(of);
    free(made);
    return status;
}

dsmoe_status dsmoe_scale_predict(const dsmoe_config *config, const dsmoe_scale_options *options,
                                 dsmoe_scale *scale, dsmoe_error *error)
{
    if (!config || !options || !scale)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "no configuration, no options or no place for the plan given");
    *scale = (dsmoe_scale){0};
    dsmoe_model_plan plan;
    STATUS_TRY(dsmoe_model_plan_make(config, options->trainer.sequence_length, &plan, error));
    STATUS_TRY(check(options, error));
    STATUS_TRY(predict(config, options, scale, error));
    STATUS_TRY(find_useful(config, options, &scale->useful, error));
    return measure_memory(config, options, scale, error);
}

/* ---- speed ----------------------------------------------------------------------------------------------- */

dsmoe_status dsmoe_training_speed_find(const dsmoe_config *config,
                                       const dsmoe_trainer_options *options, int64_t n_units,
                                       const dsmoe_trainer_times *t, dsmoe_training_speed *speed,
                                       dsmoe_error *error)
{
    double sums[OUTLINE_WORKS], n_numbers;
    if (!config || !options || !t || !speed)
        return status_fail(
            error, DSMOE_ERROR_ARGUMENT,
            "no configuration, no options, no times or no place for the speed given");
    STATUS_TRY(sum_up(config, options, n_units, sums, &n_numbers, error));
    *speed = (dsmoe_training_speed){
        .attention = sums[OUTLINE_ATTENTION] / (t->attention + t->router + t->rest),
        .experts = sums[OUTLINE_EXPERTS] / t->experts,
        .head = sums[OUTLINE_HEAD] / t->head,
        .memory = (OUTLINE_NORM_BYTES + OUTLINE_UPDATE_BYTES) * n_numbers / t->optimizer};
    return DSMOE_OK;
}
