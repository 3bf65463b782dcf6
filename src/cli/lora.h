/* lora.h - adapters on the command line: --lora FILE[:SCALE], as often as there are some. */
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
} lora_list;

#define LORA_HELP                                                                                  \
    "      --lora FILE[:SCALE]  a LoRA adapter: a PEFT folder, a GGUF adapter or a training run\n" \
    "                           of one; may be given several times (scale: 1)\n"

/* The row of the option table; `list` must stay where it is. */
option_row lora_row(lora_list *list);
/* Opens what was given. On failure the message is printed and the exit code returned, else CLI_OK. */
int lora_open(const char *command, lora_list *list, const dsmoe_model *model);
/* After the engines that use them. */
void lora_close(lora_list *list);
/* What an engine is to be created with. */
void lora_use(const lora_list *list, dsmoe_engine_options *options);

#endif
