/* peers_cases.h - what every table of functions that joins ranks must do, whatever carries its bytes. All ranks
 * call the same function with the same numbers. */
#ifndef DSMOE_TESTS_PEERS_CASES_H
#define DSMOE_TESTS_PEERS_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "dsmoe.h"

/* Parts have up to `largest` bytes. What goes wrong is told on stderr. */
bool peers_cases(const dsmoe_peers *peers, size_t largest);

#endif
