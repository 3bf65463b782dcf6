/* threads.c - teams of POSIX threads.
 *
 * A team runs one job at a time. A job is a counter of tasks, from which the caller and the workers take the
 * next. A worker waits for the next job by spinning, for about as long as the pause between two steps of a
 * pass, and then sleeps. The caller never waits for a worker that has not begun: when no task is left it
 * closes the door, and a late worker finds it closed. So if a worker gets no processor for a while on a busy
 * machine, the others do its share. If a job needs fewer workers than the team has, the others stay outside,
 * asleep or spinning.
 *
 * Callers at the same time have different teams. Each takes the first idle team, so that a single caller
 * always has the same workers, still awake. If a task calls threads_for, or if no team is left, the caller
 * runs its tasks alone. Results are the same for any number of threads. */
#include "base/threads.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/pulse.h"

enum {
    SPINS = 2000, /* how often a thread looks before it sleeps: about 50 µs */
    TEAMS_MAX = 64,
    WORKERS_MAX = 1023, /* in a team */
};

/* A door is a single word, so that a worker can only enter the job that it saw. It has the job's number
 * (turn), how many workers the job needs, and how many are inside. */
enum { TURN_SHIFT = 32, WANTED_SHIFT = 16, FIELD = 0x7fff };
static const uint64_t closed_bit = 1u << 15; /* no more workers may enter */

static unsigned door_turn(uint64_t door) { return (unsigned)(door >> TURN_SHIFT); }
static int door_wanted(uint64_t door) { return (int)(door >> WANTED_SHIFT & FIELD); }
static int door_inside(uint64_t door) { return (int)(door & FIELD); }

/* A sleeping worker; it is on the worker's stack. */
typedef struct sleeper {
    int thread;
    bool is_listed;
    pthread_cond_t wake;
    struct sleeper *next;
} sleeper;

typedef struct team {
    _Alignas(128) _Atomic uint64_t door;
    atomic_int first_asleep; /* the lowest number of a sleeping worker */
    atomic_bool caller_asleep;

    /* The job. It is written while the door is closed and no worker is inside. */
    threads_task_fn *task;
    void *context;
    int64_t n_tasks;
    _Alignas(64) _Atomic int64_t next;

    _Alignas(64) int n_workers; /* started so far */
    atomic_int n_numbered;      /* workers that have taken their number */
    pthread_mutex_t lock;       /* for falling asleep and waking only */
    pthread_cond_t all_out;
    sleeper *sleepers; /* by rising number */
} team;

static team teams[TEAMS_MAX];
static _Atomic uint64_t idle_teams; /* a bit for each team */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool in_task;

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_tasks(team *t, int thread)
{
    for (int64_t i; (i = atomic_fetch_add(&t->next, 1)) < t->n_tasks;) {
        pulse();
        t->task(t->context, i, thread);
    }
}

void threads_wait_for(const _Atomic int64_t *count, int64_t n)
{
    for (int i = 0; atomic_load_explicit(count, memory_order_acquire) < n; i++)
        if (i < SPINS)
            relax();
        else
            sched_yield(); /* the thread that raises it may have no processor */
}

/* ---- workers ------------------------------------------------------------------------------- */

/* Whether there is a job for this worker that it has not seen; its door may be closed already. */
static bool is_called(uint64_t door, int thread, unsigned seen)
{
    return door_turn(door) != seen && door_wanted(door) >= thread;
}

/* Enters the job of `door`; false if that job is over. */
static bool enter(team *t, uint64_t door)
{
    unsigned turn = door_turn(door);
    while (!(door & closed_bit) && door_turn(door) == turn)
        if (atomic_compare_exchange_weak(&t->door, &door, door + 1)) return true;
    return false;
}

static void leave(team *t)
{
    uint64_t door = atomic_fetch_sub(&t->door, 1) - 1;
    bool last = (door & closed_bit) && door_inside(door) == 0;
    if (!last || !atomic_load(&t->caller_asleep)) return;
    pthread_mutex_lock(&t->lock);
    pthread_cond_signal(&t->all_out);
    pthread_mutex_unlock(&t->lock);
}

static void note_first(team *t)
{
    atomic_store(&t->first_asleep, t->sleepers ? t->sleepers->thread : INT_MAX);
}

static void sleep_until_called(team *t, int thread, unsigned seen)
{
    sleeper self = {.thread = thread, .is_listed = true, .wake = PTHREAD_COND_INITIALIZER};
    pthread_mutex_lock(&t->lock);
    sleeper **at = &t->sleepers;
    while (*at && (*at)->thread < thread) at = &(*at)->next;
    self.next = *at;
    *at = &self;
    note_first(t);
    if (is_called(atomic_load(&t->door), thread, seen)) { /* called before it was listed */
        *at = self.next;
        note_first(t);
    } else {
        while (self.is_listed) pthread_cond_wait(&self.wake, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    pthread_cond_destroy(&self.wake);
}

/* Waits until there is a job for this worker, and returns its door. */
static uint64_t wait_for_job(team *t, int thread, unsigned seen)
{
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            uint64_t door = atomic_load(&t->door);
            if (is_called(door, thread, seen)) return door;
            relax();
        }
        sleep_until_called(t, thread, seen);
    }
}

static void *work(void *context)
{
    team *t = context;
    int thread = atomic_fetch_add(&t->n_numbered, 1) + 1;
    in_task = true; /* workers only run tasks */
    for (unsigned seen = 0;;) {
        uint64_t door = wait_for_job(t, thread, seen);
        seen = door_turn(door);
        if (!enter(t, door)) continue;
        run_tasks(t, thread);
        leave(t);
    }
    return NULL;
}

/* ---- the caller ---------------------------------------------------------------------------- */

/* Makes all teams, without workers: at the start, and in a child process, which does not have its parent's
 * threads. */
static void found_teams(void)
{
    for (int i = 0; i < TEAMS_MAX; i++) {
        team *t = &teams[i];
        uint64_t turn = door_turn(atomic_load(&t->door));
        atomic_store(&t->door, turn << TURN_SHIFT | closed_bit);
        atomic_store(&t->first_asleep, INT_MAX);
        atomic_store(&t->caller_asleep, false);
        atomic_store(&t->n_numbered, 0);
        t->n_workers = 0;
        t->sleepers = NULL;
        t->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        t->all_out = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    }
    atomic_store(&idle_teams, UINT64_MAX);
}

static void begin(void)
{
    found_teams();
    pthread_atfork(NULL, NULL, found_teams);
}

/* The first idle team; NULL if all are busy. */
static team *take_team(void)
{
    uint64_t idle = atomic_load(&idle_teams);
    while (idle)
        if (atomic_compare_exchange_weak(&idle_teams, &idle, idle & (idle - 1)))
            return &teams[__builtin_ctzll(idle)];
    return NULL;
}

static void give_back(const team *t) { atomic_fetch_or(&idle_teams, UINT64_C(1) << (t - teams)); }

/* Starts workers until there are n, or as many as can be started. Workers block all signals except those that
 * a thread causes itself, for example with a mapped file that shrank. */
static void hire(team *t, int n)
{
    sigset_t all, before;
    sigfillset(&all);
    const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (t->n_workers < n) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, t) != 0) break;
        pthread_detach(thread);
        t->n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void open_door(team *t, int n_wanted)
{
    uint64_t turn = door_turn(atomic_load(&t->door)) + 1u;
    atomic_store(&t->door, turn << TURN_SHIFT | (uint64_t)n_wanted << WANTED_SHIFT);
    if (atomic_load(&t->first_asleep) > n_wanted) return;
    pthread_mutex_lock(&t->lock);
    while (t->sleepers && t->sleepers->thread <= n_wanted) {
        sleeper *first = t->sleepers;
        t->sleepers = first->next;
        first->is_listed = false;
        pthread_cond_signal(&first->wake);
    }
    note_first(t);
    pthread_mutex_unlock(&t->lock);
}

static bool all_are_out(team *t) { return door_inside(atomic_load(&t->door)) == 0; }

static void close_door(team *t)
{
    atomic_fetch_or(&t->door, closed_bit);
    for (int i = 0; i < SPINS; i++) {
        if (all_are_out(t)) return;
        relax();
    }
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->caller_asleep, true);
    while (!all_are_out(t)) pthread_cond_wait(&t->all_out, &t->lock);
    atomic_store(&t->caller_asleep, false);
    pthread_mutex_unlock(&t->lock);
}

void threads_for(int n_threads, int64_t n_tasks, threads_task_fn *task, void *context)
{
    if (n_tasks < n_threads) n_threads = (int)n_tasks;
    team *t = NULL;
    if (n_threads > 1 && !in_task && pthread_once(&once, begin) == 0) t = take_team();
    if (!t) {
        for (int64_t i = 0; i < n_tasks; i++) {
            pulse();
            task(context, i, 0);
        }
        return;
    }
    int n_wanted = n_threads - 1 < WORKERS_MAX ? n_threads - 1 : WORKERS_MAX;
    if (t->n_workers < n_wanted) hire(t, n_wanted);
    t->task = task;
    t->context = context;
    t->n_tasks = n_tasks;
    atomic_store(&t->next, 0);
    open_door(t, n_wanted);
    in_task = true;
    run_tasks(t, 0);
    in_task = false;
    close_door(t);
    give_back(t);
}
