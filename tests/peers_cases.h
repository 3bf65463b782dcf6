/* peers_cases.h - what every table of functions that joins ranks must do, however it sends bytes. All
 * ranks call the same function with the same arguments. */
#ifndef DSMOE_TESTS_PEERS_CASES_H
#define DSMOE_TESTS_PEERS_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "dsmoe.h"

/* Parts have up to `largest` bytes. Failures are printed on stderr. */
bool peers_cases(const dsmoe_peers *peers, size_t largest);

#endif
