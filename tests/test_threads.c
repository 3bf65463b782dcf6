/* test_threads.c - threads that run each task once; callers at the same time, which have workers of their
 * own; workers that stay asleep; a child of fork. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/pulse.h"
#include "base/threads.h"

/* ---- each task once ------------------------------------------------------------------------- */

enum { MAX_TASKS = 300, MAX_THREADS = 4 };

typedef struct tally {
    atomic_int done[MAX_TASKS], busy[MAX_THREADS], mistakes;
    int n_threads;
} tally;

static void count_task(void *context, int64_t task, int thread)
{
    tally *t = context;
    if (task < 0 || task >= MAX_TASKS || thread < 0 || thread >= t->n_threads) {
        t->mistakes++;
        return;
    }
    t->mistakes += t->busy[thread]++ != 0; /* one task at a time uses its scratch */
    t->done[task]++;
    t->busy[thread]--;
}

static int mistakes_of(int n_threads, int64_t n_tasks)
{
    tally t = {.n_threads = n_threads};
    threads_for(n_threads, n_tasks, count_task, &t);
    int mistakes = t.mistakes;
    for (int64_t task = 0; task < MAX_TASKS; task++) mistakes += t.done[task] != (task < n_tasks);
    return mistakes;
}

static void test_each_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 3, 4, 5, 17, MAX_TASKS};
    for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++)
        for (size_t i = 0; i < COUNT(counts); i++)
            assert_int_equal(mistakes_of(n_threads, counts[i]), 0);
}

/* ---- between_tasks ---------------------------------------------------------------------------- */

typedef struct watch_over {
    pthread_t caller;
    atomic_int n_calls, n_own, mistakes; /* n_own: tasks that the caller runs itself */
} watch_over;

static void between_tasks(void *context)
{
    watch_over *w = context;
    w->n_calls++;
    w->mistakes += !pthread_equal(pthread_self(), w->caller);
}

static void watched_task(void *context, int64_t task, int thread)
{
    watch_over *w = context;
    (void)task;
    (void)thread;
    w->n_own += pthread_equal(pthread_self(), w->caller) != 0;
}

static void test_pulse(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        watch_over w = {.caller = pthread_self()};
        pulse_set((pulse_call){between_tasks, &w});
        threads_for(n_threads, MAX_TASKS, watched_task, &w);
        pulse_call before = pulse_set((pulse_call){0});
        assert_true(before.call == between_tasks && before.context == &w);
        assert_int_equal(w.n_calls, w.n_own);
        assert_int_equal(w.mistakes, 0);
        if (n_threads == 1) assert_int_equal(w.n_calls, MAX_TASKS);
        threads_for(n_threads, MAX_TASKS, watched_task, &w);
        assert_true(w.n_own >= w.n_calls);
        if (n_threads == 1) assert_int_equal(w.n_calls, MAX_TASKS);
    }
}

/* ---- a meeting: tasks that all run at once ---------------------------------------------------- */

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_expected, n_there;
    bool failed;
    pid_t ids[MAX_THREADS]; /* of threads 0, 1, … */
} meeting;

static meeting meeting_of(int n)
{
    return (meeting){
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .n_expected = n};
}

/* Waits until all tasks are there; gives up after a minute. */
static void meet_task(void *context, int64_t task, int thread)
{
    (void)task;
    meeting *m = context;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 60;
    pthread_mutex_lock(&m->lock);
    m->ids[thread] = (pid_t)syscall(SYS_gettid);
    m->n_there++;
    pthread_cond_broadcast(&m->changed);
    while (m->n_there < m->n_expected && !m->failed)
        m->failed = pthread_cond_timedwait(&m->changed, &m->lock, &end) != 0;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static void *call_two(void *context)
{
    threads_for(2, 2, meet_task, context);
    return NULL;
}

/* Several callers, each with a worker of its own, run their tasks at the same time. */
static void test_callers_at_once(void **state)
{
    (void)state;
    enum { CALLERS = 3 };
    meeting m = meeting_of(2 * CALLERS);
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_two, &m), 0);
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(callers[i], NULL), 0);
    assert_false(m.failed);
}

static void *call_often(void *context)
{
    atomic_int *mistakes = context;
    for (int i = 0; i < 200; i++) *mistakes += mistakes_of(1 + i % MAX_THREADS, i % 20);
    return NULL;
}

/* More callers than there can be teams. */
static void test_many_callers(void **state)
{
    (void)state;
    enum { CALLERS = 70 };
    atomic_int mistakes = 0;
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, &mistakes), 0);
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(callers[i], NULL), 0);
    assert_int_equal(mistakes, 0);
}

/* ---- tasks that call threads_for ------------------------------------------------------------- */

typedef struct inner_work {
    atomic_int n_done, mistakes;
    pthread_t caller;
} inner_work;

static void inner_task(void *context, int64_t task, int thread)
{
    (void)task;
    inner_work *w = context;
    w->mistakes += thread != 0 || !pthread_equal(w->caller, pthread_self());
    w->n_done++;
}

static void outer_task(void *context, int64_t task, int thread)
{
    (void)task;
    (void)thread;
    inner_work w = {.caller = pthread_self()};
    threads_for(MAX_THREADS, 9, inner_task, &w);
    if (w.mistakes || w.n_done != 9) ++*(atomic_int *)context;
}

static void test_inner_call(void **state)
{
    (void)state;
    atomic_int mistakes = 0;
    for (int i = 0; i < 50; i++) threads_for(MAX_THREADS, 20, outer_task, &mistakes);
    assert_int_equal(mistakes, 0);
}

/* ---- workers that a job does not need ---------------------------------------------------------- */

/* The state of a thread of this process, and how often it gave up its processor voluntarily. */
static char thread_state(pid_t id, long *n_switches)
{
    char name[64], line[128], now = '?';
    snprintf(name, sizeof name, "/proc/self/task/%d/status", (int)id);
    FILE *file = fopen(name, "r");
    *n_switches = -1;
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "State: %c", &now);
        sscanf(line, "voluntary_ctxt_switches: %ld", n_switches);
    }
    if (file) fclose(file);
    return now;
}

/* Waits until the thread sleeps and stays asleep. */
static void wait_until_asleep(pid_t id)
{
    long now, before = -2;
    for (int i = 0; i < 6000; i++, before = now) {
        if (thread_state(id, &now) == 'S' && now == before) return;
        usleep(10000);
    }
    fail_msg("thread %d does not fall asleep", (int)id);
}

static void test_unwanted_sleep(void **state)
{
    (void)state;
    long before[MAX_THREADS], after;
    meeting all = meeting_of(MAX_THREADS);
    threads_for(MAX_THREADS, MAX_THREADS, meet_task, &all);
    assert_false(all.failed);
    for (int i = 1; i < MAX_THREADS; i++) wait_until_asleep(all.ids[i]);
    for (int i = 2; i < MAX_THREADS; i++) thread_state(all.ids[i], &before[i]);
    if (before[2] < 0) skip(); /* the system does not count switches */
    for (int i = 0; i < 50; i++) {
        meeting two = meeting_of(2);
        threads_for(2, 2, meet_task, &two);
        assert_false(two.failed);
        assert_int_equal(two.ids[1], all.ids[1]);
        if (i % 10 == 0) wait_until_asleep(all.ids[1]);
    }
    for (int i = 2; i < MAX_THREADS; i++) {
        assert_int_equal(thread_state(all.ids[i], &after), 'S');
        assert_int_equal(after, before[i]);
    }
}

/* ---- fork -------------------------------------------------------------------------------------- */

/* A child of fork has none of its parent's workers and gets its own. */
static void test_fork(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* not supported there */
#endif
    assert_int_equal(mistakes_of(MAX_THREADS, MAX_TASKS), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(120);
        meeting m = meeting_of(2);
        threads_for(2, 2, meet_task, &m);
        _exit(m.failed || mistakes_of(MAX_THREADS, MAX_TASKS) != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),      cmocka_unit_test(test_pulse),
        cmocka_unit_test(test_unwanted_sleep), cmocka_unit_test(test_callers_at_once),
        cmocka_unit_test(test_many_callers),   cmocka_unit_test(test_inner_call),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
