/* fuzz_json_line.c - any bytes as a line of a JSON Lines file: refused, or the wanted string or ids are
 * returned. */
#include "fuzz.h"

#include <stdlib.h>

#include "cli/json_line.h"
#include "text/unicode.h"

static void try_string(const char *line, size_t size)
{
    dsmoe_error error = {0};
    size_t length = 0;
    char *string = json_line_string(line, size, "text", &length, &error);
    if (!string) {
        require_error(error.status, &error);
        return;
    }
    require(length < size && string[length] == '\0');
    require(unicode_valid_length(string, length) == length);
    free(string);
}

static void try_ids(const char *line, size_t size)
{
    dsmoe_error error = {0};
    size_t n_ids = 0;
    int32_t *ids = json_line_ids(line, size, "ids", &n_ids, &error);
    if (!ids) {
        require_error(error.status, &error);
        return;
    }
    require(n_ids < size);
    for (size_t i = 0; i < n_ids; i++) require(ids[i] >= 0);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    try_string((const char *)bytes, size);
    try_ids((const char *)bytes, size);
    return 0;
}
