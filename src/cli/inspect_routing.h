/* inspect_routing.h - `dsmoe inspect --routing`: shows the library's counts (study/routing.h) in the
 * terminal, and writes experts for training. report/routing_page.h has the page. */
#ifndef DSMOE_CLI_INSPECT_ROUTING_H
#define DSMOE_CLI_INSPECT_ROUTING_H

#include "study/routing.h"

/* Which experts to write down for training, and where. */
typedef struct routing_choice {
    const char *path, *score; /* expert_cfg.json; "gate" or "token" */
    double share;             /* -1: the paper's */
} routing_choice;
/* Checks the options, before the text is run. CLI_OK or an exit code. */
int routing_check_experts(const routing_choice *choice);
/* Writes the file, and prints the choice if `show`. CLI_OK or an exit code. */
int routing_put_experts(const routing_report *report, const routing_choice *choice, bool show);

/* Prints the routing. All experts of `layer` are listed; -1: of no layer. */
void routing_print(const routing_report *report, int64_t layer);

#endif
