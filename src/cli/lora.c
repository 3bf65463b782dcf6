/* lora.c - adapters on the command line. */
#include "cli/lora.h"

#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/model_path.h"

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

int lora_open(const char *command, lora_list *list, const dsmoe_model *model)
{
    dsmoe_error error;
    char text[DSMOE_PATH];
    for (int i = 0; i < list->words.count; i++) {
        const char *path = text;
        model_path found;
        int code = split(command, list->texts[i], text, &list->scales[i]);
        if (code == CLI_OK) code = model_path_find(command, &path, &found);
        if (code != CLI_OK) return code;
        if (dsmoe_adapter_open(path, model, &list->adapters[i], &error) != DSMOE_OK)
            return cli_failure(command, "--lora %s", error.message);
        list->n++;
        if (!list->form) list->form = dsmoe_chat_form_recorded(path);
    }
    return CLI_OK;
}

const char *lora_form(const lora_list *list, const char *given)
{
    return given || !list->form ? given : dsmoe_chat_form_name(list->form);
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
