/* processors.h - ranks that share a machine share its processors. */
#ifndef DSMOE_PEERS_PROCESSORS_H
#define DSMOE_PEERS_PROCESSORS_H

#include "base/status.h"

typedef struct processors_here {
    int may_use;   /* processors this process may use now */
    int could_use; /* and if its start had not bound it to some of them */
} processors_here;

processors_here processors_look(void);

typedef struct processors_part {
    int n_threads; /* for this rank: an equal part of its machine */
    char warning
        [384]; /* the same on all ranks: that one of them was bound to less than its part; "": none was */
} processors_part;

dsmoe_status processors_divide(const dsmoe_peers *p, processors_here here, processors_part *out,
                               dsmoe_error *error);

#endif
