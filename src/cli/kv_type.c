/* kv_type.c - the option --kv-type. */
#include "cli/kv_type.h"

#include <string.h>

#include "cli/cli.h"

int kv_type_parse(const char *command, const char *text, dsmoe_dtype *type)
{
    static const dsmoe_dtype types[] = {DSMOE_F32, DSMOE_F16, DSMOE_Q8_0};
    if (!text) return CLI_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(text, dsmoe_dtype_name(types[i]))) {
            *type = types[i];
            return CLI_OK;
        }
    return cli_usage(command, "--kv-type is f32, f16 or q8_0, not \"%s\"", text);
}
