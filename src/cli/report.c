/* report.c - `dsmoe report`: the page of a run, made again from what the run wrote. */
#include "cli/cli.h"

#include <string.h>

#include "cli/options.h"

static const char help[] =
    "usage: dsmoe report DIR\n"
    "\n"
    "Makes DIR/report.html again from DIR/metrics.jsonl, which a run of 'dsmoe train' writes: loss,\n"
    "learning rate, gradient norm and speed over the steps, the load of each expert over time,\n"
    "routing by kind of text, samples and settings. The page is one file that needs no other and\n"
    "no network. A run keeps its page up to date. Use this command if a run was killed, or to get the\n"
    "page of an old run in the form of a newer dsmoe. Prints the path of the page.\n"
    "\n"
    "  -h, --help   this text\n"
    "\n"
    "example: look at a run that is training in another window\n"
    "  dsmoe report runs/first\n";

int command_report(int argc, char **argv)
{
    const char *folder = NULL;
    option_words words = {&folder, 1, 0};
    int exit_code = options_parse("report", help, NULL, 0, argc, argv, &words);
    if (exit_code >= 0) return exit_code;
    if (!folder)
        return cli_usage(
            "report",
            "no run: name the folder that dsmoe train wrote, as in dsmoe report runs/first");
    dsmoe_error error;
    if (dsmoe_report_run(folder, &error) != DSMOE_OK)
        return cli_failure("report", "%s", error.message);
    bool has_slash = folder[strlen(folder) - 1] == '/';
    printf("%s%sreport.html\n", folder, has_slash ? "" : "/");
    return CLI_OK;
}
