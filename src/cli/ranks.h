/* ranks.h - `dsmoe` as one of several that mpirun has started. Only rank 0 is seen and heard: what others would print
 * is lost, except for the last message of one that cannot continue. */
#ifndef DSMOE_CLI_RANKS_H
#define DSMOE_CLI_RANKS_H

#include <stdbool.h>

#include "dsmoe.h"

/* For the row of --peer-timeout, an OPTION_DURATION of which 0 means for ever, and its help. */
enum { RANKS_PATIENCE = 600, RANKS_MOST_PATIENCE = 1000000000 }; /* seconds */

/* First in main: silences all ranks but the first. */
void ranks_begin(void);

/* Whether there are several. */
bool ranks_are_many(void);
/* Whether this is another than the first, which has the files and tells it what to do. */
bool ranks_follows(void);

/* Joins them: *peers is then this rank, or NULL if it is alone. A call of it that waits for a rank which gives no sign
 * of life for `patience` seconds (0: for ever) fails. The message is printed on failure and the exit code returned,
 * otherwise CLI_OK. For a command that works with others, after its options are parsed and before any thread is
 * started. */
int ranks_open(const char *command, double patience, const dsmoe_peers **peers);

/* How many threads each rank should use that shares its machine with others; 0, all processors, if it is alone. */
int ranks_threads(void);

/* Last in main, on every way out: takes leave of the other ranks, or takes them along if one of them is lost, and
 * returns the exit code. */
int ranks_close(const char *command, int exit_code);

#endif
