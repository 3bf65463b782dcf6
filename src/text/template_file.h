/* template_file.h - chat_template.jinja, where newer folders keep the chat template. */
#ifndef DSMOE_TEXT_TEMPLATE_FILE_H
#define DSMOE_TEXT_TEMPLATE_FILE_H

#include "text/tokenizer.h"

#define TEMPLATE_FILE_NAME "chat_template.jinja"

/* Makes the text of a tokenizer_config.json with the template of the file at `path`. It replaces the config's
 * own template, as in public tools. The caller frees *text. It is NULL if the config is not a JSON object,
 * which its reader will report. */
dsmoe_status template_file_put(const char *path, const tokenizer_text *config, char **text,
                               size_t *length, dsmoe_error *error);

/* The same with a template in memory. */
dsmoe_status template_put(const tokenizer_text *config, const char *template, size_t size,
                          char **text, size_t *length, dsmoe_error *error);

#endif
