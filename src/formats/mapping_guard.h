/* mapping_guard.h - mappings whose file may become shorter, or fail to be read, while they are in
 * use.
 *
 * Touching a page that is gone raises SIGBUS, which ends a program. The first guard installs a
 * handler for it, for the life of the process: a page of a guarded mapping becomes zeros, from
 * there to the mapping's end, and the guard remembers. A SIGBUS anywhere else goes to the handler
 * that was there before (or ends the program, as it would have). A program that installs a handler
 * of its own later should hand on what it does not know; else guards do nothing. One that puts back
 * what was there before gets this handler again with the next guard. */
#ifndef DSMOE_FORMATS_MAPPING_GUARD_H
#define DSMOE_FORMATS_MAPPING_GUARD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mapping_guard mapping_guard;

/* From any thread. NULL without memory. */
mapping_guard *mapping_guard_add(const void *begin, size_t size);
/* Whether a page of the mapping was found gone; and to say so, where that was seen without a
 * signal. */
void mapping_guard_hit(mapping_guard *guard);
bool mapping_guard_was_hit(const mapping_guard *guard);
/* Before the mapping ends; no one may be using it any more. */
void mapping_guard_remove(mapping_guard *guard);

#endif
