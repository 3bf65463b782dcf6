/* handshake.h - whether ranks fit together. Results have the same bits for any number of ranks only if all
 * ranks compute in the same way: with the same version, kernel set, number layout, math library and
 * settings. */
#ifndef DSMOE_PEERS_HANDSHAKE_H
#define DSMOE_PEERS_HANDSHAKE_H

#include "base/status.h"

/* What the caller knows about this rank. */
typedef struct handshake_facts {
    const char *kernels;     /* the name of the set in use */
    const char *all_kernels; /* all sets of this machine, weakest first, with blanks between */
    uint64_t settings;       /* a hash of everything that the caller's work depends on */
} handshake_facts;

/* Every rank calls this before anything else. If ranks do not fit together, every rank gets
 * DSMOE_ERROR_PEER with the same line. The line names a rank, its machine, what differs, and what to do. */
dsmoe_status peers_handshake(const dsmoe_peers *p, const handshake_facts *facts,
                             dsmoe_error *error);

/* ---- the card that ranks exchange ---------------------------------------------------------------- */

/* exp, expf, log, logf, log2, pow, sin and cos: the functions used here whose last bits differ between C
 * libraries. */
enum { HANDSHAKE_FUNCTIONS = 8, HANDSHAKE_CARD = 1024 };

/* Later versions may change everything except the size and the first two members. */
typedef struct handshake_card {
    char version[64], host[128];
    char layout[64]; /* byte order and sizes: numbers are comparable only if it is the same */
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
