/* threads_available.c - how many threads this process can have running at the same time. */
#include <sched.h>
#include <unistd.h>

#include "base/threads.h"

int threads_available(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
