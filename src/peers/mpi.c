/* mpi.c - ranks joined by MPI: the table of functions over messages from one rank to another.
 *
 * MPI's collectives are not used, for two reasons. Parts can be anywhere in memory, have any size, and
 * must not be added up. And ranks that are out of step must notice it, where collectives would wait for
 * ever. So all that one rank sends another begins with a head: the kind of call, its number and its size.
 * All heads have one size, because a message longer than the receiver's memory for it is not safe in every
 * MPI. Small data is sent inside the head. Larger data follows in pieces, after the receiver has checked
 * the head. */
#include "peers/mpi.h"

#include <assert.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "peers/watch.h"

#ifndef PEERS_PIECE
#define PEERS_PIECE (1 << 30) /* bytes: counts are int. Tests use less. */
#endif

enum call_kind { AGREE = 1, BROADCAST, GATHER, EXCHANGE, CLOSE };
static const char *const kind_names[] = {"?", "agree", "broadcast", "gather", "exchange", "close"};
enum { RECEIVE, SEND }; /* the flow with rank i is flows[direction * size + i] */
enum { HEAD_TAG, PIECE_TAG, SIGN_TAG };
enum { NOBODY = -1 }; /* in a sign of life: no rank is silent */

/* The first message of a flow. */
enum { SMALL = 2048 - 3 * 8 };
typedef struct head {
    uint64_t kind, number, size;
    unsigned char bytes[SMALL]; /* the whole data, if it fits */
} head;

/* One direction between this rank and another. */
typedef struct flow {
    head head;
    bool is_headed;    /* the head has arrived */
    unsigned char *at; /* the next bytes to send or receive */
    size_t left;
} flow;

typedef struct mpi_table {
    MPI_Comm ranks;
    int rank, size;
    char (*hosts)[MPI_MAX_PROCESSOR_NAME];
    dsmoe_bytes *parts; /* [size], for gathering inside this file */
    flow *flows;        /* [2 * size], as the next three */
    MPI_Request *requests;
    int *done;
    MPI_Status *statuses;
    int n_due;           /* unfinished flows */
    enum call_kind kind; /* of the current call; 0: none */
    uint64_t call;       /* the number of the current call */
    dsmoe_error lost;    /* the first failure; status OK: none */
    watch watch;
    double *heard;      /* [size], used by `watch` */
    int silent;         /* the rank that this one gave up on, as told to the others */
    MPI_Request *signs; /* [size], signs of life being sent */
    int64_t *n_signs;   /* [3 * size]: received from each, sent to each, sent by each in all */
} mpi_table;

/* ---- failures -------------------------------------------------------------------------------- */

/* `peer` is the other rank, or this rank if no other rank is to blame. */
static void lose(mpi_table *t, int code, int peer)
{
    char text[MPI_MAX_ERROR_STRING], with[64 + MPI_MAX_PROCESSOR_NAME] = "";
    int length;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) strcpy(text, "no details are known");
    if (peer != t->rank) snprintf(with, sizeof with, " and rank %d on %s", peer, t->hosts[peer]);
    status_fail(&t->lost, DSMOE_ERROR_PEER, "MPI failed for rank %d on %s%s: %s", t->rank,
                t->hosts[t->rank], with, text);
}

static void lose_step(mpi_table *t, int peer, const head *theirs, size_t size)
{
    if (theirs->kind == CLOSE)
        status_fail(&t->lost, DSMOE_ERROR_PEER,
                    "rank %d on %s has ended while rank %d on %s is still working", peer,
                    t->hosts[peer], t->rank, t->hosts[t->rank]);
    else
        status_fail(&t->lost, DSMOE_ERROR_PEER,
                    "rank %d on %s is out of step: it sends %s %" PRIu64 " of %" PRIu64
                    " bytes where rank %d is at %s %" PRIu64 " of %zu bytes",
                    peer, t->hosts[peer], kind_names[theirs->kind > CLOSE ? 0 : theirs->kind],
                    theirs->number, theirs->size, t->rank, kind_names[t->kind], t->call, size);
}

static dsmoe_status failure(const mpi_table *t, dsmoe_error *error)
{
    return status_fail(error, t->lost.status, "%s", t->lost.message);
}

/* ---- flows ------------------------------------------------------------------------------------- */

static int piece_of(const flow *f) { return f->left < PEERS_PIECE ? (int)f->left : PEERS_PIECE; }

/* The next message of a flow: its memory and its bytes. */
static int next_message(flow *f, int direction, void **memory)
{
    *memory = f->is_headed ? (void *)f->at : &f->head;
    if (f->is_headed) return piece_of(f);
    if (direction == RECEIVE) return sizeof f->head;
    return (int)(sizeof f->head - SMALL) + (f->left <= SMALL ? (int)f->left : 0);
}

static void start_message(mpi_table *t, int slot)
{
    flow *f = &t->flows[slot];
    int direction = slot / t->size, peer = slot % t->size;
    int tag = f->is_headed ? PIECE_TAG : HEAD_TAG, code;
    void *memory;
    int size = next_message(f, direction, &memory);
    if (direction == SEND)
        code = MPI_Isend(memory, size, MPI_BYTE, peer, tag, t->ranks, &t->requests[slot]);
    else
        code = MPI_Irecv(memory, size, MPI_BYTE, peer, tag, t->ranks, &t->requests[slot]);
    if (code != MPI_SUCCESS) lose(t, code, peer);
}

/* Empty data is not sent. If only one of the two ranks expects empty data, the next head that arrives is
 * not the expected one. */
static void add_flow(mpi_table *t, int direction, int peer, void *bytes, size_t size)
{
    int slot = direction * t->size + peer;
    flow *f = &t->flows[slot];
    if (peer == t->rank || size == 0 || t->lost.status != DSMOE_OK) return;
    f->is_headed = false;
    f->at = bytes;
    f->left = size;
    if (direction == SEND) {
        f->head.kind = t->kind;
        f->head.number = t->call;
        f->head.size = size;
        if (size <= SMALL) memcpy(f->head.bytes, bytes, size);
    }
    t->n_due++;
    start_message(t, slot);
}

/* Moves `n` bytes on: starts the next message, or ends the flow. */
static void advance(mpi_table *t, int slot, size_t n)
{
    flow *f = &t->flows[slot];
    f->is_headed = true;
    f->at += n;
    f->left -= n;
    if (f->left > 0)
        start_message(t, slot);
    else
        t->n_due--;
}

/* Whether the head that has arrived is the one that this rank expects. */
static bool is_right(const mpi_table *t, const flow *f, const MPI_Status *status)
{
    const head *h = &f->head;
    int count = 0;
    size_t expected = sizeof *h - SMALL + (f->left <= SMALL ? f->left : 0);
    MPI_Get_count(status, MPI_BYTE, &count);
    return count == (int)expected && h->kind == (uint64_t)t->kind && h->number == t->call &&
           h->size == f->left;
}

static void finish_message(mpi_table *t, int slot, const MPI_Status *status, int code)
{
    flow *f = &t->flows[slot];
    int peer = slot % t->size;
    bool is_small = f->left <= SMALL, is_receive = slot / t->size == RECEIVE;
    watch_hear(&t->watch, peer);
    if (code != MPI_SUCCESS) {
        lose(t, code, peer);
    } else if (f->is_headed) {
        advance(t, slot, (size_t)piece_of(f));
    } else if (is_receive && !is_right(t, f, status)) {
        lose_step(t, peer, &f->head, f->left);
    } else {
        if (is_receive && is_small) memcpy(f->at, f->head.bytes, f->left);
        advance(t, slot, is_small ? f->left : 0);
    }
}

/* Continues flows whose messages have arrived or left; waits for one if `waits`. False if there was none. */
static bool move(mpi_table *t, bool waits)
{
    int n_done = 0, n = 2 * t->size;
    int result =
        (waits ? MPI_Waitsome : MPI_Testsome)(n, t->requests, &n_done, t->done, t->statuses);
    if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) {
        lose(t, result, t->rank);
        return false;
    }
    if (n_done == MPI_UNDEFINED) return false;
    for (int i = 0; i < n_done && t->lost.status == DSMOE_OK; i++)
        finish_message(t, t->done[i], &t->statuses[i],
                       result == MPI_ERR_IN_STATUS ? t->statuses[i].MPI_ERROR : MPI_SUCCESS);
    return n_done > 0;
}

/* ---- signs of life ----------------------------------------------------------------------------- */

/* Tells one rank that this rank lives, or which rank is silent, unless the previous sign to it is still
 * being sent. */
static void send_sign(mpi_table *t, int peer, const int *sign)
{
    int is_gone = 1;
    MPI_Test(&t->signs[peer], &is_gone, MPI_STATUS_IGNORE);
    if (!is_gone) return;
    int code = MPI_Isend(sign, 1, MPI_INT, peer, SIGN_TAG, t->ranks, &t->signs[peer]);
    if (code != MPI_SUCCESS) lose(t, code, peer);
    t->n_signs[SEND * t->size + peer]++;
}

/* Sends a sign to every other rank from time to time. */
static void show_life(mpi_table *t)
{
    static const int alive = NOBODY;
    if (t->lost.status != DSMOE_OK || !watch_owes_sign(&t->watch, MPI_Wtime())) return;
    for (int peer = 0; peer < t->size; peer++)
        if (peer != t->rank) send_sign(t, peer, &alive);
}

static void blame(mpi_table *t, int silent, int waiting)
{
    status_fail(&t->lost, DSMOE_ERROR_PEER,
                "rank %d on %s has given no sign of life for %g seconds, and rank %d on %s waits "
                "for it: its process may be stopped, or waiting for a disk; --peer-timeout sets "
                "how long to wait",
                silent, t->hosts[silent], t->watch.patience, waiting, t->hosts[waiting]);
}

/* This rank gives up waiting for `silent`. Others may wait for this rank, which now falls silent too, so
 * it names the silent rank to them while it still moves messages. */
static void give_up(mpi_table *t, int silent)
{
    enum { LOOKS = 100 };
    const struct timespec nap = {.tv_nsec = 1000000};
    t->silent = silent;
    for (int peer = 0; peer < t->size; peer++)
        if (peer != t->rank && peer != silent) send_sign(t, peer, &t->silent);
    for (int n = 0; n < LOOKS; n++) {
        int is_gone;
        MPI_Testall(t->size, t->signs, &is_gone, MPI_STATUSES_IGNORE);
        if (is_gone) break;
        nanosleep(&nap, NULL);
    }
    blame(t, silent, t->rank);
}

static void hear_signs(mpi_table *t)
{
    for (int is_there = 1; t->lost.status == DSMOE_OK;) {
        int silent = NOBODY;
        MPI_Status status;
        int code = MPI_Iprobe(MPI_ANY_SOURCE, SIGN_TAG, t->ranks, &is_there, &status);
        if (code == MPI_SUCCESS && !is_there) return;
        if (code == MPI_SUCCESS)
            code = MPI_Recv(&silent, 1, MPI_INT, status.MPI_SOURCE, SIGN_TAG, t->ranks, &status);
        if (code != MPI_SUCCESS) {
            lose(t, code, t->rank);
            return;
        }
        watch_hear(&t->watch, status.MPI_SOURCE);
        t->n_signs[RECEIVE * t->size + status.MPI_SOURCE]++;
        if (silent >= 0 && silent < t->size) blame(t, silent, status.MPI_SOURCE);
    }
}

static bool awaits(const mpi_table *t, int peer)
{
    return t->requests[RECEIVE * t->size + peer] != MPI_REQUEST_NULL ||
           t->requests[SEND * t->size + peer] != MPI_REQUEST_NULL;
}

/* While this rank waits for others: sends its own signs, receives theirs, and checks whether a rank is
 * silent. */
static void watch_over(mpi_table *t)
{
    if (t->watch.patience <= 0) return;
    watch_look(&t->watch, MPI_Wtime());
    show_life(t);
    hear_signs(t);
    for (int peer = 0; peer < t->size && t->lost.status == DSMOE_OK; peer++)
        if (awaits(t, peer) && watch_is_silent(&t->watch, peer)) give_up(t, peer);
}

/* ---- a call ------------------------------------------------------------------------------------ */

static dsmoe_status begin(mpi_table *t, enum call_kind kind, dsmoe_error *error)
{
    assert(!t->kind && "between exchange_begin and exchange_end only poll may be called");
    if (t->lost.status != DSMOE_OK) return failure(t, error);
    t->kind = kind;
    t->call++;
    return DSMOE_OK;
}

/* Waiting inside MPI would keep a processor busy that other ranks and threads may need: rank 0 may be
 * writing a checkpoint. So a rank polls for a while, as most waits are short, and then sleeps between
 * polls. A simulator's clock, however, advances inside MPI only. */
static void drain(mpi_table *t)
{
    enum { LOOKS = 1000 };
    const struct timespec nap = {.tv_nsec = 20000};
#ifdef SMPI_H
    const bool waits = true;
#else
    const bool waits = false;
#endif
    bool is_long = false;
    for (int n = 0; t->n_due > 0 && t->lost.status == DSMOE_OK; n++) {
        if (move(t, waits)) n = 0;
        if (n <= LOOKS) continue;
        if (!is_long) watch_begin_wait(&t->watch, MPI_Wtime());
        is_long = true;
        watch_over(t);
        nanosleep(&nap, NULL);
    }
}

static dsmoe_status finish(mpi_table *t, dsmoe_error *error)
{
    drain(t);
    t->kind = 0;
    return t->lost.status == DSMOE_OK ? DSMOE_OK : failure(t, error);
}

/* Each rank starts with the rank after it, so that not all send to the same rank at once. */
static int nth_peer(const mpi_table *t, int n) { return (t->rank + n) % t->size; }

/* The largest number reaches twice as many ranks each round, until it has reached all. */
static dsmoe_status spread_largest(mpi_table *t, enum call_kind kind, int64_t *number,
                                   dsmoe_error *error)
{
    STATUS_TRY(begin(t, kind, error));
    for (int step = 1; step < t->size; step *= 2) {
        int64_t heard = *number;
        add_flow(t, RECEIVE, nth_peer(t, t->size - step), &heard, sizeof heard);
        add_flow(t, SEND, nth_peer(t, step), number, sizeof *number);
        drain(t);
        if (heard > *number) *number = heard;
    }
    return finish(t, error);
}

/* ---- the table --------------------------------------------------------------------------------- */

static dsmoe_status mpi_agree(void *context, int64_t mine, int64_t *largest, dsmoe_error *error)
{
    *largest = mine;
    return spread_largest(context, AGREE, largest, error);
}

static void gather_parts(mpi_table *t, const dsmoe_bytes *parts)
{
    const dsmoe_bytes *own = &parts[t->rank];
    for (int n = 1; n < t->size; n++) {
        int from = nth_peer(t, t->size - n);
        add_flow(t, RECEIVE, from, parts[from].bytes, parts[from].size);
    }
    for (int n = 1; n < t->size; n++) add_flow(t, SEND, nth_peer(t, n), own->bytes, own->size);
}

static dsmoe_status mpi_gather(void *context, const dsmoe_bytes *parts, dsmoe_error *error)
{
    mpi_table *t = context;
    STATUS_TRY(begin(t, GATHER, error));
    gather_parts(t, parts);
    return finish(t, error);
}

/* Large data is sent in slices, one for each rank, which passes its slice on to the others. So the root
 * sends everything twice, not once for each rank. */
static void broadcast_slices(mpi_table *t, int root, unsigned char *bytes, size_t size)
{
    size_t n = (size_t)t->size;
    for (size_t i = 0, at = 0; i < n; i++) {
        t->parts[i] = (dsmoe_bytes){bytes + at, size / n + (i < size % n)};
        at += t->parts[i].size;
    }
    dsmoe_bytes *own = &t->parts[t->rank];
    if (t->rank != root) add_flow(t, RECEIVE, root, own->bytes, own->size);
    for (int i = 0; i < t->size && t->rank == root; i++)
        add_flow(t, SEND, i, t->parts[i].bytes, t->parts[i].size);
    drain(t);
    for (int i = 0; i < t->size && t->rank != root; i++)
        add_flow(t, RECEIVE, i, t->parts[i].bytes, t->parts[i].size);
    for (int i = 1; i < t->size; i++)
        if (nth_peer(t, i) != root) add_flow(t, SEND, nth_peer(t, i), own->bytes, own->size);
}

static dsmoe_status mpi_broadcast(void *context, int root, void *bytes, size_t size,
                                  dsmoe_error *error)
{
    enum { SMALL_SLICE = 4096 }; /* bytes, below which size does not matter for time */
    mpi_table *t = context;
    STATUS_TRY(begin(t, BROADCAST, error));
    if (size / (size_t)t->size >= SMALL_SLICE)
        broadcast_slices(t, root, bytes, size);
    else if (t->rank != root)
        add_flow(t, RECEIVE, root, bytes, size);
    else
        for (int n = 1; n < t->size; n++) add_flow(t, SEND, nth_peer(t, n), bytes, size);
    return finish(t, error);
}

static dsmoe_status mpi_exchange_begin(void *context, const dsmoe_bytes *send,
                                       const dsmoe_bytes *receive, dsmoe_error *error)
{
    mpi_table *t = context;
    STATUS_TRY(begin(t, EXCHANGE, error));
    for (int n = 1; n < t->size; n++) {
        int from = nth_peer(t, t->size - n);
        add_flow(t, RECEIVE, from, receive[from].bytes, receive[from].size);
    }
    for (int n = 1; n < t->size; n++) {
        int to = nth_peer(t, n);
        add_flow(t, SEND, to, send[to].bytes, send[to].size);
    }
    return DSMOE_OK;
}

static dsmoe_status mpi_exchange_end(void *context, dsmoe_error *error)
{
    mpi_table *t = context;
    assert((t->kind == EXCHANGE || t->lost.status != DSMOE_OK) && "no exchange has begun");
    return finish(t, error);
}

/* exchange_end reports a failure that happens here. */
static void mpi_poll(void *context)
{
    mpi_table *t = context;
    while (t->n_due > 0 && t->lost.status == DSMOE_OK && move(t, false)) continue;
    show_life(t);
}

/* ---- opening and closing ----------------------------------------------------------------------- */

static void free_table(mpi_table *t)
{
    if (!t) return;
    free(t->hosts);
    free(t->parts);
    free(t->flows);
    free(t->requests);
    free(t->done);
    free(t->statuses);
    free(t->heard);
    free(t->signs);
    free(t->n_signs);
    free(t);
}

static mpi_table *make_table(int rank, int size)
{
    mpi_table *t = calloc(1, sizeof *t);
    size_t n = (size_t)size;
    if (!t) return NULL;
    t->rank = rank;
    t->size = size;
    t->hosts = calloc(n, sizeof *t->hosts);
    t->parts = calloc(n, sizeof *t->parts);
    t->flows = calloc(2 * n, sizeof *t->flows);
    t->requests = calloc(2 * n, sizeof *t->requests);
    t->done = calloc(2 * n, sizeof *t->done);
    t->statuses = calloc(2 * n, sizeof *t->statuses);
    t->heard = calloc(n, sizeof *t->heard);
    t->signs = calloc(n, sizeof *t->signs);
    t->n_signs = calloc(3 * n, sizeof *t->n_signs);
    if (!t->hosts || !t->parts || !t->flows || !t->requests || !t->done || !t->statuses ||
        !t->heard || !t->signs || !t->n_signs) {
        free_table(t);
        return NULL;
    }
    for (int i = 0; i < 2 * size; i++) t->requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < size; i++) t->signs[i] = MPI_REQUEST_NULL;
    watch_begin(&t->watch, 0, t->heard, size, 0);
    return t;
}

/* Every rank learns the machine names of all others, for messages. */
static dsmoe_status learn_hosts(mpi_table *t, dsmoe_error *error)
{
    int length;
    MPI_Get_processor_name(t->hosts[t->rank], &length);
    for (int i = 0; i < t->size; i++) t->parts[i] = (dsmoe_bytes){t->hosts[i], sizeof t->hosts[i]};
    return mpi_gather(t, t->parts, error);
}

/* All ranks use rank 0's patience. */
static dsmoe_status mpi_watch(void *context, double patience, dsmoe_error *error)
{
    mpi_table *t = context;
    STATUS_TRY(mpi_broadcast(t, 0, &patience, sizeof patience, error));
    watch_begin(&t->watch, patience, t->heard, t->size, MPI_Wtime());
    return DSMOE_OK;
}

/* No message may be pending when MPI ends. All ranks have finished and send no more signs. Each tells the
 * others how many it sent, and receives the signs that have not arrived yet. */
static dsmoe_status hear_last_signs(mpi_table *t, dsmoe_error *error)
{
    int64_t *told = t->n_signs + 2 * t->size; /* 0 for itself */
    t->watch.patience = 0;
    STATUS_TRY(begin(t, CLOSE, error));
    for (int i = 0; i < t->size; i++) {
        add_flow(t, RECEIVE, i, &told[i], sizeof *told);
        add_flow(t, SEND, i, &t->n_signs[SEND * t->size + i], sizeof *told);
    }
    STATUS_TRY(finish(t, error));
    for (int i = 0; i < t->size; i++)
        while (t->n_signs[RECEIVE * t->size + i] < told[i] && t->lost.status == DSMOE_OK)
            hear_signs(t);
    MPI_Waitall(t->size, t->signs, MPI_STATUSES_IGNORE);
    return t->lost.status == DSMOE_OK ? DSMOE_OK : failure(t, error);
}

static dsmoe_status mpi_close(void *context, dsmoe_error *error)
{
    mpi_table *t = context;
    int64_t nothing = 0;
    STATUS_TRY(spread_largest(t, CLOSE, &nothing, error));
    STATUS_TRY(hear_last_signs(t, error));
    MPI_Comm_free(&t->ranks);
    free_table(t);
    MPI_Finalize();
    return DSMOE_OK;
}

static void mpi_abort(void *context, int exit_code)
{
    mpi_table *t = context;
    MPI_Abort(t->ranks, exit_code);
    abort();
}

/* Two ranks send each other megabytes at the same time. By default Open MPI gives TCP a large message as a
 * whole. The reply with which a rank allows the other's message to begin then waits until its own message
 * has been sent, so each direction of a cable is idle while the other is used. With fragments the reply is
 * sent between them. A value that the user has set is kept. */
static void let_answers_pass(void)
{
    setenv("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "262144", 0);
}

dsmoe_status dsmoe_mpi_open(const char *version, mpi_peers *out, dsmoe_error *error)
{
    int level, rank, size;
    if (strcmp(version, DSMOE_VERSION))
        return status_fail(error, DSMOE_ERROR_PEER,
                           "the MPI plugin has version %s, but the command has version %s",
                           DSMOE_VERSION, version);
    let_answers_pass();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return status_fail(error, DSMOE_ERROR_PEER, "MPI could not be started");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mpi_table *t = make_table(rank, size);
    if (!t) return status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory for %d ranks", size);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &t->ranks) != MPI_SUCCESS) {
        free_table(t);
        return status_fail(error, DSMOE_ERROR_PEER, "MPI could not join %d ranks", size);
    }
    MPI_Comm_set_errhandler(t->ranks, MPI_ERRORS_RETURN);
    *out = (mpi_peers){.table = {.rank = rank,
                                 .size = size,
                                 .host = t->hosts[rank],
                                 .context = t,
                                 .agree = mpi_agree,
                                 .broadcast = mpi_broadcast,
                                 .gather = mpi_gather,
                                 .exchange_begin = mpi_exchange_begin,
                                 .exchange_end = mpi_exchange_end,
                                 .poll = mpi_poll},
                       .watch = mpi_watch,
                       .close = mpi_close,
                       .abort = mpi_abort};
    return learn_hosts(t, error);
}
