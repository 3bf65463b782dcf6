/* test_handshake.c - ranks that would compute different results are refused. All ranks get the same
 * one-line message, which says what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "peers/handshake.h"
#include "peers/peers.h"
#include "socket_peers.h"

enum { MOST_RANKS = 4 };

/* How the ranks differ, and the message that this must give (NULL: none). */
typedef struct difference {
    int n_ranks;
    void (*change)(int rank, handshake_card *card);
    const char *expected;
} difference;

static const handshake_facts facts = {"avx2", "scalar avx2 avx512", 0x1234};

/* Whether every rank has the same message. */
static bool all_say(const dsmoe_peers *p, dsmoe_error *mine)
{
    dsmoe_error said[MOST_RANKS];
    dsmoe_bytes parts[MOST_RANKS];
    said[p->rank] = *mine;
    for (int i = 0; i < p->size; i++) parts[i] = (dsmoe_bytes){&said[i], sizeof said[i]};
    if (peers_gather(p, parts, mine) != DSMOE_OK) return false;
    for (int i = 0; i < p->size; i++)
        if (strcmp(said[i].message, mine->message)) return false;
    return true;
}

static int shake(const dsmoe_peers *p, void *context)
{
    const difference *d = context;
    handshake_card card;
    dsmoe_error error = {0};
    handshake_make_card(p->host, &facts, &card);
    d->change(p->rank, &card);
    dsmoe_status status = handshake_compare(p, &card, &error);
    if (!d->expected) return status == DSMOE_OK ? 0 : 1;
    if (status != DSMOE_ERROR_PEER || error.status != status) return 1;
    if (!strcmp(error.message, d->expected) && all_say(p, &error)) return 0;
    fprintf(stderr, "expected: %s\nbut:      %s\n", d->expected, error.message);
    return 1;
}

static void must_end(int n_ranks, void (*change)(int, handshake_card *), const char *expected)
{
    difference d = {n_ranks, change, expected};
    assert_true(socket_peers_run(n_ranks, shake, &d, NULL, NULL));
}

/* ---- ranks that fit together --------------------------------------------------------------------- */

static void change_nothing(int rank, handshake_card *card)
{
    (void)rank;
    (void)card;
}

/* Another host is allowed, and so is another C library that computes the same. */
static void change_harmless(int rank, handshake_card *card)
{
    snprintf(card->library, sizeof card->library, "glibc 2.%d", 30 + rank);
    snprintf(card->all_kernels, sizeof card->all_kernels, rank ? "scalar avx2" : "scalar");
}

static int shake_really(const dsmoe_peers *p, void *context)
{
    (void)context;
    char names[64];
    kernels_names(" ", names, sizeof names);
    const handshake_facts real = {dsmoe_kernels_name(), names, 7};
    dsmoe_error error;
    return peers_handshake(p, &real, &error) == DSMOE_OK ? 0 : 1;
}

static void test_fit(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        must_end(n, change_nothing, NULL);
        must_end(n, change_harmless, NULL);
        assert_true(socket_peers_run(n, shake_really, NULL, NULL, NULL));
    }
    assert_int_equal(peers_handshake(NULL, &facts, NULL), DSMOE_OK);
}

/* ---- ranks that do not fit together -------------------------------------------------------------- */

static void change_version(int rank, handshake_card *card)
{
    snprintf(card->version, sizeof card->version, rank ? "0.9.%d" : "0.9.0-rc1", rank);
    card->settings = (uint64_t)rank; /* a consequence, not the cause */
}

/* The card of another version may hold anything. */
static void change_all(int rank, handshake_card *card)
{
    if (rank == 1) memset(card, 'x', sizeof *card);
}

static void change_layout(int rank, handshake_card *card)
{
    if (rank == 2) snprintf(card->layout, sizeof card->layout, "big-endian, 64-bit, arithmetic 0");
}

static void change_kernels(int rank, handshake_card *card)
{
    snprintf(card->kernels, sizeof card->kernels, rank == 1 ? "avx512" : "avx2");
    if (rank != 1) snprintf(card->all_kernels, sizeof card->all_kernels, "scalar avx2");
}

static void change_kernels_of_the_last(int rank, handshake_card *card)
{
    if (rank < 3) return;
    snprintf(card->kernels, sizeof card->kernels, "scalar");
    snprintf(card->all_kernels, sizeof card->all_kernels, "scalar");
}

static void change_math(int rank, handshake_card *card)
{
    snprintf(card->library, sizeof card->library, "glibc 2.%d", 30 + rank);
    if (rank == 1) card->math[0]++, card->math[5] ^= 1;
}

static void change_settings(int rank, handshake_card *card)
{
    if (rank >= 2) card->settings = 0xABC;
}

static void test_misfits(void **state)
{
    (void)state;
    must_end(
        2, change_version,
        "rank 1 on machine1 has dsmoe 0.9.1, but rank 0 on machine0 has 0.9.0-rc1: install the "
        "same version on all machines");
    must_end(3, change_layout,
             "rank 2 on machine2 is a big-endian, 64-bit, arithmetic 0 machine, but rank 0 on "
             "machine0 is little-endian, 64-bit, arithmetic 0: they cannot work together");
    must_end(3, change_kernels,
             "rank 1 on machine1 uses avx512 kernels, but rank 0 on machine0 uses avx2: set "
             "DSMOE_KERNELS=avx2 for all (mpirun -x DSMOE_KERNELS=avx2 …)");
    must_end(4, change_kernels_of_the_last,
             "rank 3 on machine3 uses scalar kernels, but rank 0 on machine0 uses avx2: set "
             "DSMOE_KERNELS=scalar for all (mpirun -x DSMOE_KERNELS=scalar …)");
    must_end(2, change_math,
             "the math library of rank 1 on machine1 (glibc 2.31) rounds differently from that of "
             "rank 0 on machine0 (glibc 2.30), in exp, pow: use machines with the same C library "
             "and the same kind of processor");
    must_end(4, change_settings,
             "rank 2 on machine2 has different settings (0000000000000abc) from rank 0 on machine0 "
             "(0000000000001234): start all ranks with the same command line");
}

static void test_foreign_card(void **state)
{
    (void)state;
    char expected[512], version[64], host[128];
    memset(version, 'x', sizeof version);
    memset(host, 'x', sizeof host);
    version[sizeof version - 1] = host[sizeof host - 1] = '\0';
    snprintf(expected, sizeof expected,
             "rank 1 on %s has dsmoe %s, but rank 0 on machine0 has " DSMOE_VERSION
             ": install the same version on all machines",
             host, version);
    must_end(2, change_all, expected);
}

/* Each function has a result of its own, and the results are the same twice. */
static void test_math(void **state)
{
    (void)state;
    handshake_card a, b;
    handshake_make_card("here", &facts, &a);
    handshake_make_card("here", &facts, &b);
    assert_memory_equal(&a, &b, sizeof a);
    for (int i = 0; i < HANDSHAKE_FUNCTIONS; i++)
        for (int j = 0; j < i; j++) assert_true(a.math[i] != a.math[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_foreign_card),
        cmocka_unit_test(test_math),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
