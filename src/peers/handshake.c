/* handshake.c - whether ranks fit together: each rank sends a card to all others, and every rank compares
 * all cards with rank 0's, so that all ranks reach the same result. */
#include "peers/handshake.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "base/hash.h"
#include "base/rng.h"
#include "peers/peers.h"

_Static_assert(sizeof(handshake_card) == HANDSHAKE_CARD, "all versions must be able to read it");

/* ---- the math library -------------------------------------------------------------------------- */

static const char *const function_names[HANDSHAKE_FUNCTIONS] = {"exp",  "expf", "log", "logf",
                                                                "log2", "pow",  "sin", "cos"};

static double call_function(int function, double x)
{
    switch (function) {
    case 0: return exp(40 * x - 35);
    case 1: return expf((float)(40 * x - 35));
    case 2: return log(100 * x);
    case 3: return logf((float)(100 * x));
    case 4: return log2(100 * x);
    case 5: return pow(0.9 + x / 10, 1000 * x);
    case 6: return sin(10000 * x);
    default: return cos(10000 * x);
    }
}

/* Libraries differ in the last bit of one result in a few hundred, so a large number is hashed. The
 * arguments are in (0, 1) and exact, because they are divided by powers of two. */
static uint64_t hash_function(int function)
{
    enum { N_RESULTS = 4096, BITS = 30 };
    hash_state h;
    hash_begin(&h, 0);
    for (uint64_t i = 0; i < N_RESULTS; i++) {
        uint64_t bits = rng_bits(16, (uint64_t)function, i) >> (64 - BITS);
        double x = ((double)bits + 0.5) / (1 << BITS);
        double result = call_function(function, x);
        hash_add(&h, &result, sizeof result);
    }
    return hash_end(&h);
}

static void name_library(char *out, size_t size)
{
#ifdef __GLIBC__
    snprintf(out, size, "glibc %s", gnu_get_libc_version());
#else
    snprintf(out, size, "not glibc");
#endif
}

/* ---- the card ---------------------------------------------------------------------------------- */

static void describe_layout(char *out, size_t size)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    snprintf(out, size, "%s-endian, %zu-bit, arithmetic %d", first ? "little" : "big",
             8 * sizeof(size_t), (int)FLT_EVAL_METHOD);
}

void handshake_make_card(const char *host, const handshake_facts *facts, handshake_card *card)
{
    memset(card, 0, sizeof *card); /* it is sent as bytes */
    snprintf(card->version, sizeof card->version, "%s", DSMOE_VERSION);
    snprintf(card->host, sizeof card->host, "%s", host);
    describe_layout(card->layout, sizeof card->layout);
    snprintf(card->kernels, sizeof card->kernels, "%s", facts->kernels);
    snprintf(card->all_kernels, sizeof card->all_kernels, "%s", facts->all_kernels);
    name_library(card->library, sizeof card->library);
    for (int i = 0; i < HANDSHAKE_FUNCTIONS; i++) card->math[i] = hash_function(i);
    card->settings = facts->settings;
}

/* ---- comparing --------------------------------------------------------------------------------- */

static bool has_kernels(const handshake_card *card, const char *name, size_t length)
{
    const char *at = card->all_kernels;
    for (size_t n; *at; at += n + (at[n] == ' ')) {
        n = strcspn(at, " ");
        if (n == length && !memcmp(at, name, n)) return true;
    }
    return false;
}

/* The strongest set that all ranks have; every machine has the weakest one. */
static void find_common_kernels(const handshake_card *cards, int n_cards, char *out, size_t size)
{
    const char *at = cards[0].all_kernels;
    *out = '\0';
    for (size_t n; *at; at += n + (at[n] == ' ')) {
        bool has_it = true;
        n = strcspn(at, " ");
        for (int i = 0; i < n_cards; i++) has_it &= has_kernels(&cards[i], at, n);
        if (has_it) snprintf(out, size, "%.*s", (int)n, at);
    }
}

static void list_differing_functions(const handshake_card *a, const handshake_card *b, char *out,
                                     size_t size)
{
    size_t used = 0;
    *out = '\0';
    for (int i = 0; i < HANDSHAKE_FUNCTIONS; i++)
        if (a->math[i] != b->math[i])
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     function_names[i]);
}

/* Compares rank i with rank 0. */
static dsmoe_status compare(const handshake_card *cards, int n_cards, int i, dsmoe_error *error)
{
    const handshake_card *a = &cards[0], *b = &cards[i];
    if (strcmp(a->version, b->version))
        return status_fail(error, DSMOE_ERROR_PEER,
                           "rank %d on %s has dsmoe %s, but rank 0 on %s has %s: install the same "
                           "version on all machines",
                           i, b->host, b->version, a->host, a->version);
    if (strcmp(a->layout, b->layout))
        return status_fail(
            error, DSMOE_ERROR_PEER,
            "rank %d on %s is a %s machine, but rank 0 on %s is %s: they cannot work "
            "together",
            i, b->host, b->layout, a->host, a->layout);
    if (strcmp(a->kernels, b->kernels)) {
        char common[sizeof a->kernels];
        find_common_kernels(cards, n_cards, common, sizeof common);
        return status_fail(error, DSMOE_ERROR_PEER,
                           "rank %d on %s uses %s kernels, but rank 0 on %s uses %s: set "
                           "DSMOE_KERNELS=%s for all (mpirun -x DSMOE_KERNELS=%s …)",
                           i, b->host, b->kernels, a->host, a->kernels, common, common);
    }
    if (memcmp(a->math, b->math, sizeof a->math)) {
        char names[64];
        list_differing_functions(a, b, names, sizeof names);
        return status_fail(error, DSMOE_ERROR_PEER,
                           "the math library of rank %d on %s (%s) rounds differently from that "
                           "of rank 0 on %s (%s), in %s: use machines with the same C library and "
                           "the same kind of processor",
                           i, b->host, b->library, a->host, a->library, names);
    }
    if (a->settings != b->settings)
        return status_fail(error, DSMOE_ERROR_PEER,
                           "rank %d on %s has different settings (%016" PRIx64
                           ") from rank 0 on %s (%016" PRIx64
                           "): start all ranks with the same command line",
                           i, b->host, b->settings, a->host, a->settings);
    return DSMOE_OK;
}

/* Another version's strings may have no terminating NUL. */
static void end_words(handshake_card *card)
{
    char *const words[] = {card->version, card->host,        card->layout,
                           card->kernels, card->all_kernels, card->library};
    const size_t sizes[] = {sizeof card->version, sizeof card->host,        sizeof card->layout,
                            sizeof card->kernels, sizeof card->all_kernels, sizeof card->library};
    for (int i = 0; i < 6; i++) words[i][sizes[i] - 1] = '\0';
}

dsmoe_status handshake_compare(const dsmoe_peers *p, const handshake_card *mine, dsmoe_error *error)
{
    handshake_card *cards = calloc((size_t)p->size, sizeof *cards);
    dsmoe_bytes *parts = calloc((size_t)p->size, sizeof *parts);
    dsmoe_status status = DSMOE_OK;
    if (!cards || !parts)
        status = status_fail(error, DSMOE_ERROR_MEMORY, "not enough memory to compare %d ranks",
                             p->size);
    status = peers_agree(p, status, error);
    if (status != DSMOE_OK) goto end;
    cards[p->rank] = *mine;
    for (int i = 0; i < p->size; i++) parts[i] = (dsmoe_bytes){&cards[i], sizeof cards[i]};
    status = peers_gather(p, parts, error);
    for (int i = 0; i < p->size; i++) end_words(&cards[i]);
    for (int i = 1; i < p->size && status == DSMOE_OK; i++)
        status = compare(cards, p->size, i, error);
end:
    free(cards);
    free(parts);
    return status;
}

dsmoe_status peers_handshake(const dsmoe_peers *p, const handshake_facts *facts, dsmoe_error *error)
{
    handshake_card card;
    if (!p) return DSMOE_OK;
    handshake_make_card(p->host, facts, &card);
    return handshake_compare(p, &card, error);
}
