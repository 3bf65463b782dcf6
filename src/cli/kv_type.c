/* kv_type.c - the option --kv-type. */
#include "cli/kv_type.h"

#include "cli/cli.h"
#include "cli/suggest.h"

int kv_type_parse(const char *command, const char *text, dsmoe_dtype *type)
{
    enum { N_TYPES = 3 };
    static const dsmoe_dtype types[N_TYPES] = {DSMOE_F32, DSMOE_F16, DSMOE_Q8_0};
    static const char *const names[N_TYPES] = {"f32", "f16", "q8_0"};
    if (!text) return CLI_OK;
    int which = suggest_choice(command, "--kv-type", text, names, N_TYPES);
    if (which < 0) return CLI_USAGE;
    *type = types[which];
    return CLI_OK;
}

/* The tables of options check all other arguments of an engine, so an argument error is about the type. */
int kv_type_error(const char *command, const char *model, const dsmoe_error *error)
{
    return cli_error(command, error->status == DSMOE_ERROR_ARGUMENT ? "--kv-type" : model, error);
}
