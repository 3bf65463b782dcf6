/* peers_cases.c - what every table of functions that joins ranks must do. Each byte depends on its sender,
 * its receiver, the call and its place, so that none can be mistaken for another. */
#include "peers_cases.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "peers/peers.h"

enum { GUARD = 16, GUARD_BYTE = 0xA5, MAX_RANKS = 64 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d of %d, %s:%d: not so: %s\n", p->rank, p->size, __FILE__,      \
                    __LINE__, #condition);                                                         \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* A call that must work. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        dsmoe_error error_;                                                                        \
        dsmoe_error *error = &error_;                                                              \
        if ((call) != DSMOE_OK) {                                                                  \
            fprintf(stderr, "rank %d of %d, %s:%d: %s\n", p->rank, p->size, __FILE__, __LINE__,    \
                    error->message);                                                               \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* ---- bytes that can be told apart -------------------------------------------------------------- */

static void fill(dsmoe_bytes part, int from, int to, uint64_t call)
{
    unsigned char *bytes = part.bytes;
    for (size_t i = 0; i < part.size; i += 8) {
        uint64_t bits = rng_bits(call, (uint64_t)(from * MAX_RANKS + to), i / 8);
        memcpy(bytes + i, &bits, part.size - i < 8 ? part.size - i : 8);
    }
}

static bool is_filled(dsmoe_bytes part, int from, int to, uint64_t call)
{
    const unsigned char *bytes = part.bytes;
    for (size_t i = 0; i < part.size; i += 8) {
        uint64_t bits = rng_bits(call, (uint64_t)(from * MAX_RANKS + to), i / 8);
        if (memcmp(bytes + i, &bits, part.size - i < 8 ? part.size - i : 8) != 0) return false;
    }
    for (int i = 0; i < GUARD; i++)
        if (bytes[part.size + (size_t)i] != GUARD_BYTE || bytes[-1 - i] != GUARD_BYTE) return false;
    return true;
}

/* `size` bytes with guards around them. */
static dsmoe_bytes part_make(size_t size)
{
    unsigned char *memory = malloc(size + 2 * GUARD);
    if (!memory) abort();
    memset(memory, GUARD_BYTE, size + 2 * GUARD);
    return (dsmoe_bytes){memory + GUARD, size};
}

static void parts_free(dsmoe_bytes *parts, int n)
{
    for (int i = 0; i < n; i++) free((unsigned char *)parts[i].bytes - GUARD);
}

/* The size of a part, which every rank can compute: often 0, often odd. */
static size_t any_size(size_t largest, uint64_t call, int from, int to)
{
    uint64_t bits = rng_bits(call, (uint64_t)(from * MAX_RANKS + to), UINT64_MAX);
    if (bits % 4 == 0) return 0;
    return (size_t)((bits >> 8) % (largest + 1)) >> (bits >> 4) % 8;
}

/* ---- one call each ----------------------------------------------------------------------------- */

/* Rank `who` has the largest number; the other ranks' numbers are as small as possible. */
static bool check_agree(const dsmoe_peers *p, int who, int64_t largest)
{
    int64_t mine = p->rank == who ? largest : INT64_MIN + p->rank, found = 1;
    MUST(p->agree(p->context, mine, &found, error));
    CHECK(found == largest);
    return true;
}

static bool check_broadcast(const dsmoe_peers *p, int root, size_t size, uint64_t call)
{
    dsmoe_bytes part = part_make(size);
    if (p->rank == root) fill(part, root, root, call);
    MUST(p->broadcast(p->context, root, part.bytes, size, error));
    CHECK(is_filled(part, root, root, call));
    parts_free(&part, 1);
    return true;
}

/* All parts have `size` bytes; or, if `largest` is not 0, any size up to `largest`. */
static bool check_gather(const dsmoe_peers *p, size_t size, size_t largest, uint64_t call)
{
    dsmoe_bytes parts[MAX_RANKS];
    for (int i = 0; i < p->size; i++)
        parts[i] = part_make(largest ? any_size(largest, call, i, i) : size);
    fill(parts[p->rank], p->rank, p->rank, call);
    MUST(p->gather(p->context, parts, error));
    for (int i = 0; i < p->size; i++) CHECK(is_filled(parts[i], i, i, call));
    parts_free(parts, p->size);
    return true;
}

static bool check_exchange(const dsmoe_peers *p, size_t size, size_t largest, uint64_t call)
{
    dsmoe_bytes send[MAX_RANKS], receive[MAX_RANKS], gone[2][MAX_RANKS];
    for (int i = 0; i < p->size; i++) {
        send[i] = part_make(largest ? any_size(largest, call, p->rank, i) : size);
        receive[i] = part_make(largest ? any_size(largest, call, i, p->rank) : size);
        fill(send[i], p->rank, i, call);
    }
    memcpy(gone[0], send, sizeof send);
    memcpy(gone[1], receive, sizeof receive);
    MUST(p->exchange_begin(p->context, gone[0], gone[1], error));
    memset(gone, 0xFF, sizeof gone); /* the two lists need not be kept */
    for (int i = 0; i < (int)(call % 5); i++)
        if (p->poll) p->poll(p->context);
    MUST(p->exchange_end(p->context, error));
    for (int i = 0; i < p->size; i++) {
        CHECK(is_filled(send[i], p->rank, i, call));
        if (i != p->rank) CHECK(is_filled(receive[i], i, p->rank, call));
    }
    unsigned char *own = receive[p->rank].bytes; /* the rank receives nothing from itself */
    for (size_t i = 0; i < receive[p->rank].size; i++) CHECK(own[i] == GUARD_BYTE);
    parts_free(send, p->size);
    parts_free(receive, p->size);
    return true;
}

/* ---- what the library builds on the table ------------------------------------------------------ */

/* Ranks whose bit in `failing` is set fail. All ranks must get the message of the lowest one. */
static bool check_failures(const dsmoe_peers *p, unsigned failing, bool listens)
{
    bool fails = failing >> p->rank & 1;
    int first = 0;
    dsmoe_error error = {0};
    char expected[64], named[64];
    while (first < p->size && !(failing >> first & 1)) first++;
    if (fails) status_fail(&error, DSMOE_ERROR_IO, "the disk of rank %d is full", p->rank);
    dsmoe_status status = peers_agree(p, fails ? error.status : DSMOE_OK, listens ? &error : NULL);
    CHECK(status == (first < p->size ? DSMOE_ERROR_IO : DSMOE_OK));
    if (status == DSMOE_OK || !listens) return true;
    CHECK(error.status == DSMOE_ERROR_IO);
    snprintf(expected, sizeof expected, ": the disk of rank %d is full", first);
    snprintf(named, sizeof named, "rank %d on ", first);
    CHECK(strstr(error.message, expected) && strncmp(error.message, named, strlen(named)) == 0);
    return true;
}

static bool check_any(const dsmoe_peers *p, int who)
{
    bool any = false;
    MUST(peers_any(p, p->rank == who, &any, error));
    CHECK(any == (who < p->size));
    return true;
}

static bool check_library(const dsmoe_peers *p)
{
    for (unsigned failing = 0; failing < 1u << (p->size < 4 ? p->size : 4); failing++)
        if (!check_failures(p, failing, true)) return false;
    if (!check_failures(p, 1u << (p->size - 1), false)) return false;
    for (int who = 0; who <= p->size; who++)
        if (!check_any(p, who)) return false;
    return true;
}

/* ---- all of it --------------------------------------------------------------------------------- */

static bool check_sizes(const dsmoe_peers *p, size_t largest)
{
    size_t sizes[] = {0, 1, 7, 4096, largest};
    for (int i = 0; i < 5; i++) {
        if (!check_gather(p, sizes[i], 0, 100 + (uint64_t)i)) return false;
        if (!check_exchange(p, sizes[i], 0, 200 + (uint64_t)i)) return false;
        for (int root = 0; root < p->size; root++)
            if (!check_broadcast(p, root, sizes[i], 300 + (uint64_t)(i * MAX_RANKS + root)))
                return false;
    }
    return true;
}

/* Calls in random order and of random sizes, one directly after another. */
static bool check_mixture(const dsmoe_peers *p, size_t largest, int n_calls)
{
    for (uint64_t call = 1000; call < 1000 + (uint64_t)n_calls; call++) {
        uint64_t bits = rng_bits(call, 0, 0);
        int who = (int)((bits >> 8) % (uint64_t)p->size);
        bool good = true;
        switch (bits % 5) {
        case 0: good = check_agree(p, who, (int64_t)(bits >> 16)); break;
        case 1: good = check_broadcast(p, who, any_size(largest, call, 0, 0), call); break;
        case 2: good = check_gather(p, 0, largest, call); break;
        default: good = check_exchange(p, 0, largest, call);
        }
        if (!good) return false;
    }
    return true;
}

bool peers_cases(const dsmoe_peers *p, size_t largest)
{
    CHECK(p->rank >= 0 && p->rank < p->size && p->size <= MAX_RANKS && p->host && *p->host);
    for (int who = 0; who < p->size; who++)
        if (!check_agree(p, who, 0) || !check_agree(p, who, INT64_MAX) ||
            !check_agree(p, who, -1 - (int64_t)who))
            return false;
    return check_library(p) && check_sizes(p, largest) &&
           check_mixture(p, largest < 4096 ? largest : 4096, 200) && check_mixture(p, largest, 20);
}
