/* threads.c - OpenMP, and the only file that names it. */
#include "base/threads.h"

#include <omp.h>

void threads_for(int n_threads, int64_t n_tasks, threads_task_fn *task, void *context)
{
    if (n_tasks < n_threads) n_threads = (int)n_tasks;
    if (n_threads <= 1) {
        for (int64_t i = 0; i < n_tasks; i++) task(context, i, 0);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t i = 0; i < n_tasks; i++) task(context, i, omp_get_thread_num());
}

int threads_available(void) { return omp_get_num_procs(); }
