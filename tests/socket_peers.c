/* socket_peers.c - ranks that are processes, each two of them joined by a socket pair.
 *
 * Every call is a set of messages, at most one to and one from each other rank. One loop over poll() moves
 * them all: it sends what a socket takes and reads what a socket has, so no order of messages can block. A
 * message begins with the kind of call, its number and its size, so that ranks which are at different calls
 * notice it. */
#include "socket_peers.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "peers/peers.h"
#include "peers/watch.h"

enum call_kind { AGREE = 1, BROADCAST, GATHER, EXCHANGE };
static const char *const kind_names[] = {"?", "agree", "broadcast", "gather", "exchange"};

typedef struct header {
    uint64_t kind, number, size;
} header;

/* One direction of a connection: a header, then the bytes. */
typedef struct message {
    bool is_due;
    header head;
    unsigned char *bytes;
    size_t size, done; /* `done` counts the header as well */
} message;

typedef struct wire {
    int socket;
    message out, in;
} wire;

/* What the processes share. */
typedef struct board {
    _Atomic int first_lost; /* the first rank found missing, plus 1; all ranks then blame it */
    _Atomic int64_t n_calls[SOCKET_PEERS_MAX];
    _Atomic int64_t n_signs[SOCKET_PEERS_MAX]; /* signs of life */
} board;

typedef struct table {
    int rank, size;
    const socket_peers_options *options;
    board *shared;
    wire wires[SOCKET_PEERS_MAX]; /* the rank's own has no socket */
    int64_t numbers[SOCKET_PEERS_MAX];
    uint64_t n_calls, n_random;
    int64_t n_sent;
    enum call_kind kind; /* of the current call; 0: none */
    uint64_t call;       /* its number */
    dsmoe_error lost;    /* DSMOE_OK as long as no rank is lost */
    watch watch;
    double heard[SOCKET_PEERS_MAX];
    int64_t n_heard[SOCKET_PEERS_MAX]; /* signs of life of each rank */
} table;

/* ---- faults ---------------------------------------------------------------------------------- */

static int host_of(const socket_peers_options *o, int rank)
{
    return o->ranks_per_host > 0 ? rank / o->ranks_per_host : rank;
}

static uint64_t random_below(table *t, uint64_t limit)
{
    return rng_bits(t->options->seed, (uint64_t)t->rank, t->n_random++) % limit;
}

static void die(void)
{
    raise(SIGKILL);
    abort();
}

static void misbehave(table *t)
{
    const socket_peers_options *o = t->options;
    int64_t call = (int64_t)++t->n_calls;
    atomic_store(&t->shared->n_calls[t->rank], call);
    if (o->most_delay_us > 0) usleep((useconds_t)random_below(t, (uint64_t)o->most_delay_us + 1));
    if (t->rank != o->bad_rank) return;
    if (call == o->dies_at_call) die();
    while (call == o->hangs_at_call) pause();
}

/* ---- a connection ---------------------------------------------------------------------------- */

static size_t chop(table *t, size_t size)
{
    size_t most = t->options->most_bytes;
    if (most == 0) return size;
    size_t part = 1 + (size_t)random_below(t, most);
    return part < size ? part : size;
}

/* The rank that was missed first is to blame: other ranks may have left because of it. */
static int first_lost(table *t, int rank)
{
    int first = 0;
    if (atomic_compare_exchange_strong(&t->shared->first_lost, &first, rank + 1)) first = rank + 1;
    return first - 1;
}

static void lose(table *t, int rank)
{
    int first = first_lost(t, rank);
    status_fail(&t->lost, DSMOE_ERROR_PEER, "rank %d on machine%d is lost", first,
                host_of(t->options, first));
}

/* The address of a message's next bytes, and how many are contiguous. */
static unsigned char *next_bytes(message *m, size_t *size)
{
    if (m->done < sizeof m->head) {
        *size = sizeof m->head - m->done;
        return (unsigned char *)&m->head + m->done;
    }
    *size = m->size + sizeof m->head - m->done;
    return m->bytes + (m->done - sizeof m->head);
}

static bool is_whole(const message *m) { return m->done == m->size + sizeof m->head; }

/* Sends once; true if any bytes were sent. */
static bool push(table *t, int rank)
{
    const socket_peers_options *o = t->options;
    wire *l = &t->wires[rank];
    size_t size;
    unsigned char *bytes = next_bytes(&l->out, &size);
    size = chop(t, size);
    bool is_last = o->dies_after_bytes > 0 && t->rank == o->bad_rank &&
                   t->n_sent + (int64_t)size >= o->dies_after_bytes;
    if (is_last) size = (size_t)(o->dies_after_bytes - t->n_sent);
    ssize_t sent = send(l->socket, bytes, size, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) lose(t, rank);
        return false;
    }
    if (is_last && (size_t)sent == size) die();
    t->n_sent += sent;
    l->out.done += (size_t)sent;
    l->out.is_due = !is_whole(&l->out);
    return true;
}

/* The received header must match this rank's call; otherwise the ranks are out of step. */
static void check_header(table *t, int rank)
{
    const message *m = &t->wires[rank].in;
    const header *h = &m->head;
    if (h->kind == (uint64_t)t->kind && h->number == t->call && h->size == m->size) return;
    status_fail(&t->lost, DSMOE_ERROR_PEER,
                "rank %d on machine%d is out of step: it sends %s %" PRIu64 " of %" PRIu64
                " bytes where rank %d is at %s %" PRIu64 " of %zu bytes",
                rank, host_of(t->options, rank), kind_names[h->kind > EXCHANGE ? 0 : h->kind],
                h->number, h->size, t->rank, kind_names[t->kind], t->call, m->size);
}

static bool pull(table *t, int rank)
{
    wire *l = &t->wires[rank];
    size_t size;
    unsigned char *bytes = next_bytes(&l->in, &size);
    ssize_t got = recv(l->socket, bytes, chop(t, size), 0);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) lose(t, rank);
        return false;
    }
    l->in.done += (size_t)got;
    watch_hear(&t->watch, rank);
    if (l->in.done == sizeof(header)) check_header(t, rank);
    l->in.is_due = !is_whole(&l->in);
    return true;
}

/* ---- a call ---------------------------------------------------------------------------------- */

static dsmoe_status failure(const table *t, dsmoe_error *error)
{
    return status_fail(error, t->lost.status, "%s", t->lost.message);
}

static dsmoe_status begin(table *t, enum call_kind kind, dsmoe_error *error)
{
    assert(!t->kind && "between exchange_begin and exchange_end only poll may be called");
    misbehave(t);
    if (t->lost.status != DSMOE_OK) return failure(t, error);
    t->kind = kind;
    t->call++;
    return DSMOE_OK;
}

static void expect(table *t, int rank, const dsmoe_bytes *out, const dsmoe_bytes *in)
{
    wire *l = &t->wires[rank];
    if (rank == t->rank) return;
    if (out)
        l->out = (message){.is_due = true,
                           .head = {(uint64_t)t->kind, t->call, out->size},
                           .bytes = out->bytes,
                           .size = out->size};
    if (in) l->in = (message){.is_due = true, .bytes = in->bytes, .size = in->size};
}

/* Waits up to `timeout` milliseconds (-1: for ever) and moves what it can; false if nothing was moved. */
static bool move(table *t, int timeout)
{
    struct pollfd files[SOCKET_PEERS_MAX];
    bool moved = false;
    for (int i = 0; i < t->size; i++) {
        const wire *l = &t->wires[i];
        short events = (short)((l->out.is_due ? POLLOUT : 0) | (l->in.is_due ? POLLIN : 0));
        files[i] = (struct pollfd){.fd = events ? l->socket : -1, .events = events};
    }
    if (poll(files, (nfds_t)t->size, timeout) <= 0) return false;
    for (int i = 0; i < t->size && t->lost.status == DSMOE_OK; i++) {
        bool is_gone = files[i].revents & (POLLHUP | POLLERR);
        /* what a rank sent before it died still counts */
        if (t->wires[i].in.is_due && (files[i].revents & POLLIN || is_gone)) moved |= pull(t, i);
        if (t->lost.status != DSMOE_OK) break;
        if (t->wires[i].out.is_due && (files[i].revents & POLLOUT || is_gone)) moved |= push(t, i);
    }
    return moved;
}

static bool is_under_way(const table *t)
{
    for (int i = 0; i < t->size; i++)
        if (t->wires[i].out.is_due || t->wires[i].in.is_due) return true;
    return false;
}

/* ---- signs of life, on the board ------------------------------------------------------------- */

static void show_life(table *t)
{
    if (watch_owes_sign(&t->watch, clock_seconds()))
        atomic_fetch_add(&t->shared->n_signs[t->rank], 1);
}

/* For a rank that waits: shows its own signs of life, looks for those of others, and fails if an awaited
 * rank gave none. */
static void watch_over(table *t)
{
    watch_look(&t->watch, clock_seconds());
    show_life(t);
    for (int i = 0; i < t->size && t->lost.status == DSMOE_OK; i++) {
        int64_t n = atomic_load(&t->shared->n_signs[i]);
        if (n != t->n_heard[i]) watch_hear(&t->watch, i);
        t->n_heard[i] = n;
        bool is_awaited = t->wires[i].in.is_due || t->wires[i].out.is_due;
        if (!is_awaited || !watch_is_silent(&t->watch, i)) continue;
        first_lost(t, i);
        status_fail(&t->lost, DSMOE_ERROR_PEER,
                    "rank %d on machine%d has given no sign of life for %g seconds", i,
                    host_of(t->options, i), t->watch.patience);
    }
}

static dsmoe_status finish(table *t, dsmoe_error *error)
{
    bool watches = t->watch.patience > 0;
    watch_begin_wait(&t->watch, clock_seconds());
    while (t->lost.status == DSMOE_OK && is_under_way(t)) {
        move(t, watches ? 5 : -1);
        if (watches && t->lost.status == DSMOE_OK) watch_over(t);
    }
    t->kind = 0;
    return t->lost.status == DSMOE_OK ? DSMOE_OK : failure(t, error);
}

/* ---- the table ------------------------------------------------------------------------------- */

static dsmoe_status socket_gather(void *context, const dsmoe_bytes *parts, dsmoe_error *error)
{
    table *t = context;
    STATUS_TRY(begin(t, GATHER, error));
    for (int i = 0; i < t->size; i++) expect(t, i, &parts[t->rank], &parts[i]);
    return finish(t, error);
}

static dsmoe_status socket_agree(void *context, int64_t mine, int64_t *largest, dsmoe_error *error)
{
    table *t = context;
    STATUS_TRY(begin(t, AGREE, error));
    t->numbers[t->rank] = mine;
    dsmoe_bytes own = {&t->numbers[t->rank], sizeof mine};
    for (int i = 0; i < t->size; i++)
        expect(t, i, &own, &(dsmoe_bytes){&t->numbers[i], sizeof mine});
    STATUS_TRY(finish(t, error));
    *largest = mine;
    for (int i = 0; i < t->size; i++)
        if (t->numbers[i] > *largest) *largest = t->numbers[i];
    return DSMOE_OK;
}

static dsmoe_status socket_broadcast(void *context, int root, void *bytes, size_t size,
                                     dsmoe_error *error)
{
    table *t = context;
    dsmoe_bytes whole = {bytes, size};
    STATUS_TRY(begin(t, BROADCAST, error));
    for (int i = 0; i < t->size; i++)
        if (t->rank == root) expect(t, i, &whole, NULL);
    if (t->rank != root) expect(t, root, NULL, &whole);
    return finish(t, error);
}

static dsmoe_status socket_exchange_begin(void *context, const dsmoe_bytes *send,
                                          const dsmoe_bytes *receive, dsmoe_error *error)
{
    table *t = context;
    STATUS_TRY(begin(t, EXCHANGE, error));
    for (int i = 0; i < t->size; i++) expect(t, i, &send[i], &receive[i]);
    move(t, 0);
    return DSMOE_OK;
}

static dsmoe_status socket_exchange_end(void *context, dsmoe_error *error)
{
    table *t = context;
    misbehave(t);
    assert((t->kind == EXCHANGE || t->lost.status != DSMOE_OK) && "no exchange has begun");
    return finish(t, error);
}

/* exchange_end reports errors that occur here. */
static void socket_poll(void *context)
{
    table *t = context;
    if (t->kind && t->lost.status == DSMOE_OK) move(t, 0);
    show_life(t);
}

/* ---- processes ------------------------------------------------------------------------------- */

typedef int pair_list[SOCKET_PEERS_MAX]
                     [SOCKET_PEERS_MAX]; /* [i][j]: rank i's end of its connection to j */

static void must(bool good, const char *what)
{
    if (good) return;
    perror(what);
    abort();
}

static void open_pairs(int n, pair_list ends)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            int pair[2];
            must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0,
                 "socketpair");
            ends[i][j] = pair[0];
            ends[j][i] = pair[1];
        }
}

/* Closes the ends of other ranks, as an open copy would hide a rank's death; `rank` -1 closes all. */
static void close_others(int n, pair_list ends, int rank)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j && i != rank) close(ends[i][j]);
}

static void run_rank(int rank, int n, pair_list ends, board *shared,
                     const socket_peers_options *options, int (*body)(const dsmoe_peers *, void *),
                     void *context)
{
    table *t = calloc(1, sizeof *t);
    char host[32];
    must(t != NULL, "calloc");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("CMOCKA_TEST_ABORT", "1",
           1); /* a failed assertion must not continue with the next test */
    close_others(n, ends, rank);
    *t = (table){.rank = rank, .size = n, .options = options, .shared = shared};
    for (int i = 0; i < n; i++) t->wires[i].socket = i == rank ? -1 : ends[rank][i];
    snprintf(host, sizeof host, "machine%d", host_of(options, rank));
    dsmoe_peers peers = {.rank = rank,
                         .size = n,
                         .host = host,
                         .context = t,
                         .agree = socket_agree,
                         .broadcast = socket_broadcast,
                         .gather = socket_gather,
                         .exchange_begin = socket_exchange_begin,
                         .exchange_end = socket_exchange_end,
                         .poll = socket_poll};
    watch_begin(&t->watch, options->patience, t->heard, n, clock_seconds());
    peers_show_life(&peers);
    int exit_code = body(&peers, context);
    peers_show_life(NULL);
    free(t);
    exit(exit_code); /* not _exit: the leak check is part of the test */
}

/* Stops all remaining ranks before it kills the first, so that none sees another die and ends on its
 * own. */
static void kill_late(int n, const pid_t pids[], const int ended[], socket_peers_end ends[])
{
    for (int i = 0; i < n; i++)
        if (!ended[i] && !ends[i].was_late) kill(pids[i], SIGSTOP);
    for (int i = 0; i < n; i++) {
        if (ended[i] || ends[i].was_late) continue;
        kill(pids[i], SIGKILL);
        ends[i].was_late = true;
    }
}

/* Waits for all ranks. Kills ranks that take too long, and a hanging rank when it is the last. */
static void reap(int n, const pid_t pids[], const socket_peers_options *o, socket_peers_end ends[])
{
    double until = clock_seconds() + (o->time_limit > 0 ? o->time_limit : 120);
    for (int left = n, ended[SOCKET_PEERS_MAX] = {0}; left > 0;) {
        bool is_alone = left == 1 && o->hangs_at_call > 0 && !ended[o->bad_rank];
        if (clock_seconds() > until || is_alone) kill_late(n, pids, ended, ends);
        for (int i = 0; i < n; i++) {
            int how;
            if (ended[i]) continue;
            if (waitpid(pids[i], &how, WNOHANG) != pids[i]) continue;
            ends[i].exit_code = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
            ends[i].signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
            ended[i] = 1;
            left--;
        }
        if (left > 0) usleep(500);
    }
}

bool socket_peers_run(int n_ranks, int (*body)(const dsmoe_peers *peers, void *context),
                      void *context, const socket_peers_options *options, socket_peers_end *ends)
{
    static const socket_peers_options none;
    socket_peers_end own[SOCKET_PEERS_MAX];
    pid_t pids[SOCKET_PEERS_MAX];
    pair_list sockets;
    assert(n_ranks > 0 && n_ranks <= SOCKET_PEERS_MAX);
    if (!options) options = &none;
    if (!ends) ends = own;
    memset(ends, 0, (size_t)n_ranks * sizeof *ends);
    board *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    open_pairs(n_ranks, sockets);
    fflush(NULL); /* otherwise every rank would print it again */
    for (int i = 0; i < n_ranks; i++) {
        pids[i] = fork();
        must(pids[i] >= 0, "fork");
        if (pids[i] == 0) run_rank(i, n_ranks, sockets, shared, options, body, context);
    }
    close_others(n_ranks, sockets, -1);
    reap(n_ranks, pids, options, ends);
    bool all_well = true;
    for (int i = 0; i < n_ranks; i++) {
        ends[i].n_calls = atomic_load(&shared->n_calls[i]);
        all_well &= ends[i].exit_code == 0;
    }
    munmap(shared, sizeof *shared);
    return all_well;
}
