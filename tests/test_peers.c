/* test_peers.c - ranks joined by socket pairs: every call, however the bytes are divided and delayed; and
 * ranks that die, hang or are out of step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads.h"
#include "peers/peers.h"
#include "peers/watch.h"
#include "peers_cases.h"
#include "socket_peers.h"

enum {
    MOST_RANKS = 4,
    LOST = 3
}; /* LOST: calls of the body failed and named the reason, as they should */

static int run_cases(const dsmoe_peers *p, void *largest)
{
    return peers_cases(p, *(size_t *)largest) ? 0 : 1;
}

/* ---- ranks without faults ---------------------------------------------------------------------- */

static void test_well(void **state)
{
    (void)state;
    size_t largest = 100000;
    for (int n = 1; n <= MOST_RANKS; n++)
        assert_true(socket_peers_run(n, run_cases, &largest, NULL, NULL));
}

static void test_big(void **state)
{
    (void)state;
    size_t largest = (size_t)24 << 20;
    assert_true(socket_peers_run(3, run_cases, &largest, NULL, NULL));
}

static void test_chopped(void **state)
{
    (void)state;
    size_t largest = 3000;
    static const size_t most_bytes[] = {1, 13, 700};
    for (int n = 2; n <= MOST_RANKS; n++)
        for (int i = 0; i < 3; i++) {
            socket_peers_options o = {.seed = (uint64_t)i, .most_bytes = most_bytes[i]};
            assert_true(socket_peers_run(n, run_cases, &largest, &o, NULL));
        }
}

static void test_delayed(void **state)
{
    (void)state;
    size_t largest = 50000;
    for (int n = 2; n <= MOST_RANKS; n++) {
        socket_peers_options o = {.seed = (uint64_t)n, .most_delay_us = 2000};
        assert_true(socket_peers_run(n, run_cases, &largest, &o, NULL));
    }
}

/* ---- lost ranks -------------------------------------------------------------------------------- */

typedef struct story {
    int bad_rank;
    const char *complaint; /* what the message must contain besides the rank */
} story;

/* One call of each kind; the last call needs all ranks. */
static dsmoe_status work(const dsmoe_peers *p, dsmoe_error *error)
{
    static unsigned char bytes[2][MOST_RANKS][200000];
    dsmoe_bytes send[MOST_RANKS], receive[MOST_RANKS];
    int64_t largest;
    for (int i = 0; i < p->size; i++) {
        send[i] = (dsmoe_bytes){bytes[0][i], sizeof bytes[0][i]};
        receive[i] = (dsmoe_bytes){bytes[1][i], sizeof bytes[1][i]};
    }
    STATUS_TRY(p->agree(p->context, p->rank, &largest, error));
    STATUS_TRY(p->broadcast(p->context, 0, bytes[0], sizeof bytes[0], error));
    STATUS_TRY(p->exchange_begin(p->context, send, receive, error));
    p->poll(p->context);
    STATUS_TRY(p->exchange_end(p->context, error));
    STATUS_TRY(p->gather(p->context, receive, error));
    STATUS_TRY(p->broadcast(p->context, p->size - 1, bytes[1], sizeof bytes[1], error));
    return p->agree(p->context, 0, &largest, error);
}

static bool says(const dsmoe_error *error, const story *s)
{
    char rank[64];
    snprintf(rank, sizeof rank, "rank %d on machine%d ", s->bad_rank, s->bad_rank);
    bool good = error->status == DSMOE_ERROR_PEER && strstr(error->message, rank) &&
                strstr(error->message, s->complaint);
    if (!good) fprintf(stderr, "expected %sand %s: %s\n", rank, s->complaint, error->message);
    return good;
}

/* Returns LOST if a call fails as it should and every later call fails too. */
static int work_and_lose(const dsmoe_peers *p, void *context)
{
    const story *s = context;
    dsmoe_error error;
    if (work(p, &error) == DSMOE_OK) return 0;
    if (!says(&error, s)) return 1;
    int64_t number = 0;
    dsmoe_bytes parts[MOST_RANKS] = {{0}};
    dsmoe_status every[] = {p->agree(p->context, 0, &number, &error),
                            p->broadcast(p->context, 0, &number, sizeof number, &error),
                            p->gather(p->context, parts, &error),
                            p->exchange_begin(p->context, parts, parts, &error),
                            p->exchange_end(p->context, &error),
                            peers_agree(p, DSMOE_OK, &error)};
    for (int i = 0; i < 6; i++)
        if (every[i] != DSMOE_ERROR_PEER) return 1;
    return says(&error, s) ? LOST : 1;
}

static void must_lose(int n, const socket_peers_options *o, const char *complaint)
{
    story s = {o->bad_rank, complaint};
    socket_peers_end ends[MOST_RANKS];
    assert_false(socket_peers_run(n, work_and_lose, &s, o, ends));
    for (int i = 0; i < n; i++) {
        if (i == o->bad_rank)
            assert_int_equal(ends[i].signal, SIGKILL);
        else
            assert_int_equal(ends[i].exit_code, LOST);
        assert_int_equal(ends[i].was_late, i == o->bad_rank && o->hangs_at_call > 0);
    }
}

static void test_killed(void **state)
{
    (void)state;
    socket_peers_end ends[MOST_RANKS];
    for (int n = 2; n <= MOST_RANKS; n++) {
        assert_true(socket_peers_run(n, work_and_lose, &(story){-1, ""}, NULL, ends));
        assert_int_equal(ends[0].n_calls, 7);
        for (int bad = 0; bad < n; bad++)
            for (int64_t call = 1; call <= ends[bad].n_calls; call++) {
                socket_peers_options o = {.bad_rank = bad, .dies_at_call = call};
                must_lose(n, &o, "is lost");
            }
    }
}

static void test_killed_within_a_message(void **state)
{
    (void)state;
    static const int64_t bytes[] = {1, 23, 24, 30, 70, 100000, 300001};
    for (int bad = 0; bad < 3; bad++)
        for (int i = 0; i < 7; i++) {
            socket_peers_options o = {
                .bad_rank = bad, .dies_after_bytes = bytes[i], .most_bytes = i % 2 ? 5000 : 0};
            must_lose(3, &o, "is lost");
        }
}

static void test_hung(void **state)
{
    (void)state;
    for (int64_t call = 1; call <= 7; call += 3) {
        socket_peers_options o = {.bad_rank = 1, .hangs_at_call = call, .patience = 0.5};
        must_lose(3, &o, "rank 1 on machine1");
    }
}

static void no_task(void *context, int64_t task, int thread)
{
    (void)context;
    (void)task;
    (void)thread;
}

/* Rank 0 works three times as long as the other ranks' patience. */
static int work_long(const dsmoe_peers *p, void *context)
{
    const double patience = *(const double *)context, until = clock_seconds() + 3 * patience;
    unsigned char byte = 0;
    dsmoe_error error = {0};
    while (p->rank == 0 && clock_seconds() < until) {
        threads_for(1, 1, no_task, NULL);
        usleep(1000);
    }
    dsmoe_status status = peers_broadcast(p, 0, &byte, 1, &error);
    if (status != DSMOE_OK) fprintf(stderr, "%s\n", error.message);
    return status == DSMOE_OK ? 0 : LOST;
}

static void test_long_work(void **state)
{
    (void)state;
    double patience = 1;
    assert_true(socket_peers_run(3, work_long, &patience,
                                 &(socket_peers_options){.patience = patience}, NULL));
}

/* ---- patience, with a clock set by the test ---------------------------------------------------- */

static void test_watch(void **state)
{
    (void)state;
    double heard[3], clock = 1000;
    watch w;
    watch_begin(&w, 60, heard, 3, clock);
    assert_false(watch_owes_sign(&w, clock + 5.9));
    assert_true(watch_owes_sign(&w, clock + 6.1)); /* ten signs per patience */
    assert_false(watch_owes_sign(&w, clock + 12));
    clock += 500; /* it works */
    watch_begin_wait(&w, clock);
    for (int i = 0; i < 59; i++) watch_look(&w, clock += 1);
    for (int r = 0; r < 3; r++) assert_false(watch_is_silent(&w, r));
    watch_hear(&w, 2);
    watch_look(&w, clock += 2);
    assert_true(watch_is_silent(&w, 0) && watch_is_silent(&w, 1) && !watch_is_silent(&w, 2));
    for (int i = 0; i < 57; i++) watch_look(&w, clock += 1);
    assert_false(watch_is_silent(&w, 2));
    watch_look(&w, clock += 3);
    assert_true(watch_is_silent(&w, 2));
    /* A rank that was stopped together with all others does not blame them. */
    watch_begin_wait(&w, clock);
    watch_look(&w, clock += 1e6);
    for (int r = 0; r < 3; r++) assert_false(watch_is_silent(&w, r));

    watch_begin(&w, 1e5, heard, 3, clock); /* there is a sign at least every 10 seconds */
    assert_true(watch_owes_sign(&w, clock + 10.1));
    watch_begin(&w, 0, heard, 3, clock); /* waits for ever */
    watch_begin_wait(&w, clock);
    for (int i = 0; i < 1000; i++) watch_look(&w, clock += 1000);
    assert_false(watch_is_silent(&w, 1) || watch_owes_sign(&w, clock));
}

/* Without patience the ranks wait until their time limit. */
static void test_time_limit(void **state)
{
    (void)state;
    socket_peers_options o = {.bad_rank = 0, .hangs_at_call = 3, .time_limit = 0.3};
    socket_peers_end ends[2];
    assert_false(socket_peers_run(2, work_and_lose, &(story){0, ""}, &o, ends));
    for (int i = 0; i < 2; i++)
        assert_true(ends[i].was_late && ends[i].signal == SIGKILL && ends[i].exit_code == -1);
}

/* ---- ranks that make different calls ------------------------------------------------------------- */

enum { OTHER_CALL, OTHER_SIZE, OTHER_COUNT };

/* The last rank is out of step with the others, and some rank notices it. */
static int stumble(const dsmoe_peers *p, void *context)
{
    int how = *(int *)context, last = p->size - 1;
    unsigned char bytes[MOST_RANKS][8] = {{0}};
    dsmoe_bytes parts[MOST_RANKS];
    dsmoe_error error = {0};
    int64_t largest;
    for (int i = 0; i < p->size; i++)
        parts[i] = (dsmoe_bytes){bytes[i], how == OTHER_SIZE && p->rank == last ? 7 : 8};
    dsmoe_status status = DSMOE_OK;
    if (how == OTHER_COUNT && p->rank == last)
        status = p->broadcast(p->context, last, bytes, 8, &error); /* needs no receiver */
    if (status == DSMOE_OK && how == OTHER_CALL && p->rank == last)
        status = p->agree(p->context, 1, &largest, &error);
    else if (status == DSMOE_OK)
        status = p->gather(p->context, parts, &error);
    bool tells = strstr(error.message, "is out of step") || strstr(error.message, "is lost");
    return status == DSMOE_ERROR_PEER && tells ? LOST : 1;
}

static void test_out_of_step(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_RANKS; n++)
        for (int how = OTHER_CALL; how <= OTHER_COUNT; how++) {
            socket_peers_end ends[MOST_RANKS];
            assert_false(socket_peers_run(n, stumble, &how, NULL, ends));
            for (int i = 0; i < n; i++) assert_int_equal(ends[i].exit_code, LOST);
        }
}

/* ---- how a rank ends ----------------------------------------------------------------------------- */

static int end_as_told(const dsmoe_peers *p, void *context)
{
    int *codes = context;
    if (codes[p->rank] == SIGABRT) assert_int_equal(p->rank, -1);
    return codes[p->rank];
}

static void test_ends(void **state)
{
    (void)state;
    socket_peers_end ends[3];
    assert_false(socket_peers_run(3, end_as_told, (int[]){0, 7, SIGABRT}, NULL, ends));
    assert_true(ends[0].exit_code == 0 && ends[0].signal == 0 && !ends[0].was_late);
    assert_true(ends[1].exit_code == 7 && ends[1].signal == 0);
    assert_true(ends[2].exit_code == -1 && ends[2].signal == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_well),        cmocka_unit_test(test_big),
        cmocka_unit_test(test_chopped),     cmocka_unit_test(test_delayed),
        cmocka_unit_test(test_killed),      cmocka_unit_test(test_killed_within_a_message),
        cmocka_unit_test(test_hung),        cmocka_unit_test(test_long_work),
        cmocka_unit_test(test_watch),       cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_out_of_step), cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
