/* output.h - what may be written where; dsmoe_output_check and dsmoe_output_folder_check of the
 * public header are the rule, here is what only the library asks. */
#ifndef DSMOE_FORMATS_OUTPUT_H
#define DSMOE_FORMATS_OUTPUT_H

#include <stdbool.h>

#include "base/status.h"

/* Whether two names lead to one file, through links of both kinds. */
bool output_same_file(const char *a, const char *b);

/* Fails if the disk that `path` lies on, or will lie on, has less room than that. A disk that does
 * not tell has room. */
dsmoe_status output_check_room(const char *path, double bytes, dsmoe_error *error);

#endif
