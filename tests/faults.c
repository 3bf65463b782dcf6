/* faults.c - a disk that fails, for any program: loaded before it (LD_PRELOAD), it counts the calls that
 * change files below a folder, and makes one of them go wrong.
 *
 *   FAULT_FOLDER  the folder; files outside it are not affected
 *   FAULT_CALL    the number of the call that goes wrong, counted from 1; 0: none
 *   FAULT_KIND    kill    the process ends before the call; a write is half done
 *                 power   the same, and of files that were not synced half is lost
 *                 short   a write takes half of its bytes
 *                 ENOSPC, EDQUOT   the call fails, and so do all later ones that need space
 *                 EIO     only this call fails
 *   FAULT_LOG     a file outside the folder that receives a line for each call: its number and name
 *
 * fsync never waits for the disk: waiting takes most of the time and is not what is tested. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum fault_kind { FAULT_KILL, FAULT_POWER, FAULT_SHORT, FAULT_FULL, FAULT_ONCE } fault_kind;

static struct {
    bool ready;
    char folder[4096];
    size_t length;
    long call, n_calls;
    fault_kind kind;
    int reason; /* errno */
    bool full;  /* from now on there is no room for anything */
    int log;
    bool busy; /* inside a fault: these calls are our own */
} fault = {.log = -1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Files that were written and not synced since then. */
enum { MAX_DIRTY = 256 };
static struct {
    dev_t device;
    ino_t inode;
} dirty[MAX_DIRTY];
static int n_dirty;

#define REAL(name, type) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))
typedef ssize_t write_fn(int, const void *, size_t);
typedef ssize_t pwrite_fn(int, const void *, size_t, off_t);
typedef int descriptor_fn(int);
typedef int path_fn(const char *);
typedef int two_paths_fn(const char *, const char *);
typedef int mode_fn(const char *, mode_t);
typedef int open_fn(const char *, int, ...);
typedef int truncate_fn(int, off_t);

/* ---- choosing the calls ---------------------------------------------------------------------- */

static void get_ready(void)
{
    if (fault.ready) return;
    fault.ready = true;
    const char *folder = getenv("FAULT_FOLDER"), *call = getenv("FAULT_CALL");
    const char *kind = getenv("FAULT_KIND"), *log = getenv("FAULT_LOG");
    if (!folder) return;
    snprintf(fault.folder, sizeof fault.folder, "%s", folder);
    fault.length = strlen(fault.folder);
    if (call) fault.call = atol(call);
    if (kind && !strcmp(kind, "power")) fault.kind = FAULT_POWER;
    if (kind && !strcmp(kind, "short")) fault.kind = FAULT_SHORT;
    if (kind && !strcmp(kind, "ENOSPC")) fault.kind = FAULT_FULL, fault.reason = ENOSPC;
    if (kind && !strcmp(kind, "EDQUOT")) fault.kind = FAULT_FULL, fault.reason = EDQUOT;
    if (kind && !strcmp(kind, "EIO")) fault.kind = FAULT_ONCE, fault.reason = EIO;
    if (log) fault.log = REAL("open", open_fn *)(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
}

static bool is_below(const char *path)
{
    return fault.length > 0 && !strncmp(path, fault.folder, fault.length) &&
           (path[fault.length] == '/' || path[fault.length] == '\0');
}

static bool is_ours(int descriptor)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return false;
    path[length] = '\0';
    return is_below(path);
}

/* ---- making a call go wrong ------------------------------------------------------------------ */

static void set_dirty(int descriptor, bool now)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return;
    int i = 0;
    while (i < n_dirty && (dirty[i].device != info.st_dev || dirty[i].inode != info.st_ino)) i++;
    if (!now && i < n_dirty) dirty[i] = dirty[--n_dirty];
    if (!now || i < n_dirty || n_dirty == MAX_DIRTY) return;
    dirty[n_dirty].device = info.st_dev;
    dirty[n_dirty++].inode = info.st_ino;
}

static int lose_half(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    for (int i = 0; type == FTW_F && i < n_dirty; i++)
        if (dirty[i].device == info->st_dev && dirty[i].inode == info->st_ino &&
            truncate(path, info->st_size / 2) != 0)
            abort();
    return 0;
}

static void die(void)
{
    if (fault.kind == FAULT_POWER) nftw(fault.folder, lose_half, 16, FTW_PHYS);
    raise(SIGKILL);
}

typedef enum verdict { GO_ON, FAIL, HALF, HALF_AND_DIE } verdict;

/* Counts a call if it is on the folder (`ours`). `needs_room`: a full disk refuses it. */
static verdict judge(const char *name, bool ours, bool needs_room, bool is_write)
{
    get_ready();
    if (!ours || fault.length == 0 || fault.busy) return GO_ON;
    pthread_mutex_lock(&lock);
    fault.busy = true;
    verdict v = GO_ON;
    bool now = ++fault.n_calls == fault.call;
    if (fault.log >= 0) dprintf(fault.log, "%ld %s\n", fault.n_calls, name);
    if (now && fault.kind == FAULT_FULL) fault.full = true;
    if (now && fault.kind == FAULT_SHORT && is_write) v = HALF;
    if (now && (fault.kind == FAULT_KILL || fault.kind == FAULT_POWER)) {
        if (!is_write) die();
        v = HALF_AND_DIE;
    }
    if ((now && fault.kind == FAULT_ONCE) || (fault.full && (now || needs_room))) {
        errno = fault.reason;
        v = FAIL;
    }
    fault.busy = false;
    pthread_mutex_unlock(&lock);
    return v;
}

static bool owns(int descriptor)
{
    get_ready();
    return fault.length > 0 && !fault.busy && is_ours(descriptor);
}

static bool owns_path(const char *path)
{
    get_ready();
    return fault.length > 0 && !fault.busy && is_below(path);
}

/* ---- the calls ------------------------------------------------------------------------------- */

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    write_fn *real = REAL("write", write_fn *);
    if (!owns(descriptor)) return real(descriptor, bytes, size);
    verdict v = judge("write", true, true, true);
    if (v == FAIL) return -1;
    ssize_t n = real(descriptor, bytes, v == GO_ON || size < 2 ? size : size / 2);
    set_dirty(descriptor, true);
    if (v == HALF_AND_DIE) die();
    return n;
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t at)
{
    pwrite_fn *real = REAL("pwrite", pwrite_fn *);
    if (!owns(descriptor)) return real(descriptor, bytes, size, at);
    verdict v = judge("pwrite", true, true, true);
    if (v == FAIL) return -1;
    ssize_t n = real(descriptor, bytes, v == GO_ON || size < 2 ? size : size / 2, at);
    set_dirty(descriptor, true);
    if (v == HALF_AND_DIE) die();
    return n;
}

static int sync_call(const char *name, int descriptor)
{
    if (!owns(descriptor)) return 0;
    if (judge(name, true, false, false) == FAIL) return -1;
    set_dirty(descriptor, false);
    return 0;
}

int fsync(int descriptor) { return sync_call("fsync", descriptor); }
int fdatasync(int descriptor) { return sync_call("fdatasync", descriptor); }

/* As on Linux, the descriptor is closed even if close reports an error. */
int close(int descriptor)
{
    descriptor_fn *real = REAL("close", descriptor_fn *);
    verdict v = owns(descriptor) ? judge("close", true, false, false) : GO_ON;
    int result = real(descriptor);
    if (v != FAIL) return result;
    errno = fault.reason;
    return -1;
}

int ftruncate(int descriptor, off_t size)
{
    verdict v = owns(descriptor) ? judge("ftruncate", true, false, false) : GO_ON;
    return v == FAIL ? -1 : REAL("ftruncate", truncate_fn *)(descriptor, size);
}

/* Counts only calls that create a file. */
static int open_call(const char *name, const char *path, int flags, mode_t mode)
{
    bool makes = (flags & O_CREAT) && owns_path(path);
    if (makes && judge(name, true, true, false) == FAIL) return -1;
    return REAL(name, open_fn *)(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_call("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_call("open64", path, flags, mode);
}

int rename(const char *from, const char *to)
{
    verdict v = judge("rename", owns_path(to), false, false);
    return v == FAIL ? -1 : REAL("rename", two_paths_fn *)(from, to);
}

int symlink(const char *target, const char *path)
{
    verdict v = judge("symlink", owns_path(path), true, false);
    return v == FAIL ? -1 : REAL("symlink", two_paths_fn *)(target, path);
}

int mkdir(const char *path, mode_t mode)
{
    verdict v = judge("mkdir", owns_path(path), true, false);
    return v == FAIL ? -1 : REAL("mkdir", mode_fn *)(path, mode);
}

int unlink(const char *path)
{
    verdict v = judge("unlink", owns_path(path), false, false);
    return v == FAIL ? -1 : REAL("unlink", path_fn *)(path);
}

int rmdir(const char *path)
{
    verdict v = judge("rmdir", owns_path(path), false, false);
    return v == FAIL ? -1 : REAL("rmdir", path_fn *)(path);
}
