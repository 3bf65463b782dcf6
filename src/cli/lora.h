/* lora.h - adapters on the command line: --lora FILE[:SCALE], which may be given several times. */
#ifndef DSMOE_CLI_LORA_H
#define DSMOE_CLI_LORA_H

#include "cli/options.h"
#include "dsmoe.h"

typedef struct lora_list {
    const char *texts[DSMOE_ADAPTERS_MAX];
    option_words words; /* into texts */
    dsmoe_adapter *adapters[DSMOE_ADAPTERS_MAX];
    double scales[DSMOE_ADAPTERS_MAX];
    int n;
    const dsmoe_chat_form *form; /* of the first adapter that records one; NULL: none */
} lora_list;

#define LORA_HELP                                                                                  \
    "      --lora FILE[:SCALE]  a LoRA adapter: a PEFT folder, a GGUF adapter or a training run\n" \
    "                           that made one; may be given several times (scale: 1)\n"

/* The row of the option table; `list` must not move. */
option_row lora_row(lora_list *list);
/* Opens the given adapters. On failure the message is printed and the exit code returned, otherwise
 * CLI_OK. */
int lora_open(const char *command, lora_list *list, const dsmoe_model *model);
/* The name of the chat form to use: `given`, or that of the first adapter that records one; NULL: the model's
 * own. */
const char *lora_form(const lora_list *list, const char *given);
/* Called after the engines that use the adapters are freed. */
void lora_close(lora_list *list);
/* Adds the adapters to the options of an engine. */
void lora_use(const lora_list *list, dsmoe_engine_options *options);

#endif
