/* threads.h - the only place that knows how work reaches several processors. */
#ifndef DSMOE_BASE_THREADS_H
#define DSMOE_BASE_THREADS_H

#include <stdint.h>

typedef void threads_task_fn(void *context, int64_t task, int thread);

/* Runs task 0 … n_tasks-1 on up to n_threads threads, each task once, handed out in rising order.
 * `thread` (< n_threads) says which scratch to use. A task must not depend on the thread that runs it: that is
 * what makes results independent of the number of threads. Any number of callers may call at the same
 * time: each has threads of its own. A task that calls again runs those tasks alone.
 * Before each task that it runs itself the calling thread makes its pulse (pulse.h). */
void threads_for(int n_threads, int64_t n_tasks, threads_task_fn *task, void *context);

/* Waits, in a task, until `count` has reached n: for what tasks before it make, which some thread has begun, and
 * which wait for nothing themselves. */
void threads_wait_for(const _Atomic int64_t *count, int64_t n);

/* Processors this process may use, and no more than the control groups that it runs in give it time
 * for. */
int threads_available(void);
/* How many those groups allow, by a copy of /proc and /sys below `root`; INT_MAX if nothing says. */
int threads_allowed_under(const char *root);

#endif
