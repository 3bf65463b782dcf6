/* octets.c - weights in the order in which kernels read them. */
#include "moe/octets.h"

#include "base/memory.h"
#include "base/threads.h"
#include "kernels/gemm_blocks.h"

enum {
    TASK_OCTETS = 16,
    ANSWER_HOLDS = 256 << 20, /* bytes of octets between checks, each of which takes 0.1 ms */
};

/* The share of the available memory that octets may take. The rest is for engines and pages of the file. */
static const double largest_share = 0.85;

static int64_t task_count(const octet_store *store)
{
    return (store->n_octets + TASK_OCTETS - 1) / TASK_OCTETS;
}

static void octet_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const octet_work *work = context;
    const struct octet_item *item = work->items;
    while (item + 1 < work->items + work->n && task >= item[1].first_task) item++;
    const octet_store *store = item->store;
    int64_t first = (task - item->first_task) * TASK_OCTETS, n = store->n_octets - first;
    gemm_blocks_interleave(work->kernels, item->weight, store->k, first,
                           n < TASK_OCTETS ? n : TASK_OCTETS, store->memory);
}

octet_work octets_begin(const kernels *kn, int n_threads)
{
    return (octet_work){.kernels = kn, .n_threads = n_threads};
}

/* Whether all octets would fit in memory, with some left. Those that are kept are no longer available memory,
 * so they are added to it. */
static bool is_room_for_all(const octet_budget *b)
{
    return (double)b->total <= largest_share * ((double)b->available() + (double)b->kept);
}

/* Threads that call this at the same time may both check, which does no harm. */
static bool take(octet_budget *b, size_t size)
{
    if (atomic_fetch_sub(&b->holds_for, (int64_t)size) < (int64_t)size) {
        atomic_store(&b->allowed, is_room_for_all(b));
        atomic_store(&b->holds_for, ANSWER_HOLDS);
    }
    if (!atomic_load(&b->allowed)) return false;
    atomic_fetch_add(&b->kept, size);
    return true;
}

void octets_want(octet_work *work, matrix weight)
{
    octet_store *store = (octet_store *)weight.home; /* its first member */
    if (!store || atomic_load(&store->n_uses) > 1 || atomic_fetch_add(&store->n_uses, 1) != 1)
        return;
    if (!take(store->budget, store->size)) return;
    if (work->n == OCTETS_BATCH) octets_end(work);
    work->items[work->n++] = (struct octet_item){.weight = weight, .store = store};
}

void octets_end(octet_work *work)
{
    int64_t n_tasks = 0;
    for (int i = 0; i < work->n; i++) {
        work->items[i].first_task = n_tasks;
        n_tasks += task_count(work->items[i].store);
    }
    threads_for(work->n_threads, n_tasks, octet_task, work);
    for (int i = 0; i < work->n; i++) {
        octet_store *store = work->items[i].store;
        atomic_store_explicit(&store->home.octets, store->memory, memory_order_release);
        memory_forget(work->items[i].weight.data, store->size);
    }
    work->n = 0;
}
