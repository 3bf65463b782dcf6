/* threads.h - runs tasks on several processors. */
#ifndef DSMOE_BASE_THREADS_H
#define DSMOE_BASE_THREADS_H

#include <stdint.h>

typedef void threads_task_fn(void *context, int64_t task, int thread);

/* Runs tasks 0 … n_tasks-1 on up to n_threads threads, each task once; tasks begin in rising order. `thread`
 * (< n_threads) says which scratch a task may use. The result of a task must not depend on the thread, so
 * that results do not depend on the number of threads. Several callers may call at the same time; each has
 * its own threads. If a task calls threads_for, its thread runs those tasks alone. The calling thread calls
 * its pulse (pulse.h) before each task that it runs itself. */
void threads_for(int n_threads, int64_t n_tasks, threads_task_fn *task, void *context);

/* Waits, in a task, until `count` has reached n. Only tasks with lower numbers may raise it, since those have
 * begun, and they must not wait themselves. */
void threads_wait_for(const _Atomic int64_t *count, int64_t n);

/* How many processors this process may use, and has time for in its control groups. */
int threads_available(void);
/* How many its control groups allow, from a copy of /proc and /sys below `root`; INT_MAX if they have no
 * limit. */
int threads_allowed_under(const char *root);

#endif
