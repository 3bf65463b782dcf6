/* voice.c - chooses between a model here and a server elsewhere, by the options of the command line. */
#include "cli/voice.h"

#include <string.h>

#include "cli/cli.h"

/* Options that only a model in this process can honour. */
static const char *const local_options[] = {"--model",   "--ctx-size",  "--batch-size", "--threads",
                                            "--kv-type", "--no-repack", "--lora",       "--special",
                                            "--ids",     "--chat-form"};
enum { N_LOCAL_OPTIONS = sizeof local_options / sizeof *local_options };

static bool has_row(const voice_order *order, const char *name)
{
    for (int i = 0; i < order->n_rows; i++)
        if (!strcmp(order->rows[i].name, name)) return true;
    return false;
}

/* Returns -1 if the command should continue. */
static int check_options(const voice_order *order)
{
    static const char *const servers[] = {"--url", "--unix"};
    option_rule rules[2 * N_LOCAL_OPTIONS];
    int n = 0;
    for (int i = 0; i < N_LOCAL_OPTIONS; i++)
        for (int j = 0; j < 2 && has_row(order, local_options[i]); j++)
            rules[n++] = (option_rule){local_options[i], OPTION_EXCLUDES, servers[j]};
    const runner_options *o = order->options;
    int code = options_check(order->command, order->rows, order->n_rows, order->given, rules, n);
    const char *alone = o->api_key ? "--api-key" : o->ca_file ? "--cacert" : NULL;
    if (code < 0 && alone && !o->url && !o->unix_path)
        code = cli_usage(order->command, "%s has no effect without --url or --unix", alone);
    return code;
}

int voice_check(const voice_order *order)
{
    int code = check_options(order);
    return code < 0 ? runner_options_check(order->command, order->options) : code;
}

int voice_open(const voice_order *order, voice **v)
{
    *v = NULL;
    bool is_remote = order->options->url || order->options->unix_path;
    return is_remote ? voice_open_remote(order, v) : voice_open_local(order, v);
}

void voice_close(voice *v)
{
    if (v) v->kind->close(v);
}

int voice_failure(const voice *v, const dsmoe_error *error)
{
    return cli_failure(v->command, "%s: %s", v->name, error->message);
}
