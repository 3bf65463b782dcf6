/* mapping_guard.c - a handler for SIGBUS and the list of mappings it knows.
 *
 * A signal handler must not wait for a lock, so the list has none. It consists of blocks of slots
 * that are never freed, only reused. A slot that is being changed has an odd version, and the handler
 * skips it. That is safe: the slot that a thread needs in the handler is not changed meanwhile, since
 * the thread is using its mapping. */
#include "formats/mapping_guard.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(ATOMIC_POINTER_LOCK_FREE == 2 && ATOMIC_BOOL_LOCK_FREE == 2 &&
                   ATOMIC_INT_LOCK_FREE == 2,
               "a signal handler reads these");

struct mapping_guard {
    atomic_bool taken;
    atomic_bool hit;
    atomic_uint version; /* odd while begin and end are being changed */
    atomic_uintptr_t begin, end;
};

typedef struct guard_block {
    mapping_guard slots[64];
    struct guard_block *_Atomic next;
} guard_block;

static guard_block first_block;

/* saved[latest] is the action that was installed before this handler. The other entry may be written
 * meanwhile, so that the handler never reads a half-written one. */
static struct sigaction saved[2];
static atomic_int latest;
static atomic_uintptr_t page_size;

/* ---- the handler --------------------------------------------------------------------------- */

static mapping_guard *find_guard(uintptr_t address, uintptr_t *end)
{
    for (guard_block *block = &first_block; block; block = block->next)
        for (size_t i = 0; i < sizeof block->slots / sizeof *block->slots; i++) {
            mapping_guard *guard = &block->slots[i];
            unsigned version = guard->version;
            uintptr_t begin = guard->begin;
            *end = guard->end;
            if (version % 2 == 0 && version == guard->version && begin <= address && address < *end)
                return guard;
        }
    return NULL;
}

/* If the address is in a guarded mapping, puts zeros from its page to the end of the mapping. */
static bool heal(uintptr_t address)
{
    uintptr_t end, page = address - address % page_size;
    mapping_guard *guard = find_guard(address, &end);
    if (!guard) return false;
    guard->hit = true; /* first, so that no thread sees zeros without the mark */
    void *zeros =
        mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return zeros != MAP_FAILED;
}

static void restore_default(int number)
{
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    sigaction(number, &fatal, NULL);
}

/* Does what would have happened without this handler. SIG_DFL and SIG_IGN are not functions, whatever
 * the flags say. */
static void hand_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *previous = &saved[latest];
    bool sent = info->si_code <= 0; /* by a program, not raised by the processor */
    if (previous->sa_handler == SIG_IGN && sent) return;
    if (previous->sa_handler == SIG_DFL || previous->sa_handler == SIG_IGN) {
        restore_default(number);
        raise(number); /* it ends the program when the handler returns */
        return;
    }
    if (previous->sa_flags & SA_RESETHAND) restore_default(number); /* it asked to be called once */
    if (previous->sa_flags & SA_SIGINFO)
        previous->sa_sigaction(number, info, context);
    else
        previous->sa_handler(number);
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    bool healed = info->si_code > 0 && heal((uintptr_t)info->si_addr);
    errno = kept;
    if (!healed) hand_on(number, info, context);
}

/* Whether this handler may replace the present action. It must not replace an unknown handler that was
 * installed later: that one may pass signals on to this one, and the two would call each other
 * forever. */
static bool may_replace(const struct sigaction *now, bool installed)
{
    return !installed || now->sa_handler == SIG_DFL || now->sa_handler == SIG_IGN ||
           now->sa_handler == saved[latest].sa_handler;
}

/* Installs the handler; false if the system refuses. */
static bool put_in_place(const struct sigaction *now)
{
    int other = !latest;
    saved[other] = *now;
    latest = other;
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_mask = now->sa_mask};
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (now->sa_flags & (SA_RESTART | SA_NODEFER));
    return sigaction(SIGBUS, &ours, NULL) == 0;
}

/* The process that has a thread in install(), or 0: one thread at a time may be there. After fork() the
 * child may find its parent here. The parent's thread does not exist in the child and will never leave,
 * so the child takes its place; install() then redoes what that thread left half done. */
static atomic_int busy_process;

static void wait_for_turn(void)
{
    int self = (int)getpid(), busy = 0;
    while (!atomic_compare_exchange_strong(&busy_process, &busy, self)) {
        if (busy != self) continue; /* the parent's: the next try replaces it */
        busy = 0;
        sched_yield();
    }
}

/* Installs the handler the first time, and again if a program has restored the earlier action. */
static bool install(void)
{
    static bool installed;
    wait_for_turn();
    struct sigaction now;
    bool done = sigaction(SIGBUS, NULL, &now) == 0;
    if (done && now.sa_sigaction == on_bus_error)
        installed = true;
    else if (done && may_replace(&now, installed))
        done = installed = put_in_place(&now);
    atomic_store(&busy_process, 0);
    return done;
}

/* ---- the list ------------------------------------------------------------------------------ */

static mapping_guard *take_slot(guard_block *block)
{
    for (size_t i = 0; i < sizeof block->slots / sizeof *block->slots; i++) {
        bool taken = false;
        if (atomic_compare_exchange_strong(&block->slots[i].taken, &taken, true))
            return &block->slots[i];
    }
    return NULL;
}

/* The next block, allocated if there is none; NULL if out of memory. */
static guard_block *block_behind(guard_block *block)
{
    guard_block *next = block->next;
    if (next) return next;
    guard_block *fresh = calloc(1, sizeof *fresh);
    if (!fresh) return NULL;
    if (atomic_compare_exchange_strong(&block->next, &next, fresh)) return fresh;
    free(fresh); /* another thread was faster */
    return next;
}

static void set_range(mapping_guard *guard, uintptr_t begin, uintptr_t end)
{
    guard->version++;
    guard->begin = begin;
    guard->end = end;
    guard->version++;
}

mapping_guard *mapping_guard_add(const void *begin, size_t size)
{
    if (!install()) return NULL;
    guard_block *block = &first_block;
    mapping_guard *guard = take_slot(block);
    while (!guard && (block = block_behind(block))) guard = take_slot(block);
    if (!guard) return NULL;
    guard->hit = false;
    set_range(guard, (uintptr_t)begin, (uintptr_t)begin + size);
    return guard;
}

void mapping_guard_hit(mapping_guard *guard) { guard->hit = true; }

bool mapping_guard_was_hit(const mapping_guard *guard) { return guard->hit; }

void mapping_guard_remove(mapping_guard *guard)
{
    set_range(guard, 0, 0);
    guard->taken = false;
}
