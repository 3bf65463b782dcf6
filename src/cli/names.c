/* names.c - the names of presets, types and schedules. */
#include "cli/names.h"

#include "cli/cli.h"
#include "cli/suggest.h"

const char *const preset_names[N_PRESET_NAMES] = {"tiny",    "2b",      "16b",      "tiny-v2",
                                                  "tiny-v3", "v2-lite", "moonlight"};
const char *const type_names[N_TYPE_NAMES] = {"f32",  "f16",  "bf16", "q8_0", "q6_k",  "q5_1",
                                              "q5_k", "q5_0", "q4_k", "q4_0", "q4_k_m"};
const char *const schedule_names[N_SCHEDULE_NAMES] = {"step", "cosine", "constant"};

static int check(const char *command, const char *option, const char *name,
                 const char *const *names, int n_names)
{
    return suggest_choice(command, option, name, names, n_names) < 0 ? CLI_USAGE : CLI_OK;
}

int names_check_preset(const char *command, const char *name)
{
    return check(command, "--preset", name, preset_names, N_PRESET_NAMES);
}

int names_check_type(const char *command, const char *name)
{
    return check(command, "--type", name, type_names, N_TYPE_NAMES);
}

int names_check_schedule(const char *command, const char *name)
{
    return check(command, "--schedule", name, schedule_names, N_SCHEDULE_NAMES);
}

int names_find_bad_bytes(const char *command, const char *name, dsmoe_bad_bytes *bad_bytes)
{
    static const char *const names[] = {"replace", "keep", "skip"};
    if (dsmoe_bad_bytes_find(name, bad_bytes)) return CLI_OK;
    return check(command, "--bad-bytes", name, names, 3);
}

int names_find_parallel(const char *command, const char *name, dsmoe_parallel *parallel)
{
    static const char *const ways[] = {"data", "experts"};
    if (!name) return CLI_OK;
    int way = suggest_choice(command, "--parallel", name, ways, 2);
    if (way < 0) return CLI_USAGE;
    *parallel = (dsmoe_parallel)way;
    return CLI_OK;
}
