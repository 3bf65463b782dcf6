/* handshake.h - whether ranks fit together. Results are the same bits for any number of ranks only if all of them
 * compute alike: the same version, kernel set, layout of numbers and math library, and the same settings. */
#ifndef DSMOE_PEERS_HANDSHAKE_H
#define DSMOE_PEERS_HANDSHAKE_H

#include "base/status.h"

/* What the caller knows. */
typedef struct handshake_facts {
    const char *kernels; /* the name of the set in use */
    const char *
        all_kernels; /* the names of all that this machine has, weakest first, a blank between them */
    uint64_t settings; /* a hash of all that the caller's work depends on */
} handshake_facts;

/* Every rank calls it, first of all. If they do not fit, every rank gets DSMOE_ERROR_PEER with the same line, which
 * names a rank, its machine, what differs, and what to do. */
dsmoe_status peers_handshake(const dsmoe_peers *p, const handshake_facts *facts,
                             dsmoe_error *error);

/* ---- what ranks show each other ------------------------------------------------------------------ */

/* exp, expf, log, logf, log2, pow, sin and cos: those the library uses whose last bits are the maker's choice. */
enum { HANDSHAKE_FUNCTIONS = 8, HANDSHAKE_CARD = 1024 };

/* Versions to come may change all but the size and the first two. */
typedef struct handshake_card {
    char version[64], host[128];
    char layout[64]; /* byte order and sizes: numbers below mean something only if it is the same */
    char kernels[32], all_kernels[128];
    char library[64];                   /* the C library, for messages */
    uint64_t math[HANDSHAKE_FUNCTIONS]; /* hashes of results */
    uint64_t settings;
    char unused[472];
} handshake_card;

void handshake_make_card(const char *host, const handshake_facts *facts, handshake_card *card);
dsmoe_status handshake_compare(const dsmoe_peers *p, const handshake_card *mine,
                               dsmoe_error *error);

#endif
