/* processors.h - ranks that share a machine share its processors. */
#ifndef DSMOE_PEERS_PROCESSORS_H
#define DSMOE_PEERS_PROCESSORS_H

#include "base/status.h"

typedef struct processors_here {
    int may_use;   /* processors this process may use now */
    int could_use; /* processors it could use if it had not been started bound to some */
} processors_here;

processors_here processors_look(void);

typedef struct processors_part {
    int n_threads;     /* for this rank: an equal part of its machine's processors */
    char warning[384]; /* the same on all ranks: a rank is bound to less than its part; "": none */
} processors_part;

dsmoe_status processors_divide(const dsmoe_peers *p, processors_here here, processors_part *out,
                               dsmoe_error *error);

#endif
