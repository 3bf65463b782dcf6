/* threads_available.c - how many threads of this process can run at the same time.
 *
 * That is the smaller of the number of processors that it may use and the processor time that its control
 * groups allow, in processors. */
#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include "base/system_files.h"
#include "base/threads.h"

/* The processor time that a group has in each period; false if there is no limit. */
static bool group_quota(const char *folder, int version, uint64_t *quota, uint64_t *period)
{
    uint64_t numbers[2];
    if (version == 2) {
        if (system_numbers(folder, "cpu.max", numbers, 2) != 2) return false;
    } else if (system_numbers(folder, "cpu.cfs_quota_us", &numbers[0], 1) != 1 ||
               system_numbers(folder, "cpu.cfs_period_us", &numbers[1], 1) != 1) {
        return false;
    }
    *quota = numbers[0];
    *period = numbers[1];
    return *period > 0;
}

/* Lowers *least to the processors of one group. A part of a processor counts as a whole one; otherwise some
 * time would not be used. */
static void take_least(void *context, const char *folder, int version)
{
    int *least = context;
    uint64_t quota, period;
    if (!group_quota(folder, version, &quota, &period)) return;
    uint64_t n = quota / period + (quota % period != 0);
    if (n == 0) n = 1;
    if (n < (uint64_t)*least) *least = (int)n;
}

int threads_allowed_under(const char *root)
{
    int least = INT_MAX;
    system_groups_each(root, "cpu", take_least, &least);
    return least;
}

static int processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int threads_available(void)
{
    int n = processors(), allowed = threads_allowed_under("");
    return n < allowed ? n : allowed;
}
