/* inspect_routing.h - `dsmoe inspect --routing`: what the library has counted (study/routing.h), in the terminal and
 * for training. report/routing_page.h has the page. */
#ifndef DSMOE_CLI_INSPECT_ROUTING_H
#define DSMOE_CLI_INSPECT_ROUTING_H

#include "study/routing.h"

/* Which experts to write down for training, and where. */
typedef struct routing_choice {
    const char *path, *score; /* expert_cfg.json; "gate" or "token" */
    double share;             /* -1: the paper's */
    bool force;               /* replaces a file that is there */
} routing_choice;
/* Before the text runs. */
int routing_check_experts(const routing_choice *choice);
/* Writes the file, and shows the choice. */
int routing_put_experts(const routing_report *report, const routing_choice *choice, bool show);

/* To stdout. `layer` is the one whose experts are all listed, -1 for none. */
void routing_print(const routing_report *report, int64_t layer);

#endif
