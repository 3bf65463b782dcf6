/* threads.c - a pool of POSIX threads, and the only file that names them.
 *
 * One job runs at a time: a counter of tasks that everybody draws from, the caller included. Workers
 * wait for the next job first busily, for as long as the pause between two steps of a pass, and then
 * asleep. The caller never waits for a worker that has not begun: when no task is left it closes the door,
 * and who comes late finds it closed. So on a busy machine, where a worker may get no processor for a
 * while, the others simply do its share.
 *
 * A second caller at the same time (or a task that calls again) does its tasks alone: results are the
 * same for any number of threads. */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum {
    SPINS = 2000,     /* looks before one goes to sleep: some 50 µs */
    CLOSED = 1 << 20, /* what a closed door is below the number of those inside */
    WORKERS_MAX = 1023,
};

static struct pool {
    pthread_mutex_t caller; /* who holds it has the pool */
    int n_workers;          /* so far */

    /* The job: written while the door is closed and nobody inside. */
    threads_task_fn *task;
    void *context;
    int64_t n_tasks;
    int n_wanted; /* workers that take part */
    _Atomic int64_t next;

    atomic_uint turn; /* counts jobs: what sleeping workers wait for */
    atomic_int door;  /* workers inside; minus CLOSED if no other may enter */
    atomic_int n_asleep;
    atomic_bool caller_asleep;
    pthread_mutex_t lock; /* for falling asleep only */
    pthread_cond_t new_job, all_out;
} pool = {
    .caller = PTHREAD_MUTEX_INITIALIZER,
    .door = -CLOSED,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .new_job = PTHREAD_COND_INITIALIZER,
    .all_out = PTHREAD_COND_INITIALIZER,
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_tasks(int thread)
{
    for (int64_t i; (i = atomic_fetch_add(&pool.next, 1)) < pool.n_tasks;)
        pool.task(pool.context, i, thread);
}

/* ---- workers ------------------------------------------------------------------------------- */

static bool enter(void)
{
    int inside = atomic_load(&pool.door);
    while (inside >= 0)
        if (atomic_compare_exchange_weak(&pool.door, &inside, inside + 1)) return true;
    return false;
}

static void leave(void)
{
    bool last = atomic_fetch_sub(&pool.door, 1) == 1 - CLOSED;
    if (!last || !atomic_load(&pool.caller_asleep)) return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.all_out);
    pthread_mutex_unlock(&pool.lock);
}

/* Returns the number of a job that is not `seen`. */
static unsigned wait_for_job(unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned turn = atomic_load(&pool.turn);
        if (turn != seen) return turn;
        relax();
    }
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.n_asleep, 1);
    while (atomic_load(&pool.turn) == seen) pthread_cond_wait(&pool.new_job, &pool.lock);
    atomic_fetch_sub(&pool.n_asleep, 1);
    pthread_mutex_unlock(&pool.lock);
    return atomic_load(&pool.turn);
}

static void *work(void *number)
{
    int thread = (int)(intptr_t)number;
    for (unsigned seen = 0;;) {
        seen = wait_for_job(seen);
        if (!enter()) continue;
        if (thread <= pool.n_wanted) run_tasks(thread);
        leave();
    }
    return NULL;
}

/* ---- the caller ---------------------------------------------------------------------------- */

/* The workers of the parent are not in the child. */
static void after_fork(void)
{
    pool.n_workers = 0;
    pool.door = -CLOSED;
    pool.n_asleep = 0;
    pool.caller = pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.new_job = pool.all_out = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

/* As many workers as can be had. Signals are for the program's own threads, but for those that a
 * thread raises itself: a mapped file that shrank, say. */
static void hire(int n)
{
    static bool watching;
    if (!watching) watching = pthread_atfork(NULL, NULL, after_fork) == 0;
    sigset_t all, before;
    sigfillset(&all);
    const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.n_workers < n) {
        pthread_t thread;
        intptr_t number = pool.n_workers + 1;
        if (pthread_create(&thread, NULL, work, (void *)number) != 0) break;
        pthread_detach(thread);
        pool.n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void open_door(void)
{
    atomic_store(&pool.door, 0);
    atomic_fetch_add(&pool.turn, 1);
    if (atomic_load(&pool.n_asleep) == 0) return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_broadcast(&pool.new_job);
    pthread_mutex_unlock(&pool.lock);
}

static void close_door(void)
{
    atomic_fetch_sub(&pool.door, CLOSED);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&pool.door) == -CLOSED) return;
        relax();
    }
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.caller_asleep, true);
    while (atomic_load(&pool.door) != -CLOSED) pthread_cond_wait(&pool.all_out, &pool.lock);
    atomic_store(&pool.caller_asleep, false);
    pthread_mutex_unlock(&pool.lock);
}

void threads_for(int n_threads, int64_t n_tasks, threads_task_fn *task, void *context)
{
    if (n_tasks < n_threads) n_threads = (int)n_tasks;
    if (n_threads <= 1 || pthread_mutex_trylock(&pool.caller) != 0) {
        for (int64_t i = 0; i < n_tasks; i++) task(context, i, 0);
        return;
    }
    int n_wanted = n_threads - 1 < WORKERS_MAX ? n_threads - 1 : WORKERS_MAX;
    if (pool.n_workers < n_wanted) hire(n_wanted);
    pool.task = task;
    pool.context = context;
    pool.n_tasks = n_tasks;
    pool.n_wanted = n_wanted;
    atomic_store(&pool.next, 0);
    open_door();
    run_tasks(0);
    close_door();
    pthread_mutex_unlock(&pool.caller);
}

int threads_available(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
