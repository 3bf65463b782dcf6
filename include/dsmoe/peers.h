/* dsmoe/peers.h - several machines: the table of ranks, and a model whose experts are divided over them. */
#ifndef DSMOE_PEERS_H
#define DSMOE_PEERS_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks that work on one model together, a process each. The library knows them by this table alone; the
 * command fills it in with Open MPI. All ranks call the same functions in the same order, with sizes that
 * agree, each from one thread. Bytes arrive as they were sent: numbers are never added up on their way,
 * so that a sum has one order, whatever the number of ranks. Once a rank is lost, every call fails with
 * DSMOE_ERROR_PEER. */
typedef struct dsmoe_bytes {
    void *bytes;
    size_t size;
} dsmoe_bytes;
typedef struct dsmoe_peers {
    int rank, size;
    const char *host; /* the machine of this rank, for messages */
    void *context;
    /* The largest number that any rank has. */
    dsmoe_status (*agree)(void *context, int64_t mine, int64_t *largest, dsmoe_error *error);
    /* Bytes of the rank `root` to all. */
    dsmoe_status (*broadcast)(void *context, int root, void *bytes, size_t size,
                              dsmoe_error *error);
    /* parts[i] of each rank i to all; this rank's own lies there already. */
    dsmoe_status (*gather)(void *context, const dsmoe_bytes *parts, dsmoe_error *error);
    /* send[i] goes to rank i, which finds it in its receive[] at the place of this rank; nothing goes to the
     * rank itself. Between begin and end the buffers belong to the table, and only `poll` may be called;
     * the two lists need not last. */
    dsmoe_status (*exchange_begin)(void *context, const dsmoe_bytes *send,
                                   const dsmoe_bytes *receive, dsmoe_error *error);
    dsmoe_status (*exchange_end)(void *context, dsmoe_error *error);
    /* Called now and then between the two, so that bytes travel while this rank computes. */
    void (*poll)(void *context); /* may be NULL */
} dsmoe_peers;

/* A model that no machine can hold: the routed experts of every layer are divided over the ranks, in ranges. Rank 0
 * alone has the files. It opens the model, divides it, and then runs engines over it as usual, from one thread; logits
 * have the bits of one machine. The other ranks get their experts from it, and run them until it frees the model. */
typedef struct dsmoe_rank_memory {
    size_t experts;   /* bytes of those that the rank holds; on rank 0 they lie in the files */
    size_t workspace; /* to run them; of rank 0 its engines' */
} dsmoe_rank_memory;
typedef struct dsmoe_divide_options {
    const dsmoe_peers *peers; /* NULL: alone. They must outlive the model */
    /* That of the engines to come (dsmoe_engine_options); 0: 512. A larger one of theirs works too, in pieces, which
     * may change the last digits for float types. */
    int64_t n_batch;
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes that are sent */
    void *context;
    dsmoe_rank_memory *memory; /* [peers->size], may be NULL: receives what each rank takes */
} dsmoe_divide_options;
/* On rank 0, before there is an engine. `model` NULL tells the other ranks, which wait, that there is none. If it
 * fails, all ranks have the same error, and the model is as it was. */
DSMOE_API dsmoe_status dsmoe_model_divide(dsmoe_model *model, const dsmoe_divide_options *options,
                                          dsmoe_error *error);

typedef struct dsmoe_follow_options {
    const dsmoe_peers *peers;
    int n_threads; /* 0: all processors */
    /* Asked before each layer; may be NULL. True ends what rank 0 is doing with DSMOE_ERROR_STOPPED. */
    bool (*stop)(void *context);
    void *context;
} dsmoe_follow_options;
/* On every other rank: all that it does, to the end. Whether memory suffices is known before anything is sent. */
DSMOE_API dsmoe_status dsmoe_model_follow(const dsmoe_follow_options *options, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
