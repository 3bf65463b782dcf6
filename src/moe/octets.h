/* octets.h - weights in the order that kernels read them, kept from their second use on.
 *
 * Rows of block types lie in a file one after the other; kernels want eight of them interleaved (see
 * block_kernels). Making that takes about as long as reading the weights a few times, so it is kept, for
 * those experts that tokens come to, and the file's own pages are given back: memory holds the weights
 * once. Not yet at the first use, which makes octets in passing: half of the time that keeping them takes
 * is the system's for new memory, and the first token should not wait for it. */
#ifndef DSMOE_MOE_OCTETS_H
#define DSMOE_MOE_OCTETS_H

#include "kernels/kernels.h"

/* What the octets of all matrices of a model may take. Pages of a file can be dropped and read again,
 * octets cannot: so they are kept only as long as the system could hold all of them beside what it runs.
 * It is asked now and then, as it may fill up at any time. */
typedef struct octet_budget {
    size_t total;                /* bytes of all octets */
    atomic_size_t kept;          /* bytes of those that are kept */
    atomic_bool allowed;         /* the last answer */
    _Atomic int64_t holds_for;   /* bytes for which that is good */
    uint64_t (*available)(void); /* bytes that the process could have */
} octet_budget;

/* The home of a matrix's octets; `home` is what the matrix points to. */
typedef struct octet_store {
    octet_home home;
    atomic_uint n_uses;    /* the second one makes them */
    unsigned char *memory; /* for n_octets of them */
    int64_t n_octets, k;
    size_t size; /* bytes of all */
    octet_budget *budget;
} octet_store;

/* Matrices that are about to be used. */
enum { OCTETS_BATCH = 64 };
typedef struct octet_work {
    const kernels *kernels;
    int n_threads;
    int n;
    struct octet_item {
        matrix weight;
        octet_store *store;
        int64_t first_task; /* of the batch */
    } items[OCTETS_BATCH];
} octet_work;

/* One after the other: begin, want each matrix, end. Those that have no home, whose octets are made already
 * or just now by another engine, or for which there was no memory at their second use, are left alone:
 * without octets they are only slower. */
octet_work octets_begin(const kernels *kn, int n_threads);
void octets_want(octet_work *work, matrix weight);
void octets_end(octet_work *work);

#endif
