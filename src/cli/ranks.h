/* ranks.h - `dsmoe` as one of several ranks that mpirun has started. Only rank 0 prints. What others would
 * print is dropped, except for the last message of one that cannot continue. */
#ifndef DSMOE_CLI_RANKS_H
#define DSMOE_CLI_RANKS_H

#include <stdbool.h>

#include "dsmoe.h"

/* The default and the maximum of --peer-timeout, an OPTION_DURATION for which 0 means for ever. */
enum { RANKS_PATIENCE = 600, RANKS_MOST_PATIENCE = 1000000000 }; /* seconds */

/* Called first in main: silences all ranks but the first. */
void ranks_begin(void);

/* Whether there are several ranks. */
bool ranks_are_many(void);
/* Whether this is not rank 0, which has the files and tells the others what to do. */
bool ranks_follows(void);

/* Joins the ranks: *peers is then the table of this one, or NULL if it is alone. A call of that table fails
 * if it waits for a rank that gives no sign of life for `patience` seconds (0: it waits for ever). Called by
 * commands that work with other ranks, after options are parsed and before any thread is started. On failure
 * the message is printed and the exit code returned, otherwise CLI_OK. */
int ranks_open(const char *command, double patience, const dsmoe_peers **peers);

/* How many threads this rank should use: its share of its machine's processors; 0, all of them, if it is
 * alone. */
int ranks_threads(void);

/* Called last in main, on every way out: leaves the other ranks, or ends them too if one of them is lost.
 * Returns the exit code. */
int ranks_close(const char *command, int exit_code);

#endif
