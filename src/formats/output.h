/* output.h - checks before writing that only the library needs; the others, dsmoe_output_check and
 * dsmoe_output_folder_check, are in the public header. */
#ifndef DSMOE_FORMATS_OUTPUT_H
#define DSMOE_FORMATS_OUTPUT_H

#include <stdbool.h>

#include "base/status.h"

/* Whether two names lead to the same file, through hard or symbolic links. */
bool output_same_file(const char *a, const char *b);

/* Fails if the disk of `path`, which need not exist yet, has less than `bytes` free. Passes if the free
 * space is unknown. */
dsmoe_status output_check_room(const char *path, double bytes, dsmoe_error *error);

#endif
