/* octets.h - weights in the order in which kernels read them, kept after their second use.
 *
 * A file holds rows of block types one after the other, but kernels read eight rows interleaved, an octet
 * (see block_kernels). Making octets takes about as long as reading the weights a few times, so those of
 * experts that are in use are kept. The pages of the file are then given back, so memory holds the weights
 * once. The first use of a matrix does not keep its octets: half of the time to do so is the system's, for
 * new memory, and the first token should not wait for that. */
#ifndef DSMOE_MOE_OCTETS_H
#define DSMOE_MOE_OCTETS_H

#include "kernels/kernels.h"

/* How much memory the octets of all matrices of a model may take. The system can drop pages of a file and
 * read them again, but it cannot drop octets. So octets are kept only while all of them would fit in memory,
 * together with what else runs. As memory may fill up at any time, that is checked now and then. */
typedef struct octet_budget {
    size_t total;                /* bytes of all octets */
    atomic_size_t kept;          /* bytes of those that are kept */
    atomic_bool allowed;         /* the result of the last check */
    _Atomic int64_t holds_for;   /* bytes that may be kept until the next check */
    uint64_t (*available)(void); /* bytes that the process could still get */
} octet_budget;

/* The octets of one matrix. The matrix points to `home`. */
typedef struct octet_store {
    octet_home home;
    atomic_uint n_uses;    /* the second use makes the octets */
    unsigned char *memory; /* space for n_octets octets */
    int64_t n_octets, k;
    size_t size; /* bytes of all n_octets */
    octet_budget *budget;
} octet_store;

/* Matrices that products are about to use. */
enum { OCTETS_BATCH = 64 };
typedef struct octet_work {
    const kernels *kernels;
    int n_threads;
    int n;
    struct octet_item {
        matrix weight;
        octet_store *store;
        int64_t first_task; /* among those of the batch */
    } items[OCTETS_BATCH];
} octet_work;

/* Call octets_begin, octets_want for each matrix, octets_end. A matrix is skipped if it has no home, if its
 * octets are done or another engine is making them, or if there was no memory for them at its second use.
 * Without kept octets it is only slower. */
octet_work octets_begin(const kernels *kn, int n_threads);
void octets_want(octet_work *work, matrix weight);
void octets_end(octet_work *work);

#endif
