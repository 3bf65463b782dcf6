/* ablation_share.c - processes that share the runs of one comparison. */
#include "study/ablation_share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "study/ablation_folder.h"

/* The bytes of DIR/.lock. */
enum { FILES, MEMBERS, FIRST_RUN };

static const struct timespec nap = {.tv_nsec = 20000000};
enum { PATIENCE = 50 }; /* naps before the ABLATION_WAIT event */

/* The locks belong to the open file, not to the process, so that a test can act as two processes. */
static bool set_lock(const ablation *a, int byte, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(a->lock, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

dsmoe_status ablation_share_begin(ablation *a, dsmoe_error *error)
{
    char path[ABLATION_PATH];
    a->lock = open(ablation_path(a, path, ".lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (a->lock < 0) return status_fail(error, DSMOE_ERROR_IO, "%s: %s", path, strerror(errno));
    /* ablation_is_alone() in another process holds this lock for a moment. */
    while (!set_lock(a, MEMBERS, F_RDLCK)) nanosleep(&nap, NULL);
    return DSMOE_OK;
}

void ablation_share_end(ablation *a)
{
    if (a->lock >= 0) close(a->lock);
    a->lock = -1;
}

bool ablation_is_alone(const ablation *a)
{
    bool is_alone = set_lock(a, MEMBERS, F_WRLCK);
    if (is_alone) set_lock(a, MEMBERS, F_RDLCK);
    return is_alone;
}

dsmoe_status ablation_take_files(const ablation *a, dsmoe_error *error)
{
    const ablation_options *o = &a->options;
    for (int naps = 0; !set_lock(a, FILES, F_WRLCK); naps++) {
        if (naps == PATIENCE && o->event)
            o->event(o->context, &(ablation_event){.kind = ABLATION_WAIT});
        if (o->stop && o->stop(o->context))
            return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
        nanosleep(&nap, NULL);
    }
    return DSMOE_OK;
}

void ablation_leave_files(const ablation *a) { set_lock(a, FILES, F_UNLCK); }

static int run_byte(int entry, int seed) { return FIRST_RUN + entry * ABLATION_MAX_SEEDS + seed; }

bool ablation_take_run(const ablation *a, int entry, int seed)
{
    return set_lock(a, run_byte(entry, seed), F_WRLCK);
}

void ablation_leave_run(const ablation *a, int entry, int seed)
{
    set_lock(a, run_byte(entry, seed), F_UNLCK);
}
