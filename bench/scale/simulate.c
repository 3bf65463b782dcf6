/* simulate.c - one training step of many ranks on a network simulated by SimGrid, and the prediction of
 * dsmoe_scale_predict for the same step. bench/scale/scale.py builds and starts it.
 *
 * Real: the messages, their order (src/peers/mpi.c, compiled against SimGrid's MPI) and sizes, the owners of
 * parameters, and the rounds in which rows are sent (src/train/outline.c, which tests/test_outline.c compares
 * with the calls of a real trainer). Not real: computing, which only takes the time measured on this machine,
 * and the numbers that are sent, which are the same bytes for all ranks. If the platform has a host called
 * "machine", all ranks compute on its cores, as when one computer runs several ranks. */
#include <mpi.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/exec.h>
#include <simgrid/host.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers/mpi.h"
#include "peers/peers.h"
#include "train/outline.h"

/* The arguments of the command line, such as ranks=8. */
typedef struct request {
    char preset[32], config[512], loads[512], parallel[16];
    double ranks; /* > 0: only prints the prediction for this many ranks, without simulation */
    double layers, batch, seq, accumulate, recompute, waits;
    double bandwidth, latency;               /* of the platform: bytes/s, seconds */
    double attention, experts, head, memory; /* FLOP/s; bytes/s */
} request;

/* Shared by all ranks, which are threads of one process here and take turns. */
typedef struct world {
    request asked;
    dsmoe_config config;
    dsmoe_scale_options options;
    double *loads;
    outline *outline;
    char *payload; /* of all messages */
    struct rank_state **ranks;
} world;
static world shared;

typedef struct rank_times {
    double end, computing, goods[OUTLINE_GOODS];
} rank_times;

typedef struct rank_state {
    const dsmoe_peers *peers;
    sg_host_t machine;  /* NULL: each rank computes on its own host */
    dsmoe_bytes *lists; /* [2, n_ranks] */
    bool under_way;
    bool *is_headed;     /* [2, n_ranks]: the first message of this call is done */
    size_t n_begun;      /* number of calls begun */
    double since;        /* when the last call began */
    outline_goods goods; /* what the current call sends */
    rank_times times;
} rank_state;

static void give_up(const char *what)
{
    fprintf(stderr, "simulate: %s\n", what);
    exit(1);
}

static void must(dsmoe_status status, const dsmoe_error *error)
{
    if (status != DSMOE_OK) give_up(error->message);
}

/* ---- the command line ------------------------------------------------------------------------------- */

static void read_word(request *r, const char *word)
{
    const struct {
        const char *name;
        char *text;
        size_t size;
        double *number;
    } words[] = {
        {"preset", r->preset, sizeof r->preset, NULL},
        {"config", r->config, sizeof r->config, NULL},
        {"loads", r->loads, sizeof r->loads, NULL},
        {"parallel", r->parallel, sizeof r->parallel, NULL},
        {"ranks", NULL, 0, &r->ranks},
        {"layers", NULL, 0, &r->layers},
        {"batch", NULL, 0, &r->batch},
        {"seq", NULL, 0, &r->seq},
        {"accumulate", NULL, 0, &r->accumulate},
        {"recompute", NULL, 0, &r->recompute},
        {"waits", NULL, 0, &r->waits},
        {"bandwidth", NULL, 0, &r->bandwidth},
        {"latency", NULL, 0, &r->latency},
        {"attention", NULL, 0, &r->attention},
        {"experts", NULL, 0, &r->experts},
        {"head", NULL, 0, &r->head},
        {"memory", NULL, 0, &r->memory},
    };
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].name) != length || strncmp(words[i].name, word, length)) continue;
        if (word[length] != '=') break;
        if (words[i].number)
            *words[i].number = atof(word + length + 1);
        else
            snprintf(words[i].text, words[i].size, "%s", word + length + 1);
        return;
    }
    give_up(word);
}

/* Rows of numbers, one for each layer. */
static void read_loads(world *w)
{
    FILE *file = fopen(w->asked.loads, "r");
    size_t n_experts = (size_t)w->config.n_routed_experts, n = 0, room = 0;
    double number;
    if (!file) give_up("the loads cannot be read");
    while (fscanf(file, "%lf", &number) == 1) {
        if (n == room) {
            room = 2 * room + 64;
            w->loads = realloc(w->loads, room * sizeof *w->loads);
            if (!w->loads) give_up("no memory");
        }
        w->loads[n++] = number;
    }
    fclose(file);
    if (n == 0 || n % n_experts) give_up("the loads are not those of this model's experts");
    w->options.loads = w->loads;
    w->options.n_load_layers = (int64_t)(n / n_experts);
}

/* ---- the outline, and memory for its largest message --------------------------------------------------- */

typedef struct largest {
    int n_ranks;
    size_t size;
} largest;

static dsmoe_status skip_work(void *context, outline_work work, double amount, dsmoe_error *error)
{
    (void)context, (void)work, (void)amount, (void)error;
    return DSMOE_OK;
}

static dsmoe_status see_begin(void *context, outline_goods goods, const size_t *send,
                              const size_t *receive, dsmoe_error *error)
{
    (void)goods, (void)receive, (void)error;
    largest *l = context;
    for (int r = 0; r < l->n_ranks; r++)
        if (send[r] > l->size) l->size = send[r];
    return DSMOE_OK;
}

static dsmoe_status skip_end(void *context, dsmoe_error *error)
{
    (void)context, (void)error;
    return DSMOE_OK;
}

static dsmoe_status see_gather(void *context, outline_goods goods, const size_t *parts,
                               dsmoe_error *error)
{
    return see_begin(context, goods, parts, parts, error);
}

static void make_payload(world *w)
{
    dsmoe_error error;
    largest l = {w->options.n_ranks, 1};
    outline_watch watch = {&l, skip_work, see_begin, skip_end, see_gather};
    for (int r = 0; r < l.n_ranks; r++) must(outline_walk(w->outline, r, &watch, &error), &error);
    w->payload = SMPI_SHARED_MALLOC(l.size);
}

static void make_world(world *w, int n_ranks, int argc, char **argv)
{
    request *r = &w->asked;
    dsmoe_error error;
    for (int i = 1; i < argc; i++) read_word(r, argv[i]);
    if (r->ranks > 0) n_ranks = (int)r->ranks;
    must(r->config[0] ? dsmoe_config_read(r->config, &w->config, &error)
                      : dsmoe_config_preset(r->preset, &w->config, &error),
         &error);
    if (r->layers > 0) w->config.num_hidden_layers = (int64_t)r->layers;
    dsmoe_scale_options *o = &w->options;
    *o = (dsmoe_scale_options){.trainer = dsmoe_trainer_options_default(),
                               .n_ranks = n_ranks,
                               .n_units = r->accumulate > 0 ? (int64_t)r->accumulate : n_ranks,
                               .bandwidth = r->bandwidth,
                               .latency = r->latency,
                               .speed = {r->attention, r->experts, r->head, r->memory}};
    o->trainer.n_sequences = (int64_t)r->batch;
    o->trainer.sequence_length = (int64_t)r->seq;
    o->trainer.recompute = r->recompute > 0;
    o->trainer.n_threads = 1;
    o->trainer.parallel =
        strcmp(r->parallel, "experts") ? DSMOE_PARALLEL_DATA : DSMOE_PARALLEL_EXPERTS;
    if (r->loads[0]) read_loads(w);
    if (r->ranks > 0) return;
    must(outline_open(&w->config, &o->trainer, n_ranks, o->n_units,
                      (outline_loads){o->loads, o->n_load_layers}, &w->outline, &error),
         &error);
    w->outline->waits = r->waits > 0;
    make_payload(w);
}

/* ---- a rank ------------------------------------------------------------------------------------------------ */

static void spend(rank_state *s, double seconds)
{
    sg_exec_t work = sg_actor_exec_init(seconds * sg_host_get_speed(sg_host_self()));
    if (s->machine) sg_exec_set_host(work, s->machine);
    sg_exec_start(work);
    sg_exec_wait(work);
}

/* ---- finished messages ------------------------------------------------------------------------------ */

/* mpi.c asks MPI which of its 2 n requests are done. SimGrid needs time in proportion to n to answer this for
 * each message. It also keeps finished requests in a list and searches it for each message. With hundreds of
 * ranks this would take hours. The functions below ask about one request at a time, and only when the answer
 * is known: the head of mpi.c has arrived once both ranks have begun the call, and later messages need no
 * check before the end. */

static void note_begin(rank_state *s)
{
    memset(s->is_headed, 0, 2 * (size_t)s->peers->size * sizeof *s->is_headed);
    s->n_begun++;
    s->since = simgrid_get_clock();
}

/* Whether this rank and the peer have both been in this call for that many seconds. */
static bool is_there(const rank_state *s, int peer, double seconds)
{
    const rank_state *other = shared.ranks[peer];
    if (!other || other->n_begun < s->n_begun) return false;
    return other->n_begun > s->n_begun ||
           simgrid_get_clock() >= fmax(s->since, other->since) + seconds;
}

static int await_heads(rank_state *s, double seconds, MPI_Request *requests, int *done,
                       MPI_Status *statuses)
{
    int n_done = 0, n = 2 * s->peers->size;
    for (int i = 0; i < n; i++) {
        if (requests[i] == MPI_REQUEST_NULL || s->is_headed[i]) continue;
        if (!is_there(s, i % s->peers->size, seconds)) continue;
        MPI_Wait(&requests[i], &statuses[n_done]);
        s->is_headed[i] = true;
        done[n_done++] = i;
    }
    return n_done;
}

static bool awaits_head(const rank_state *s, const MPI_Request *requests)
{
    for (int i = 0; i < 2 * s->peers->size; i++)
        if (requests[i] != MPI_REQUEST_NULL && !s->is_headed[i]) return true;
    return false;
}

static rank_state *state_of_self(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return shared.ranks ? shared.ranks[rank] : NULL;
}

/* Instead of MPI_Testsome. */
int simulate_testsome(int n, MPI_Request *requests, int *n_done, int *done, MPI_Status *statuses)
{
    const double told = 5e-4; /* seconds after which a head has arrived */
    rank_state *s = state_of_self();
    (void)n;
    *n_done = s ? await_heads(s, told, requests, done, statuses) : 0;
    return MPI_SUCCESS;
}

/* Instead of MPI_Waitsome. */
int simulate_waitsome(int n, MPI_Request *requests, int *n_done, int *done, MPI_Status *statuses)
{
    rank_state *s = state_of_self();
    *n_done = s ? await_heads(s, 0, requests, done, statuses) : 0;
    if (*n_done > 0) return MPI_SUCCESS;
    *n_done = 1;
    if (!s || awaits_head(s, requests)) { /* some ranks have not begun this call */
        int result = MPI_Waitany(n, requests, done, statuses);
        if (s && done[0] != MPI_UNDEFINED) s->is_headed[done[0]] = true;
        return result;
    }
    for (int i = *n_done = 0; i < n; i++) {
        if (requests[i] == MPI_REQUEST_NULL) continue;
        MPI_Wait(&requests[i], &statuses[*n_done]);
        done[(*n_done)++] = i;
    }
    return MPI_SUCCESS;
}

/* ---- a rank's step ------------------------------------------------------------------------------------- */

/* Training polls before each task of its threads. Only the first polls matter, because messages then proceed
 * without further polls. So the slices between polls double. */
static dsmoe_status run_work(void *context, outline_work work, double amount, dsmoe_error *error)
{
    (void)error;
    rank_state *s = context;
    const dsmoe_training_speed *v = &shared.options.speed;
    const double speeds[OUTLINE_WORKS] = {v->attention, v->experts, v->head, v->memory};
    double left = amount / speeds[work], slice = s->under_way ? 1e-3 : left;
    double start = MPI_Wtime();
    for (; left > 0; left -= slice, slice *= 2) {
        if (s->under_way) s->peers->poll(s->peers->context);
        spend(s, fmin(left, slice));
    }
    s->times.computing += MPI_Wtime() - start;
    return DSMOE_OK;
}

/* Processor seconds that a message costs on each side. The cost of all messages of a call is spent before the
 * first one is sent. */
static const double MESSAGE = 5e-6;
static void count_message(double *n, size_t size)
{
    enum { SMALL = 2024 }; /* what fits into the head of mpi.c */
    if (size > 0) *n += size > SMALL ? 2 : 1;
}

static dsmoe_status run_begin(void *context, outline_goods goods, const size_t *send,
                              const size_t *receive, dsmoe_error *error)
{
    rank_state *s = context;
    double start = MPI_Wtime();
    dsmoe_bytes *out = s->lists, *in = out + s->peers->size;
    double n_messages = 0;
    for (int r = 0; r < s->peers->size; r++) {
        count_message(&n_messages, send[r]);
        count_message(&n_messages, receive[r]);
        out[r] = (dsmoe_bytes){shared.payload, send[r]};
        in[r] = (dsmoe_bytes){shared.payload, receive[r]};
    }
    spend(s, n_messages * MESSAGE);
    s->under_way = true;
    s->goods = goods;
    note_begin(s);
    dsmoe_status status = peers_exchange_begin(s->peers, out, in, error);
    s->times.goods[goods] += MPI_Wtime() - start;
    return status;
}

static dsmoe_status run_end(void *context, dsmoe_error *error)
{
    rank_state *s = context;
    double start = MPI_Wtime();
    s->under_way = false;
    dsmoe_status status = peers_exchange_end(s->peers, error);
    s->times.goods[s->goods] += MPI_Wtime() - start;
    return status;
}

static dsmoe_status run_gather(void *context, outline_goods goods, const size_t *parts,
                               dsmoe_error *error)
{
    rank_state *s = context;
    double start = MPI_Wtime();
    double n_messages = 0;
    for (int r = 0; r < s->peers->size; r++) {
        count_message(&n_messages, r == s->peers->rank ? 0 : parts[r]);
        count_message(&n_messages, r == s->peers->rank ? 0 : parts[s->peers->rank]);
        s->lists[r] = (dsmoe_bytes){shared.payload, parts[r]};
    }
    spend(s, n_messages * MESSAGE);
    note_begin(s);
    dsmoe_status status = peers_gather(s->peers, s->lists, error);
    s->times.goods[goods] += MPI_Wtime() - start;
    return status;
}

/* ---- results ----------------------------------------------------------------------------------------------- */

static dsmoe_scale predict(dsmoe_scale_options o)
{
    dsmoe_scale scale;
    dsmoe_error error;
    must(dsmoe_scale_predict(&shared.config, &o, &scale, &error), &error);
    return scale;
}

static void print_prediction(void)
{
    dsmoe_scale_options o = shared.options, nearby = o, wide = o, even = o;
    dsmoe_scale s = predict(o);
    nearby.latency = 0;
    wide.bandwidth = 1e15;
    even.loads = NULL;
    printf("%s\"predicted\": {\"step\": %.9g, \"computing\": %.9g, \"waiting\": %.9g, \"sending\": "
           "%.9g, \"hidden\": %.9g, \"useful\": %.9g,\n",
           shared.outline ? " " : "{", s.step, s.computing, s.waiting, s.sending, s.hidden,
           s.useful);
    printf("  \"sent\": %.9g, \"memory\": %zu, \"without_latency\": %.9g, \"without_bandwidth\": "
           "%.9g, \"without_imbalance\": %.9g}}\n",
           s.gradients + s.weights + s.rows + s.words, s.most_memory, predict(nearby).step,
           predict(wide).step, predict(even).step);
}

static void print(const rank_times *all, int n_ranks, double start)
{
    const request *r = &shared.asked;
    rank_times mean = {0};
    double last = 0;
    for (int i = 0; i < n_ranks; i++) {
        last = fmax(last, all[i].end);
        mean.computing += all[i].computing / n_ranks;
        for (int g = 0; g < OUTLINE_GOODS; g++) mean.goods[g] += all[i].goods[g] / n_ranks;
    }
    printf("{\"model\": \"%s\", \"parallel\": \"%s\", \"ranks\": %d, \"bandwidth\": %.9g, "
           "\"latency\": %.9g, \"layers\": %lld,\n",
           r->config[0] ? r->config : r->preset, r->parallel, n_ranks, r->bandwidth, r->latency,
           (long long)shared.config.num_hidden_layers);
    printf(
        " \"simulated\": {\"step\": %.9g, \"computing\": %.9g, \"gradients\": %.9g, \"weights\": "
        "%.9g, \"rows\": %.9g, \"words\": %.9g},\n",
        last - start, mean.computing, mean.goods[OUTLINE_GRADIENTS], mean.goods[OUTLINE_WEIGHTS],
        mean.goods[OUTLINE_ROWS], mean.goods[OUTLINE_WORDS]);
    print_prediction();
}

/* Runs one step, which begins when all ranks are ready. */
static void run_step(rank_state *s, rank_times *all)
{
    const dsmoe_peers *p = s->peers;
    dsmoe_error error;
    outline_watch watch = {s, run_work, run_begin, run_end, run_gather};
    must(peers_agree(p, DSMOE_OK, &error), &error);
    shared.ranks[p->rank] = s;
    double start = MPI_Wtime();
    must(outline_walk(shared.outline, p->rank, &watch, &error), &error);
    s->times.end = MPI_Wtime();
    all[p->rank] = s->times;
    for (int r = 0; r < p->size; r++) s->lists[r] = (dsmoe_bytes){&all[r], sizeof *all};
    note_begin(s);
    must(peers_gather(p, s->lists, &error), &error);
    shared.ranks[p->rank] = NULL;
    if (p->rank == 0) print(all, p->size, start);
}

int main(int argc, char **argv)
{
    mpi_peers peers;
    dsmoe_error error;
    must(dsmoe_mpi_open(DSMOE_VERSION, &peers, &error), &error);
    int n_ranks = peers.table.size;
    rank_state s = {.peers = &peers.table, .machine = sg_host_by_name("machine")};
    s.lists = calloc(2 * (size_t)n_ranks, sizeof *s.lists);
    rank_times *all = calloc((size_t)n_ranks, sizeof *all);
    s.is_headed = calloc(2 * (size_t)n_ranks, sizeof *s.is_headed);
    if (!shared.ranks) shared.ranks = calloc((size_t)n_ranks, sizeof(rank_state *));
    if (!s.lists || !all || !s.is_headed || !shared.ranks) give_up("no memory");
    if (!shared.outline) make_world(&shared, n_ranks, argc, argv);
    if (shared.outline)
        run_step(&s, all);
    else
        print_prediction();
    free(s.lists);
    free(s.is_headed);
    free(all);
    must(peers.close(peers.table.context, &error), &error);
    return 0;
}
