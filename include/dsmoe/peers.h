/* dsmoe/peers.h - several machines: the table of ranks, and a model whose experts are divided among them. */
#ifndef DSMOE_PEERS_H
#define DSMOE_PEERS_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks are processes that work on one model together. The library knows them only by this table of
 * functions; the command fills it in with Open MPI. All ranks call the same functions in the same order, with
 * sizes that agree, each from one thread. Bytes arrive as they were sent: numbers are not added up on the
 * way, so the order of a sum does not depend on the number of ranks. Once a rank is lost, every call fails
 * with DSMOE_ERROR_PEER. */
typedef struct dsmoe_bytes {
    void *bytes;
    size_t size;
} dsmoe_bytes;
typedef struct dsmoe_peers {
    int rank, size;
    const char *host; /* the machine of this rank, for messages */
    void *context;
    /* Gives all ranks the largest of their numbers `mine`. */
    dsmoe_status (*agree)(void *context, int64_t mine, int64_t *largest, dsmoe_error *error);
    /* Sends bytes of the rank `root` to all. */
    dsmoe_status (*broadcast)(void *context, int root, void *bytes, size_t size,
                              dsmoe_error *error);
    /* Sends parts[i] of each rank i to all; this rank's own part is already there. */
    dsmoe_status (*gather)(void *context, const dsmoe_bytes *parts, dsmoe_error *error);
    /* Sends send[i] to rank i, which receives it in its receive[] at the index of this rank; nothing is sent
     * to this rank itself. Between begin and end the buffers belong to the table, and only `poll` may be
     * called. The two lists may be freed after begin. */
    dsmoe_status (*exchange_begin)(void *context, const dsmoe_bytes *send,
                                   const dsmoe_bytes *receive, dsmoe_error *error);
    dsmoe_status (*exchange_end)(void *context, dsmoe_error *error);
    /* Called now and then between begin and end, so that bytes travel while this rank computes. */
    void (*poll)(void *context); /* may be NULL */
} dsmoe_peers;

/* A model that is too large for one machine: the routed experts of every layer are divided among the ranks,
 * in ranges. Only rank 0 has the files. It opens the model, divides it, and then runs engines over it as
 * usual, from one thread; logits have the same bits as on one machine. The other ranks get their experts from
 * rank 0 and run them until it frees the model. */
typedef struct dsmoe_rank_memory {
    size_t experts;   /* bytes of those that the rank holds; on rank 0 they are in the files */
    size_t workspace; /* to run them; 0 on rank 0, where engines have it */
} dsmoe_rank_memory;
typedef struct dsmoe_divide_options {
    const dsmoe_peers *peers; /* NULL: alone. Must outlive the model */
    /* n_batch of the engines to come (dsmoe_engine_options); 0: 512. Engines with a larger one work too, in
     * pieces, which may change the last digits with float types. */
    int64_t n_batch;
    dsmoe_progress_fn *progress; /* may be NULL; counts bytes sent */
    void *context;
    dsmoe_rank_memory *memory; /* [peers->size], may be NULL: receives what each rank takes */
} dsmoe_divide_options;
/* Called on rank 0, before an engine is created. `model` NULL tells the waiting ranks that there is no model.
 * On failure all ranks get the same error, and the model is unchanged. */
DSMOE_API dsmoe_status dsmoe_model_divide(dsmoe_model *model, const dsmoe_divide_options *options,
                                          dsmoe_error *error);

typedef struct dsmoe_follow_options {
    const dsmoe_peers *peers;
    int n_threads; /* 0: all processors */
    /* Called before each layer; may be NULL. Returning true ends what rank 0 is doing with
     * DSMOE_ERROR_STOPPED. */
    bool (*stop)(void *context);
    void *context;
} dsmoe_follow_options;
/* Called on every other rank: does all of its work and returns when that is done. Memory is checked before
 * anything is sent. */
DSMOE_API dsmoe_status dsmoe_model_follow(const dsmoe_follow_options *options, dsmoe_error *error);

#ifdef __cplusplus
}
#endif
#endif
