/* test_processors.c - ranks on the same machine share its processors, and a rank that is bound to too few
 * is reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/threads.h"
#include "peers/processors.h"
#include "socket_peers.h"

enum { MOST_RANKS = 4 };

typedef struct division {
    processors_here here[MOST_RANKS];
    int n_threads[MOST_RANKS];
    const char *warning;
} division;

static int divide(const dsmoe_peers *p, void *context)
{
    const division *d = context;
    processors_part part;
    dsmoe_error error;
    if (processors_divide(p, d->here[p->rank], &part, &error) != DSMOE_OK) return 1;
    if (part.n_threads == d->n_threads[p->rank] && !strcmp(part.warning, d->warning)) return 0;
    fprintf(stderr, "rank %d: %d threads, '%s'\n", p->rank, part.n_threads, part.warning);
    return 1;
}

static void must_divide(int n_ranks, int ranks_per_host, division d)
{
    socket_peers_options o = {.ranks_per_host = ranks_per_host};
    assert_true(socket_peers_run(n_ranks, divide, &d, &o, NULL));
}

static void test_unbound(void **state)
{
    (void)state;
    must_divide(1, 1, (division){{{8, 8}}, {8}, ""});
    must_divide(2, 1, (division){{{8, 8}, {4, 4}}, {8, 4}, ""});
    must_divide(2, 2, (division){{{8, 8}, {8, 8}}, {4, 4}, ""});
    must_divide(3, 2, (division){{{7, 7}, {7, 7}, {7, 7}}, {3, 3, 7}, ""});
    must_divide(4, 4, (division){{{2, 2}, {2, 2}, {2, 2}, {2, 2}}, {1, 1, 1, 1}, ""});
}

/* Being bound to a rank's share of the processors is enough, even if other ranks share them. */
static void test_bound_to_a_part(void **state)
{
    (void)state;
    must_divide(2, 2, (division){{{4, 8}, {4, 8}}, {4, 4}, ""});
    must_divide(4, 4, (division){{{4, 8}, {4, 8}, {4, 8}, {4, 8}}, {2, 2, 2, 2}, ""});
    must_divide(2, 2, (division){{{1, 2}, {1, 2}}, {1, 1}, ""});
    must_divide(4, 4, (division){{{1, 2}, {1, 2}, {1, 2}, {1, 2}}, {1, 1, 1, 1}, ""});
}

static void test_bound_to_less(void **state)
{
    (void)state;
    must_divide(3, 2,
                (division){{{8, 8}, {4, 8}, {1, 8}},
                           {4, 4, 1},
                           "rank 2 on machine1 is bound to 1 of 8 processors, but its share is "
                           "8: start it with mpirun --bind-to none"});
    must_divide(2, 2,
                (division){{{1, 64}, {1, 64}},
                           {1, 1},
                           "rank 0 on machine0 is bound to 1 of 64 processors, but its share is "
                           "32 (other ranks are bound too): start it with mpirun --bind-to none"});
}

/* processors_look leaves the process bound as it was. */
static int look(const dsmoe_peers *p, void *context)
{
    (void)p;
    (void)context;
    cpu_set_t one, after;
    int n = threads_available(), first = 0;
    processors_here free_one = processors_look();
    assert_int_equal(free_one.may_use, n);
    assert_true(free_one.could_use >= n);
    assert_int_equal(sched_getaffinity(0, sizeof one, &one), 0);
    while (!CPU_ISSET(first, &one)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    processors_here bound = processors_look();
    assert_int_equal(bound.may_use, 1);
    assert_int_equal(bound.could_use, free_one.could_use);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&one, &after));
    return 0;
}

static void test_looking(void **state)
{
    (void)state;
    assert_true(socket_peers_run(1, look, NULL, NULL, NULL)); /* in a separate process */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unbound),
        cmocka_unit_test(test_bound_to_a_part),
        cmocka_unit_test(test_bound_to_less),
        cmocka_unit_test(test_looking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
