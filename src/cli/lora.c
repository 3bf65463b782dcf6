/* lora.c - adapters on the command line. */
#include "cli/lora.h"

#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

option_row lora_row(lora_list *list)
{
    list->words = (option_words){list->texts, DSMOE_ADAPTERS_MAX, 0};
    return (option_row){"--lora", NULL, OPTION_PATH_LIST, &list->words, 0, 0};
}

/* "FILE:0.5" is split at its last colon, unless there is a file of that whole name. */
static int split(const char *command, const char *text, char path[DSMOE_PATH], double *scale)
{
    const char *colon = strrchr(text, ':');
    *scale = 1;
    size_t length = strlen(text);
    if (colon && access(text, F_OK) != 0) {
        if (!cli_parse_number(colon + 1, -1000, 1000, scale))
            return cli_usage(command, "--lora %s: the scale after the colon must be a number",
                             text);
        length = (size_t)(colon - text);
    }
    if (length == 0 || length >= DSMOE_PATH)
        return cli_usage(command, "--lora %s: no name of an adapter", text);
    memcpy(path, text, length);
    path[length] = '\0';
    return CLI_OK;
}

const char *lora_find(const char *path, char found[DSMOE_PATH])
{
    if (dsmoe_adapter_is(path)) return path;
    int n = snprintf(found, DSMOE_PATH, "%s/latest", path);
    return n < DSMOE_PATH && dsmoe_adapter_is(found) ? found : path;
}

int lora_open(const char *command, lora_list *list, const dsmoe_model *model)
{
    dsmoe_error error;
    char path[DSMOE_PATH], found[DSMOE_PATH];
    for (int i = 0; i < list->words.count; i++) {
        int code = split(command, list->texts[i], path, &list->scales[i]);
        if (code != CLI_OK) return code;
        if (dsmoe_adapter_open(lora_find(path, found), model, &list->adapters[i], &error) !=
            DSMOE_OK)
            return cli_failure(command, "--lora %s", error.message);
        list->n++;
    }
    return CLI_OK;
}

void lora_close(lora_list *list)
{
    for (int i = 0; i < list->n; i++) dsmoe_adapter_free(list->adapters[i]);
    list->n = 0;
}

void lora_use(const lora_list *list, dsmoe_engine_options *options)
{
    options->adapters = (const dsmoe_adapter *const *)list->adapters;
    options->adapter_scales = list->scales;
    options->n_adapters = list->n;
}
