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

/* The home of a matrix's octets; `home` is what the matrix points to. */
typedef struct octet_store {
    octet_home home;
    atomic_uint n_uses;    /* the second one makes them */
    unsigned char *memory; /* for n_octets of them */
    int64_t n_octets, k;
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

/* One after the other: begin, want each matrix, end. Those that have no home, or whose octets are made
 * already or just now by another engine, are left alone: without octets they are only slower. */
octet_work octets_begin(const kernels *kn, int n_threads);
void octets_want(octet_work *work, matrix weight);
void octets_end(octet_work *work);

#endif
