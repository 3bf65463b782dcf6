/* output.c - what a command may overwrite. */
#include "cli/output.h"

#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

const char *output_input(const char *path)
{
    return path && !strcmp(path, "-") ? "/dev/stdin" : path;
}

int output_check(const char *command, const dsmoe_output *output)
{
    dsmoe_error error;
    if (dsmoe_output_check(output, &error) == DSMOE_OK) return CLI_OK;
    return cli_failure(command, "%s", error.message);
}

int output_check_name(const char *command, const char *option, const char *path)
{
    if (strcmp(path, "-")) return CLI_OK;
    return cli_usage(
        command, "%s - does not mean standard output; for a file of that name write ./-", option);
}

int output_check_folder(const char *command, const char *path, const char *const *own, int n_own)
{
    dsmoe_error error;
    if (dsmoe_output_folder_check(path, own, n_own, &error) == DSMOE_OK) return CLI_OK;
    return cli_failure(command, "%s", error.message);
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The last part of an input's path if the input is in the folder, in memory to free(); otherwise NULL. */
static char *name_in(const char *folder, const char *input)
{
    char *above = strdup(input), *copy = strdup(input), *name = NULL;
    if (above && copy && *input && same_file(dirname(above), folder)) name = strdup(basename(copy));
    free(above);
    free(copy);
    return name;
}

int output_check_folder_with(const char *command, const char *path, const char *const *inputs,
                             int n_inputs)
{
    static const char *const tokenizer[] = {"tokenizer.json", "tokenizer_config.json",
                                            "chat_template.jinja"};
    enum { N_TOKENIZER = sizeof tokenizer / sizeof *tokenizer };
    const char **own = calloc((size_t)n_inputs + N_TOKENIZER, sizeof *own);
    if (!own) return cli_failure(command, "not enough memory");
    bool has_tokenizer = false; /* the folder itself may be given as a tokenizer */
    for (int i = 0; i < n_inputs; i++) {
        own[i] = inputs[i] ? name_in(path, inputs[i]) : NULL;
        has_tokenizer |= own[i] && !strcmp(own[i], tokenizer[0]);
        has_tokenizer |= inputs[i] && *inputs[i] && same_file(inputs[i], path);
    }
    for (int i = 0; has_tokenizer && i < N_TOKENIZER; i++) own[n_inputs + i] = tokenizer[i];
    int exit_code = output_check_folder(command, path, own, n_inputs + N_TOKENIZER);
    for (int i = 0; i < n_inputs; i++) free((char *)own[i]);
    free(own);
    return exit_code;
}
