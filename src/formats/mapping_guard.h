/* mapping_guard.h - guards mappings whose file may shrink, or fail to be read, while in use.
 *
 * Touching a page that is gone raises SIGBUS, which ends a program. The first guard installs a
 * handler for it that stays for the life of the process. If the page belongs to a guarded mapping,
 * the handler replaces the mapping by zeros from that page to its end and marks the guard as hit.
 * Any other SIGBUS is passed to the handler that was there before (or ends the program, as it would
 * have). A program that installs its own handler later should pass on signals it does not know;
 * otherwise guards do nothing. If it restores the earlier handler, the next guard installs this one
 * again. */
#ifndef DSMOE_FORMATS_MAPPING_GUARD_H
#define DSMOE_FORMATS_MAPPING_GUARD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mapping_guard mapping_guard;

/* May be called from any thread. NULL if out of memory. */
mapping_guard *mapping_guard_add(const void *begin, size_t size);
/* Marks the guard as hit, for a caller that noticed the change without a signal. */
void mapping_guard_hit(mapping_guard *guard);
/* Whether a page of the mapping was found gone. */
bool mapping_guard_was_hit(const mapping_guard *guard);
/* Call before unmapping, when no thread uses the mapping any more. */
void mapping_guard_remove(mapping_guard *guard);

#endif
